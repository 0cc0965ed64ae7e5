# pyright: reportUnknownMemberType=false
"""How often each value fails, with the band that holds for all of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.figures.draw import COLOURS, INK, Figure, drawing, finish

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from harness.core.boundary import Boundary
    from harness.report.findings import Findings


def figure(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """A bar from the lowest to the highest rate that is not ruled out, for every value tried; None without failures."""
    boundary = findings.run.boundary
    if boundary is None or len(boundary.curve) < 2 or boundary.first_bad is None:
        return None
    name = findings.run.axis.name
    names: list[str] = []
    bands: list[str] = []
    for band in boundary.curve:
        names.append(str(band.value))
        bands.append(f"{band.value}: {band.low:.2f} to {band.high:.2f}")
    with drawing(2.1) as (canvas, axes):
        _draw(axes, boundary)
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel(name)
        axes.set_ylabel("failure rate")
        axes.set_ylim(-0.03, 1.03)
        sure = f"{boundary.confidence * 100:g} % for all values at once"
        alt = f"Failure rate along {name}, {sure}: {'; '.join(bands)}."
        title = f"How often each value fails: rates that are not ruled out ({sure}), and a dot for what was seen"
        return finish(canvas, name="curve", title=title, alt=alt, section="strip", hide=hide)


def _draw(axes: Axes, boundary: Boundary) -> None:
    """The band of each value, and in it a point at the share of its trials that failed."""
    counts = {count.value: (count.bad, count.good + count.bad) for count in boundary.counts}
    for place, band in enumerate(boundary.curve):
        axes.bar(place, band.high - band.low, bottom=band.low, width=0.5, color=COLOURS["good"], alpha=0.45)
        bad, runs = counts.get(band.value, (0, 0))
        if runs:
            axes.scatter([place], [bad / runs], s=18, color=INK, zorder=3)
