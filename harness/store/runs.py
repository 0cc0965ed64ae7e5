"""Runs: where each of them is, and what it holds, read without a lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import DamagedError, NoRunError, SeveralOpenError, StoreError
from harness.store import layout
from harness.store.archive import unpacked
from harness.store.history import History
from harness.store.shelf import NOT_FINISHED, list_runs

if TYPE_CHECKING:
    from harness.core.record import Run


def read_run(run_dir: Path) -> Run:
    """The run in ``run_dir`` for a report; needs no lock and changes nothing."""
    return History.read(run_dir).run()


def find_latest(runs_dir: Path) -> Path:
    """The run that was begun last.

    Raises:
        StoreError: there is none.
    """
    runs = list_runs(runs_dir)
    problems: list[str] = []
    for row in runs:
        try:
            if not row.problem:
                History.read(row.directory)
                return row.directory
            problems.append(row.problem)
        except StoreError as error:
            problems.append(str(error))
    if runs:
        raise DamagedError(f"none of the {len(runs)} runs in {runs_dir} can be read: {problems[0]}")
    raise NoRunError(f"no run in {runs_dir}. Begin one with: nsa-harness bisect --axis n_layers")


def find_to_resume(runs_dir: Path, name: str) -> Path:
    """The run called ``name``, as :func:`find_run` has it; the last one only where no older one may be meant.

    Raises:
        SeveralOpenError: the last run is asked for, and an older one that asks the same was never ended.
        NoRunError: there is none.
    """
    run_dir = find_run(runs_dir, name)
    if name == "latest":
        rows = {row.directory: row for row in list_runs(runs_dir)}
        last = rows.pop(run_dir)
        for row in rows.values():
            if row.ended == NOT_FINISHED and row.question == last.question:
                raise SeveralOpenError(
                    f"the last run in {runs_dir} is {run_dir.name} ({last.ended}); {row.directory.name} is older, asks "
                    "the same and never ended: it was killed, or is still at work"
                )
    return run_dir


def find_run(runs_dir: Path, name: str | None) -> Path:
    """The directory of the run called ``name``: a path, a name below ``runs_dir``, or the last run (``latest``, None).

    Of a report with its evidence beside it (a bundle) that is its evidence, unpacked in a temporary folder.

    Raises:
        NoRunError: nothing can have that name, or the last run is asked for and there is none.
        DamagedError: it is a bundle whose evidence cannot be unpacked.
    """
    if name is None or name == "latest":
        return find_latest(runs_dir)
    try:
        directory = Path(name) if Path(name).is_dir() else runs_dir / name
        return unpacked(directory) if layout.archive(directory).is_file() else directory
    except OSError as error:
        raise NoRunError(f"{name!r} cannot be the name of a run: {error.strerror}") from error
