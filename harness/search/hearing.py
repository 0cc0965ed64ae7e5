"""Hearing: what a search is told of what happened. A trial that the machine spoiled is simply asked again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from harness.core.campaign import Override
from harness.core.verdict import Kind

if TYPE_CHECKING:
    from harness.core.point import Point
    from harness.core.record import TrialRecord
    from harness.search.strategies import Search


class Hearing:
    """Tells ``search`` each fact once, but for controls.

    After ``infra_retries`` spoiled trials in a row a cell counts as unresolved.
    """

    def __init__(self, search: Search, *, infra_retries: int) -> None:
        self.search = search
        self.infra_retries = infra_retries
        self._spoiled: Counter[Point] = Counter()

    def hear(self, fact: TrialRecord | Override) -> bool:
        """Take in one fact; whether the search was told."""
        if isinstance(fact, Override):
            self.search.tell(cell=fact.cell, answer=fact.answer, seconds=0.0)
            return True
        if fact.trial.is_control:
            return False
        cell = fact.trial.point
        self._spoiled[cell] = self._spoiled[cell] + 1 if fact.verdict.kind is Kind.INFRA else 0
        if 0 < self._spoiled[cell] <= self.infra_retries:
            return False
        self._spoiled[cell] = 0
        slow = fact.verdict.kind is Kind.SLOW or fact.verdict.cause == "limit-too-short"
        seconds = fact.outcome.duration_s
        self.search.tell(cell=cell, answer=fact.answer, seconds=seconds, slow=slow, soft=fact.is_cut)
        return True
