"""Write: a run's report beside its journal, and the short forms for a terminal and for scripts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.report.build import build
from harness.report.hide import Hider
from harness.report.render import json, markdown, terminal
from harness.store import layout
from harness.store.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.record import Run


def write(run: Run, run_dir: Path, *, hide: Iterable[str] | None = None) -> Path:
    """Write ``report.md`` and ``report.json`` into ``run_dir``; the path of the Markdown.

    Args:
        run: what to report.
        run_dir: where its evidence lies, and where the report goes.
        hide: names of hosts and users that must not appear; None means those of this machine.

    Raises:
        StoreError: the report cannot be written.
    """
    report, hider = build(run, run_dir), _hider(hide)
    path = layout.report(run_dir)
    write_atomic(path, hider.text(markdown.render(report)))
    write_atomic(layout.report(run_dir, "json"), json.dump(hider.data(json.data(report))))
    return path


def summary_text(run: Run) -> str:
    """The end of a command on a terminal: answer, strip, report path, command to reproduce. At most 80 columns."""
    return terminal.text(run, layout.report(Path(run.directory)))


def summary_json(run: Run, *, hide: Iterable[str] | None = None) -> str:
    """The whole report as one JSON document."""
    report = build(run, Path(run.directory))
    return json.dump(_hider(hide).data(json.data(report)))


def _hider(hide: Iterable[str] | None) -> Hider:
    if hide is None:
        from harness.settings import identities

        hide = identities()
    return Hider(tuple(hide))
