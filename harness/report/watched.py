"""Watched: what whoever finds the report of a job that was only watched must know of it, and what to do next.

One place for both: the terminal of ``watch``, the page, its other forms and the journal's status take them from here.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.node import in_words
from harness.core.verdict import Kind
from harness.report.clean import clean
from harness.report.stacks import rank_by_pid
from harness.report.text import count, named_path, seconds, wrap
from harness.report.words import WHO_MAY_LOOK, NextStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.campaign import ForeignJob
    from harness.core.evidence import Evidence
    from harness.core.verdict import Verdict


OVER = "the job has ended since, how nobody saw; this is its last look"

PAUSED = frozenset({"paused", "stopped"})
"""Causes of what a signal has stopped, undecided or a hang."""

LONGEST = 400
"""Characters of a command line that a terminal shows."""

OTHERS = 4
"""So many programs that run beside a job are shown."""

ENDERS = frozenset({"kill", "scancel"})
"""The commands that end a job; what does not begin with one says in words how it ends."""

SEE_WHY = "See what is in the way with: nsa-harness doctor."
LATER = "Look again later, or with --follow: what it waits for may come."

NEXT = {
    "moving": "Busy is not the same as progress: watch it with --follow to be told when it stops.",
    "ended-meanwhile": (
        "Look at its exit status and its output; nsa-harness run -- COMMAND keeps both, and judges its end."
    ),
    "may-be-endless": "nsa-harness run -- COMMAND can read the variables of a script's own level, and decide.",
}
"""What to do next about a watched job that is undecided, by the cause."""

PROGRESSES = "Nothing is to be done: it progresses. Watch it with --follow to be told when it stops."
"""The same about one that is seen to get on."""


def watched_step(verdict: Verdict, evidence: Evidence | None, job: ForeignJob | None) -> NextStep | None:
    """What to do about a watched job; None where it hangs and nobody knows what would end it."""
    if job is not None and job.is_over:
        return NextStep(text=NEXT["ended-meanwhile"])
    stopped: list[int] = []
    if evidence is not None and verdict.cause in PAUSED:
        last = {look.pid: look.state for look in evidence.processes}
        stopped = [pid for pid, state in last.items() if state == "T"]
    if stopped:
        words = tuple(" ".join(map(in_words, stopped)).split())
        return NextStep(text="It goes on with:", command=("kill", "-CONT", *words))
    if verdict.kind is Kind.SLOW:
        return NextStep(text=PROGRESSES)
    if verdict.kind is not Kind.UNRESOLVED:
        return _to_end(job.end_it if job is not None else "")
    if verdict.cause == "not-looked-into" and evidence is not None:
        is_not_allowed = any(failure.not_allowed for failure in evidence.failures)
        return NextStep(text=f"{WHO_MAY_LOOK[0].upper()}{WHO_MAY_LOOK[1:]}." if is_not_allowed else SEE_WHY)
    return NextStep(text=NEXT.get(verdict.cause or "", LATER))


def _to_end(end_it: str) -> NextStep | None:
    text = "When you have seen enough, end the job with:"
    if not end_it:
        return None
    if end_it.partition(" ")[0] in ENDERS:
        return NextStep(text=text, command=tuple(shlex.split(end_it)))
    return NextStep(text=f"{text} {end_it}.")


def whereabouts(job: ForeignJob) -> str:
    """``in /work, on gpu-7, running for 3 h 4 min when the watch began``, and what runs beside it, if that is known."""
    parts = [f"in {job.directory}"] if job.directory else []
    parts += [f"on {job.host}"] if job.host else []
    parts += [f"running for {seconds(job.age_s)} when the watch began"] if job.age_s is not None else []
    others = [other if len(other) <= LONGEST else f"{other[:LONGEST]} .." for other in job.others[:OTHERS]]
    others += [f"{len(job.others) - OTHERS} more"] if len(job.others) > OTHERS else []
    beside = [f"beside it: {'; '.join(others)}"] if others else []
    return "; ".join([*([", ".join(parts)] if parts else []), *beside])


def job_lines(job: ForeignJob | None) -> list[str]:
    """The command line of a job and where it runs, for a terminal; nothing where neither is known."""
    if job is None or not (job.command or whereabouts(job)):
        return []
    line = clean(job.command)
    shown = line if len(line) <= LONGEST else f"{line[:LONGEST]} .. (report.json has all of it)"
    named = named_path("job", shown) if shown else ["job:"]
    return ["", *named, *wrap(clean(whereabouts(job)), indent="  ")]


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
    return f"nothing was signalled or ended; {stops_in_words(stops_of(looks))}"


def stops_in_words(stops: Sequence[Stops], *, most: int | None = None) -> str:
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
