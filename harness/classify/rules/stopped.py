"""The process is in state T: somebody stopped it, and nobody continues it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import conclude, main_pid, silence, silence_began_s, silent_too_long
from harness.classify.signature import signature
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict


def stopped(case: Case) -> Verdict | None:
    """State T at the last two looks or more. A tracer's stop is the lower-case t, and does not count."""
    if not silent_too_long(case):
        return None
    pid, since_s = main_pid(case), silence_began_s(case)
    looks = [p for p in case.evidence.processes if p.pid == pid and p.t_s > since_s]
    in_state_t = [look for look in looks if look.state == "T"]
    if len(in_state_t) < 2 or looks[-1].state != "T":
        return None
    return conclude(
        case,
        Kind.HANG,
        rule="stopped",
        cause="stopped",
        because=f"{silence(case)}; state T (stopped by a signal) at {len(in_state_t)} of {len(looks)} looks",
        cites=(*(look.id for look in in_state_t), "progress"),
        confidence=Confidence.PROOF,
        signature=signature(Kind.HANG, "stopped", ()),
    )
