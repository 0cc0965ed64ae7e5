"""Whether a verdict on a specimen is the one that was declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.verdict import Kind

if TYPE_CHECKING:
    from harness.core.outcome import Outcome
    from harness.core.verdict import Verdict
    from harness.specimens.catalog import Specimen


def judge(specimen: Specimen, verdict: Verdict, outcome: Outcome) -> list[str]:
    """Every way in which ``verdict`` and ``outcome`` differ from what ``specimen`` declares; empty if none."""
    wrong: list[str] = []
    if verdict.kind not in specimen.kinds:
        kinds = " or ".join(specimen.kinds)
        return [f"expected {kinds}, got {verdict} by rule {verdict.rule}: {verdict.because}", *_leftovers(outcome)]
    struck = verdict.kind is specimen.expect and verdict.kind is not Kind.PASS
    if struck and specimen.cause is not None and verdict.cause != specimen.cause:
        wrong.append(f"expected cause {specimen.cause}, got {verdict.cause}: {verdict.because}")
    named = f"{verdict.because} {verdict.signature or ''}"
    if struck and specimen.expect_frame is not None and specimen.expect_frame not in named:
        wrong.append(f"neither reason nor signature names {specimen.expect_frame}: {verdict.because}")
    if struck and verdict.step is not None and not specimen.every_step and verdict.step != specimen.step:
        wrong.append(f"struck at step {specimen.step}, the verdict says step {verdict.step}")
    if struck and specimen.verdict_rank is not None and verdict.rank != specimen.verdict_rank:
        wrong.append(f"expected rank {specimen.verdict_rank}, got {verdict.rank}: {verdict.because}")
    if struck and specimen.verdict_phase is not None and verdict.phase != specimen.verdict_phase:
        wrong.append(f"expected phase {specimen.verdict_phase}, got {verdict.phase}: {verdict.because}")
    if struck and not verdict.cites:
        wrong.append("the verdict cites no evidence")
    if specimen.leaves_processes and not outcome.cleanup.ended:
        wrong.append("it leaves a process behind, but the cleanup ended none")
    return wrong + _leftovers(outcome)


def _leftovers(outcome: Outcome) -> list[str]:
    return [f"PID {s.pid} ({s.command}) is still there, state {s.state}" for s in outcome.cleanup.survivors]
