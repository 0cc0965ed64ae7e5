"""Not tested: what this run cannot say, and the trials that would."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from harness.core.cause import AxisFinding
from harness.core.dotted import leaves
from harness.core.point import assignment
from harness.core.ports import Block
from harness.report.facts import steps_of
from harness.report.summary import steps_of as next_of
from harness.report.text import bullets, code, command, count, details, fence, listed, md, ranges
from harness.report.words import certificate, lasted, not_searched

if TYPE_CHECKING:
    from harness.report.findings import Findings
    from harness.report.next_step import NextStep


MOST_COMBINATIONS = 10_000
"""Combinations that are held against the rules one by one."""


def section(findings: Findings) -> Block | None:
    """Gaps first, then what would close them."""
    steps = next_of(findings)
    gaps = _gaps(findings) if findings.is_line else gaps_of_cells(findings)
    parts = [
        bullets(gaps),
        _never_varied(findings) if findings.is_line else "",
        "**What would decide next:**" if steps or findings.is_line else "",
        listed_steps(steps),
    ]
    return Block(title="Not tested", markdown="\n\n".join(filter(None, parts)))


def _gaps(findings: Findings) -> list[str]:
    run = findings.run
    name, values = md(run.axis.name), run.axis.values
    gaps: list[str] = []
    untried = not_searched(findings)
    if untried:
        gaps.append(f"{name} {md(ranges(untried))}: no trial. Nothing is claimed about them.")
    gaps.append(f"{name} below {values[0]} or above {values[-1]}: not asked for.")
    boundary = run.boundary
    once = [cell.value for cell in findings.along if len(cell) == 1]
    if once and certificate(findings) and boundary is not None:
        once = [value for value in once if values.index(value) < values.index(boundary.last_good)]
        rests = f"for a rare failure they rest on the passes at {boundary.last_good}"
        gaps += [f"{name} {md(ranges(once))}: one trial each; {rests}."] if once else []
    elif once:
        gaps.append(f"{name} {md(ranges(once))}: one trial each, so a rare failure there could have been missed.")
    if boundary is not None and boundary.excluded_rate and certificate(findings):
        rate = math.ceil(boundary.excluded_rate * 100 - 1e-9)
        gaps.append(f"{name} <= {boundary.last_good}: a failure in fewer than {rate} % of the runs is not ruled out.")
    steps = max(map(steps_of, run.records), default=0)
    if steps:
        gaps.append(f"Anything after step {steps}: the longest trial ended there.")
    gaps.append("Other machines, versions and seeds than those below.")
    return gaps


def _never_varied(findings: Findings) -> str:
    run = findings.run
    if not run.records:
        return ""
    config = leaves(run.records[0].trial.config)
    others = [assignment(name, value) for name, value in sorted(config.items()) if name != run.axis.path]
    if not others:
        return ""
    summary = f"{count(len(others), 'other setting')} had one value only; whether they matter is not known"
    return details(summary, listed(map(code, others), most=200))


def listed_steps(steps: tuple[NextStep, ...]) -> str:
    """The steps as a numbered list, each with its command."""
    items: list[str] = []
    for number, step in enumerate(steps, start=1):
        block = fence("\n".join(command(step.command)), "bash") if step.command else ""
        indented = "".join(f"\n   {line}" for line in block.splitlines())
        items.append(f"{number}. {md(step.text)}{indented}")
    return "\n".join(items)


def _coverage(findings: Findings, *, cells: int) -> str:
    """How many of the combinations were tried; those that the matrix's own rules forbid are no gap."""
    space = findings.run.spec.matrix.space
    along = [factor.axis.values for factor in space.factors]
    product = math.prod(map(len, along))
    if space.rules and product <= MOST_COMBINATIONS:
        allowed = 0
        for values in itertools.product(*along):
            allowed += space.broken(zip(space.names, values, strict=True)) is None
        if allowed == cells:
            return (
                f"All {count(cells, 'cell')} that the rules allow were tried; they forbid {product - allowed} others."
            )
    return f"{count(cells, 'cell')} of {product:,} combinations were tried; nothing is claimed about others."


def _single_trials(findings: Findings) -> list[str]:
    """That what was run only once says nothing of how often it fails."""
    once = list(map(len, findings.by_cell.values())).count(1)
    if not once:
        return []
    if findings.is_single:
        return ["It was run once: how often it fails is not known."]
    had = "1 cell had one trial" if once == 1 else f"{once} cells had one trial each"
    return [f"{had}, so a rare failure there could have been missed."]


def gaps_of_cells(findings: Findings) -> list[str]:
    """What a run over cells cannot say, a sentence each."""
    run = findings.run
    if findings.is_watched:
        return [f"It was watched for {lasted(run)}: what it did before and does since is not known."]
    gaps: list[str] = []
    if not findings.is_single:
        gaps.append(_coverage(findings, cells=len(findings.by_cell)))
    if findings.not_run:
        names = listed((result.name for result in findings.not_run), most=6)
        gaps.append(f"Asked for and not run: {md(names)}.")
    undecided = findings.axes_with(AxisFinding.UNTESTED)
    if undecided:
        gaps.append(f"Whether the failure depends on {md(listed(sorted(undecided)))} is not known (Hypotheses).")
    gaps += _single_trials(findings)
    steps = max(map(steps_of, run.records), default=0)
    if steps:
        gaps.append(f"Anything after step {steps}: the longest trial ended there.")
    gaps.append("Other machines, versions and seeds than those named here.")
    return gaps
