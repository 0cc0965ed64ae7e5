"""Write: a run's report beside its journal, in every form that lies there, and each form as text for a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from harness.report.apart import here
from harness.report.build import build
from harness.report.forms import FORMS
from harness.report.hide import Hider
from harness.report.render import html, markdown, terminal
from harness.report.render import json as json_form
from harness.report.sections.earlier import claims_of
from harness.store import layout
from harness.store.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.record import Run
    from harness.report.apart import Draw
    from harness.report.build import Report


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
