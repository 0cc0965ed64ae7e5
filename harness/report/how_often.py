"""How often a program fails that was run again and again, and how many passes would show it fixed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from harness.core.rates import SURE, interval, passes_that_show
from harness.core.verdict import Kind
from harness.report.text import count, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.record import TrialRecord
    from harness.report.findings import Findings

UNDECIDED = frozenset({Kind.SLOW, Kind.UNRESOLVED, Kind.INFRA})
"""Verdicts that do not say whether a program fails."""
MOST_PASSES = 10_000
"""More passes than these are nobody's to try."""


def how_often_in(findings: Findings) -> str:
    """How often one program failed that was run more than once, or until it failed; empty of all else."""
    is_program = findings.is_single and not findings.is_line and findings.answer.job is None
    records, invocation = findings.run.records, findings.run.invocation
    is_repeated = len(records) > 1 or (invocation is not None and invocation.has("--until-fail"))
    return how_often(records) if is_program and is_repeated and records else ""


def passes_and_failures(records: Sequence[TrialRecord]) -> tuple[int, int]:
    """How many runs passed, and how many failed; the rest is undecided."""
    passes = failed = 0
    for record in records:
        if record.verdict.kind is Kind.PASS:
            passes += 1
        elif _has_failed(record):
            failed += 1
    return passes, failed


def _has_failed(record: TrialRecord) -> bool:
    return record.verdict.kind is not Kind.PASS and record.verdict.kind not in UNDECIDED


def how_often(records: Sequence[TrialRecord]) -> str:
    """How often it fails, by the runs that passed or failed, and how many passes would show it fixed."""
    passes, failed = passes_and_failures(records)
    runs = passes + failed
    if not runs:
        return "no run passed or failed: how often it fails is not known"
    aside = f"; {len(records) - runs} undecided are left out" if runs < len(records) else ""
    low, high = interval(failed, runs)
    if not failed:
        ruled_out = 1 - (1 - SURE) ** (1 / runs)
        none = f"no failure in {count(runs, 'run')}"
        return f"{none}: a rate of {ruled_out:.2g} or more would have shown one ({SURE:.0%}){aside}"
    rate = f"fails in {failed} of {runs}: {failed / runs:.1%} ({SURE:.0%}: {low:.1%} to {high:.1%}){aside}. "
    kinds = Counter(str(record.verdict) for record in records if _has_failed(record))
    if len(kinds) > 1:
        each = listed(
            f"{passes_that_show(times / runs)} for {kind}, {times} of {runs}" for kind, times in kinds.items()
        )
        return f"{rate}So many passes in a row would show one of them fixed at its rate ({SURE:.0%}): {each}"
    least = f", {passes_that_show(low)} if it is as rare as {low:.1%}" if passes_that_show(low) < MOST_PASSES else ""
    passes = count(passes_that_show(failed / runs), "pass")
    return f"{rate}{passes} in a row would show it fixed at that rate ({SURE:.0%}){least}"
