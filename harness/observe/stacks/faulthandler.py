"""Stacks by the worker's own faulthandler: the substitute when no other process may look inside.

It works without ptrace. A process in which nothing runs is asked at once: by a signal that faulthandler answers from C,
also while C++ waits or holds the GIL. One in which a thread runs is asked gently, by a signal that Python answers when
its main thread next runs Python: from C that can crash it (ADR 18). A signal ends some system calls early and so can
wake the process that is looked at; that is why this comes last and says so.
"""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.clock import WallClock
from harness.core.codec import from_json
from harness.core.errors import JournalError
from harness.core.evidence import Position, SourceFailure, StackSample
from harness.core.outcome import signal_name
from harness.observe.proc import Proc
from harness.observe.stacks.dumper import cut_off_by_a_stop, gone, in_a_write
from harness.observe.stacks.parse import parse_faulthandler
from harness.reading.awaits import EventLoop, event_loop
from harness.reading.loops import Variables
from harness.reading.waits import ASKED_BY, is_ended_by_a_signal
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.core.ports import Clock

ANSWER_S = 3.0
"""How long a process may take to answer: on a busy machine its main thread waits for a core."""

_LOOK_EVERY_S = 0.02
PAIRS = (ASKED_BY, (signal.SIGUSR1, signal.SIGUSR2))
"""The signals that ask gently, and at once: those of programs that carry the shim, and those of our own trainer."""

_GENTLE = " (a thread of it runs, so it was asked for when its main thread next runs Python)"
_ENDS = re.compile(r"(^  File .* in (<module>|_run_module_as_main)|^ *\.\.\.)\n\Z", re.MULTILINE)
"""The outermost frame of the main thread, which comes last, or the dots for what was left out."""


INSIDE = "inside "
"""How the line of the shim begins that says where its loops are, and what they compute with (``show_stacks`` there)."""

NOTHING: dict[str, Any] = {"positions": (), "values": (), "loop": ((), (), 0)}

_FIELDS = ("function", "file", "line", "name", "place", "of", "outer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What a process says of its own main thread: where its loops are, and the variables of its innermost frames.

    ``ran`` says that it answered at all: its main thread ran Python. ``loop`` is what stands in its event loop.
    """

    ran: bool = False
    positions: tuple[Position, ...] = ()
    variables: tuple[Variables, ...] = ()
    loop: EventLoop = field(default_factory=EventLoop)


class Faulthandler:
    """Asks the worker by a signal and reads what it appended to its file. Python frames only."""

    name = "faulthandler"

    def __init__(self, *, proc: Proc | None = None, clock: Clock | None = None, limit_s: float = ANSWER_S) -> None:
        self._proc = proc or Proc()
        self._clock = clock or WallClock()
        self._limit_s = limit_s

    def sample(
        self, *, pid: int, rank: int, t_s: float, native: bool, number: int, trial_dir: Path
    ) -> StackSample | SourceFailure:
        """The Python stacks of all threads, as the process itself printed them."""
        path = layout.faulthandler(trial_dir, rank)
        asks_by, why_not, text = 0, "", ""
        for asks_by in self._gentle_first(pid):
            why_not = self._why_not(pid, asks_by, path=path, native=native)
            text = "" if why_not else self._ask(pid, asks_by, path=path, limit_s=self._limit_s)
            if text or why_not:
                break
        try:
            threads = parse_faulthandler(text, pid=pid)
        except ValueError:
            sentence = f"{signal_name(asks_by)} was sent, and nothing was printed within {self._limit_s:g} s"
            reason = why_not or sentence + (_GENTLE if asks_by == self._pair(pid)[0] else "")
            return SourceFailure(id=f"failure-{number}-{self.name}", source=self.name, reason=reason)
        return StackSample(
            id=f"stack-{number}",
            source=f"{self.name} ({signal_name(asks_by)} was sent)",
            native=False,
            t_s=t_s,
            rank=rank,
            pid=pid,
            threads=threads,
        )

    def inside(
        self, *, pid: int, rank: int, trial_dir: Path, limit_s: float = ANSWER_S, asleep: bool = False
    ) -> Inside:
        """What the process says of its main thread, between two of its instructions, within ``limit_s``.

        Empty where it carries no shim, or does not run Python at this moment: it is asked by a signal, which would end
        a wait early. Where ``asleep`` says that the wait is one which Python itself takes up again, it is asked anyway.
        """
        path = layout.faulthandler(trial_dir, rank)
        gently, _ = self._pair(pid)
        runs = self._proc.state(pid) == "R"
        if not (runs or asleep) or self._why_not(pid, gently, path=path, native=False):
            return Inside()
        text = self._ask(pid, gently, path=path, limit_s=limit_s)
        lines = [line for line in text.splitlines() if line.startswith(INSIDE)]
        try:
            mark = json.loads(lines[-1].removeprefix(INSIDE)) if lines else NOTHING
            return Inside(
                ran=runs and bool(text),
                positions=tuple(from_json(Position, dict(zip(_FIELDS, row, strict=True))) for row in mark["positions"]),
                variables=tuple(Variables(*row) for row in mark["values"]),
                loop=event_loop(*mark["loop"]),
            )
        except (ValueError, TypeError, KeyError, JournalError):
            return Inside(ran=runs and bool(text))

    def _pair(self, pid: int) -> tuple[int, int]:
        """The signals by which this process can be asked, gently and at once."""
        handled = self._proc.signals(f"{pid}", "SigCgt")
        for pair in PAIRS:
            if pair[0] in handled:
                return pair
        return PAIRS[-1]

    def _gentle_first(self, pid: int) -> Iterator[int]:
        """Gently while something runs; at once if nothing does, be it after no answer to the first."""
        gently, at_once = self._pair(pid)
        runs = "R" in self._proc.states(pid)
        if runs:
            yield gently
        if not runs or "R" not in self._proc.states(pid):
            yield at_once

    def _why_not(self, pid: int, asks_by: int, *, path: Path, native: bool) -> str:
        if native:
            return "it shows Python frames only"
        if why := gone(pid, proc=self._proc):
            return why
        if ended := in_a_write(pid, proc=self._proc) or cut_off_by_a_stop(pid, proc=self._proc):
            return ended
        if any(map(is_ended_by_a_signal, self._proc.kernel_functions(pid))):
            return "a thread waits for a signal, and any would end that"
        if asks_by not in self._proc.signals(f"{pid}", "SigCgt"):
            return f"the process has no handler for {signal_name(asks_by)}, which would end it"
        if asks_by in self._proc.signals(f"{pid}", "SigBlk"):
            return f"the process blocks {signal_name(asks_by)}"
        if (state := self._proc.states(pid)[:1]) in set("DTt"):
            return f"the process is in state {state} and cannot take a signal"
        return "" if self._proc.has_open(pid, path.name) else f"the process did not open {path.name}, or has closed it"

    def _ask(self, pid: int, asks_by: int, *, path: Path, limit_s: float) -> str:
        """What is appended to ``path`` after the signal, once it stopped growing where a dump ends.

        It is written line by line: on a busy machine the process may rest between two of them for as long as we do.
        """
        offset = path.stat().st_size
        try:
            os.kill(pid, asks_by)
        except ProcessLookupError:
            return ""
        until = self._clock.now() + limit_s
        text = ""
        while self._clock.now() < until:
            self._clock.sleep(_LOOK_EVERY_S)
            before, text = text, path.read_bytes()[offset:].decode(errors="replace")
            if text == before and _ENDS.search(text):
                break
        return text
