"""Stacks by py-spy: cheap and neutral without native frames; with them it needs a second, half of it for a pause."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.core.evidence import FrameLocals, SourceFailure, StackSample
from harness.observe.proc import Proc
from harness.observe.stacks.dumper import DUMP_LIMIT_S, Dump, find_tool, gone, run_dumper, unstoppable
from harness.observe.stacks.parse import parse_pyspy, pyspy_locals
from harness.reading.frames import is_own, is_stdlib, package
from harness.reading.loops import loop_samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from harness.core.evidence import Frame, ThreadStack

MAX_SOURCE_BYTES = 1 << 20
"""A longer file of source is not read for its loops."""

TRIES = 3
"""Locals are read while the process runs on, and may change under py-spy's hands: it says so, and is asked again."""

MOST_FRAMES, MOST_LOCALS, LONGEST_LOCAL = 6, 24, 160
"""Of one thread's own frames, the innermost first; of one frame's locals; characters of one value."""

_TORCH = frozenset({"torch"})
_CONTAINERS = "/torch/nn/modules/container.py"
"""Torch's own loop over a model's layers."""


class PySpy:
    """Reads the process's memory without stopping it; with ``native`` it stops it (0.1 to 3 s with torch loaded).

    Without native frames the locals come along, and with them the loops that the frames are in. ``keeps_locals``: the
    values themselves are evidence, too.
    """

    name = "py-spy"

    def __init__(
        self,
        *,
        tool: str | None = None,
        proc: Proc | None = None,
        limit_s: float = DUMP_LIMIT_S,
        keeps_locals: bool = False,
    ) -> None:
        self._tool, self._keeps_locals = tool, keeps_locals
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
        dump, has_locals = self._dump(tool, pid, native=native)
        if dump.failure is not None:
            return failure(dump.failure)
        try:
            threads = parse_pyspy(dump.text)
            values = pyspy_locals(dump.text) if has_locals else {}
        except ValueError as error:
            return failure(f"unreadable output: {error}")
        sample = StackSample(
            id=f"stack-{number}",
            source=self.name,
            native=any(frame.native for thread in threads for frame in thread.frames),
            t_s=t_s,
            rank=rank,
            pid=pid,
            threads=threads,
            stopped_s=dump.stopped_s,
        )
        if not values:
            return sample
        frames = (frame for thread in threads for frame in thread.frames)
        kept = _own_locals(threads, values) if self._keeps_locals else ()
        return replace(sample, loops=loop_samples(sample, values, sources(pid, frames)), variables=kept)

    def _dump(self, tool: str, pid: int, *, native: bool) -> tuple[Dump, bool]:
        """What py-spy prints, and whether locals are among it."""
        argv = [tool, "dump", "--native" if native else "--nonblocking", "--json", "--pid", str(pid)]
        if native:
            return run_dumper(argv, pid=pid, proc=self._proc, limit_s=self._limit_s), False
        for _ in range(TRIES):
            dump = run_dumper([*argv, "--locals"], pid=pid, proc=self._proc, limit_s=self._limit_s)
            if dump.failure is None or "local variable" not in dump.failure:
                return dump, dump.failure is None
        return run_dumper(argv, pid=pid, proc=self._proc, limit_s=self._limit_s), False


def _own_locals(
    threads: Iterable[ThreadStack], values: Mapping[tuple[int, int], Mapping[str, str]]
) -> tuple[FrameLocals, ...]:
    """The locals of each thread's innermost frames that are the program's own, without what every module has."""
    found: list[FrameLocals] = []
    for thread in threads:
        own = [depth for depth, frame in enumerate(thread.frames) if is_own(frame) and values.get((thread.tid, depth))]
        for depth in own[:MOST_FRAMES]:
            known = [(name, value) for name, value in values[thread.tid, depth].items() if not name.startswith("__")]
            shown = tuple((name, value[:LONGEST_LOCAL]) for name, value in known[:MOST_LOCALS])
            if shown:
                found.append(FrameLocals(tid=thread.tid, depth=depth, locals=shown))
    return tuple(found)


def sources(pid: int, frames: Iterable[Frame]) -> dict[str, str]:
    """The source of the files that these frames of ``pid`` are in, as that process sees them; torch's are left out."""
    found: dict[str, str] = {}
    for frame in frames:
        torchs = package(frame) in _TORCH and not frame.file.endswith(_CONTAINERS)
        if frame.native or frame.file in found or is_stdlib(frame) or torchs:
            continue
        folder = f"/proc/{pid}/root" if frame.file.startswith("/") else f"/proc/{pid}/cwd/"
        text = _source(folder + frame.file)
        if text:
            found[frame.file] = text
    return found


def _source(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return _text(path, status.st_mtime_ns, status.st_size) if status.st_size <= MAX_SOURCE_BYTES else ""


@lru_cache(maxsize=64)
def _text(path: str, changed_ns: int, size: int) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_SOURCE_BYTES)
    except OSError:
        return ""
