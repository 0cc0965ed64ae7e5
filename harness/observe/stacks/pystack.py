"""Stacks by pystack, which also shows threads that never ran Python (gloo, NCCL watchdog)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.evidence import SourceFailure, StackSample
from harness.observe.proc import Proc
from harness.observe.stacks.dumper import DUMP_LIMIT_S, find_tool, gone, run_dumper, unstoppable
from harness.observe.stacks.parse import parse_pystack

if TYPE_CHECKING:
    from pathlib import Path


class PyStack:
    """An optional second opinion: ``--native-all`` stops the process for 0.1 to 0.5 s, ``--no-block`` does not."""

    name = "pystack"

    def __init__(self, *, tool: str | None = None, proc: Proc | None = None, limit_s: float = DUMP_LIMIT_S) -> None:
        self._tool = tool
        self._proc = proc or Proc()
        self._limit_s = limit_s

    def sample(
        self, *, pid: int, rank: int, t_s: float, native: bool, number: int, trial_dir: Path
    ) -> StackSample | SourceFailure:
        """The stacks of all threads; of those that ran Python when the process is not to be stopped."""

        def failure(reason: str) -> SourceFailure:
            return SourceFailure(id=f"failure-{number}-{self.name}", source=self.name, reason=reason)

        tool = self._tool or find_tool("pystack")
        if tool is None:
            return failure("pystack is not installed; install it with: pip install 'nsa-harness[native]'")
        why_not = unstoppable(pid, proc=self._proc) if native else gone(pid, proc=self._proc)
        if why_not:
            return failure(why_not)
        argv = [tool, "remote", "--native-all" if native else "--no-block", str(pid)]
        dump = run_dumper(argv, pid=pid, proc=self._proc, limit_s=self._limit_s)
        if dump.failure is not None:
            return failure(dump.failure)
        try:
            threads = parse_pystack(dump.text)
        except ValueError as error:
            return failure(f"unreadable output: {error}")
        return StackSample(
            id=f"stack-{number}",
            source=self.name,
            native=native,
            t_s=t_s,
            rank=rank,
            pid=pid,
            threads=threads,
        )
