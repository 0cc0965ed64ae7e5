"""What a process's shim writes down beside its marks: its handlers in Python, an alarm, children that did not end well.

Of handlers the kernel tells only that there is one. LLVM, which triton and numba bring along, handles SIGHUP, SIGTERM,
SIGUSR1 and SIGUSR2 to remove its files; so do OpenCL and MPI for reasons of their own. None of that lets on a program
which waits, and a handler in Python may.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from harness.observe.procfs import Files
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_HIDES_THE_SHIM = frozenset("IES")
_BEHIND_OPTIONS = ("-c", "-m", "-X", "-W")
_FOLDER = "/harness/shim"
"""How the shim's folder ends, wherever it lies, in the PYTHONPATH of a program."""


def by_python(pid: int, trial_dir: Path, *, files: Files | None = None) -> frozenset[int] | None:
    """The numbers of these signals; None of a process that has not written them down."""
    numbers = _written(layout.handlers, pid, trial_dir, files or Files())
    return None if numbers is None else frozenset(numbers)


def by_the_program(pid: int, trial_dir: Path) -> frozenset[int]:
    """Those of the program's own code, and of no library: of any signal, as the program may wait for just that one."""
    return frozenset(_written(layout.own_handlers, pid, trial_dir, Files()) or ())


def may_speak(pid: int, files: Files | None = None) -> bool:
    """Whether a Python process carries the shim: by the environment and the options with which it began.

    ``-I``, ``-E`` and ``-S`` hide the shim from it, and so does an environment without its folder (``env -i``). What is
    forked without a program of its own has both from its parent, and the shim as well.
    """
    files = files or Files()
    for option in files.parts(f"{pid}/cmdline")[1:]:
        if not option.startswith("-") or option.startswith(_BEHIND_OPTIONS):
            break
        if not option.startswith("--") and _HIDES_THE_SHIM.intersection(option):
            return False
    for entry in files.parts(f"{pid}/environ"):
        name, _, value = entry.partition("=")
        if name == "PYTHONPATH":
            return any(folder.endswith(_FOLDER) for folder in value.split(os.pathsep))
    return False


def began_with_an_alarm(pid: int, trial_dir: Path) -> bool:
    """Whether an alarm was set when its program began: by what the process was before it called ``exec``."""
    return _written(layout.armed, pid, trial_dir, Files()) is not None


def ended_children(pid: int, trial_dir: Path) -> tuple[tuple[int, int], ...]:
    """Its processes of multiprocessing that a signal or an error ended, each with its exit code."""
    numbers = _written(layout.ended_children, pid, trial_dir, Files()) or ()
    return tuple(zip(numbers[::2], numbers[1::2], strict=False))


def _written(path: Callable[[Path, int], Path], pid: int, trial_dir: Path, files: Files) -> tuple[int, ...] | None:
    """The numbers that this process wrote into a file of its own; None where it wrote none."""
    stat = files.stat(f"{pid}")
    try:
        began, *numbers = path(trial_dir, files.inner(f"{pid}")).read_text(encoding="ascii").split()
        return tuple(map(int, numbers)) if stat is not None and began == stat[19] else None
    except (OSError, ValueError):
        return None
