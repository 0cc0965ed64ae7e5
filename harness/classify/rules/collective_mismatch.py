"""Every rank waits for the others, but not in the same call: they can never meet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import conclude, place, silence, silent_too_long
from harness.classify.ranks import alike, cited, views_of, waiting, who
from harness.classify.signature import signature
from harness.core.collective import INCOMPARABLE
from harness.core.verdict import Alternative, Confidence, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.classify.ranks import RankView
    from harness.core.verdict import Case, Verdict


def collective_mismatch(case: Case) -> Verdict | None:
    """Which rank is at fault: the one that is alone, or else the one that went past the call the others wait in.

    With DDP, a rank that is past the backward in which the others wait for gradients had parameters without one.
    """
    if not silent_too_long(case):
        return None
    there = [view for view in views_of(case) if view.there]
    waits = [view.wait for view in there]
    if len(there) < 2 or any(wait is None or wait.kind in INCOMPARABLE for wait in waits) or len(set(waits)) < 2:
        return None
    if not all(view.moved is None or view.moved.asleep for view in there):
        return None  # a transfer may be going on
    if any(view.failed for view in views_of(case)):
        return None
    groups = alike(there)
    fault, how = _fault(groups)
    unused = _past_gradients(groups)
    cause = "unused-parameter" if unused else "collective-mismatch"
    fault = unused or fault
    told = "; ".join(waiting(group) for group in groups)
    which = f"{who(fault)} {how}" if fault else "nothing shows whose call is the wrong one"
    if unused:
        which = (
            f"{who(unused)} ended backward without waiting for all gradients, which DDP does when a parameter of "
            "that rank had none"
        )
    # Where the call was made that the others never come to: there progress stopped, and there the fault is.
    behind = min(there, key=lambda view: view.marks)
    verdict = conclude(
        behind.case,
        Kind.HANG,
        rule="collective_mismatch",
        cause=cause,
        because=f"{told}; these calls never meet; {which}; {silence(case)}",
        cites=(*cited(there), "progress"),
        confidence=Confidence.HIGH if fault else Confidence.MEDIUM,
        signature=signature(Kind.HANG, cause, (wait.name for wait in waits if wait is not None)),
    )
    rank = fault[0].rank if len(fault) == 1 else None
    return replace(verdict, rank=rank, alternatives=_alternatives(groups, fault))


def _fault(groups: Sequence[Sequence[RankView]]) -> tuple[list[RankView], str]:
    """The ranks that part from the rest, and in which way."""
    most, *others = groups
    odd = [view for group in others for view in group]
    if len(odd) < len(most):
        ahead = all(view.marks > most[0].marks for view in odd)
        how = f"went past it ({place(odd[0].case)})" if ahead else "waits in a call that the others do not make"
        return odd, how
    furthest = max(view.marks for view in (*most, *odd))
    ahead = [view for view in (*most, *odd) if view.marks == furthest]
    behind = [view for view in (*most, *odd) if view.marks < furthest]
    if not behind:
        return [], ""
    return ahead, f"never came to the call that {who(behind)} wait{'s' if len(behind) == 1 else ''} in and is past it"


def _past_gradients(groups: Sequence[Sequence[RankView]]) -> list[RankView]:
    """Ranks that are past the backward in which others wait for DDP's gradients."""
    kept = [view for group in groups for view in group if view.wait and view.wait.kind == "gradients"]
    if not kept:
        return []
    return [view for group in groups for view in group if view not in kept and view.marks > kept[0].marks]


def _alternatives(groups: Sequence[Sequence[RankView]], fault: Sequence[RankView]) -> tuple[Alternative, ...]:
    """Of two equal sides, either may have the wrong call: stacks cannot tell, the source of both calls can."""
    if len(groups) != 2 or len(groups[0]) != len(groups[1]):
        return ()
    other = groups[0] if groups[1] and groups[1][0] in fault else groups[1]
    missing = who(fault) if fault else "the other"
    return (
        Alternative(
            cause="collective-mismatch",
            because=f"{who(other)} makes one call too many, rather than {missing} one too few",
            supports=("both sides have as many ranks",),
            against=(),
            experiment="run it with one more rank: the side with fewer ranks is the wrong one",
        ),
    )
