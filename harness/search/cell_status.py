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
    counted = [trial for trial in trials if trial.kind is not Kind.INFRA]
    if not counted:
        status = CellStatus.INCONCLUSIVE if trials else CellStatus.NOT_RUN
        return status, "the machine spoiled every trial of it" if trials else ""
    other = Counter(t.words for t in counted if not _is_expected(expected, t) and t.kind is not Kind.PASS)
    surprises = {name: n for name, n in other.items() if not name.startswith(str(Kind.UNRESOLVED))}
    if surprises:
        clause = ", ".join(f"{name} {n} of {len(counted)}" for name, n in surprises.items())
        return CellStatus.UNEXPECTED, f"{clause}; expected {words(expected)}"
    passes = sum(trial.kind is Kind.PASS for trial in counted)
    if other:
        return CellStatus.INCONCLUSIVE, f"no answer in {len(counted) - passes} of {len(counted)} trials"
    if expected is None or expected.kind is Kind.PASS:
        return CellStatus.EXPECTED, f"passed {passes} of {len(counted)}"
    return _failing(expected, passes=passes, failures=len(counted) - passes)


def _failing(expected: Expectation, *, passes: int, failures: int) -> tuple[CellStatus, str]:
    of = f"{failures} of {passes + failures}"
    if failures and (not passes or expected.rate < 1):
        return CellStatus.EXPECTED, f"{words(expected)} {of}"
    why = (
        f"{words(expected)} in {of} only; every trial was expected to" if failures else f"passed, {words(expected)} was"
    )
    why = why if failures else f"{why} expected"
    return (CellStatus.UNEXPECTED if expected.strict else CellStatus.EXPECTED), why


def _is_expected(expected: Expectation | None, trial: Ended) -> bool:
    return trial.kind is Kind.PASS if expected is None else trial.is_as(expected)
