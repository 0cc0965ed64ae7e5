"""A block of a program under guard: when it takes long, a process beside it looks whether it hangs, and says so.

The looking is done from outside, because nothing inside can be relied on while C code keeps the interpreter's lock.
Nothing is ended, signalled or slowed: what to do about a hang is the program's own, or its owner's.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Self

from nsa_harness import beside
from nsa_harness.ask import HarnessError, UsageError, watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from nsa_harness.ask import Watched

PR_SET_PTRACER, ANYBODY = 0x59616D61, ctypes.c_ulong(-1)

SEND_S = 5.0
"""A process beside that takes no message for so long is lost: a block is not kept waiting for it."""

LOST = (
    "nsa-harness: the process that looks at guarded blocks has ended: nobody looks at those that are on; "
    "the next guard starts another"
)

_around: ContextVar[tuple[Guard, ...]] = ContextVar("_around", default=())
"""The guards around what a thread, or a task, runs: innermost last."""

_numbers = itertools.count()


class Guard:
    """A guard that is on from ``with`` to the end of its block."""

    def __init__(self, *, after_s: float, runs: str | os.PathLike[str] | None) -> None:
        if not (_is_number(after_s) and after_s > 0.0):
            raise UsageError(f"after_s is how many seconds a block may take before it is looked at, not {after_s!r}")
        self.after_s = float(after_s)
        self.runs = None if runs is None else Path(runs).absolute()
        self._seen: tuple[Watched, ...] = ()
        self._number = -1
        self._line: _Line | None = None
        self._expected: list[float] = []

    @property
    def looks(self) -> tuple[Watched, ...]:
        """What was seen so far, oldest first; without a look whose report is no longer there."""
        if self._line is not None:
            self._seen = _read(self._files(self._line))
        return self._seen

    @property
    def hung(self) -> bool:
        """Whether any look saw a hang, even if the block went on after all."""
        return any(look.hangs for look in self.looks)

    def __enter__(self) -> Self:
        """Have the process beside this one, which the first guard starts, look at this block when it takes long.

        Raises:
            HarnessError: it cannot be started.
        """
        self._number = next(_numbers)
        self._line = _begin(self._number, self.after_s, str(self.runs or ""), _here())
        _around.set((*_around.get(), self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the guard; the block's own exception goes on. A forked child that leaves the block ends nothing."""
        _around.set(tuple(one for one in _around.get() if one is not self))
        line, self._line = self._line, None
        if line is None or not line.is_ours:
            return
        line.say("end", self._number)
        files = self._files(line)
        self._seen = _read(files)
        for file in files:
            with suppress(OSError):
                file.unlink()

    def expect(self, until_s: float) -> None:
        """Have nobody look until then, on the monotonic clock."""
        self._expected.append(until_s)
        self._wait()

    def expected(self, until_s: float) -> None:
        """What was expected to take until then is over; what else is still expected to take long is not."""
        self._expected.remove(until_s)
        self._wait()

    def _wait(self) -> None:
        if self._line is not None:
            self._line.say("wait", self._number, max(self._expected, default=0.0))

    def _files(self, line: _Line) -> list[Path]:
        return sorted(line.folder.glob(f"look-{self._number}-*.json"))


class _Line:
    """The line to the process beside this one: as long as it is open, that one looks."""

    def __init__(self) -> None:
        """Start that process.

        Raises:
            HarnessError: it cannot be started.
        """
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="nsa-guard-"))
            self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._ours.settimeout(SEND_S)
            command = [sys.executable, "-P", beside.__file__, str(os.getpid()), str(self.folder)]
            # It leaves our tree of processes at once: what works for the guard is no part of the job that is looked at.
            with theirs:
                started = subprocess.run(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, check=False)
        except OSError as error:
            raise HarnessError(f"the guard could not be started: {error}") from error
        if started.returncode:
            self._ours.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise HarnessError("the guard could not be started; what it said stands above")
        self.is_ours = True
        _let_others_look()

    def say(self, *message: object) -> bool:
        """Send a message, and whether it was sent: nothing that happens to the other end is the block's business."""
        if not self.is_ours:
            return False
        try:
            self._ours.send(json.dumps(message).encode(), socket.MSG_NOSIGNAL)
        except OSError:
            with suppress(OSError):
                self._ours.shutdown(socket.SHUT_RDWR)
            _warn(LOST)
            return False
        return True

    def leave(self) -> None:
        """Close the line: at the end of this process, or in a forked child, whose parent goes on with it."""
        self.is_ours = False
        self._ours.close()


class _Process:
    """What a process has one of: the line, and who may start it."""

    line: _Line | None = None
    starts = threading.RLock()

    @classmethod
    def leave(cls) -> None:
        """At its end, or in a forked child, of which none of it is."""
        if cls.line is not None:
            cls.line.leave()
        cls.line, cls.starts = None, threading.RLock()


os.register_at_fork(after_in_child=_Process.leave)
atexit.register(_Process.leave)


def guard(*, after_s: float = 60.0, runs: str | os.PathLike[str] | None = None) -> Guard:
    """A context manager that looks at this process when its block has taken ``after_s`` seconds, and then ever less.

    A look takes about seven seconds of another core. A hang is told on standard error with its line, and has a report
    below ``runs`` (default: NSA_HARNESS_RUNS, or ``./runs``); what is slow is not mentioned. The next look is due when
    the block has taken twice as long.

    Raises:
        UsageError: ``after_s`` is not a positive number.
        HarnessError: at the first ``with``: the guard cannot be started.
    """
    return Guard(after_s=after_s, runs=runs)


@contextmanager
def expect_long(name: str, seconds: float) -> Iterator[None]:
    """Tell the guards around this block that it may take ``seconds``: nobody looks before that.

    They are the guards that this thread, or task, has entered. Without one it does nothing. Under ``nsa-harness run``
    say it with ``--stall`` instead.

    Raises:
        UsageError: ``seconds`` is no number, or negative.
    """
    if not (_is_number(seconds) and seconds >= 0.0):
        raise UsageError(f"{name!r} cannot take {seconds!r} seconds")
    guards, until_s = _around.get(), time.monotonic() + float(seconds)
    for one in guards:
        one.expect(until_s)
    try:
        yield
    finally:
        for one in guards:
            one.expected(until_s)


def _begin(*block: object) -> _Line:
    """The line on which it was said that a block begins; a process beside that was lost is started again."""
    with _Process.starts:
        if _Process.line is None:
            _Process.line = _Line()
        if not _Process.line.say("begin", *block):
            try:
                _Process.line = _Line()
            except HarnessError as error:  # the program has run for long meanwhile: a guard is no reason to end it
                _warn(f"nsa-harness: {error}")
            _Process.line.say("begin", *block)
        return _Process.line


def _read(files: list[Path]) -> tuple[Watched, ...]:
    looks: list[Watched] = []
    for file in files:
        with suppress(OSError, ValueError):
            look = json.loads(file.read_text(encoding="utf-8"))
            looks.append(watched(look["status"], look["said"]))
    return tuple(looks)


def _here() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was deleted
        return "/"


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not math.isnan(value)


@cache
def _warn(text: str) -> None:
    """Say something on standard error, once, if that can be written to."""
    with suppress(Exception):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _let_others_look() -> None:
    """Where Yama lets nobody but a parent look into a process, let a process that is not our parent do so too."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ANYBODY, 0, 0, 0)
