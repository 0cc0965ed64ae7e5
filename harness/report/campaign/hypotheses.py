"""Hypotheses: each axis as a possible reason, with the cells for and against it, what is missing, and what decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.cause import AxisFinding
from harness.report.campaign.where import where
from harness.report.pairs import ending
from harness.report.text import code, count, listed, md, table

if TYPE_CHECKING:
    from harness.core.campaign import FailureTable
    from harness.core.cause import AxisVerdict
    from harness.core.point import Point
    from harness.report.findings import Findings

HEAD = ("hypothesis", "for", "against", "missing", "what would decide")


def of_axes(findings: Findings) -> list[str]:
    """A table for each failure, then one of the pairs that differ in one axis; nothing where no cell was tried."""
    run = findings.run
    tables = run.answer.failures if run.answer else ()
    parts = [_of_failure(findings, failure) for failure in tables]
    return [*parts, _of_pairs(findings)] if findings.pairs else parts


def _of_pairs(findings: Findings) -> str:
    """Every axis with the cells that differ in nothing else, slow ones too."""
    cells = findings.by_cell

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
        for found in sorted(findings.pairs, key=lambda found: -len(found.different))
    )
    body = table(
        ("only this differs", "pairs", "ended alike", "differently", "other limits", "for example"),
        rows,
        right=(1, 2, 3, 4),
    )
    return f"Pairs of cells that differ in one axis only, whatever they ended in:\n\n{body}"


def _of_failure(findings: Findings, failure: FailureTable) -> str:
    by_axis: dict[str, list[AxisVerdict]] = {}
    for verdict in failure.axes:
        by_axis.setdefault(verdict.axis, []).append(verdict)
    seen = {axis: _seen_in_pairs(findings, axis, failure.failure) for axis in by_axis}

    def weight(axis: str) -> tuple[bool, bool]:
        return (not any(v.finding is AxisFinding.IMPLICATED for v in by_axis[axis]), seen[axis][0] == "-")

    rows = [_row(findings, axis, by_axis[axis], seen[axis]) for axis in sorted(by_axis, key=weight)]
    head = f"**{md(failure.failure)}**, in {count(failure.cells, 'cell')} and {count(failure.trials, 'trial')}. "
    text = f"{head}Each row asks whether the failure depends on one axis; a pair of cells that differ only there tells."
    return f"{text}{_where_seen(findings, failure)}\n\n{table(HEAD, rows)}"


def _where_seen(findings: Findings, failure: FailureTable) -> str:
    """In which settings a failure of several cells was seen, or in which combinations; empty where nothing tells."""
    if failure.cells < 2:
        return ""
    told = where(findings, failure.failure)
    if told:
        return f"\n\nIt was seen {md(told)}."
    shown = [str(one) for one in failure.interactions if one.failed][:8]
    return f"\n\nCombinations that failed and never passed: {md('; '.join(shown))}." if shown else ""


def _seen_in_pairs(findings: Findings, axis: str, failure: str) -> tuple[str, str]:
    """For and against: pairs that differ in ``axis`` only, one side failed so and the other passed or failed too."""
    ends = {cell: ending(trials) for cell, trials in findings.by_cell.items()}
    found = findings.pairs_along(axis)
    other = sum({ends[one], ends[two]} == {failure, "PASS"} for one, two in found.different)
    alike = sum(ends[one] == failure for one, _ in found.alike)
    of_all = f"of {count(other + alike, 'pair')} that differ only here ended"
    return (f"{other} {of_all} differently" if other else "-", f"{alike} {of_all} alike" if alike else "-")


def _row(findings: Findings, axis: str, verdicts: list[AxisVerdict], in_pairs: tuple[str, str]) -> tuple[str, ...]:
    found = {verdict.finding: verdict for verdict in verdicts}
    for_, against = found.get(AxisFinding.IMPLICATED), [
        found[f] for f in (AxisFinding.NOT_NECESSARY, AxisFinding.NOT_SUFFICIENT, AxisFinding.INERT) if f in found
    ]  # fmt: skip
    missing = found.get(AxisFinding.UNTESTED)
    return (
        f"depends on {code(axis)}",
        _said(findings, for_) if for_ else in_pairs[0],
        "; ".join(_said(findings, verdict) for verdict in against) or in_pairs[1],
        md(missing.because) if missing else "-",
        _decides(findings, axis, found),
    )


def _said(findings: Findings, verdict: AxisVerdict) -> str:
    cells = listed((code(findings.name_of(c.cell)) for c in verdict.cells), most=2)
    return f"{verdict.finding.value}: {md(verdict.because)}" + (f" ({cells})" if cells else "")


def _decides(findings: Findings, axis: str, found: dict[AxisFinding, AxisVerdict]) -> str:
    factor = findings.run.spec.matrix.space.factor(axis)
    if AxisFinding.INERT in found:
        return "a value that changes what runs"
    if AxisFinding.IMPLICATED in found:
        return "decided for the cells named"
    changed = code(axis if factor.good == factor.bad else f"{axis}={factor.good}")
    return f"the failing cell with only {changed} changed, passing as often as the certificate asks"
