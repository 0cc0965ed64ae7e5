"""Not tested: what a run over cells cannot say, and the trials that would."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from harness.core.campaign import Met
from harness.core.cause import AxisFinding
from harness.report.facts import steps_of
from harness.report.text import count, listed, md

if TYPE_CHECKING:
    from harness.report.findings import Findings


MOST_COUNTED = 10_000
"""Combinations that are held against the rules one by one."""


def _coverage(findings: Findings, *, tried: int, product: int) -> str:
    """How many of the combinations were tried; those that the matrix's own rules forbid are no gap."""
    space = findings.run.spec.matrix.space
    if space.rules and product <= MOST_COUNTED:
        names = [factor.name for factor in space.factors]
        every = itertools.product(*(factor.axis.values for factor in space.factors))
        allowed = sum(space.broken(zip(names, values, strict=True)) is None for values in every)
        if allowed == tried:
            return (
                f"All {count(tried, 'cell')} that the rules allow were tried; they forbid {product - allowed} others."
            )
    return f"{count(tried, 'cell')} of {product:,} combinations were tried; nothing is claimed about others."


def gaps_of_cells(findings: Findings) -> list[str]:
    """What a run over cells cannot say, a sentence each."""
    run = findings.run
    gaps: list[str] = []
    space, tried = run.spec.matrix.space, findings.by_cell
    product = math.prod(len(f.axis.values) for f in space.factors)
    if not findings.is_single:
        gaps.append(_coverage(findings, tried=len(tried), product=product))
    not_run = [r.name for r in findings.results if r.met in (Met.NOT_RUN, Met.SKIPPED)]
    if not_run:
        gaps.append(f"Asked for and not run: {md(listed(not_run, most=6))}.")
    untold = {
        v.axis for t in (run.answer.failures if run.answer else ()) for v in t.axes if v.finding is AxisFinding.UNTESTED
    }
    if untold:
        gaps.append(f"Whether the failure depends on {md(listed(sorted(untold)))} was not told (Hypotheses).")
    once = sum(len(trials) == 1 for trials in tried.values())
    if once:
        gaps.append(f"{count(once, 'cell')} had one trial each, so a rare failure there could have been missed.")
    steps = max(map(steps_of, run.records), default=0)
    if steps:
        gaps.append(f"Anything after step {steps}: the longest trial ended there.")
    gaps.append("Other machines, versions and seeds than those named here.")
    return gaps
