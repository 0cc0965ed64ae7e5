"""The posterior over the threshold: how probable each value is to be the first that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.figures.draw import COLOURS, INK, Figure, drawing, finish
from harness.report.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.core.record import Run


def figure(run: Run, run_dir: Path, hide: Callable[[str], str]) -> Figure | None:
    """A bar for every value and one for "none"; None when the search gave no chances."""
    boundary = run.boundary
    values = run.spec.axis.values
    if boundary is None or len(boundary.chances) != len(values) + 1 or len(values) < 2:
        return None
    names = [*(str(value) for value in values), "none"]
    with drawing(2.1) as (canvas, axes):
        places = [*range(len(values)), len(values) + 0.8]  # "none" stands apart: it is no value
        axes.bar(places, boundary.chances, color=COLOURS["good"], alpha=0.45, edgecolor=INK, linewidth=0.8)
        for at, chance in zip(places, boundary.chances, strict=True):
            if chance >= 0.02:
                said = f"{min(chance, 0.999):.3f}" if chance > 0.99 else f"{chance:.2f}"
                axes.text(at, chance + 0.02, said, ha="center", fontsize=8)
        few = range(0, len(values), -(-len(values) // 14))
        shown = sorted({*few, len(values)})
        axes.set_xticks([places[i] for i in shown], [names[i] for i in shown])
        axes.set_ylim(0, 1.12)
        axes.set_yticks([0, 0.5, 1])
        axes.set_xlabel(f"first failing {run.spec.axis.name}")
        axes.set_ylabel("probability")
        told = sorted(zip(boundary.chances, names, strict=True), reverse=True)
        alt = (
            f"Probability that each {run.spec.axis.name} is the first that fails: "
            f"{listed(f'{name}: {chance:.3f}' for chance, name in told if chance >= 0.005)}; others less than 0.005."
        )
        return finish(canvas, name="posterior", title="Where the failures begin", alt=alt, section="strip", hide=hide)
