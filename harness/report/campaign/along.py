"""A threshold search beside a matrix, drawn and written as any search along one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.campaign.facts import along
from harness.report.figures import curve
from harness.report.figures import strip as strip_picture
from harness.report.sections import strip as strip_section

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.core.ports import Block
    from harness.core.record import CampaignRun
    from harness.report.figures.draw import Figure


def strip(run: CampaignRun, run_dir: Path) -> Block | None:
    """The threshold strip; None for another task."""
    found = along(run)
    return strip_section.section(found, run_dir) if found else None


def strip_figure(run: CampaignRun, run_dir: Path, hide: Callable[[str], str]) -> Figure | None:
    """The strip as a figure; None for another task."""
    found = along(run)
    return strip_picture.figure(found, run_dir, hide) if found else None


def curve_figure(run: CampaignRun, run_dir: Path, hide: Callable[[str], str]) -> Figure | None:
    """The failure rate of each value; None for another task."""
    found = along(run)
    return curve.figure(found, run_dir, hide) if found else None
