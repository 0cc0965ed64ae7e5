"""Cell status: whether a cell ended as a matrix file expects it to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.campaign import CellStatus
from harness.core.verdict import Kind

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from harness.core.matrix import Expectation, Matrix
    from harness.core.point import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What one trial ended in: its kind, its verdict in words, and the names of the signatures that it matches."""

    kind: Kind
    words: str
    names: tuple[str, ...] = ()

    def is_as(self, expected: Expectation) -> bool:
        """Whether this is the failure that is expected, and not merely one of the same kind."""
        return self.kind is expected.kind and (expected.signature is None or expected.signature in self.names)


def in_force(matrix: Matrix, cell: Point, *, today: dt.date) -> Expectation | None:
    """What ``cell`` is expected to end in today; an expectation outside its dates says nothing."""
    expected = matrix.expected(cell)
    if expected is None or (expected.since and today < expected.since) or (expected.until and today > expected.until):
        return None
    return expected


def words(expected: Expectation | None) -> str:
    """The expectation in a word or two: ``HANG (backward-hang)``."""
    if expected is None:
        return str(Kind.PASS)
    return f"{expected.kind} ({expected.signature})" if expected.signature else str(expected.kind)


def cell_status(expected: Expectation | None, trials: Sequence[Ended]) -> tuple[CellStatus, str]:
    """Whether ``trials`` of one cell are what was expected, and why, in one clause. Without a word it must pass.

    Trials that the machine spoiled (INFRA) never count. A failure other than the expected one is a surprise, also
    when it is of the same kind. A pass where a failure was expected is one only if the expectation is strict: if the
    failure is rare (``rate`` below 1), a single failure among the passes is enough to bear it out.
    """
    total = passes = 0
    other: Counter[str] = Counter()
    for trial in trials:
        if trial.kind is Kind.INFRA:
            continue
        total += 1
        if trial.kind is Kind.PASS:
            passes += 1
        elif expected is None or not trial.is_as(expected):
            other[trial.words] += 1
    if not total:
        status = CellStatus.INCONCLUSIVE if trials else CellStatus.NOT_RUN
        return status, "the machine spoiled every trial of it" if trials else ""
    surprises = [f"{name} {n} of {total}" for name, n in other.items() if not name.startswith(str(Kind.UNRESOLVED))]
    if surprises:
        return CellStatus.UNEXPECTED, f"{', '.join(surprises)}; expected {words(expected)}"
    if other:
        return CellStatus.INCONCLUSIVE, f"no answer in {total - passes} of {total} trials"
    if expected is None or expected.kind is Kind.PASS:
        return CellStatus.EXPECTED, f"passed {passes} of {total}"
    return _failing(expected, passes=passes, failures=total - passes)


def _failing(expected: Expectation, *, passes: int, failures: int) -> tuple[CellStatus, str]:
    of = f"{failures} of {passes + failures}"
    if failures and (not passes or expected.rate < 1):
        return CellStatus.EXPECTED, f"{words(expected)} {of}"
    why = f"passed, {words(expected)} was expected"
    if failures:
        why = f"{words(expected)} in {of} only; every trial was expected to"
    return (CellStatus.UNEXPECTED if expected.strict else CellStatus.EXPECTED), why
