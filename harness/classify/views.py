"""The ranks of a case, one by one: each as if it were the whole trial, where it is and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from harness.classify.facts import job_of_case, place, remember, remembered, silence
from harness.classify.messages import is_consequence
from harness.core.outcome import Ending
from harness.reading.frames import spell

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from harness.core.evidence import Evidence, EvidenceId, ProcessState, RankFacts, StackSample
    from harness.core.outcome import Outcome
    from harness.core.verdict import Case
    from harness.reading.meeting import Meeting
    from harness.reading.standing import Standing

_Record = TypeVar("_Record", "StackSample", "ProcessState")

STILL_THERE = frozenset({Ending.STOPPED_BY_US, Ending.STILL_RUNNING})
"""Endings of a trial in which ranks that have not ended were there to the end of the watch."""

START = "start"
"""The phase of a rank that has not made its first mark: it may not even have met the others."""


class _Citable(Protocol):
    """Whatever was made of several pieces of evidence: a rank, a process, a GPU, a loop."""

    @property
    def ids(self) -> tuple[EvidenceId, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """One rank: ``case`` is the trial as if this rank were all of it, ``standing`` what it did in the silence."""

    facts: RankFacts
    case: Case
    standing: Standing | None

    @property
    def rank(self) -> int:
        """Its number."""
        return self.facts.rank

    @property
    def meeting(self) -> Meeting | None:
        """What its stacks agree that it waits for, of other ranks or of its GPU."""
        return self.standing.meeting if self.standing is not None else None

    @property
    def samples(self) -> tuple[StackSample, ...]:
        """The stacks of its process in the silence."""
        return self.standing.samples if self.standing is not None else ()

    @property
    def there(self) -> bool:
        """Whether its process was still there when the watch ended, without having said that it failed."""
        return self.facts.exit is None and not self.raised and self.case.outcome.ending in STILL_THERE

    @property
    def vanished(self) -> bool:
        """Whether it is gone without a word: the job ended by itself, and nobody says how this rank did."""
        silent = self.facts.exit is None and self.facts.result is None
        return silent and self.case.outcome.ending not in STILL_THERE

    @property
    def raised(self) -> bool:
        """Whether it said that an exception ended it."""
        return self.facts.result is not None and self.facts.result.status == "raised"

    @property
    def failed(self) -> bool:
        """Whether it raised, was ended by a signal, exited with an error, or exited before it was done."""
        exit_, result = self.facts.exit, self.facts.result
        if self.raised:
            return True
        if exit_ is None:
            return False
        if exit_.signal is not None or exit_.code:
            return True
        wanted = self.case.evidence.steps_wanted
        return exit_.code == 0 and result is None and self.facts.steps_done < wanted

    @property
    def follows(self) -> bool:
        """Whether its failure is what a rank says that lost another one."""
        result = self.facts.result
        return self.raised and result is not None and is_consequence(result)

    @property
    def phase(self) -> str:
        """Where it was by its last mark."""
        return self.facts.last.phase if self.facts.last else START

    @property
    def silence(self) -> str:
        """``rank 1 silent for 9.2 s in backward of step 1 (stall limit 4.0 s)``."""
        return silence(self.case, of_rank=self.rank)

    @property
    def marks(self) -> int:
        """How far it came: ranks of one program make the same marks in the same order, and number them.

        They are not counted: of a program that makes too many, only some are seen.
        """
        return self.facts.last.seq if self.facts.last else self.facts.heartbeats_total

    @property
    def ids(self) -> tuple[str, ...]:
        """What to cite of it."""
        result = (self.facts.result.id,) if self.facts.result is not None else ()
        return (self.facts.id, *(self.standing.ids if self.standing is not None else ()), *result)


def views_of(case: Case) -> tuple[RankView, ...]:
    """Every rank of the case, in order; made once for all the rules that judge it."""
    if not case.evidence.ranks:
        return ()
    if remembered(case):
        return remembered(case)
    job = job_of_case(case)
    stacks, processes = _by_rank(case.evidence.stacks), _by_rank(case.evidence.processes)
    views: list[RankView] = []
    for facts in case.evidence.ranks:
        looks = processes.get(facts.rank, ())
        evidence = _evidence(case, facts, stacks=stacks.get(facts.rank, ()), processes=looks)
        standing = job.stand.get(facts.pid) if facts.pid is not None else None
        one = replace(case, evidence=evidence, outcome=_outcome(case.outcome, facts))
        views.append(RankView(facts=facts, case=one, standing=standing))
    remember(case, views)
    return tuple(views)


def has_failed(case: Case) -> bool:
    """Whether a rank of the case has."""
    return any(view.failed for view in views_of(case))


def still_there(views: Iterable[RankView]) -> list[RankView]:
    """Those whose process was there to the end."""
    return [view for view in views if view.there]


def absent_and_waiting(views: Iterable[RankView]) -> tuple[list[RankView], list[RankView]]:
    """Those whose stacks show no wait for other ranks or for a GPU, and those that wait so."""
    absent: list[RankView] = []
    waiters: list[RankView] = []
    for view in views:
        if view.meeting is None:
            absent.append(view)
        else:
            waiters.append(view)
    return absent, waiters


def with_ranks(views: Iterable[RankView], ranks: Container[int]) -> list[RankView]:
    """Those of these ranks."""
    return [view for view in views if view.rank in ranks]


def others_than(view: RankView, views: Iterable[RankView]) -> list[RankView]:
    """All of them but this one."""
    return [other for other in views if other is not view]


def who(views: Iterable[RankView]) -> str:
    """``rank 3``, ``ranks 0, 1 and 2``."""
    return names([view.rank for view in views])


def names(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0, 1 and 2``."""
    texts = list(map(str, ranks))
    return f"rank {texts[0]}" if len(texts) == 1 else f"ranks {', '.join(texts[:-1])} and {texts[-1]}"


def waiting(views: Sequence[RankView]) -> str:
    """``rank 0 waits in all_reduce, called from step (train.py:20), in reduce of step 1``, of ranks that wait alike."""
    meeting = views[0].meeting
    assert meeting is not None, "only ranks that wait are described so"
    verb = "waits" if len(views) == 1 else "wait"
    preposition = "for" if meeting.kind == "gpu" else "in"
    called = ""
    is_one_place = all(view.meeting is not None and view.meeting.frame == meeting.frame for view in views)
    if meeting.frame is not None and meeting.kind != "gradients" and is_one_place:
        called = f", called from {spell(meeting.frame)}"
    where = f", {place(views[0].case)}" if views[0].facts.last is not None else ""
    stage = f", which {meeting.stage}" if meeting.stage else ""
    return f"{who(views)} {verb} {preposition} {meeting.name}{stage}{called}{where}"


def alike(views: Iterable[RankView]) -> list[list[RankView]]:
    """Ranks that wait in the same call, together; the largest group first."""
    groups: dict[object, list[RankView]] = {}
    for view in views:
        groups.setdefault(view.meeting, []).append(view)
    return sorted(groups.values(), key=len, reverse=True)


def cited(citables: Iterable[_Citable]) -> tuple[EvidenceId, ...]:
    """What there is to cite of these ranks, processes, GPUs or loops."""
    ids: list[EvidenceId] = []
    for one in citables:
        ids += one.ids
    return tuple(ids)


def _by_rank(records: Iterable[_Record]) -> dict[int, tuple[_Record, ...]]:
    by_rank: dict[int, list[_Record]] = {}
    for record in records:
        by_rank.setdefault(record.rank, []).append(record)
    return {rank: tuple(of_rank) for rank, of_rank in by_rank.items()}


def _evidence(
    case: Case, facts: RankFacts, *, stacks: tuple[StackSample, ...], processes: tuple[ProcessState, ...]
) -> Evidence:
    """What was seen of one rank, as if it were the whole trial."""
    return replace(
        case.evidence,
        steps_done=facts.steps_done,
        heartbeats=facts.heartbeats,
        heartbeats_total=facts.heartbeats_total,
        silence_s=facts.silence_s,
        stacks=stacks,
        processes=processes,
        result=facts.result,
        ranks=(),
        main=facts.pid or 0,
    )


def _outcome(outcome: Outcome, facts: RankFacts) -> Outcome:
    """How this rank ended: by itself, or with the whole trial."""
    if facts.exit is None:
        return outcome
    ending = Ending.SIGNALLED if facts.exit.signal is not None else Ending.EXITED
    return replace(
        outcome, ending=ending, exit=facts.exit, stopped_by=None, duration_s=facts.ended_s or outcome.duration_s
    )
