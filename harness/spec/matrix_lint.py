"""What is allowed in a matrix file and still looks wrong, each with its line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.matrix import MatrixStrategy, SearchKind
from harness.core.verdict import Kind
from harness.trainer import run_config

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from harness.core.matrix import Expectation, Matrix
    from harness.core.point import Point
    from harness.core.spec import Limits
    from harness.spec.matrix import MatrixFile
    from harness.spec.yaml_file import Lines

STALL_MARGIN = 3.0
"""A limit should be this many times what a passing trial is known to take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """One remark: where, and what is wrong with it. ``is_error`` says that some trial cannot work as written."""

    place: str
    text: str
    is_error: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {'error' if self.is_error else 'warning'}: {self.text}"


def lint(file: MatrixFile, *, today: dt.date) -> tuple[Lint, ...]:
    """Every remark, in the order of the checks. The work grows with what is written, not with the number of cells."""
    matrix, lines = file.matrix, file.lines
    remarks = (*_corners(matrix, lines), *_axes(matrix, lines), *_expectations(matrix, lines, today))
    return (*remarks, *_limits(matrix, lines), *_signatures(matrix, lines), *_effort(matrix, lines))


def _corners(matrix: Matrix, lines: Lines) -> Iterator[Lint]:
    good, bad = matrix.space.good, matrix.space.bad
    for name, cell in (("good", good), ("bad", bad)):
        rule = matrix.space.broken(cell)
        if rule is not None:
            yield Lint(place=lines.place("axes"), text=f"the {name} values together break a rule: {rule}")
    yield from _misfits(matrix, good, "the good corner", lines.place("axes"))
    yield from _misfits(matrix, bad, "the bad corner", lines.place("axes"))
    for i, cell in enumerate(matrix.include):
        yield from _misfits(matrix, cell, matrix.space.name_of(cell), lines.place("include", i))


def _misfits(matrix: Matrix, cell: Point, name: str, place: str) -> Iterator[Lint]:
    """An error where our own trainer cannot have the settings of ``cell`` together."""
    if matrix.target != "nsa":
        return
    try:
        run_config()().with_values(dict(matrix.bundle(cell).config))
    except ValueError as error:
        yield Lint(place=place, text=f"{name} cannot run: {error}", is_error=True)


def _axes(matrix: Matrix, lines: Lines) -> Iterator[Lint]:
    searched = {entry.axis for entry in matrix.searches}
    # The planted fault tells the values of these apart, or the time that they are given does.
    effective: set[str] = set()
    if matrix.fault is not None:
        for condition in matrix.fault.conditions:
            effective.add(condition.name)
    for row in matrix.limits_when:
        effective.update(row.when.names)
    for factor in matrix.space.factors:
        key = ("axes", factor.name)
        if len(factor.axis.values) == 1:
            yield Lint(place=lines.place(*key), text=f"axis {factor.name!r} has one value; hold it in base instead")
        if factor.name in searched and len(factor.axis.values) == 2:
            text = f"axis {factor.name!r} is searched for a threshold, but has two values only"
            yield Lint(place=lines.place(*key), text=text)
        is_alike = len(set(factor.bundles)) < len(factor.bundles)
        if len(factor.bundles) > 1 and is_alike and factor.name not in effective:
            yield Lint(place=lines.place(*key), text=f"two values of axis {factor.name!r} do the same")


def _expectations(matrix: Matrix, lines: Lines, today: dt.date) -> Iterator[Lint]:
    for i, row in enumerate(matrix.expect):
        if row.until is not None and row.until < today:
            text = f"this expectation held until {row.until}; look whether it still does, then renew or remove it"
            yield Lint(place=lines.place("expect", i, "until"), text=text)
        if row.kind is not Kind.PASS and row.until is None:
            text = f"an expected {row.kind} without until: is never looked at again"
            yield Lint(place=lines.place("expect", i), text=text)
        if row.since is not None and row.since > today:
            yield Lint(place=lines.place("expect", i, "since"), text=f"since {row.since} lies in the future")


def _limits(matrix: Matrix, lines: Lines) -> Iterator[Lint]:
    """A limit near the known passing time of a cell, or of one that differs from it in one value, proves nothing."""
    for row in matrix.expect:
        if row.seconds is None or row.kind is not Kind.PASS:
            continue
        totals = (matrix.limits_at(cell).total_s for cell in _near(matrix, row))
        least = min(filter(None, totals), default=None)
        if least is not None and least < STALL_MARGIN * row.seconds:
            text = (
                f"a total limit of {least:g} s cannot tell slow from hung: a cell with {row.when} is known to pass in "
                f"{row.seconds:g} s; allow {STALL_MARGIN * row.seconds:g} s or leave the limit out"
            )
            yield Lint(place=lines.place("limits", "total"), text=text)
    yield from _without_effect(matrix.limits, lines.place("limits", "total"))
    for i, row in enumerate(matrix.limits_when):
        yield from _without_effect(row.limits, lines.place("limits_when", i, "total"))


def _without_effect(limits: Limits, place: str) -> Iterator[Lint]:
    """A limit for silence that the whole limit never lets run out."""
    if limits.total_s is not None and limits.stall_s is not None and limits.total_s <= limits.stall_s:
        text = f"total {limits.total_s:g} s ends a trial before stall {limits.stall_s:g} s can say that it hangs"
        yield Lint(place=place, text=text)


def _near(matrix: Matrix, row: Expectation) -> Iterator[Point]:
    """The cell that the expectation speaks of, and every one that differs from it in one value."""
    cell = matrix.space.cell({name: values[0] for name, values in row.when.terms})
    yield cell
    for factor in matrix.space.factors:
        for value in factor.axis.values:
            yield cell.with_value(factor.name, value)


def _signatures(matrix: Matrix, lines: Lines) -> Iterator[Lint]:
    used = {row.signature for row in (*matrix.expect, *matrix.searches)}
    for row in matrix.signatures:
        if row.name not in used:
            yield Lint(place=lines.place("signatures", row.name), text=f"signature {row.name!r} is used nowhere")
    for i, entry in enumerate(matrix.searches):
        if entry.signature is None and not entry.bad_kinds and entry.kind is not SearchKind.EXPLORE:
            text = f"search {entry.name!r} has no signature: the first failure of any kind is followed"
            yield Lint(place=lines.place("searches", i), text=text)


def _effort(matrix: Matrix, lines: Lines) -> Iterator[Lint]:
    only_searches = matrix.searches and matrix.strategy is MatrixStrategy.LIST and not matrix.include
    if not only_searches and matrix.effort.max_seconds is None and matrix.gpu_seconds is None:
        text = "no budget: wall: or gpu_seconds: only the limit of a CI job would end a run that is too long"
        yield Lint(place=lines.place("budget"), text=text)
