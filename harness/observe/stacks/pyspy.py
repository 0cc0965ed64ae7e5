"""Stacks by py-spy: cheap and neutral without native frames; with them it needs a second, half of it for a pause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.evidence import SourceFailure, StackSample
from harness.observe.proc import Proc
from harness.observe.stacks.dumper import DUMP_LIMIT_S, find_tool, gone, run_dumper, unstoppable
from harness.observe.stacks.parse import parse_pyspy

if TYPE_CHECKING:
    from pathlib import Path


class PySpy:
    """Reads the process's memory without stopping it; with ``native`` it stops it (0.1 to 3 s with torch loaded)."""

    name = "py-spy"

    def __init__(self, *, tool: str | None = None, proc: Proc | None = None, limit_s: float = DUMP_LIMIT_S) -> None:
        self._tool = tool
        self._proc = proc or Proc()
        self._limit_s = limit_s

    def sample(
        self, *, pid: int, rank: int, t_s: float, native: bool, number: int, trial_dir: Path
    ) -> StackSample | SourceFailure:
        """The stacks of all threads that have run Python."""

        def failure(reason: str) -> SourceFailure:
            return SourceFailure(id=f"failure-{number}-{self.name}", source=self.name, reason=reason)

        tool = self._tool or find_tool("py-spy")
        if tool is None:
            return failure("py-spy is not installed; install it with: pip install py-spy")
        why_not = unstoppable(pid, proc=self._proc) if native else gone(pid, proc=self._proc)
        if why_not:
            return failure(why_not)
        argv = [tool, "dump", "--native" if native else "--nonblocking", "--json", "--pid", str(pid)]
        dump = run_dumper(argv, pid=pid, proc=self._proc, limit_s=self._limit_s)
        if dump.failure is not None:
            return failure(dump.failure)
        try:
            threads = parse_pyspy(dump.text)
        except ValueError as error:
            return failure(f"unreadable output: {error}")
        has_native = any(frame.native for thread in threads for frame in thread.frames)
        return StackSample(
            id=f"stack-{number}",
            source=self.name,
            native=has_native,
            t_s=t_s,
            rank=rank,
            pid=pid,
            threads=threads,
        )
