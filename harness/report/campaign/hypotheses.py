"""Hypotheses: each axis as a possible reason, with the cells for and against it, what is missing, and what decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.cause import AxisFinding
from harness.core.ports import Block
from harness.report.campaign.facts import by_cell, ending, name_of, pairs
from harness.report.sections.hypotheses import of_verdict
from harness.report.subject import subject
from harness.report.text import code, count, listed, md, table

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.campaign import FailureTable
    from harness.core.cause import AxisVerdict
    from harness.core.point import Point
    from harness.core.record import CampaignRun

HEAD = ("hypothesis", "for", "against", "missing", "what would decide")


def section(run: CampaignRun, run_dir: Path) -> Block | None:
    """A table per failure, then the competing explanations of the verdict itself; None when nothing failed."""
    tables = run.answer.failures if run.answer else ()
    parts = [_of_failure(run, failure) for failure in tables]
    parts += [_of_pairs(run)] if pairs(run) else []
    rows = of_verdict(subject(run))
    if rows:
        parts.append(f"Other explanations of what the trial showed:\n\n{table(HEAD, rows)}")
    return Block(title="Hypotheses", markdown="\n\n".join(parts)) if parts else None


def _of_pairs(run: CampaignRun) -> str:
    """Every axis with the cells that differ in nothing else, slow ones too."""
    cells = by_cell(run)

    def said(one: Point, other: Point, axis: str) -> str:
        ends = (f"{axis}={cell.get(axis)} {ending(cells[cell])}" for cell in (one, other))
        return md(" and ".join(ends))

    rows = (
        (
            code(found.axis),
            found.total,
            len(found.alike),
            len(found.different),
            len(found.untold),
            said(*(found.different or found.alike or found.untold)[0], found.axis),
        )
        for found in sorted(pairs(run), key=lambda found: -len(found.different))
    )
    body = table(
        ("only this differs", "pairs", "ended alike", "differently", "other limits", "for example"),
        rows,
        right=(1, 2, 3, 4),
    )
    return f"Pairs of cells that differ in one axis only, whatever they ended in:\n\n{body}"


def _of_failure(run: CampaignRun, failure: FailureTable) -> str:
    by_axis: dict[str, list[AxisVerdict]] = {}
    for verdict in failure.axes:
        by_axis.setdefault(verdict.axis, []).append(verdict)
    order = sorted(by_axis, key=lambda axis: not any(v.finding is AxisFinding.IMPLICATED for v in by_axis[axis]))
    rows = [_row(run, axis, by_axis[axis]) for axis in order]
    head = f"**{md(failure.failure)}**, in {count(failure.cells, 'cell')} and {count(failure.trials, 'trial')}. "
    text = f"{head}Each row asks whether the failure depends on one axis; a pair of cells that differ only there tells."
    shown = [i for i in failure.interactions if i.failed][:8]
    if shown:
        text += f"\n\nCombinations that failed and never passed: {md('; '.join(map(str, shown)))}."
    return f"{text}\n\n{table(HEAD, rows)}"


def _row(run: CampaignRun, axis: str, verdicts: list[AxisVerdict]) -> tuple[str, ...]:
    found = {verdict.finding: verdict for verdict in verdicts}
    for_, against = found.get(AxisFinding.IMPLICATED), [
        found[f] for f in (AxisFinding.NOT_NECESSARY, AxisFinding.NOT_SUFFICIENT, AxisFinding.INERT) if f in found
    ]  # fmt: skip
    missing = found.get(AxisFinding.UNTESTED)
    return (
        f"depends on {code(axis)}",
        _said(run, for_) if for_ else "-",
        "; ".join(_said(run, verdict) for verdict in against) or "-",
        md(missing.because) if missing else "-",
        _decides(run, axis, found),
    )


def _said(run: CampaignRun, verdict: AxisVerdict) -> str:
    cells = listed((code(name_of(run, c.cell)) for c in verdict.cells), most=2)
    return f"{verdict.finding.value}: {md(verdict.because)}" + (f" ({cells})" if cells else "")


def _decides(run: CampaignRun, axis: str, found: dict[AxisFinding, AxisVerdict]) -> str:
    factor = run.spec.matrix.space.factor(axis)
    if AxisFinding.INERT in found:
        return "a value that changes what runs"
    if AxisFinding.IMPLICATED in found:
        return "decided for the cells named"
    changed = code(axis if factor.good == factor.bad else f"{axis}={factor.good}")
    return f"the failing cell with only {changed} changed, passing as often as the certificate asks"
