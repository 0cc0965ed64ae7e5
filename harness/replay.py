"""Replay: a run's journal played through a fresh search. Runs nothing, writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness.core.campaign import CampaignSpec, Said, Task
from harness.core.codec import from_json
from harness.core.point import Point
from harness.core.record import TrialRecord
from harness.search.along import Along
from harness.search.hearing import Hearing
from harness.search.own_command import AGAIN
from harness.search.strategies import ready, strategy_of
from harness.store import journal, layout
from harness.store.history import History

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.boundary import PlanEstimate
    from harness.core.ports import CellRequest
    from harness.core.spec import BisectSpec
    from harness.search.strategies import Search

SEARCHING = frozenset({"search", "certify", "confirm", "alternative", AGAIN})
"""Roles whose trials a search is told of."""

AT_ONCE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decision as the journal has it: ``line`` of the file, and what the search would ask there now."""

    line: int
    cell: Point
    role: str
    reason: str
    now: tuple[CellRequest, ...]

    @property
    def same(self) -> bool:
        """Whether the search still decides like that; what is run once more comes when it has nothing to ask."""
        if self.role == AGAIN:
            return not self.now
        return any((request.cell, request.role) == (self.cell, self.role) for request in self.now)


@dataclass(slots=True, kw_only=True)
class Replayed:
    """A run's search as its journal leaves it."""

    search: Search
    steps: list[Step] = field(default_factory=list[Step])
    facts: list[TrialRecord | Said] = field(default_factory=list["TrialRecord | Said"])

    @property
    def differing(self) -> tuple[Step, ...]:
        """Decisions that the search would not take like that any more: edited by hand, or made by other code."""
        return tuple(step for step in self.steps if not step.same)


def replay(run_dir: Path) -> Replayed:
    """Play the journal of ``run_dir``, decision by decision, through a fresh search.

    Raises:
        StoreError: it is not a run directory, or its journal cannot be read.
    """
    history = History.read(run_dir)
    question = _beyond(history.question, history.reused())
    lines, _ = journal.read(layout.journal(run_dir))
    played = Replayed(search=_fresh(question))
    hearing = _hearing(question, played.search)
    for line in lines:
        match line.event:
            case "decision":
                played.steps.append(_step(line.number, line.data, question, played.search))
            case "record" | "reuse" | "said":
                fact = _fact(line.event, line.data)
                if isinstance(fact, Said) or fact.trial.role in SEARCHING:
                    played.facts.append(fact)
                    hearing.hear(fact)
            case "undo":
                kept = played.facts[: -int(line.data["count"])]
                played.search, played.facts = _fresh(question), kept
                hearing = _hearing(question, played.search)
                for fact in kept:
                    hearing.hear(fact)
            case _:
                pass
    return played


def foreseen(question: BisectSpec | CampaignSpec, counted: Sequence[TrialRecord]) -> PlanEstimate:
    """What ``question`` is expected to cost on top of ``counted``, which earlier runs have paid for."""
    search = _fresh(_beyond(question, counted))
    hearing = _hearing(question, search)
    for record in counted:
        hearing.hear(record)
    return search.estimate()


def _beyond(question: BisectSpec | CampaignSpec, reused: Sequence[TrialRecord]) -> BisectSpec | CampaignSpec:
    paid = [record.outcome.duration_s for record in reused]
    if isinstance(question, CampaignSpec):
        return replace(question, matrix=replace(question.matrix, effort=question.matrix.effort.beyond(paid)))
    return replace(question, effort=question.effort.beyond(paid))


def _fresh(question: BisectSpec | CampaignSpec) -> Search:
    if isinstance(question, CampaignSpec):
        return strategy_of(question)
    return Along(question.axis, question.effort, base=question.fixed)


def _hearing(question: BisectSpec | CampaignSpec, search: Search) -> Hearing:
    return Hearing(search, infra_retries=question.matrix.infra_retries if isinstance(question, CampaignSpec) else 2)


def _fact(event: str, data: dict[str, Any]) -> TrialRecord | Said:
    return from_json(Said, data) if event == "said" else from_json(TrialRecord, data["record"])


def _step(line: int, data: dict[str, Any], question: BisectSpec | CampaignSpec, search: Search) -> Step:
    if isinstance(question, CampaignSpec):
        cell = from_json(Point, data["cell"])
        now = ready(search, most=AT_ONCE)
    else:
        cell = question.fixed.with_value(question.axis.name, data["value"])
        now = ready(search, most=1)
    reason = str(data["reason"])
    return Step(line=line, cell=cell, role=str(data["role"]), reason=reason, now=now)


def name_of(question: BisectSpec | CampaignSpec, cell: Point) -> str:
    """A cell in a few words."""
    if isinstance(question, CampaignSpec):
        return question.matrix.space.name_of(cell)
    return f"{question.axis.name}={cell.get(question.axis.name)}"


def is_list(question: BisectSpec | CampaignSpec) -> bool:
    """Whether the run is a list of cells rather than a search."""
    return isinstance(question, CampaignSpec) and question.task is Task.CELLS
