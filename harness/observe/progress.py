"""Progress of a program that tells none by marks: what it prints, or a file that it lets grow.

What is seen is appended to ``heartbeat_rank{r}_seen.jsonl`` in the trial's folder, in the form of the worker's own
marks, so that everything downstream reads one kind of progress. r is the rank that the program was told, which on a
second node is not 0, or the first of those that it started. The time is that of the look, at most 0.2 s late.
"""

from __future__ import annotations

import json
import os
import re
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.dotted import leaves
from harness.observe.logs import split_tail
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.core.ports import Clock
    from harness.core.trial import Trial
    from harness.observe.census import Census

LONGEST_LINE_BYTES = 1 << 16
FIRST_SEARCH_S, LAST_SEARCH_S = 2.5, 60.0
"""Time before the first search for processes that did not introduce themselves, and between later ones."""

STREAMS = ("stdout", "stderr")


class OutputReader:
    """The bytes of one bounded output stream that are new since the last look; what was dropped is never seen."""

    def __init__(self, trial_dir: Path, stream: str) -> None:
        self._head = layout.output(trial_dir, stream)
        self._tail = layout.output_tail(trial_dir, stream)
        self._offset = 0
        self._stamp: tuple[int, int] | None = None

    def new(self) -> bytes:
        """What came since the last call."""
        head_size = _size(self._head)
        if self._offset < head_size:
            with self._head.open("rb") as file:
                file.seek(self._offset)
                text = file.read(head_size - self._offset)
            self._offset += len(text)
            return text + self._beyond(self._offset)
        return self._beyond(head_size)

    def _beyond(self, head_size: int) -> bytes:
        """What the tail holds beyond our place in the stream; it is replaced as a whole."""
        try:
            stat = self._tail.stat()
        except FileNotFoundError:
            return b""
        if (stamp := (stat.st_ino, stat.st_mtime_ns)) == self._stamp:
            return b""
        self._stamp = stamp
        dropped, text = split_tail(self._tail.read_bytes())
        begins = head_size + dropped
        new = text[max(self._offset - begins, 0) :]
        self._offset = begins + len(text)
        return new


class FileReader:
    """A file, or files by a shell pattern, that the program writes; what is in them at the start does not count."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._offsets = {path: _size(Path(path)) for path in glob(pattern, recursive=True)}  # noqa: PTH207 - may be absolute

    def grown(self) -> bytes | None:
        """What was appended since the last look, or None when nothing changed; a file that shrank begins anew."""
        text, changed = b"", False
        for path in glob(self._pattern, recursive=True):  # noqa: PTH207
            size, before = _size(Path(path)), self._offsets.get(path)
            if size == before:
                continue
            self._offsets[path], changed = size, True
            start = before if before is not None and before < size else 0
            with Path(path).open("rb") as file:
                file.seek(max(start, size - LONGEST_LINE_BYTES * 16))
                text += file.read(size - start)
        return text if changed else None


class Taps:
    """What ``trial`` lets be seen, by its configuration: ``progress.pattern`` and ``progress.file``.

    With a pattern, a line of its output (or of the file) that matches is progress, and the first group, when it is a
    number, counts steps done. With a file alone, its growth is. With neither, any output is, but only until the
    program's own marks begin, and not what comes while only onlookers ran (``idle``). ``rank`` is the rank that the
    program was told by its environment, None without.
    """

    def __init__(
        self, trial: Trial, *, trial_dir: Path, clock: Clock, pid: int, census: Census, rank: int | None = None
    ) -> None:
        settings = leaves(trial.config)
        pattern, file = settings.get("progress.pattern"), settings.get("progress.file")
        self._trial_dir, self._clock, self._pid = trial_dir, clock, pid
        self._foreign = "command" in trial.config or "argv" in trial.config
        self._pattern = re.compile(str(pattern).encode()) if pattern else None
        self._file = FileReader(os.path.expanduser(str(file))) if file else None  # noqa: PTH111 - a pattern, no path
        self._output = [OutputReader(trial_dir, stream) for stream in STREAMS]
        self._rests = [b""] * (len(self._output) + 1)
        self._has_spoken = False
        self._seq = 0
        self._rank = rank
        self._fd: int | None = None
        self._census = census
        self._search = RankSearch(trial_dir, pid=pid, clock=clock, census=census)

    def poll(self, idle: Callable[[], bool] = lambda: False) -> None:
        """Look once, and mark what moved."""
        if not self._foreign:
            return
        self._search.poll()
        if self._pattern is not None:
            texts = self._printed()
            texts.append((self._file.grown() or b"") if self._file else b"")
            for number, text in enumerate(texts):
                self._match(number, text)
        elif self._file is not None:
            if self._file.grown() is not None:
                self._mark("file", "it grew")
        elif not self._speaks() and any(self._printed()) and not idle():
            self._mark("output", None)

    def close(self) -> None:
        """Give the file back."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _printed(self) -> list[bytes]:
        """What is new in each stream of its output."""
        return [reader.new() for reader in self._output]

    def _match(self, number: int, text: bytes) -> None:
        if not text or self._pattern is None:
            return
        *lines, rest = re.split(rb"[\r\n]+", self._rests[number] + text)
        self._rests[number] = rest[-LONGEST_LINE_BYTES:]
        match = None
        for one in lines:
            match = self._pattern.search(one) or match
        if match is None:
            return
        group = match[1] if match.re.groups else None
        line = match.string.decode(errors="replace").strip()[:120]
        if group is not None and group.strip().isdigit():
            self._write({"event": "step", "step": int(group), "done": int(group), "facts": {}})
            self._mark("output", line, step=int(group))
        else:
            self._mark("output", line)

    def _speaks(self) -> bool:
        """Whether the program itself has begun to tell how far it is; one that raised leaves a file without a mark."""
        own = self._trial_dir.glob("heartbeat_rank*[0-9].jsonl")
        self._has_spoken = self._has_spoken or any(map(_size, own))
        return self._has_spoken

    def _mark(self, phase: str, detail: str | None, *, step: int | None = None) -> None:
        self._write({"phase": phase, "edge": "begin", "step": step, "detail": detail})

    def _write(self, facts: Mapping[str, object]) -> None:
        if self._fd is None:
            if self._rank is None:
                self._rank = min(self._census.ranks(), default=0)
            path = self._trial_dir / f"heartbeat_rank{self._rank}_seen.jsonl"
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._seq += 1
        head = {"seq": self._seq, "t": self._clock.now(), "rank": self._rank, "pid": self._pid}
        os.write(self._fd, json.dumps({**head, **facts}).encode() + b"\n")


class RankSearch:
    """Finds the processes that train when they do not introduce themselves, among those of the trial.

    A script may give its Python an environment of its own, and then our shim is not there; and what is started may be
    a shell. What is found is written into ``ranks.jsonl`` as the ranks themselves would.
    """

    def __init__(self, trial_dir: Path, *, pid: int, clock: Clock, census: Census) -> None:
        self._path, self._pid, self._clock, self._census = layout.ranks(trial_dir), pid, clock, census
        self._ranks: dict[int, int] = {}
        self._size = 0
        self._rest_s = FIRST_SEARCH_S
        self._next_s = clock.now() + FIRST_SEARCH_S

    def poll(self) -> None:
        """Search now and then, until somebody is found, and again when all of those have ended."""
        now_s = self._clock.now()
        if now_s < self._next_s:
            return
        self._rest_s = min(2 * self._rest_s, LAST_SEARCH_S)
        self._next_s = now_s + self._rest_s
        members = self._census.members()
        if not members.keys().isdisjoint(self._ranks.values()):
            return
        if _size(self._path) > self._size:
            return  # they introduced themselves
        program = self._census.first_python()
        self._ranks = self._census.ranks() or ({0: program} if program is not None else {})
        if not self._ranks or self._ranks == {0: self._pid}:
            return  # it is what was started
        lines = ""
        for rank, pid in self._ranks.items():
            member = members[pid]
            row = {"event": "started", "rank": rank, "pid": member.inner, "started": member.started, "t": now_s}
            lines += f"{json.dumps(row)}\n"
        with self._path.open("a") as file:
            file.write(lines)
            file.flush()
            self._size = file.tell()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
