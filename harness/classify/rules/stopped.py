"""The process is in state T: somebody stopped it, and nobody continues it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import conclude, main_pid, silence, silence_began_s, silent_too_long
from harness.classify.signature import signature
from harness.core.movement import STOPPED_S, stopped_s
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict


def stopped(case: Case) -> Verdict | None:
    """State T at every look of five seconds or more, up to the last. A debugger's stop is another state (t)."""
    if not silent_too_long(case):
        return None
    pid, since_s = main_pid(case), silence_began_s(case)
    looks = [p for p in case.evidence.processes if p.pid == pid and p.t_s > since_s]
    in_state_t = [look for look in looks if look.state == "T"]
    if stopped_s(looks) < STOPPED_S:
        return None
    return conclude(
        case,
        Kind.HANG,
        rule="stopped",
        cause="stopped",
        because=f"{silence(case)}; state T (stopped by a signal) at {len(in_state_t)} of {len(looks)} looks, "
        f"for {stopped_s(looks):.1f} s",
        cites=(*(look.id for look in in_state_t), "progress"),
        confidence=Confidence.PROOF,
        signature=signature(Kind.HANG, "stopped", ()),
    )
