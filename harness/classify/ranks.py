"""The ranks of a case, one by one: each as if it were the whole trial, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.classify.facts import place
from harness.classify.frames import silent_samples, spell
from harness.classify.messages import is_consequence
from harness.classify.motion import motion
from harness.core.collective import agreed_wait
from harness.core.outcome import Ending

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.classify.motion import Motion
    from harness.core.collective import Wait
    from harness.core.evidence import RankFacts, StackSample
    from harness.core.outcome import Outcome
    from harness.core.verdict import Case


STILL_THERE = frozenset({Ending.STOPPED_BY_US, Ending.STILL_RUNNING})
"""Endings of a trial in which ranks that have not ended were there to the end of the watch."""

START = "start"
"""The phase of a rank that has not made its first mark: it may not even have met the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """One rank: ``case`` is the trial as if this rank were all of it, ``wait`` what its stacks agree it waits for."""

    facts: RankFacts
    case: Case
    samples: tuple[StackSample, ...]
    wait: Wait | None
    moved: Motion | None

    @property
    def rank(self) -> int:
        """Its number."""
        return self.facts.rank

    @property
    def there(self) -> bool:
        """Whether its process was still there when the watch ended, without having said that it failed."""
        return self.facts.exit is None and not self.raised and self.case.outcome.ending in STILL_THERE

    @property
    def vanished(self) -> bool:
        """Whether it is gone without a word: the job ended by itself, and nobody says how this rank did."""
        unsaid = self.facts.exit is None and self.facts.result is None
        return unsaid and self.case.outcome.ending not in STILL_THERE

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
        return self.raised and result is not None and is_consequence(result.exception, result.message)

    @property
    def phase(self) -> str:
        """Where it was by its last mark."""
        return self.facts.last.phase if self.facts.last else START

    @property
    def marks(self) -> int:
        """How far it came: ranks of one program make the same marks in the same order, and number them.

        They are not counted: of a program that makes too many, only some are seen.
        """
        return self.facts.last.seq if self.facts.last else self.facts.heartbeats_total


def views_of(case: Case) -> tuple[RankView, ...]:
    """Every rank of the case, in order."""
    return tuple(_view(case, facts) for facts in case.evidence.ranks)


def who(views: Iterable[RankView]) -> str:
    """``rank 3``, ``ranks 0, 1 and 2``."""
    names = [str(view.rank) for view in views]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def waiting(views: Sequence[RankView]) -> str:
    """``rank 0 waits in all_reduce, called from step (train.py:20), in reduce of step 1``, of ranks that wait alike."""
    wait = views[0].wait
    assert wait is not None, "only ranks that wait are described so"
    verb = "waits" if len(views) == 1 else "wait"
    preposition = "for" if wait.kind == "gpu" else "in"
    called = f", called from {spell(wait.frame)}" if wait.frame is not None and wait.kind != "gradients" else ""
    where = f", {place(views[0].case)}" if views[0].facts.last is not None else ""
    return f"{who(views)} {verb} {preposition} {wait.name}{called}{where}"


def alike(views: Iterable[RankView]) -> list[list[RankView]]:
    """Ranks that wait in the same call, together; the largest group first."""
    groups: dict[object, list[RankView]] = {}
    for view in views:
        groups.setdefault(view.wait, []).append(view)
    return sorted(groups.values(), key=len, reverse=True)


def cited(views: Iterable[RankView]) -> tuple[str, ...]:
    """What there is to cite of these ranks: their facts, stacks and looks."""
    ids: list[str] = []
    for view in views:
        ids += [view.facts.id, *(sample.id for sample in view.samples), *(view.moved.ids if view.moved else ())]
        ids += [view.facts.result.id] if view.facts.result is not None else []
    return tuple(ids)


def _view(case: Case, facts: RankFacts) -> RankView:
    evidence = replace(
        case.evidence,
        steps_done=facts.steps_done,
        heartbeats=facts.heartbeats,
        heartbeats_total=facts.heartbeats_total,
        silence_s=facts.silence_s,
        stacks=tuple(s for s in case.evidence.stacks if s.rank == facts.rank),
        processes=tuple(p for p in case.evidence.processes if p.rank == facts.rank),
        result=facts.result,
        ranks=(),
    )
    alone = replace(case, evidence=evidence, outcome=_outcome(case.outcome, facts))
    samples = silent_samples(alone)
    return RankView(facts=facts, case=alone, samples=samples, wait=agreed_wait(samples), moved=motion(alone))


def _outcome(outcome: Outcome, facts: RankFacts) -> Outcome:
    """How this rank ended: by itself, or with the whole trial."""
    if facts.exit is None:
        return outcome
    ending = Ending.SIGNALLED if facts.exit.signal is not None else Ending.EXITED
    return replace(
        outcome, ending=ending, exit=facts.exit, stopped_by=None, duration_s=facts.ended_s or outcome.duration_s
    )
