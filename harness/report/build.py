"""Build: a run becomes a Report, section by section. Reads the run directory, writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.errors import StoreError
from harness.core.ports import Block
from harness.report.sections import SECTIONS
from harness.report.text import md

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run and its sections, by name, in order."""

    run: Run
    title: str
    blocks: tuple[tuple[str, Block], ...]


def build(run: Run, run_dir: Path) -> Report:
    """The report of ``run``, whose evidence lies in ``run_dir``; also of a run that was cut off or is empty.

    A section whose evidence cannot be read says so in its place; the others are not affected.
    """
    blocks: list[tuple[str, Block]] = []
    for name in SECTIONS:
        try:
            block = SECTIONS.load(name)(run, run_dir)
        except StoreError as error:
            block = Block(title=name.replace("_", " ").capitalize(), markdown=f"Not readable: {md(error)}")
        if block is not None:
            blocks.append((name, block))
    return Report(run=run, title=run.spec.question, blocks=tuple(blocks))
