"""Runs: where each of them is, and what it holds, read without a lock."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import DamagedError, NoOpenRunError, NoRunError, SeveralOpenError, StoreError
from harness.core.record import WHOLE
from harness.store import layout
from harness.store.archive import unpacked
from harness.store.history import History, read_identity
from harness.store.shelf import NOT_FINISHED, list_runs

if TYPE_CHECKING:
    from harness.core.invocation import Invocation
    from harness.core.record import Run
    from harness.store.history import Identity
    from harness.store.shelf import RunSummary


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


def find_to_resume(runs_dir: Path, asked: Invocation) -> Path:
    """The last run of the same command, file and program as ``asked`` that did not come to its end.

    Where there are several, one with all options of ``asked`` is meant.

    Raises:
        SeveralOpenError: an older one, which never ended, asks the same.
        NoOpenRunError: there is none.
    """
    rows = list_runs(runs_dir)
    candidates: list[tuple[RunSummary, Identity]] = []
    for row in rows:
        if not row.problem and row.ended not in WHOLE:
            identity = read_identity(row.directory)
            if _asks(identity, asked):
                candidates.append((row, identity))
    if not candidates:
        find_latest(runs_dir)  # there may be no run at all, or none that can be read
        none = f"no run in {runs_dir} that was begun by `{shlex.join(asked.argv)}` is unfinished; the last are:"
        raise NoOpenRunError("\n".join((none, *map(_with_command, rows[:MOST_NAMED]))))
    options = set(asked.options)
    alike = [row for row, begun in candidates if begun.invocation and options <= set(begun.invocation.options)]
    last, *older = alike or [row for row, _ in candidates]
    for row in older:
        if row.ended == NOT_FINISHED and row.question == last.question:
            raise SeveralOpenError(
                f"the last run in {runs_dir} is {last.directory.name} ({last.ended}); {row.directory.name} is older, "
                "asks the same and never ended: it was killed, or is still at work"
            )
    return last.directory


def _asks(identity: Identity, asked: Invocation) -> bool:
    """Whether a run was begun by the same command, on the file and the program that ``asked`` names, if any."""
    begun = identity.invocation
    if begun is None:  # of an older version, which wrote down the words alone
        return identity.argv[1 : 1 + len(asked.verb)] == asked.verb
    is_of_file = asked.operands in ((), begun.operands)
    return begun.verb == asked.verb and is_of_file and asked.command in ((), begun.command)


MOST_NAMED = 3
"""Runs that are named where none can be gone on with."""


def _with_command(row: RunSummary) -> str:
    command = "" if row.problem else shlex.join(read_identity(row.directory).argv)
    return f"  {row.directory.name}: {row.problem or f'{row.ended}, begun by `{command}`'}"


def find_run(runs_dir: Path, name: str | None) -> Path:
    """The directory of the run called ``name``: a path, a name below ``runs_dir``, or the last run (``latest``, None).

    Of a report with its evidence beside it (a bundle) that is its evidence, unpacked in a temporary folder.

    Raises:
        NoRunError: nothing has that name, or a file, or the last run is asked for and there is none.
        DamagedError: it is a bundle whose evidence cannot be unpacked.
    """
    if name is None or name == "latest":
        return find_latest(runs_dir)
    try:
        directory = Path(name) if Path(name).is_dir() else runs_dir / name
        if directory.is_file() or (Path(name).is_file() and not directory.exists()):
            raise NoRunError(f"{name} is a file, and a run is a folder, that of a matrix file too")
        if not directory.exists():
            raise NoRunError(f"there is no run {name}, neither from here nor in {runs_dir}")
        return unpacked(directory) if layout.archive(directory).is_file() else directory
    except OSError as error:
        raise NoRunError(f"{name!r} cannot be the name of a run: {error.strerror}") from error
