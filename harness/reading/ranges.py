"""Whether the condition of a ``while`` holds for ever, whatever its numbers become: intervals of whole numbers.

``while turn >= 0: turn = (turn + 1) % 1000`` changes its variable at every turn and never ends. Each variable is given
the interval of all values that it may have: its value when it was looked at, joined with what any assignment of the
loop may give it, until nothing grows. That takes no account of the order of the statements, so it holds wherever in its
body the loop was met. What is not understood (a call, a division that may be by zero, or of floats) proves nothing.
Floats are rounded here as they are there, and rounding keeps the order of sums and products. Where there are any, no
sum may double without a bound: it would soon be beyond all floats, and raise.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Interval = tuple[float, float]
"""The least and the greatest value; infinite where nothing bounds it. Finite ends are exact: below 2 to the 53."""

EXACT = 2.0**53
ROUNDS = 8
"""After so many rounds an end that still grows is taken for zero, if it has not come to that, or else for infinite."""

_ALWAYS, _NEVER, _EITHER = (1.0, 1.0), (0.0, 0.0), (0.0, 1.0)


class _UnknownError(Exception):
    """Something that intervals do not tell."""


def holds_for_ever(loop: ast.While, values: Mapping[str, float]) -> bool:
    """Whether the condition is true at every turn from these values on, and nothing in the loop can raise.

    Statements that leave the loop are for the caller to rule out.
    """
    has_floats = _has_floats(loop, values)
    if has_floats and _divides(loop):
        return False
    try:
        assigned = list(_assignments(loop))
        ranges = _settled(assigned, {name: _joined(value, value) for name, value in values.items()})
        if has_floats and any(_may_double(value, ranges) for _, value in assigned):
            return False
        return _test(loop.test, ranges) == _ALWAYS
    except _UnknownError:
        return False


def is_true(test: ast.expr, values: Mapping[str, float]) -> bool | None:
    """Whether a condition is true for these values; None where it may be either, raise, or do anything else."""
    if _divides(test) and _has_floats(test, values):
        return None
    try:
        truth = _test(test, {name: _joined(value, value) for name, value in values.items()})
    except _UnknownError:
        return None
    return None if truth == _EITHER else truth == _ALWAYS


def _has_floats(node: ast.AST, values: Mapping[str, float]) -> bool:
    for one in ast.walk(node):
        value = one.value if isinstance(one, ast.Constant) else None
        if isinstance(values.get(one.id) if isinstance(one, ast.Name) else value, float):
            return True
    return False


def _divides(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Mod | ast.FloorDiv) for one in ast.walk(node))


def _may_double(value: ast.expr, ranges: Mapping[str, Interval]) -> bool:
    """Whether two numbers without a bound are added in it."""
    for node in ast.walk(value):
        if isinstance(node, ast.BinOp):
            sides = (_value(node.left, ranges), _value(node.right, ranges))
            if not any(all(map(math.isfinite, side)) for side in sides):
                return True
    return False


def _settled(assigned: list[tuple[str, ast.expr]], ranges: dict[str, Interval]) -> dict[str, Interval]:
    """The intervals once no assignment widens any."""
    for turn in range(ROUNDS + 3 * len(assigned)):
        before = dict(ranges)
        for name, value in assigned:
            new = _value(value, ranges)
            old = ranges.get(name, new)
            low, high = min(old[0], new[0]), max(old[1], new[1])
            if turn >= ROUNDS:
                low, high = (low if low == old[0] else _beyond(low)), (high if high == old[1] else -_beyond(-high))
            ranges[name] = _joined(low, high)
        if ranges == before:
            return ranges
    raise _UnknownError


def _beyond(low: float) -> float:
    return 0.0 if low >= 0.0 else -math.inf


def _assignments(loop: ast.While) -> Iterator[tuple[str, ast.expr]]:
    """Every assignment of the loop, and under the name ``""`` each condition: that could raise, too."""
    for node in ast.walk(loop):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield _name(target), value
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                yield name, ast.BinOp(left=ast.Name(id=name), op=op, right=value)
            case ast.If(test=test) | ast.While(test=test):
                yield "", test
            case ast.stmt() if not isinstance(node, ast.Pass | ast.Continue):
                raise _UnknownError
            case _:
                pass


def _name(target: ast.expr) -> str:
    if not isinstance(target, ast.Name):
        raise _UnknownError
    return target.id


def _joined(low: float, high: float) -> Interval:
    return (low if abs(low) < EXACT else -math.inf, high if abs(high) < EXACT else math.inf)


def _value(node: ast.expr, ranges: Mapping[str, Interval]) -> Interval:
    """All values that an expression may have."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return _joined(value, value)
        case ast.Name(id=name) if name in ranges:
            return ranges[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            low, high = _value(operand, ranges)
            return -high, -low
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _not(_test(operand, ranges))
        case ast.BinOp(left=left, op=op, right=right):
            return _joined(*_computed(op, _value(left, ranges), _value(right, ranges)))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compared(op, _value(left, ranges), _value(right, ranges))
        case ast.BoolOp(values=parts):
            lows, highs = zip(*[_value(part, ranges) for part in parts], strict=True)
            return min(lows), max(highs)  # it gives one of its parts, not whether they are true
        case _:
            raise _UnknownError


def _test(node: ast.expr, ranges: Mapping[str, Interval]) -> Interval:
    """Whether an expression is true."""
    match node:
        case ast.BoolOp(op=op, values=parts):
            lows, highs = zip(*[_test(part, ranges) for part in parts], strict=True)
            of = min if isinstance(op, ast.And) else max
            return of(lows), of(highs)
        case _:
            return _truth(_value(node, ranges))


def _computed(op: ast.operator, left: Interval, right: Interval) -> Interval:
    (a, b), (c, d) = left, right
    match op:
        case ast.Add():
            return a + c, b + d
        case ast.Sub():
            return a - d, b - c
        case ast.Mult() if all(map(math.isfinite, (a, b, c, d))):
            products = (a * c, a * d, b * c, b * d)
            return min(products), max(products)
        case ast.Mod() if c == d > 0 and math.isfinite(a) and math.isfinite(b) and a // c == b // c:
            return a % c, b % c
        case ast.Mod() if c > 0:
            return (a, b) if a >= 0 and b < c else (0.0, d - 1)
        case ast.FloorDiv() if c > 0 and math.isfinite(a) and math.isfinite(b):
            ends = (a // c, a // d, b // c, b // d)
            return min(ends), max(ends)
        case _:
            raise _UnknownError


def _compared(op: ast.cmpop, left: Interval, right: Interval) -> Interval:
    (a, b), (c, d) = left, right
    match op:
        case ast.Lt():
            return _decided(always=b < c, never=a >= d)
        case ast.LtE():
            return _decided(always=b <= c, never=a > d)
        case ast.Gt():
            return _decided(always=a > d, never=b <= c)
        case ast.GtE():
            return _decided(always=a >= d, never=b < c)
        case ast.Eq() | ast.NotEq():
            same = _decided(always=a == b == c == d, never=b < c or d < a)
            return same if isinstance(op, ast.Eq) else _not(same)
        case _:
            raise _UnknownError


def _decided(*, always: bool, never: bool) -> Interval:
    return _ALWAYS if always else _NEVER if never else _EITHER


def _truth(of: Interval) -> Interval:
    low, high = of
    return _decided(always=low > 0 or high < 0, never=low == high == 0)


def _not(truth: Interval) -> Interval:
    return 1.0 - truth[1], 1.0 - truth[0]
