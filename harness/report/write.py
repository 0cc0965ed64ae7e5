"""Write: a run becomes a Report, section by section; it lies beside its journal in every form, each as text."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import StoreError
from harness.core.ports import Block
from harness.report.apart import can_draw, here
from harness.report.findings import Findings
from harness.report.hide import Hider
from harness.report.over_cells import summarise
from harness.report.render import FORMS, html, markdown, terminal
from harness.report.render import json as json_form
from harness.report.sections import ALONG, OVER_CELLS, SECTIONS
from harness.report.sections.earlier import claims_of
from harness.report.summary import first
from harness.report.text import md
from harness.store import layout
from harness.store.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


def write(run: Run, run_dir: Path, *, hide: Iterable[str] | None = None) -> Path:
    """Write the report of ``run`` into ``run_dir``; the path of the Markdown. See :func:`publish`.

    Of an interrupted run it has no figures: somebody waits for the command to end. ``nsa-harness report`` draws them.
    """
    publish(run, run_dir, hide=hide, draw=None if run.ended == "interrupted" else here)
    return layout.report(run_dir)


def publish(
    run: Run,
    run_dir: Path,
    *,
    hide: Iterable[str] | None = None,
    template: Path | None = None,
    draw: Draw | None = here,
) -> Report:
    """Write the report of ``run`` into ``run_dir``, and give it for other forms.

    That is ``report.md`` with its ``figures``, ``report.html`` that holds them, ``report.json``, and what later
    reports compare with their own, ``report.claims.json``.

    Args:
        run: what to report.
        run_dir: where its evidence lies, and where the report goes.
        hide: names of hosts and users that must not appear; None means those of this machine.
        template: a Jinja2 file that lays out ``report.html`` instead of ours.
        draw: what draws the figures, here or apart; None leaves them out.

    Raises:
        StoreError: the report cannot be written.
        SpecError: the template is wrong.
    """
    hider = hider_of(hide)
    report = build(run, run_dir, draw=draw, hide=hider.text)
    document = json_form.begin(report, hide=hider.text)  # while the figures are drawn
    page = html.render(report, hide=hider.text, template=template)
    folder = layout.figures(run_dir)
    for figure in report.figures:
        write_atomic(folder / f"{figure.name}.svg", figure.file)
    write_atomic(layout.report(run_dir), markdown.render(report, hide=hider.text, figures=folder.name))
    write_atomic(layout.report(run_dir, "html"), page)
    write_atomic(layout.report(run_dir, "json"), json_form.render(report, hide=hider.text, begun=document))
    claims = json.dumps(hider.data(claims_of(report.findings)), indent=1, ensure_ascii=False)
    write_atomic(layout.report(run_dir, "claims.json"), f"{claims}\n")
    return report


def form(
    run: Run,
    run_dir: Path,
    name: str,
    *,
    hide: Iterable[str] | None = None,
    template: Path | None = None,
    report: Report | None = None,
) -> str:
    """The report of ``run`` in one of FORMS, as text; nothing is written. ``report`` is the same, published before."""
    hider = hider_of(hide)
    if name == "html" or template is not None:  # the one form that shows figures, and so needs them drawn
        report = report or build(run, run_dir, draw=here, hide=hider.text)
        return html.render(report, hide=hider.text, template=template)
    return FORMS.load(name)(report or build(run, run_dir), hide=hider.text)


def summary_text(run: Run) -> str:
    """The end of a command on a terminal: answer, report path, command to reproduce. At most 80 columns."""
    folder = Path(run.directory)
    return terminal.text(build(run, folder), layout.report(folder))


def hider_of(hide: Iterable[str] | None) -> Hider:
    """What hides ``hide``, or the names of this machine and its users when that is None."""
    from harness.settings import identities, surroundings
    from harness.store.redact import secrets

    return Hider(tuple(identities() if hide is None else hide), secrets=secrets(surroundings()))


def compared(before_dir: Path, after_dir: Path, name: str, *, hide: Iterable[str] | None = None) -> str:
    """What changed from the run in ``before_dir`` to that in ``after_dir``, in one of FORMS."""
    from harness.report.compare import compare
    from harness.store.run_store import read_run

    report = compare(read_run(before_dir), read_run(after_dir), after_dir, before_dir=before_dir)
    return FORMS.load("md" if name == "terminal" else name)(report, hide=hider_of(hide).text)
