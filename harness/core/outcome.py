"""Outcome: how a process ended, and what was done to end it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; ``signal 40`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


USER_ASKED = "the user asked to stop"

_SENDERS = {signal.SIGTERM: "a scheduler, or kill", signal.SIGHUP: "a closed terminal"}
"""Who sends a signal that ends a command, beside the user at the keyboard."""


def asked_by(number: int | None) -> str:
    """Who asked to stop, by the signal that came: ``SIGTERM (a scheduler, or kill) asked to stop``; else the user."""
    if number in _SENDERS:
        return f"{signal_name(number)} ({_SENDERS[signal.Signals(number)]}) asked to stop"
    return USER_ASKED


class Ending(StrEnum):
    """The trial's process ... (as wait(2) tells, plus our own hand)."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    STOPPED_BY_US = "stopped by us"
    NEVER_STARTED = "never started"
    STILL_RUNNING = "still running"


class StopReason(StrEnum):
    """Why we ended it: which limit ran out, or what made waiting longer pointless."""

    STARTUP = "startup limit"
    STALL = "stall limit"
    TOTAL = "total limit"
    CERTAIN = "evidence already certain"
    PACE = "out of proportion to its own pace"
    INTERRUPT = "interrupted by the user"
    EXAMINED = "user, after a last look"


ASKED = frozenset({StopReason.INTERRUPT, StopReason.EXAMINED})
"""Ends that nothing about the trial has brought about; ``Outcome.why`` says who asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """What wait(2) said: an exit code, or the signal that ended the process; neither when nobody was left to ask."""

    code: int | None = None
    signal: int | None = None

    @property
    def words(self) -> str:
        """``signal 11``, ``exit code 1``; empty when neither is known."""
        if self.signal:
            return f"signal {self.signal}"
        return "" if self.code is None else f"exit code {self.code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """A process of the trial that is still there after everything was tried, and where in the kernel it waits."""

    pid: int
    state: str
    command: str
    waits_in: str = ""

    def __str__(self) -> str:
        """``PID 7 in state D (io_schedule): cp``."""
        where = f" ({self.waits_in})" if self.waits_in else ""
        return f"PID {self.pid} in state {self.state}{where}: {self.command}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    """Proof that the whole process tree is gone, or the list of what is not.

    ``signals`` are those we sent, as ``(seconds since start, signal name, number of processes)``; ``removed`` are files
    and folders that the ended processes had made in shared memory and in the temporary folder; ``kept`` are those that
    they used and changed there, but that are not shown to be theirs.
    """

    signals: tuple[tuple[float, str, int], ...] = ()
    ended: int = 0
    survivors: tuple[Survivor, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def gone(self) -> bool:
        """Whether nothing of the trial is left."""
        return not self.survivors


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the trial's main process ended, when, and whether anything is left of it."""

    ending: Ending
    exit: Exit | None = None
    stopped_by: StopReason | None = None
    duration_s: float = 0.0
    cleanup: Cleanup = Cleanup()
    why: str = ""
