"""Drawn: every figure of a run, in the order of its table."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from harness.core.errors import StoreError
from harness.report.figures import FIGURES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.report.figures.draw import Figure
    from harness.report.findings import Findings


def drawn(findings: Findings, run_dir: Path, hide: Callable[[str], str]) -> tuple[Figure, ...]:
    """The figures of a run; one whose evidence, or whose library, cannot be read is left out."""
    found: list[Figure] = []
    for name in FIGURES:
        figure: Figure | None = None
        with suppress(StoreError, ImportError, OSError):
            figure = FIGURES.load(name)(findings, run_dir, hide)
        found += [figure] if figure else []
    return tuple(found)
