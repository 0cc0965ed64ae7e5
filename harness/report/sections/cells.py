"""Of a run over cells: what each was expected to end in and what it ended in; what a failure needs."""

from __future__ import annotations

from collections import Counter
from itertools import starmap
from typing import TYPE_CHECKING

from harness.core.campaign import CellStatus
from harness.core.point import assignment
from harness.core.ports import Block
from harness.report.text import code, count, details, how_many, listed, md, seconds, table
from harness.report.words import what_passes_miss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.campaign import CellResult
    from harness.core.cause import Cause
    from harness.report.findings import Findings


OPEN = 40
"""Up to this many cells stand open; of more only those that did not pass as expected, the others folded."""

SIGN = {CellStatus.EXPECTED: "as expected", CellStatus.UNEXPECTED: "**not as expected**", CellStatus.SKIPPED: "skipped",
        CellStatus.INCONCLUSIVE: "inconclusive", CellStatus.NOT_RUN: "not run"}  # fmt: skip


def cells_section(findings: Findings) -> Block | None:
    """The table of cells; None when no cell was tried or asked for, and of one program, which is none of several."""
    results = findings.results
    if findings.is_single:
        return None
    if not results:
        return _without_answer(findings)
    expects = bool(findings.run.spec.matrix.expect)
    bad, unclear = CellStatus.UNEXPECTED, CellStatus.INCONCLUSIVE
    words = findings.group_words  # the one that is spoken of first

    def urgency(row: CellResult) -> tuple[bool, bool, bool, int]:
        first = len(words)
        for word, _ in row.seen:
            if word in words:
                first = min(first, words.index(word))
        return row.met is not bad, not row.count.bad, row.met is not unclear, first

    first = tuple(sorted(results, key=urgency))
    text = _table(first, expects=expects) if len(results) <= OPEN else _folded(first, expects=expects)
    return Block(title="Cells", markdown=text)


def _folded(rows: tuple[CellResult, ...], *, expects: bool) -> str:
    """The cells that need attention, as many as are read at once; below them, closed, the rest."""
    loud: list[CellResult] = []
    quiet: list[CellResult] = []
    for row in rows:
        (loud if row.met is not CellStatus.EXPECTED or row.count.bad else quiet).append(row)
    parts: list[str] = []
    if expects:
        counts = Counter(row.met for row in rows)
        words = (f"{counts[end]} {SIGN[end].strip('*')}" for end in CellStatus if counts[end])
        parts.append(f"{count(len(rows), 'cell')}: {listed(words)}.")
    if loud:
        parts.append(_table(loud[:OPEN], expects=expects))
    if loud[OPEN:]:
        more = f"{count(len(loud) - OPEN, 'more cell')} that did not pass"
        parts.append(details(more, _table(loud[OPEN:], expects=expects)))
    if quiet:
        summary = f"{count(len(quiet), 'cell')} that passed{' as expected' if expects else ''}"
        parts.append(details(summary, _table(quiet, expects=expects)))
    return "\n\n".join(parts)


def _table(rows: Sequence[CellResult], *, expects: bool) -> str:
    """What each cell ended in, first; whether that was expected only where the matrix says what it expects."""
    head = ["seen", "cell", "all its trials"]
    if expects:
        head += ["expected", ""]
    body: list[tuple[str, ...]] = []
    for row in rows:
        verdicts = md(how_many(row.seen)) or SIGN[row.met]
        issue = f" ({md(row.issue)})" if row.issue else ""
        expected = (f"{md(row.expected)}{issue}", SIGN[row.met]) if expects else ()
        why = "" if row.met in (CellStatus.EXPECTED, CellStatus.UNEXPECTED) else md(row.because)
        body.append((verdicts, code(row.name), seconds(row.seconds) if row.seconds else "-", *expected, why))
    if any(line[-1] for line in body):
        return table([*head, "why"], body, right=(2,))
    return table(head, (line[:-1] for line in body), right=(2,))


def _without_answer(findings: Findings) -> Block | None:
    by_cell = findings.by_cell
    if not by_cell:
        return None
    rows: list[tuple[object, ...]] = []
    for cell, trials in by_cell.items():
        verdicts = listed(trial.verdict for trial in trials)
        rows.append((code(findings.name_of(cell)), md(verdicts), len(trials)))
    return Block(title="Cells", markdown=table(("cell", "seen", "trials"), rows, right=(2,)))


def causes_section(findings: Findings) -> Block | None:
    """Every cause with its certificate; None when no such search was made."""
    search = findings.answer.minimised or findings.answer.explored
    if search is None:
        return None
    parts = [md(search.because), *starmap(_of_cause, enumerate(search.causes, start=1))]
    return Block(title="What the failure needs", markdown="\n\n".join(filter(None, parts)))


def _of_cause(number: int, cause: Cause) -> str:
    rows: list[tuple[str, ...]] = []
    for need in cause.needs:
        back = f"{need.back}{what_passes_miss(need.back, failing=cause.seen)}" if need.back else "-"
        certified = md(need.kept_by) or f"no: {need.required or 'more'} asked for"
        if need.certified:
            certified = f"yes, {need.required} passes"
        rows.append((code(need), code(assignment(need.axis, need.last_good)), md(back), certified))
    body = table(("needs", "with this instead", "then it", "certified"), rows)
    free = cause.freedom
    text = f"Cause {number}, {cause.claim.value}: {{{md(cause)}}} {md(cause.seen)}.\n\n{body}"
    if free is None:
        return text
    free_text = f"With everything else set anew it failed in {free.failed} of {count(free.tried, 'cell')}."
    free_text += f" Took several values while it always failed: {md(listed(free.free))}." if free.free else ""
    return f"{text}\n\n{free_text}"
