"""For which signals Python has handlers in a rank, as its shim writes down: the kernel tells only that there is one.

LLVM, which triton and numba bring along, handles SIGHUP, SIGTERM, SIGUSR1 and SIGUSR2 to remove its files; so do OpenCL
and MPI for reasons of their own. None of that lets on a program which waits, and a handler in Python may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.observe.procfs import Files
from harness.store import layout

if TYPE_CHECKING:
    from pathlib import Path


def by_python(pid: int, trial_dir: Path, *, files: Files | None = None) -> frozenset[int] | None:
    """The numbers of these signals; None of a process that has not written them down."""
    files = files or Files()
    stat = files.stat(f"{pid}")
    try:
        began, *numbers = layout.handlers(trial_dir, files.inner(f"{pid}")).read_text(encoding="ascii").split()
        return frozenset(map(int, numbers)) if stat is not None and began == stat[19] else None
    except (OSError, ValueError):
        return None
