"""Whether a verdict on a specimen is the one that was declared, column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.verdict import Kind

if TYPE_CHECKING:
    from harness.core.outcome import Outcome
    from harness.core.verdict import Verdict
    from harness.specimens.catalog import Specimen


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Which columns are right; None where the specimen declares nothing, or did not strike.

    ``wrong`` says every difference in words, those that have no column included.
    """

    kind: bool
    cause: bool | None = None
    rank: bool | None = None
    phase: bool | None = None
    wrong: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether everything is as declared."""
        return not self.wrong


def score(specimen: Specimen, verdict: Verdict, outcome: Outcome) -> Score:
    """``verdict`` and ``outcome`` held against what ``specimen`` declares."""
    if verdict.kind not in specimen.kinds:
        kinds = " or ".join(specimen.kinds)
        why = f"expected {kinds}, got {verdict} by rule {verdict.rule}: {verdict.because}"
        return Score(kind=False, wrong=(why, *_leftovers(specimen, outcome)))
    if verdict.kind is not specimen.expect or verdict.kind is Kind.PASS:
        return Score(kind=True, wrong=_leftovers(specimen, outcome))
    columns = {
        "cause": (specimen.cause, verdict.cause),
        "rank": (specimen.verdict_rank, verdict.rank),
        "phase": (specimen.verdict_phase, verdict.phase),
    }
    right: dict[str, bool | None] = {}
    wrong: list[str] = []
    for name, (declared, got) in columns.items():
        right[name] = None if declared is None else declared == got
        if right[name] is False:
            wrong.append(f"expected {name} {declared}, got {got}: {verdict.because}")
    wrong += _others(specimen, verdict)
    return Score(kind=True, **right, wrong=(*wrong, *_leftovers(specimen, outcome)))


def _others(specimen: Specimen, verdict: Verdict) -> list[str]:
    """What must hold of a verdict of the right kind and has no column of its own."""
    wrong: list[str] = []
    named = f"{verdict.because} {verdict.signature or ''}"
    if specimen.expect_frame is not None and specimen.expect_frame not in named:
        wrong.append(f"neither reason nor signature names {specimen.expect_frame}: {verdict.because}")
    is_bound = specimen.expect is not Kind.INFRA and not specimen.every_step
    if is_bound and verdict.step is not None and verdict.step != specimen.step:
        wrong.append(f"struck at step {specimen.step}, the verdict says step {verdict.step}")
    if not verdict.cites:
        wrong.append("the verdict cites no evidence")
    return wrong


def _leftovers(specimen: Specimen, outcome: Outcome) -> tuple[str, ...]:
    left = [f"PID {s.pid} ({s.command}) is still there, state {s.state}" for s in outcome.cleanup.survivors]
    if specimen.leaves_processes and not outcome.cleanup.ended:
        left.insert(0, "it leaves a process behind, but the cleanup ended none")
    return tuple(left)
