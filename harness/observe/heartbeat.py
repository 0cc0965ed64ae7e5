"""Reads the progress marks of a trial while they are being written.

The worker appends one JSON object per line, each with a single write, so a reader sees whole lines except for the
last one, which may be torn: it is kept until its end arrives. A line that is no mark is counted and skipped.

A stranger's program with quick steps writes one line a second, and puts where it is into 56 bytes of shared memory.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from harness.core.devices import MemoryMark
from harness.core.evidence import FIRST_MARKS, LAST_MARKS, Heartbeat, Pace
from harness.observe.bounded import Bounded
from harness.reading.pace import RECURS
from harness.shim.nsa_harness_shim import PLACE, PLACES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

CHUNK_BYTES = 1 << 16
MAX_LINE_BYTES = 1 << 20
MOST_AT_ONCE_BYTES = 1 << 26


class _Reader:
    """Keeps a file open that may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def open(self) -> int | None:
        """Its descriptor; None while there is no such file."""
        if self._fd is None:
            with suppress(FileNotFoundError):
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return self._fd

    def close(self) -> None:
        """Give the file back."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class LineReader(_Reader):
    """The whole lines that were appended to a file since the last look."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.dropped = 0
        self._rest = b""

    def lines(self) -> list[bytes]:
        """New whole lines; a torn last one stays until its end arrives.

        No more than MOST_AT_ONCE_BYTES are read: a file without end must not keep the watch from its next look, which
        finds out that it is one.
        """
        whole: list[bytes] = []
        remaining, fd = MOST_AT_ONCE_BYTES, self.open()
        while fd is not None and remaining > 0 and (chunk := os.read(fd, CHUNK_BYTES)):
            remaining -= len(chunk)
            *done, self._rest = (self._rest + chunk).split(b"\n")
            whole += done
            if len(self._rest) > MAX_LINE_BYTES:
                self._rest, self.dropped = b"", self.dropped + 1
        return whole


class PlaceReader(_Reader):
    """Where a rank is, from the memory that its process shares; nothing while it has put nothing there."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._last: tuple[int, int] | None = None

    def new(self) -> dict[str, Any] | None:
        """The mark that is there, if it is another than at the last look and not half-written."""
        fd = self.open()
        data = os.pread(fd, PLACE.size, 0) if fd is not None else b""
        if len(data) < PLACE.size:
            return None
        seq, t, done, ended, pid, code, again = PLACE.unpack(data)
        if seq == 0 or seq != again or (pid, seq) == self._last or code >= len(PLACES):
            return None
        self._last = pid, seq
        phase, edge = PLACES[int(code)]
        return {"seq": seq, "t": t, "done": done, "ended": ended, "pid": pid, "phase": phase, "edge": edge}


class RankMarks:
    """What one rank has said: its own marks, the time of the last of them, its process, its finished steps.

    ``said`` is the PID that the process calls itself by and ``pid`` the one that it has here, 0 while no process of the
    trial answers to it. ``seq`` is the number of its process's last mark.
    """

    def __init__(self, *, inner: int, pid: int) -> None:
        self.inner, self.pid = inner, pid
        self.seq = 0
        self.marks: Bounded[Heartbeat] = Bounded(first=FIRST_MARKS, last=LAST_MARKS)
        self.last: Heartbeat | None = None
        self.last_t_s = 0.0
        self.steps_done = 0


class Heartbeats:
    """What a trial's progress marks have said so far; call :meth:`read` to catch up.

    Times are seconds since ``started_s`` on the monotonic clock that all processes of a machine share.
    ``longest_silence_s`` counts from the first step's first mark on: what came before is start-up. ``outer`` gives the
    PID here of the trial's process that calls itself by another.
    """

    def __init__(
        self, trial_dir: Path, *, started_s: float, outer: Callable[[int], int | None] = lambda pid: pid
    ) -> None:
        self.trial_dir, self._outer = trial_dir, outer
        self.started_s = started_s
        self.marks: Bounded[Heartbeat] = Bounded(first=FIRST_MARKS, last=LAST_MARKS)
        self.step_s: Bounded[float] = Bounded(first=FIRST_MARKS, last=LAST_MARKS)
        self.memory: Bounded[MemoryMark] = Bounded(first=FIRST_MARKS, last=LAST_MARKS)
        self.built = ForwardPass()
        self.gaps = Gaps()
        self.last: Heartbeat | None = None
        self.last_t_s = 0.0
        self.first_step_t_s: float | None = None
        self.longest_silence_s = 0.0
        self.facts: dict[str, float] = {}
        self.ranks: dict[int, RankMarks] = {}
        self.world = 0
        self._ends_s: dict[int, float] = {}
        self._step_began_s: float | None = None
        self._bad_lines = 0
        self._readers: dict[str, LineReader] = {}
        self._places: dict[int, PlaceReader] = {}

    @property
    def steps_done(self) -> int:
        """Steps that every rank has finished."""
        return min((rank.steps_done for rank in self.ranks.values()), default=0)

    @property
    def unreadable(self) -> int:
        """Lines that were no marks and were skipped."""
        return self._bad_lines + sum(reader.dropped for reader in self._readers.values())

    def read(self) -> bool:
        """Catch up with all ranks; True when there was progress."""
        before = self.last_t_s, self.marks.total, self.steps_done
        self._find_files()
        for _, reader in sorted(self._readers.items()):
            for line in reader.lines():
                self._take(line)
        for rank, place in sorted(self._places.items()):
            if (mark := place.new()) is not None:
                self._placed(rank, mark)
        return (self.last_t_s, self.marks.total, self.steps_done) != before

    def pace(self) -> Pace:
        """How quickly the marks came so far; the silence that goes on is no part of it."""
        return self.gaps.pace(steps=self.step_s.total)

    def close(self) -> None:
        """Give the files back."""
        for reader in (*self._readers.values(), *self._places.values()):
            reader.close()

    def _find_files(self) -> None:
        with os.scandir(self.trial_dir) as entries:  # ranks may start at any time
            for entry in entries:
                name = entry.name
                if name.startswith("heartbeat_rank") and name.endswith(".jsonl") and name not in self._readers:
                    self._readers[name] = LineReader(self.trial_dir / name)
                elif (
                    name.startswith("place_rank") and (rank := int(name.removeprefix("place_rank"))) not in self._places
                ):
                    self._places[rank] = PlaceReader(self.trial_dir / name)

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            record = json.loads(line)
            t_s = float(record["t"]) - self.started_s
            if record.get("event") == "step":
                self._step(record, t_s=t_s)
            else:
                mark = self._heartbeat(record, t_s=t_s)
                self._mark(mark)
                self.facts.update(self.built.after(mark, nodes=record.get("nodes")))
        except (ValueError, TypeError, KeyError, AttributeError):
            self._bad_lines += 1
            return
        self._moved(t_s)

    def _placed(self, number: int, record: Mapping[str, Any]) -> None:
        """A mark from shared memory; lines that were written after it have said more already."""
        rank = self._rank(number, inner=record["pid"])
        if record["seq"] <= rank.seq:
            return
        ended = {**record, "rank": number, "step": record["done"] - 1, "facts": dict[str, float]()}
        self._step(ended, t_s=record["ended"] - self.started_s)
        mark = self._heartbeat({**record, "rank": number, "step": record["done"]}, t_s=record["t"] - self.started_s)
        self._mark(mark)
        self._moved(mark.t_s)

    def _mark(self, mark: Heartbeat) -> None:
        rank = self.ranks[mark.rank]
        if rank.last is not None:
            self.gaps.between(rank.last, mark)
        rank.seq, rank.last = mark.seq, mark
        rank.marks.add(mark)
        rank.last_t_s = max(rank.last_t_s, mark.t_s)
        if mark.step is not None:
            if self.first_step_t_s is None:
                self.last_t_s = mark.t_s
            self.first_step_t_s = min(self.first_step_t_s or mark.t_s, mark.t_s)
        self.marks.add(mark)
        self.last = mark

    def _step(self, record: dict[str, Any], *, t_s: float) -> None:
        rank_number, step = int(record["rank"]), int(record["step"])
        rank = self._rank(rank_number, inner=int(record["pid"]))
        facts = {str(name): float(value) for name, value in record["facts"].items()}
        # A program that tells its number of steps may leave some out, and two sources may count the same ones.
        steps = int(record["done"]) - rank.steps_done if "done" in record else 1
        rank.last_t_s = max(rank.last_t_s, t_s)
        if steps <= 0:
            return
        before = self.steps_done
        rank.steps_done += steps
        self._ends_s[rank.steps_done] = max(self._ends_s.get(rank.steps_done, 0.0), t_s)
        if self.steps_done > before:
            self._step_of_all(before, t_s=t_s)
        if "rss_bytes" in facts:
            of_memory = {name: facts[name] for name in MEMORY_FACTS if name in facts}
            self.memory.add(MemoryMark(step=step, t_s=t_s, rank=rank_number, **of_memory))
        if "loss" in facts:
            self.facts.setdefault("first_loss", facts["loss"])
        odd: dict[str, float] = {}
        for name, value in facts.items():
            first = f"first_nonfinite_{name}_step"
            if not math.isfinite(value) and first not in self.facts:
                odd[first] = float(step)
        self.facts.update(facts | odd)

    def _step_of_all(self, before: int, *, t_s: float) -> None:
        """Every rank has finished a step: it lasted from the end of the one before until the last of them had it."""
        ended = [n for n in self._ends_s if n <= self.steps_done]
        # A rank that is heard of late catches up with steps whose ends were counted without it.
        end_s = max(map(self._ends_s.pop, ended), default=t_s)
        began_s = (self.first_step_t_s or 0.0) if self._step_began_s is None else self._step_began_s
        self.gaps.step_done(first=self.step_s.total == 0)
        self.step_s.add((end_s - began_s) / (self.steps_done - before))
        self._step_began_s = end_s

    def _rank(self, number: int, *, inner: int) -> RankMarks:
        rank = self.ranks.get(number)
        if rank is None or rank.inner != inner:
            pid = self._outer(inner) or 0
            if rank is None:
                rank = self.ranks[number] = RankMarks(inner=inner, pid=pid)
            rank.inner, rank.pid, rank.seq = inner, pid, 0  # a new process counts anew
        elif not rank.pid:
            rank.pid = self._outer(inner) or 0
        return rank

    def _heartbeat(self, record: Mapping[str, Any], *, t_s: float) -> Heartbeat:
        number = int(record["rank"])
        return Heartbeat(
            seq=int(record["seq"]),
            t_s=t_s,
            rank=number,
            pid=self._rank(number, inner=int(record["pid"])).pid,
            phase=str(record["phase"]),
            edge=str(record["edge"]),
            step=None if record["step"] is None else int(record["step"]),
            detail=None if record.get("detail") is None else str(record["detail"]),
        )

    def _moved(self, t_s: float) -> None:
        if self.first_step_t_s is not None:
            self.longest_silence_s = max(self.longest_silence_s, t_s - self.last_t_s)
        self.last_t_s = max(self.last_t_s, t_s)


class Gaps:
    """The longest gaps between marks, by the place where they began: of finished steps, and of the one under way."""

    def __init__(self) -> None:
        self._longest: dict[tuple[str, str], float] = {}
        self._new: dict[tuple[str, str], float] = {}

    def between(self, before: Heartbeat, after: Heartbeat) -> None:
        """Two marks of one rank, one after the other."""
        _raise(self._new, (before.phase, before.edge), after.t_s - before.t_s)

    def step_done(self, *, first: bool) -> None:
        """The gaps of a step count once it is done; of start-up and the first one only those that come again."""
        for place, seconds in self._new.items():
            if not first or place[0] == RECURS:
                _raise(self._longest, place, seconds)
        self._new = {}

    def pace(self, *, steps: int) -> Pace:
        """What there is to be known of the trial's pace by now."""
        gaps = tuple((phase, edge, seconds) for (phase, edge), seconds in sorted(self._longest.items()))
        longest_s = max((*self._longest.values(), *self._new.values()), default=0.0)
        return Pace(steps=steps, longest_s=longest_s, gaps=gaps)


def _raise(gaps: dict[tuple[str, str], float], place: tuple[str, str], seconds: float) -> None:
    gaps[place] = max(gaps.get(place, 0.0), seconds)


class ForwardPass:
    """What a forward pass has built so far: its blocks, its autograd nodes, its seconds. Of rank 0."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None
        self._blocks = 0

    def after(self, mark: Heartbeat, *, nodes: int | None) -> dict[str, float]:
        """The facts that ``mark`` changes: those of the forward pass in which the last block was done."""
        if mark.rank or mark.phase != "forward" or nodes is None:
            return {}
        if mark.edge == "begin":
            self._began, self._blocks = (mark.t_s, nodes), 0
        if mark.edge != "progress" or self._began is None:
            return {}
        began_s, began_nodes = self._began
        self._blocks += 1
        return {
            "forward_blocks": float(self._blocks),
            "forward_nodes": float(nodes - began_nodes),
            "forward_s": mark.t_s - began_s,
        }


MEMORY_FACTS = ("rss_bytes", "gpu_allocated_bytes", "gpu_reserved_bytes", "gpu_alloc_retries")
