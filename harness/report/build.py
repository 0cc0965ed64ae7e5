"""Build: a run becomes a Report, section by section. Reads the run directory, writes nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from harness.core.errors import StoreError
from harness.core.ports import Block
from harness.core.record import CampaignRun, Run
from harness.report.campaign import FIGURES as CAMPAIGN_FIGURES
from harness.report.campaign import SECTIONS as CAMPAIGN_SECTIONS
from harness.report.campaign.summary import summarise as summarise_campaign
from harness.report.figures import FIGURES
from harness.report.sections import SECTIONS
from harness.report.summary import Summary, summarise
from harness.report.text import md

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.report.figures.draw import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The one model that every form is rendered from: a run, its first screen, its sections and figures, in order."""

    run: Run | CampaignRun
    title: str
    summary: Summary
    blocks: tuple[tuple[str, Block], ...]
    figures: tuple[Figure, ...] = ()

    def figures_of(self, section: str) -> tuple[Figure, ...]:
        """The figures that belong to one section."""
        return tuple(figure for figure in self.figures if figure.section == section)


def build(run: Run | CampaignRun, run_dir: Path) -> Report:
    """The report of ``run``, whose evidence lies in ``run_dir``; also of a run that was cut off or is empty.

    A section whose evidence cannot be read says so in its place; the others are not affected.
    """
    sections = SECTIONS if isinstance(run, Run) else CAMPAIGN_SECTIONS
    blocks: list[tuple[str, Block]] = []
    for name in sections:
        try:
            block = sections.load(name)(run, run_dir)
        except StoreError as error:
            block = Block(title=name.replace("_", " ").capitalize(), markdown=f"Not readable: {md(error)}")
        if block is not None:
            blocks.append((name, block))
    summary = summarise(run, run_dir) if isinstance(run, Run) else summarise_campaign(run, run_dir)
    return Report(run=run, title=run.spec.question, summary=summary, blocks=tuple(blocks))


def with_figures(report: Report, run_dir: Path, *, hide: Callable[[str], str]) -> Report:
    """``report`` with its figures drawn; one whose evidence cannot be read is left out, its section says why."""
    if find_spec("matplotlib") is None:  # a machine without it still gets its report, and can draw it elsewhere
        note = "Figures were not drawn here: matplotlib is not installed."
        return replace(report, summary=replace(report.summary, notes=(*report.summary.notes, note)))
    table = FIGURES if isinstance(report.run, Run) else CAMPAIGN_FIGURES
    drawn: list[Figure] = []
    for name in table:
        figure: Figure | None = None
        with suppress(StoreError):
            figure = table.load(name)(report.run, run_dir, hide)
        drawn += [figure] if figure else []
    return replace(report, figures=tuple(drawn))
