"""Stacks by py-spy: cheap and neutral without native frames; with them it needs a second, half of it for a pause."""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from harness.core.evidence import Frame, FrameLocals
from harness.observe.procfs import Files
from harness.observe.stacks.dumper import Dump, Dumper, run_dumper
from harness.observe.stacks.parse import parse_pyspy, pyspy_locals
from harness.observe.within import within_limit
from harness.reading.frames import is_own, is_stdlib, package
from harness.reading.loops import loop_samples
from harness.reading.own_source import file_of
from harness.reading.waits import joined_threads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from harness.core.evidence import StackSample, ThreadStack

MAX_SOURCE_BYTES = 1 << 20
"""A longer file of source is not read for its loops."""

MOST_FILES = 60
"""A larger program is not read as a whole."""

CLOCKS_S = 0.05
"""By so much two clocks of the kernel may differ, that of files and that of processes. No program is loaded sooner."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

SOURCES_LIMIT_S = 2.0
"""How long the files may take, all together, in seconds."""

TRIES = 3
"""Locals are read while the process runs on, and may change under py-spy's hands: it says so, and is asked again."""

MOST_FRAMES, MOST_LOCALS, LONGEST_LOCAL = 6, 24, 160
"""Of one thread's own frames, the innermost first; of one frame's locals; characters of one value."""

_TORCH = frozenset({"torch"})
_READ_OF_TORCH = ("/torch/nn/modules/container.py", "/torch/utils/data/dataloader.py")
"""Torch's own loops over a model's layers, and around a loader's question for a batch."""


class PySpy(Dumper):
    """Reads the process's memory without stopping it; with ``native`` it stops it (0.1 to 3 s with torch loaded).

    It shows all threads that have run Python. Without native frames the locals come along, and with them the loops that
    the frames are in. ``keeps_locals``: the values themselves are evidence, too.
    """

    name = "py-spy"

    def __init__(self, *, keeps_locals: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._keeps_locals = keeps_locals

    def ask(self, tool: str, pid: int, *, native: bool) -> Dump:
        """With locals where the process is not stopped."""
        argv = [tool, "dump", "--native" if native else "--nonblocking", "--json", "--pid", str(pid)]
        for _ in range(0 if native else TRIES):
            dump = run_dumper([*argv, "--locals"], pid=pid, proc=self.proc, limit_s=self.limit_s)
            if dump.failure is None:
                return replace(dump, has_locals=True)
            if "local variable" not in dump.failure:
                return dump
        return run_dumper(argv, pid=pid, proc=self.proc, limit_s=self.limit_s)

    def read(self, text: str) -> tuple[ThreadStack, ...]:
        """The threads in its JSON."""
        return parse_pyspy(text)

    def beside(self, sample: StackSample, dump: Dump) -> StackSample:
        """``sample`` with the loops that its frames are in and the threads that they join, and with locals if asked."""
        values = pyspy_locals(dump.text, sample.threads) if dump.has_locals else {}
        if not values:
            return sample
        variables = _own_locals(sample.threads, values) if self._keeps_locals else ()
        joins = joined_threads(sample.threads, values)
        return replace(sample, loops=loop_samples(sample, values, sources(sample)), variables=variables, joins=joins)


def _own_locals(
    threads: Iterable[ThreadStack], values: Mapping[tuple[int, int], Mapping[str, str]]
) -> tuple[FrameLocals, ...]:
    """The locals of each thread's innermost frames that are the program's own, without what every module has."""
    rows: list[FrameLocals] = []
    for thread in threads:
        own: list[int] = []
        for depth, frame in enumerate(thread.frames):
            if is_own(frame) and values.get((thread.tid, depth)):
                own.append(depth)
        for depth in own[:MOST_FRAMES]:
            variables = _short(values[thread.tid, depth])
            if variables:
                rows.append(FrameLocals(tid=thread.tid, depth=depth, locals=variables))
    return tuple(rows)


def _short(variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The first of a frame's locals, those of every module left out, with the beginnings of their values."""
    pairs: list[tuple[str, str]] = []
    for name, value in variables.items():
        if not name.startswith("__"):
            pairs.append((name, value[:LONGEST_LOCAL]))
    return tuple(pairs[:MOST_LOCALS])


def sources(sample: StackSample) -> dict[str, str]:
    """The source of the files that a sample's frames are in, as its process sees them; torch's are left out.

    None where a file system does not answer in time: what the program waits for may be that very one.
    """
    try:
        return within_limit(lambda: _sources(sample), limit_s=SOURCES_LIMIT_S)
    except TimeoutError:
        return {}


def _sources(sample: StackSample) -> dict[str, str]:
    texts: dict[str, str] = {}
    for frame in chain.from_iterable(thread.frames for thread in sample.threads):
        torchs = package(frame) in _TORCH and not frame.file.endswith(_READ_OF_TORCH)
        if frame.native or frame.file in texts or is_stdlib(frame) or torchs:
            continue
        text = _of_command(sample.pid) if frame.file == "<string>" else _source(_seen_by(sample.pid, frame.file))
        if text:
            texts[frame.file] = text
    return texts


def program(sample: StackSample, texts: Mapping[str, str]) -> dict[str, str] | None:
    """The source of the program's own files: those of ``texts``, the sample's, and all that these import in turn.

    None where they are too many, or not read in time.
    """
    own = {path: text for path, text in texts.items() if is_own(Frame(function="", file=path, line=0))}
    try:
        return within_limit(lambda: _program(sample.pid, own), limit_s=SOURCES_LIMIT_S)
    except TimeoutError:
        return None


def _program(pid: int, texts: dict[str, str]) -> dict[str, str] | None:
    paths = list(texts)
    folders = {os.path.dirname(path) for path in paths}
    for path in paths:  # grows while it is gone through
        for other in _imported(path, texts[path], folders):
            text = _source(_seen_by(pid, other)) if other not in texts else ""
            if text:
                texts[other] = text
                paths.append(other)
        if len(paths) > MOST_FILES:
            return None
    return texts


def _imported(path: str, text: str, folders: set[str]) -> Iterator[str]:
    """The files beside it, or in ``folders``, in which what a file of the program imports may stand."""
    file = file_of(text)
    for names in file.imported.values() if file is not None else ():
        for folder in {os.path.dirname(path), *folders}:
            for depth in range(len(names), 0, -1):
                module = os.path.join(folder, *names[:depth])
                yield f"{module}.py"
                yield f"{module}/__init__.py"


def _seen_by(pid: int, path: str) -> str:
    """A path as process ``pid`` sees it."""
    return f"/proc/{pid}/root{path}" if path.startswith("/") else f"/proc/{pid}/cwd/{path}"


def _of_command(pid: int) -> str:
    """The program of ``python -c``; empty where it was started otherwise."""
    words = Files().parts(f"{pid}/cmdline")
    return words[words.index("-c") + 1] if "-c" in words[:-1] else ""


def changed(pid: int, paths: Iterable[str]) -> frozenset[str]:
    """Those of a program's files that were changed since process ``pid`` began: it runs what stood there before.

    All of them where a file system does not answer in time.
    """
    paths = frozenset(paths)
    try:
        return within_limit(lambda: _changed(pid, paths), limit_s=SOURCES_LIMIT_S)
    except TimeoutError:
        return paths


def _changed(pid: int, paths: Iterable[str]) -> frozenset[str]:
    later: set[str] = set()
    since_s = _began_s(pid) + CLOCKS_S
    for path in paths:
        with suppress(OSError, ValueError):
            if os.stat(_seen_by(pid, path)).st_mtime > since_s:
                later.add(path)
    return frozenset(later)


def _began_s(pid: int) -> float:
    """When a process began, seconds since the epoch; of one that was forked, when that did which it was forked from.

    Those have the same command line, and the code that was loaded before. Infinite of one that is gone.
    """
    files = Files()
    command, began_s = files.parts(f"{pid}/cmdline"), math.inf
    while (stat := files.stat(f"{pid}")) is not None and files.parts(f"{pid}/cmdline") == command:
        began_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(stat[19]) / _TICKS_PER_S
        pid = int(stat[1])
    return began_s


def _source(path: str) -> str:
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # a name with a null byte is nobody's
        return ""
    return _text(path, status.st_mtime_ns, status.st_size) if status.st_size <= MAX_SOURCE_BYTES else ""


@lru_cache(maxsize=256)
def _text(path: str, changed_ns: int, size: int) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_SOURCE_BYTES)
    except OSError:
        return ""
