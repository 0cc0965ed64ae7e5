"""Evidence: for each kind of failure, what was seen in the first cell that showed it; other cells in one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.report.campaign.facts import by_cell, groups
from harness.report.sections.failures import IN_FULL, in_full, in_short
from harness.report.text import count, details

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import CampaignRun
    from harness.report.facts import Group

IN_SIGHT = 20


def section(run: CampaignRun, run_dir: Path) -> Block | None:
    """The first cell of every kind of failure in full; None when all passed."""
    found = groups(run)
    if not found:
        return None
    seen: set[str] = set()
    first: list[Group] = []
    for group in found:
        failure = group.first.verdict.signature or str(group.first.verdict)
        if failure not in seen and len(first) < IN_FULL:
            first.append(group)
        seen.add(failure)
    totals = {cell: len(trials) for cell, trials in by_cell(run).items()}
    parts = [
        in_full(run_dir, group, name=str(group.value), total=totals[group.first.record.trial.point]) for group in first
    ]
    rest = tuple(group for group in found if group not in first)
    if rest:
        parts.append(f"### Others\n\n{in_short(rest[:IN_SIGHT], where='cell')}")
    if rest[IN_SIGHT:]:
        more = in_short(rest[IN_SIGHT:], where="cell")
        parts.append(details(f"{count(len(rest) - IN_SIGHT, 'more group')} of trials that did not pass", more))
    return Block(title="Evidence", markdown="\n\n".join(parts))
