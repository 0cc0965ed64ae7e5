"""Stacks by pystack: native frames in a third of py-spy's time, and if asked, threads that never ran Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.evidence import SourceFailure, StackSample
from harness.observe.proc import Proc
from harness.observe.stacks.dumper import DUMP_LIMIT_S, find_tool, gone, run_by, run_dumper, unstoppable
from harness.observe.stacks.parse import parse_pystack

if TYPE_CHECKING:
    from pathlib import Path


NOT_MERGED = "Unable to merge native stack"
"""What it prints of a thread whose native frames end before Python's begin, as in hand-written assembly."""

KEEPS_MEMORY = "GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4294967296:glibc.malloc.hugetlb=1"
"""It copies the heap of its target in blocks of tens of MB and frees each: with memory that stays, a dump of a trial
took 0.3 s instead of 0.4 to 0.8, most of the rest page faults."""


class PyStack:
    """Native frames, for which it stops the process for 0.1 to 0.2 s; Python's alone without stopping it.

    With ``every_thread`` native frames come of the threads too that run no Python: gloo's, NCCL's, a library's own.
    """

    name = "pystack"

    def __init__(
        self,
        *,
        tool: str | None = None,
        proc: Proc | None = None,
        limit_s: float = DUMP_LIMIT_S,
        every_thread: bool = False,
    ) -> None:
        self._tool = tool
        self._proc = proc or Proc()
        self._limit_s = limit_s
        self._every_thread = every_thread

    def sample(
        self, *, pid: int, rank: int, t_s: float, native: bool, number: int, trial_dir: Path
    ) -> StackSample | SourceFailure:
        """The stacks of the threads that run Python, or of all."""

        def failure(reason: str) -> SourceFailure:
            return SourceFailure(id=f"failure-{number}-{self.name}", source=self.name, reason=reason)

        tool = self._tool or find_tool("pystack")
        if tool is None:
            return failure("pystack is not installed; install it with: pip install pystack")
        why_not = unstoppable(pid, proc=self._proc) if native else gone(pid, proc=self._proc)
        if why_not:
            return failure(why_not)
        how = "--no-block" if not native else "--native-all" if self._every_thread else "--native"
        argv = ["env", KEEPS_MEMORY, *run_by(tool), "remote", how, str(pid)]
        dump = run_dumper(argv, pid=pid, proc=self._proc, limit_s=self._limit_s)
        if dump.failure is not None:
            return failure(dump.failure)
        if native and not self._every_thread and NOT_MERGED in dump.text:
            return failure("native frames that end before Python's begin")
        try:
            threads = parse_pystack(dump.text)
        except ValueError as error:
            return failure(f"unreadable output: {error}")
        return StackSample(
            id=f"stack-{number}",
            source=self.name,
            native=any(frame.native for thread in threads for frame in thread.frames),
            t_s=t_s,
            rank=rank,
            pid=pid,
            threads=threads,
            stopped_s=dump.stopped_s,
        )
