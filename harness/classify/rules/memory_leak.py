"""Memory ran out, and it had grown with every step before: a leak, not a step that is too large."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.rules.oom import oom
from harness.core.verdict import Confidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.devices import MemoryMark
    from harness.core.verdict import Case, Verdict

MARKS = 5
"""Steps that it takes to speak of growth; the first one, which builds caches and optimizer state, not counted."""

STEADY = 0.5
"""How far a step's growth may be from the typical one's, as a share of it, for most steps."""

LARGE = 0.25
"""Share of what it held in the end that must have come by this growth."""


def memory_leak(case: Case) -> Verdict | None:
    """The OOM verdict with this cause, when the same amount came with nearly every step and makes up a large part."""
    verdict = oom(case)
    if verdict is None:
        return None
    rank = verdict.rank or 0
    marks = [mark for mark in case.evidence.measurement.memory if mark.rank == rank][1:]
    for where, held in (
        ("on the GPU", [mark.gpu_allocated_bytes for mark in marks]),
        ("of the process", [mark.rss_bytes for mark in marks]),
    ):
        if (growth := steady_growth(held)) is not None:
            return _leak(verdict, marks, growth, held, where=where)
    return None


def steady_growth(held: Sequence[float]) -> float | None:
    """Bytes that came with nearly every step; None when memory did not grow so."""
    if len(held) < MARKS:
        return None
    steps = [after - before for before, after in itertools.pairwise(held)]
    typical = sorted(steps)[len(steps) // 2]
    steady = sum(abs(step - typical) <= STEADY * typical for step in steps)
    if typical <= 0 or steady < 0.8 * len(steps) or held[-1] - held[0] < LARGE * held[-1]:
        return None
    return typical


def _leak(
    verdict: Verdict, marks: Sequence[MemoryMark], growth: float, held: Sequence[float], *, where: str
) -> Verdict:
    mib = 2**20
    because = (
        f"memory {where} grew by {growth / mib:.1f} MiB with every step, from {held[0] / mib:.0f} MiB after step "
        f"{marks[0].step} to {held[-1] / mib:.0f} MiB after step {marks[-1].step}, until it ran out: {verdict.because}"
    )
    cites = tuple(dict.fromkeys((*verdict.cites, "progress")))
    name = (verdict.signature or "OOM").replace("OOM", "OOM memory-leak", 1)
    return replace(
        verdict,
        cause="memory-leak",
        because=because,
        cites=cites,
        confidence=Confidence.HIGH,
        signature=name,
    )
