"""The score card: expected against got, one row a specimen, in eighty columns."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from harness.core.verdict import Kind
from harness.report.tried import grouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.verdict import Verdict
    from harness.selftest import JudgedSpecimen
    from harness.specimens.catalog import Specimen

LAYOUT = "{:<19} {:<10} {:<22} {:>4} {:<8} {:>5} {:>6}"
"""Name, kind, cause, rank, phase, seconds from the last sign of life to a hang's verdict, rounds that were right."""

NOTHING = "-"
MOST_ROUNDS = 2
"""Wrong rounds of a specimen that are explained."""


def progress(row: JudgedSpecimen, *, number: int, total: int) -> str:
    """One finished trial on one line: ``[ 12/400] lock-deadlock  HANG (deadlock)  7.1 s``."""
    mark = "" if row.score.right else "  WRONG"
    width = len(str(total))
    return f"[{number:>{width}}/{total}] {row.specimen.name:<19} {row.verdict!s:<26} {row.seconds:6.1f} s{mark}"


def card(rows: Sequence[JudgedSpecimen]) -> list[str]:
    """The table: what each specimen must get, and below it what it got where that differs."""
    lines: list[str] = [LAYOUT.format("specimen", "kind", "cause", "rank", "phase", "after", "right")]
    for of_one in grouped(rows, lambda row: row.specimen.name).values():
        lines += _specimen(of_one)
    return lines


def summary(rows: Sequence[JudgedSpecimen]) -> list[str]:
    """How many were right in each column, hangs seen in look-alikes, and the time to a hang's verdict."""
    columns = ("kind", "cause", "rank", "phase")
    scores: list[str] = []
    for column in columns:
        values = [getattr(row.score, column) for row in rows]
        judged = len(values) - values.count(None)
        if judged:
            scores.append(f"{column} {values.count(True)}/{judged}")
    lines = [f"right: {', '.join(scores) or 'nothing was run'}"]
    alike = [row.verdict.kind for row in rows if row.specimen.look_alike]
    if alike:
        lines.append(f"look-alikes: {alike.count(Kind.HANG)} called HANG in {len(alike)} runs")
    hung = [(row.to_verdict_s, row.specimen.name) for row in rows if row.to_verdict_s is not None]
    if hung:
        longest_s, which = max(hung)
        middle_s = median(seconds for seconds, _ in hung)
        lines.append(f"stall to HANG: median {middle_s:.1f} s, longest {longest_s:.1f} s ({which})")
    return lines


def _specimen(rows: Sequence[JudgedSpecimen]) -> list[str]:
    specimen = rows[0].specimen
    wrong = [row for row in rows if not row.score.right]
    right = len(rows) - len(wrong)
    waits = [row.to_verdict_s for row in rows if row.to_verdict_s is not None]
    score = f"{right}/{len(rows)}" if len(rows) > 1 else "ok" if right else "WRONG"
    lines = [_expected(specimen, slowest_s=max(waits, default=None), score=score)]
    for verdict, times in _distinct(wrong):
        lines.append(_got(verdict, times=times))
    for row in wrong[:MOST_ROUNDS]:
        where = f"round {row.round}: " if len(rows) > 1 else ""
        lines += [_wrapped(f"{where}{why}") for why in row.score.wrong]
    if len(wrong) > MOST_ROUNDS:
        lines.append(f"    and {len(wrong) - MOST_ROUNDS} rounds more (--json has them all)")
    return lines


def _row(*columns: object) -> str:
    return LAYOUT.format(*(NOTHING if column is None else column for column in columns)).rstrip()


def _expected(specimen: Specimen, *, slowest_s: float | None, score: str) -> str:
    after = None if slowest_s is None else f"{slowest_s:.1f}"
    rank, phase = specimen.verdict_rank, specimen.verdict_phase
    return _row(specimen.name, "/".join(specimen.kinds), specimen.cause or None, rank, phase or None, after, score)


def _got(verdict: Verdict, *, times: int) -> str:
    got = "  got" if times == 1 else f"  got, {times} times"
    return _row(got, verdict.kind, verdict.cause or None, verdict.rank, verdict.phase or None, "", "")


def _distinct(rows: Sequence[JudgedSpecimen]) -> list[tuple[Verdict, int]]:
    """Verdicts of ``rows`` that differ in a column, most frequent first, and how often each came."""
    firsts: dict[tuple[object, ...], Verdict] = {}
    times: Counter[tuple[object, ...]] = Counter()
    for row in rows:
        verdict = row.verdict
        columns = (verdict.kind, verdict.cause, verdict.rank, verdict.phase)
        firsts.setdefault(columns, verdict)
        times[columns] += 1
    return [(firsts[columns], count) for columns, count in times.most_common()]


def _wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, width=80, initial_indent="    ", subsequent_indent="      ")
