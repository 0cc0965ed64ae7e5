"""Build: a run becomes a Report, section by section. Reads the run directory, writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from harness.core.errors import StoreError
from harness.core.ports import Block
from harness.report.apart import can_draw
from harness.report.findings import Findings
from harness.report.over_cells import summarise
from harness.report.sections import ALONG, OVER_CELLS, SECTIONS
from harness.report.summary import first
from harness.report.text import md

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.core.record import Run
    from harness.report.apart import Draw
    from harness.report.figures.draw import Figure
    from harness.report.summary import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The one model that every form is rendered from: what a run shows, its first screen, sections and figures.

    ``before`` is the report that it is compared with, if it is. ``wait`` gives the figures, which may still be being
    drawn.
    """

    findings: Findings
    title: str
    summary: Summary
    blocks: tuple[tuple[str, Block], ...]
    wait: Callable[[], tuple[Figure, ...]] = tuple
    before: Report | None = None

    @property
    def run(self) -> Run:
        """The run that it reports."""
        return self.findings.run

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every figure, once they are drawn."""
        return self.wait()

    def figures_of(self, section: str) -> tuple[Figure, ...]:
        """The figures that belong to one section."""
        return tuple(figure for figure in self.figures if figure.section == section)


def build(run: Run, run_dir: Path, *, draw: Draw | None = None, hide: Callable[[str], str] = str) -> Report:
    """The report of ``run``, whose evidence lies in ``run_dir``; also of a run that was cut off or is empty.

    What was derived is derived here, once: summary, sections and forms take it. A section whose evidence cannot be
    read says so in its place; the others are not affected. ``draw`` begins to draw its figures, of which every text
    goes through ``hide``; without it there are none.
    """
    findings = Findings(run=run, run_dir=run_dir)
    figures = draw(findings, hide) if draw else tuple
    summary = summarise(findings)
    blocks = [("answer", first(findings, summary))]
    for name in ALONG if findings.is_line else OVER_CELLS:
        try:
            block = SECTIONS.load(name)(findings)
        except StoreError as error:
            block = Block(title=name.replace("_", " ").capitalize(), markdown=f"Not readable: {md(error)}")
        if block is not None:
            blocks.append((name, block))
    if draw and not can_draw():
        note = "Figures were not drawn here: matplotlib is not installed."
        figures, summary = tuple, replace(summary, notes=(*summary.notes, note))
    title = run.spec.question
    return Report(findings=findings, title=title, summary=summary, blocks=tuple(blocks), wait=cache(figures))
