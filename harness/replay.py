"""Replay: a run's journal played through a fresh search. Runs nothing, writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.core.campaign import Override
from harness.core.codec import from_json
from harness.core.point import Point
from harness.core.record import TrialRecord
from harness.core.spec import Allowance
from harness.core.trial import control_of
from harness.search.afterwards import AGAIN
from harness.search.strategies import Hearing
from harness.store.history import History, read_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.boundary import PlanEstimate
    from harness.core.campaign import CampaignSpec
    from harness.core.ports import CellRequest
    from harness.search.strategies import Search

AT_ONCE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedDecision:
    """One decision as the journal has it: ``line`` of the file, and what the search would ask there now."""

    line: int
    cell: Point
    role: str
    reason: str
    now: tuple[CellRequest, ...]

    @property
    def same(self) -> bool:
        """Whether the search still decides like that; controls, and what is run once more, come when it is over."""
        if self.role == AGAIN or control_of(self.role):
            return not self.now
        return any((request.cell, request.role) == (self.cell, self.role) for request in self.now)


@dataclass(slots=True)
class Replayed:
    """A run's search as its journal leaves it."""

    question: CampaignSpec
    steps: list[ReplayedDecision] = field(default_factory=list[ReplayedDecision])
    facts: list[TrialRecord | Override] = field(default_factory=list["TrialRecord | Override"])
    hearing: Hearing = field(init=False)

    def __post_init__(self) -> None:
        self.hearing = Hearing(self.question)

    @property
    def search(self) -> Search:
        """The search."""
        return self.hearing.search

    @property
    def differing(self) -> tuple[ReplayedDecision, ...]:
        """Decisions that the search would not take like that any more: edited by hand, or made by other code."""
        return tuple(step for step in self.steps if not step.same)

    def take(self, fact: TrialRecord | Override) -> None:
        """Tell the search one more fact."""
        self.facts.append(fact)
        self.hearing.hear(fact)

    def anew(self, question: CampaignSpec, facts: Sequence[TrialRecord | Override]) -> None:
        """From here on it is a fresh search for ``question``, that knows ``facts``."""
        self.question, self.facts, self.hearing = question, [], Hearing(question)
        for fact in facts:
            self.take(fact)


def replay(run_dir: Path) -> Replayed:
    """Play the journal of ``run_dir``, decision by decision, through a fresh search.

    Raises:
        StoreError: it is not a run directory, or its journal cannot be read.
    """
    history = History.read(run_dir)
    played = Replayed(beyond(history.asked, history.reused()))
    lines, _ = read_lines(run_dir)
    for line in lines:
        match line.event:
            case "header" if "allowance" in line.data:
                question = played.question.within(from_json(Allowance, line.data["allowance"]))
                played.anew(question, played.facts)
            case "decision":
                step = ReplayedDecision(
                    line=line.number,
                    cell=from_json(Point, line.data["cell"]),
                    role=str(line.data["role"]),
                    reason=str(line.data["reason"]),
                    now=played.search.ready(AT_ONCE),
                )
                played.steps.append(step)
            case "said":
                played.take(from_json(Override, line.data))
            case "record" | "reuse":
                played.take(from_json(TrialRecord, line.data["record"]))
            case "undo":
                played.anew(played.question, played.facts[: -int(line.data["count"])])
            case _:
                pass
    return played


def foreseen(question: CampaignSpec, counted: Sequence[TrialRecord], *, pass_s: float | None) -> PlanEstimate:
    """What ``question`` is expected to cost on top of ``counted``, which earlier runs have paid for.

    ``pass_s`` is how long a pass took there, None where none is known.
    """
    hearing = Hearing(beyond(question, counted))
    if pass_s is not None:
        hearing.search.expect_pass(pass_s)
    for record in counted:
        hearing.hear(record)
    return hearing.search.estimate()


def beyond(question: CampaignSpec, reused: Sequence[TrialRecord]) -> CampaignSpec:
    """``question`` with limits for what comes on top of ``reused``."""
    effort = question.matrix.effort.beyond(record.outcome.duration_s for record in reused)
    return replace(question, matrix=replace(question.matrix, effort=effort))
