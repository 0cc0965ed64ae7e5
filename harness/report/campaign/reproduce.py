"""Reproduce: the commands of a run over cells, ready to copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.report.campaign import own_command
from harness.report.campaign.next_steps import resume
from harness.report.sections.reproduce import minimal, onward
from harness.report.text import command, fence, seconds

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import CampaignRun


def section(run: CampaignRun, run_dir: Path) -> Block | None:
    """What shows the failure without the harness, the command that was run, and how to continue or render again."""
    took = f"It took {seconds(run.seconds)} here, with seed {run.spec.seed}."
    own = own_command.markdown(run)
    outside = "" if own else minimal(run, run_dir)
    onwards = onward(run, run_dir, resume(run))
    parts = [own, fence("\n".join(command(run.argv)), "bash"), took, outside, onwards]
    return Block(title="Reproduce", markdown="\n\n".join(part for part in parts if part))
