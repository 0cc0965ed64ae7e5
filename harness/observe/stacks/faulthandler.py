"""Stacks by the worker's own faulthandler: the substitute when no other process may look inside.

It works without ptrace, with the GIL held and while C++ runs. It sends SIGUSR1, which ends some system calls early
and so can wake the process it looks at; that is why it comes last and says so.
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
    from pathlib import Path

    from harness.core.ports import Clock

_ANSWER_LIMIT_S = 3.0
_LOOK_EVERY_S = 0.02
_BIT = 1 << (signal.SIGUSR1 - 1)
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
        why_not = self._why_not(pid, path=path, native=native)
        text = "" if why_not else self._ask(pid, path=path)
        try:
            threads = parse_faulthandler(text, pid=pid)
        except ValueError:
            reason = why_not or f"SIGUSR1 was sent, and nothing was printed within {self._limit_s:g} s"
            return SourceFailure(id=f"failure-{number}-{self.name}", source=self.name, reason=reason)
        return StackSample(
            id=f"stack-{number}",
            source=f"{self.name} (SIGUSR1 was sent)",
            native=False,
            t_s=t_s,
            rank=rank,
            pid=pid,
            threads=threads,
        )

    def _why_not(self, pid: int, *, path: Path, native: bool) -> str:
        if native:
            return "it shows Python frames only"
        if why := gone(pid, proc=self._proc):
            return why
        if not self._proc.signal_mask(pid, "SigCgt") & _BIT:
            return "the process has no handler for SIGUSR1, which would end it"
        if self._proc.signal_mask(pid, "SigBlk") & _BIT:
            return "the process blocks SIGUSR1"
        if (state := self._proc.states(pid)[:1]) in set("DTt"):
            return f"the process is in state {state} and cannot take a signal"
        return "" if path.exists() else f"the process did not open {path.name}"

    def _ask(self, pid: int, *, path: Path) -> str:
        """What is appended to ``path`` after the signal, once it stopped growing where a dump ends.

        It is written line by line: on a busy machine the process may rest between two of them for as long as we do.
        """
        seen = path.stat().st_size
        try:
            os.kill(pid, signal.SIGUSR1)
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
