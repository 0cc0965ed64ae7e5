"""Stacks by the worker's own faulthandler: the substitute when no other process may look inside.

It works without ptrace. A process in which nothing runs is asked by SIGUSR2, which faulthandler answers from C, also
while C++ waits or holds the GIL. One in which a thread runs is asked by SIGUSR1, which Python answers when its main
thread next runs Python: from C that can crash it (ADR 18). A signal ends some system calls early and so can wake the
process that is looked at; that is why this comes last and says so.
"""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

from harness.clock import WallClock
from harness.core.evidence import SourceFailure, StackSample
from harness.observe.proc import Proc
from harness.observe.stacks.dumper import gone
from harness.observe.stacks.parse import parse_faulthandler
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.core.ports import Clock

_ANSWER_LIMIT_S = 3.0
_LOOK_EVERY_S = 0.02
_WHERE = {
    signal.SIGUSR1: " (a thread of it runs, so it was asked for when its main thread next runs Python)",
    signal.SIGUSR2: "",
}
_ENDS = re.compile(r"(^  File .* in (<module>|_run_module_as_main)|^ *\.\.\.)\n\Z", re.MULTILINE)
"""The outermost frame of the main thread, which comes last, or the dots for what was left out."""


class Faulthandler:
    """Asks the worker by SIGUSR1 and reads what it appended to its file. Python frames only."""

    name = "faulthandler"

    def __init__(
        self, *, proc: Proc | None = None, clock: Clock | None = None, limit_s: float = _ANSWER_LIMIT_S
    ) -> None:
        self._proc = proc or Proc()
        self._clock = clock or WallClock()
        self._limit_s = limit_s

    def sample(
        self, *, pid: int, rank: int, t_s: float, native: bool, number: int, trial_dir: Path
    ) -> StackSample | SourceFailure:
        """The Python stacks of all threads, as the process itself printed them."""
        path = layout.faulthandler(trial_dir, rank)
        asks_by, why_not, text = signal.SIGUSR1, "", ""
        for asks_by in self._gentle_first(pid):
            why_not = self._why_not(pid, asks_by, path=path, native=native)
            text = "" if why_not else self._ask(pid, asks_by, path=path)
            if text or why_not:
                break
        try:
            threads = parse_faulthandler(text, pid=pid)
        except ValueError:
            sent = f"{asks_by.name} was sent, and nothing was printed within {self._limit_s:g} s"
            reason = why_not or sent + _WHERE[asks_by]
            return SourceFailure(id=f"failure-{number}-{self.name}", source=self.name, reason=reason)
        return StackSample(
            id=f"stack-{number}",
            source=f"{self.name} ({asks_by.name} was sent)",
            native=False,
            t_s=t_s,
            rank=rank,
            pid=pid,
            threads=threads,
        )

    def _gentle_first(self, pid: int) -> Iterator[signal.Signals]:
        """By SIGUSR1 while something runs; by SIGUSR2 if nothing does, at once or after no answer to the first."""
        runs = "R" in self._proc.states(pid)
        if runs:
            yield signal.SIGUSR1
        if not runs or "R" not in self._proc.states(pid):
            yield signal.SIGUSR2

    def _why_not(self, pid: int, asks_by: signal.Signals, *, path: Path, native: bool) -> str:
        if native:
            return "it shows Python frames only"
        if why := gone(pid, proc=self._proc):
            return why
        bit = 1 << (asks_by - 1)
        if not self._proc.signal_mask(pid, "SigCgt") & bit:
            return f"the process has no handler for {asks_by.name}, which would end it"
        if self._proc.signal_mask(pid, "SigBlk") & bit:
            return f"the process blocks {asks_by.name}"
        if (state := self._proc.states(pid)[:1]) in set("DTt"):
            return f"the process is in state {state} and cannot take a signal"
        return "" if path.exists() else f"the process did not open {path.name}"

    def _ask(self, pid: int, asks_by: signal.Signals, *, path: Path) -> str:
        """What is appended to ``path`` after the signal, once it stopped growing where a dump ends.

        It is written line by line: on a busy machine the process may rest between two of them for as long as we do.
        """
        seen = path.stat().st_size
        try:
            os.kill(pid, asks_by)
        except ProcessLookupError:
            return ""
        until = self._clock.now() + self._limit_s
        text = ""
        while self._clock.now() < until:
            self._clock.sleep(_LOOK_EVERY_S)
            before, text = text, path.read_bytes()[seen:].decode(errors="replace")
            if text == before and _ENDS.search(text):
                break
        return text
