"""Scaling: how time and memory grow along each ordered axis, everything else held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.report.text import code, count, listed, md, table

if TYPE_CHECKING:
    from harness.core.boundary import ScalingFit
    from harness.core.campaign import AxisFit
    from harness.report.findings import Findings


def of_cells(findings: Findings) -> Block | None:
    """A row per fit; None without any."""
    run = findings.run
    fits = run.answer.fits if run.answer else ()
    if not fits:
        return None
    head = ("axis", "quantity", "points", "more for each", "95 %", "R²", "best power", "held at")
    body = table(head, (_row(findings, fit) for fit in fits), right=(2, 3, 5, 6))
    notes = [f"{md(fit.axis)}: {md(fit.fit.note)}." for fit in fits if fit.fit.note]
    return Block(title="Growth along the axes", markdown="\n\n".join([body, *notes]))


def power(fit: ScalingFit) -> str:
    """The best exponent with its interval: ``1.0 (95 %: 0.9 .. 1.1)``."""
    if fit.exponent is None:
        return "not told"
    if fit.exponent_low is None or fit.exponent_high is None:
        return f"{fit.exponent:.1f}"
    return f"{fit.exponent:.1f} (95 %: {fit.exponent_low:.1f} .. {fit.exponent_high:.1f})"


def _row(findings: Findings, found: AxisFit) -> tuple[object, ...]:
    fit = found.fit
    interval = f"{fit.slope_low:.3g} .. {fit.slope_high:.3g}" if fit.slope_low != fit.slope_high else "not told"
    return (
        md(found.axis),
        md(fit.quantity),
        count(len(fit.points), "trial"),
        f"{fit.slope:.3g} s" if "seconds" in fit.quantity else f"{fit.slope:.3g}",
        interval,
        f"{fit.r_squared:.3f}",
        power(fit) if fit.exponent is not None else "-",
        _held(findings, found),
    )


def _held(findings: Findings, found: AxisFit) -> str:
    """The held settings that are not the good ones."""
    good = dict(findings.run.spec.matrix.space.good)
    return (
        listed(code(f"{name}={value}") for name, value in found.fixed if value != good.get(name)) or "the good values"
    )
