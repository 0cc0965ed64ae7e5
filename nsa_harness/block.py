"""A block of a program under guard: when it takes long, a process beside it looks whether it hangs, and says so.

The looking is done from outside, because nothing inside can be relied on while C code keeps the interpreter's lock.
Nothing is ended, signalled or slowed: what to do about a hang is the program's own, or its owner's.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from nsa_harness import beside
from nsa_harness.ask import HarnessError, watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from nsa_harness.ask import Watched

PR_SET_PTRACER, ANYBODY = 0x59616D61, ctypes.c_ulong(-1)

_inside: list[Guard] = []
"""The guards that are on in this process, innermost last."""


class Guard:
    """A guard that is on from ``with`` to the end of its block."""

    def __init__(self, *, after_s: float, runs: str | os.PathLike[str] | None) -> None:
        self.after_s = after_s
        if not after_s > 0.0:
            raise ValueError(f"after_s is how many seconds a block may take before it is looked at, not {after_s!r}")
        self.runs = None if runs is None else Path(runs).absolute()
        self._seen: tuple[Watched, ...] = ()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._pipe = -1

    @property
    def looks(self) -> tuple[Watched, ...]:
        """What was seen so far, oldest first."""
        if self._folder is not None:
            found = sorted(Path(self._folder.name).glob("look-*.json"))
            kept = [json.loads(path.read_text(encoding="utf-8")) for path in found]
            self._seen = tuple(watched(look["status"], look["said"]) for look in kept)
        return self._seen

    @property
    def hung(self) -> bool:
        """Whether any look saw a hang, even if the block went on after all."""
        return any(look.hangs for look in self.looks)

    def __enter__(self) -> Self:
        """Start the process beside this one.

        Raises:
            HarnessError: it cannot be started.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="nsa-guard-")
        ours, theirs = os.pipe()[::-1]
        _let_others_look()
        command = [sys.executable, "-P", beside.__file__, str(os.getpid()), self._folder.name, str(self.runs or "")]
        # It leaves our tree of processes at once: what works for the guard is no part of the job that is looked at.
        started = subprocess.run([*command, f"{self.after_s:g}"], stdin=theirs, check=False)
        os.close(theirs)
        if started.returncode:
            os.close(ours)
            raise HarnessError("the guard could not be started; what it said stands above")
        self._pipe = ours
        _inside.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the guard; the block's own exception goes on."""
        _inside.remove(self)
        os.close(self._pipe)
        self._seen = self.looks
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def wait(self, name: str, seconds: float) -> None:
        """Have nobody look for so many seconds, as ``name`` may take that long."""
        os.write(self._pipe, f"{json.dumps([name, seconds])}\n".encode())


def guard(*, after_s: float = 60.0, runs: str | os.PathLike[str] | None = None) -> Guard:
    """A context manager that looks at this process when its block has taken ``after_s`` seconds, and then ever less.

    A look takes about seven seconds of another core. A hang is told on standard error with its line, and has a report
    below ``runs`` (default: NSA_HARNESS_RUNS, or ``./runs``); what is slow is not mentioned. The next look is due when
    the block has taken twice as long.

    Raises:
        ValueError: ``after_s`` is not positive.
        HarnessError: at ``with``: the guard cannot be started.
    """
    return Guard(after_s=after_s, runs=runs)


@contextmanager
def expect_long(name: str, seconds: float) -> Iterator[None]:
    """Tell the guards around this block that it may take ``seconds``: nobody looks before that.

    Without a guard it does nothing. Under ``nsa-harness run`` say it with ``--stall`` instead.

    Raises:
        ValueError: ``seconds`` is negative.
    """
    if seconds < 0.0:
        raise ValueError(f"{name!r} cannot take {seconds!r} seconds")
    for one in _inside:
        one.wait(name, seconds)
    try:
        yield
    finally:
        for one in _inside:
            one.wait(name, 0.0)


def _let_others_look() -> None:
    """Where Yama lets nobody but a parent look into a process, let a process that is not our parent do so too."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ANYBODY, 0, 0, 0)
