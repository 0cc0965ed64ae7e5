"""Answer: what happened, how sure, what next; readable in ten seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.campaign.summary import summarise
from harness.report.first import first

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.ports import Block
    from harness.core.record import Run


def section(run: Run, run_dir: Path) -> Block | None:
    """The block that stands right under the title."""
    return first(run, summarise(run, run_dir))
