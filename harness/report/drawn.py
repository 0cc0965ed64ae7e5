"""Drawn: every figure of a run, in the order of its table."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from harness.core.errors import StoreError
from harness.core.record import Run
from harness.report.campaign import FIGURES as CAMPAIGN_FIGURES
from harness.report.figures import FIGURES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.core.record import CampaignRun
    from harness.report.figures.draw import Figure


def drawn(run: Run | CampaignRun, run_dir: Path, hide: Callable[[str], str]) -> tuple[Figure, ...]:
    """The figures of ``run``; one whose evidence, or whose library, cannot be read is left out."""
    table = FIGURES if isinstance(run, Run) else CAMPAIGN_FIGURES
    found: list[Figure] = []
    for name in table:
        figure: Figure | None = None
        with suppress(StoreError, ImportError, OSError):
            figure = table.load(name)(run, run_dir, hide)
        found += [figure] if figure else []
    return tuple(found)
