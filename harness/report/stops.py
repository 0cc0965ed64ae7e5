"""Stops: how often the processes of a job were stopped to see their native frames, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.node import in_words
from harness.report.stacks import rank_by_pid
from harness.report.text import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.evidence import Evidence

NAMED = 4
"""Processes that a terminal names one by one; the report names all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """The stops of one process: how many, and the milliseconds of all together and of the longest."""

    pid: int
    rank: int | None
    times: int
    sum_ms: int
    longest_ms: int

    @property
    def name(self) -> str:
        """``process 4906``, or ``rank 1 (process 4906)``."""
        process = f"process {in_words(self.pid)}"
        return process if self.rank is None else f"rank {self.rank} ({process})"

    def __str__(self) -> str:
        often = "once" if self.times == 1 else count(self.times, "time")
        if not self.sum_ms:
            return f"{self.name} was stopped {often} (how long was not measured)"
        if self.times == 1:
            return f"{self.name} was stopped {often}, for {self.sum_ms:,} ms"
        how_long = f"{self.sum_ms:,} ms in all, {self.longest_ms:,} ms at the longest"
        return f"{self.name} was stopped {often}, {how_long}"


def stops_of(looks: Iterable[Evidence]) -> tuple[Stops, ...]:
    """The stops of every process in these looks at a job, the longest first; only native frames need them."""
    ranks: dict[int | None, int] = {}
    stopped: dict[int, list[float]] = {}
    for evidence in looks:
        ranks |= rank_by_pid(evidence)
        for sample in evidence.stacks:
            if sample.native or sample.stopped_s:
                stopped.setdefault(sample.pid, []).append(1000.0 * sample.stopped_s)
    stops: list[Stops] = []
    for pid, each_ms in stopped.items():
        sum_ms, longest_ms = round(sum(each_ms)), round(max(each_ms))
        stops.append(Stops(pid=pid, rank=ranks.get(pid), times=len(each_ms), sum_ms=sum_ms, longest_ms=longest_ms))
    return tuple(sorted(stops, key=lambda one: (-one.sum_ms, one.pid)))


def untouched(looks: Iterable[Evidence]) -> str:
    """What was done to a job that is not ours: nobody was signalled, and so often and so long its processes stopped."""
    return f"nothing was signalled or ended; {sentence(stops_of(looks))}"


def sentence(stops: Sequence[Stops], *, most: int | None = None) -> str:
    """``to see native frames process 4906 was stopped ...``, or that none was; at most ``most`` are named."""
    if not stops:
        return "no process was stopped to look at it"
    named = stops if most is None else stops[:most]
    parts = list(map(str, named))
    rest = stops[len(named) :]
    if rest:
        times, sum_ms = max(one.times for one in rest), max(one.sum_ms for one in rest)
        at_most = f"at most {count(times, 'time')} and {sum_ms:,} ms each"
        parts.append(f"{count(len(rest), 'more process')} {at_most}, as the report says")
    who = "it was" if len(stops) == 1 else "all were"
    each_time = " each time" if any(one.times > 1 for one in stops) else ""
    return f"to see native frames {'; '.join(parts)}; {who} let go on{each_time}"
