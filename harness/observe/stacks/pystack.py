"""Stacks by pystack: native frames in a third of py-spy's time, and if asked, threads that never ran Python.

Of names beyond ASCII it prints nothing but null bytes, or leaves their whole frame out, so that a caller's line looks
like the one that waits: such a dump is no answer, and py-spy is asked.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from harness.observe.stacks.dumper import Dumper, run_by, run_dumper
from harness.observe.stacks.parse import parse_pystack
from harness.observe.stacks.pyspy import sources

if TYPE_CHECKING:
    from harness.core.evidence import StackSample, ThreadStack
    from harness.observe.stacks.dumper import Dump

NOT_MERGED = "Unable to merge native stack"
"""What it prints of a thread whose native frames end before Python's begin, as in hand-written assembly."""

KEEPS_MEMORY = "GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4294967296:glibc.malloc.hugetlb=1"
"""It copies the heap of its target in blocks of tens of MB and frees each: with memory that stays, a dump of a trial
took 0.3 s instead of 0.4 to 0.8, most of the rest page faults."""


class PyStack(Dumper):
    """Native frames, for which it stops the process for 0.1 to 0.2 s; Python's alone without stopping it.

    With ``every_thread`` native frames come of the threads too that run no Python: gloo's, NCCL's, a library's own.
    """

    name = "pystack"

    def __init__(self, *, every_thread: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._every_thread = every_thread

    def ask(self, tool: str, pid: int, *, native: bool) -> Dump:
        """Of the threads that run Python, or of all."""
        how = "--no-block" if not native else "--native-all" if self._every_thread else "--native"
        argv = ["env", KEEPS_MEMORY, *run_by(tool), "remote", how, str(pid)]
        dump = run_dumper(argv, pid=pid, proc=self.proc, limit_s=self.limit_s)
        if dump.failure is None and native and not self._every_thread and NOT_MERGED in dump.text:
            return replace(dump, failure="native frames that end before Python's begin")
        return dump

    def read(self, text: str) -> tuple[ThreadStack, ...]:
        """The threads in its text."""
        return parse_pystack(text)

    def beside(self, sample: StackSample, dump: Dump) -> StackSample:
        """``sample`` as it is; ValueError where names of its frames, or of their variables, cannot be read."""
        if "\0" in dump.text or any(map(_has_names_beyond_ascii, sources(sample).values())):
            raise ValueError("it cannot read names that are not ASCII, of which this program has some")
        return sample


@lru_cache(maxsize=64)
def _has_names_beyond_ascii(text: str) -> bool:
    """Whether a source has functions or variables with such names; in words and comments they do no harm."""
    if text.isascii():
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        name = getattr(node, "name", None) or getattr(node, "arg", None) or getattr(node, "id", None)
        if isinstance(name, str) and not name.isascii():
            return True
    return False
