"""Cells: what each was expected to end in and what it ended in; those that need attention first, the rest folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.campaign import Met
from harness.core.ports import Block
from harness.report.campaign.facts import by_cell, name_of, results
from harness.report.text import code, count, details, listed, md, seconds, table

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.campaign import CellResult
    from harness.core.record import Run

OPEN = 40
"""Up to this many cells stand open; of more only those that did not pass as expected, the others folded."""

SIGN = {Met.EXPECTED: "as expected", Met.UNEXPECTED: "**not as expected**", Met.UNTOLD: "not told",
        Met.SKIPPED: "skipped", Met.NOT_RUN: "not run"}  # fmt: skip


def section(run: Run, run_dir: Path) -> Block | None:
    """The table of cells; None when no cell was tried or asked for."""
    found = results(run)
    if not found:
        return _without_answer(run)
    expects = bool(run.spec.matrix.expect)
    first = sorted(found, key=lambda r: (r.met is not Met.UNEXPECTED, not r.count.bad, r.met is not Met.UNTOLD))
    if len(found) <= OPEN:
        return Block(title="Cells", markdown=_table(tuple(first), expects=expects))
    loud = tuple(r for r in first if r.met is not Met.EXPECTED or r.count.bad)
    quiet = tuple(r for r in first if r not in set(loud))
    shown, more = loud[:OPEN], loud[OPEN:]
    parts = [_counts(found) if expects else "", _table(shown, expects=expects) if shown else ""]
    parts += (
        [details(f"{count(len(more), 'more cell')} that did not pass", _table(more, expects=expects))] if more else []
    )
    parts += (
        [
            details(
                f"{count(len(quiet), 'cell')} that passed{' as expected' if expects else ''}",
                _table(quiet, expects=expects),
            )
        ]
        if quiet
        else []
    )
    return Block(title="Cells", markdown="\n\n".join(part for part in parts if part))


def _counts(found: tuple[CellResult, ...]) -> str:
    by_met = {met: sum(r.met is met for r in found) for met in Met}
    return f"{count(len(found), 'cell')}: " + listed(f"{n} {met.value}" for met, n in by_met.items() if n) + "."


def _table(rows: tuple[CellResult, ...], *, expects: bool) -> str:
    """What each cell ended in, first; whether that was expected only where the matrix says what it expects."""
    head = ("seen", "cell", "all its trials", *(("expected", "") if expects else ()), "why")
    body = [
        (
            md(listed(f"{n} {word}" for word, n in row.seen)) or SIGN[row.met],
            code(row.name),
            seconds(row.seconds) if row.seconds else "-",
            *((md(row.expected) + (f" ({md(row.issue)})" if row.issue else ""), SIGN[row.met]) if expects else ()),
            "" if row.met in (Met.EXPECTED, Met.UNEXPECTED) else md(row.because),
        )
        for row in rows
    ]
    width = len(head) if any(line[-1] for line in body) else len(head) - 1
    return table(head[:width], (line[:width] for line in body), right=(2,))


def _without_answer(run: Run) -> Block | None:
    tried = by_cell(run)
    if not tried:
        return None
    rows = (
        (code(name_of(run, cell)), md(listed(str(t.verdict) for t in trials)), len(trials))
        for cell, trials in tried.items()
    )
    return Block(title="Cells", markdown=table(("cell", "seen", "trials"), rows, right=(2,)))
