"""Several ranks, and no rule knows: where each of them is, and what would decide."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import conclude, stopped_by_limit
from harness.classify.ranks import alike, cited, views_of, waiting
from harness.classify.rules.hung_busy import is_busy
from harness.classify.rules.unresolved import unresolved
from harness.core.verdict import Alternative, Confidence, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.classify.ranks import RankView
    from harness.core.verdict import Case, Verdict


def ranks_unresolved(case: Case) -> Verdict:
    """UNRESOLVED. Where one rank works while the others wait for it, it is named: late, or in a loop without an end."""
    views = views_of(case)
    there = [view for view in views if view.there]
    absent = [view for view in there if view.wait is None]
    others = [view for view in there if view.wait is not None]
    if not stopped_by_limit(case) or not others or not absent:
        return replace(unresolved(case), rule="ranks_unresolved")
    works = [view for view in absent if view.moved is not None and is_busy(view.moved)]
    told = [waiting(group) for group in alike(others)]
    told += [f"rank {view.rank}: {unresolved(view.case).because}" for view in absent]
    view = (works or absent)[0]
    verdict = conclude(
        view.case,
        Kind.UNRESOLVED,
        rule="ranks_unresolved",
        cause="straggler" if works else unresolved(view.case).cause,
        because="; ".join(told),
        cites=(*cited(views), *(failure.id for failure in case.evidence.failures), "progress", "exit"),
        confidence=Confidence.LOW,
    )
    return replace(verdict, rank=view.rank if len(absent) == 1 else None, alternatives=_alternatives(works))


def _alternatives(works: Sequence[RankView]) -> tuple[Alternative, ...]:
    if not works:
        return ()
    name = f"rank {works[0].rank}"
    more = "run it again with a stall limit ten times as long: a rank that is merely late will have come by then"
    return (
        Alternative(
            cause="straggler",
            because=f"{name} has more to do than the others, or does it on a busier core",
            supports=(f"{name} uses its CPU",),
            against=(),
            experiment=more,
        ),
        Alternative(
            cause="infinite-loop",
            because=f"{name} works on something that does not end",
            supports=(f"{name} has not made a mark",),
            against=(),
            experiment=more,
        ),
    )
