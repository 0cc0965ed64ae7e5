"""Every rank is in the same collective, and it does not end: what is left is what connects them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import conclude, silence, silent_too_long, watched_out
from harness.classify.ranks import cited, views_of, waiting
from harness.classify.signature import signature
from harness.core.collective import INCOMPARABLE
from harness.core.verdict import Alternative, Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict


def collective_stuck(case: Case) -> Verdict | None:
    """After four times the limit, and only when nothing moved in any rank: a slow network moves bytes."""
    if not silent_too_long(case) or not watched_out(case):
        return None
    views = views_of(case)
    there = [view for view in views if view.there]
    waits = {view.wait for view in there}
    if len(there) < len(views) or len(waits) != 1 or any(wait is None or wait.kind in INCOMPARABLE for wait in waits):
        return None
    if not all(view.moved is not None and view.moved.asleep for view in there):
        return None
    verdict = conclude(
        case,
        Kind.HANG,
        rule="collective_stuck",
        cause="collective-stuck",
        because=f"{waiting(there)}: all ranks are there, none moves, and it does not end; {silence(case)}",
        cites=(*cited(there), "progress"),
        confidence=Confidence.MEDIUM,
        signature=signature(Kind.HANG, "collective-stuck", (wait.name for wait in waits if wait is not None)),
    )
    return replace(verdict, rank=None, alternatives=ALTERNATIVES)


ALTERNATIVES = (
    Alternative(
        cause="network",
        because="the connection between two ranks is dead or dropped a message",
        supports=("every rank waits in the same call",),
        against=(),
        experiment="run all ranks on one host over the loopback (GLOO_SOCKET_IFNAME=lo, or NCCL_SOCKET_IFNAME=lo)",
    ),
    Alternative(
        cause="collective-mismatch",
        because="the calls look alike but differ in shape, type or process group",
        supports=(),
        against=("every rank is at the same line",),
        experiment="print shape, type and group on every rank right before the call, and compare",
    ),
)
