"""A loop without what its turns do not get to, as long as what its conditions ask stays as it is.

``while i < n: if i in (3, 7): continue; yield i; i += 1`` is a generator that works at every turn, but for the one that
it never leaves. What stands behind a condition that is decided by numbers which no statement that is reached changes is
reached at no later turn either, so it is no part of the loop that the process is in.

Numbers and line may be read at two moments. So a condition counts only by numbers that never change in the loop, or
only ever grow, or only ever shrink: those are the same at several looks only within one turn.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.reading.plain import holds
from harness.reading.ranges import is_true

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LEAVES = (ast.Continue, ast.Break, ast.Return, ast.Raise)


def step_of(statement: ast.AST) -> int:
    """What a statement adds to a variable, where that is a constant whole number; else 0."""
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.Add | ast.Sub):
        return 0
    by = statement.value.value if isinstance(statement.value, ast.Constant) else None
    if not isinstance(by, int):
        return 0
    return by if isinstance(statement.op, ast.Add) else -by


def reached(loop: ast.While, numbers: Mapping[str, int], *, line: int) -> ast.While:
    """``loop`` without what no turn gets to from these numbers on, which were seen at ``line``; itself where unsure."""
    walk = _Walk({name: number for name, number in numbers.items() if _goes_one_way(loop, name)})
    body = walk.body(loop.body)
    kept = ast.copy_location(ast.While(test=loop.test, body=body, orelse=[]), loop)
    if walk.asked & _set_in(kept) or any(holds(one, line) for one in walk.dropped):
        return loop
    return kept if walk.dropped else loop


class _Walk:
    """One walk through the body of a loop: the names whose numbers decided, and the statements that were left out."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.numbers = numbers
        self.asked: set[str] = set()
        self.dropped: list[ast.stmt] = []

    def body(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Those of these statements that are reached; a condition that is decided stands without its branches."""
        taken: list[ast.stmt] = []
        for at, one in enumerate(statements):
            taken += self._branch(one) if isinstance(one, ast.If) else [one]
            if taken and isinstance(taken[-1], _LEAVES):
                self.dropped += statements[at + 1 :]
                break
        return taken

    def _branch(self, one: ast.If) -> list[ast.stmt]:
        answer = is_true(one.test, self.numbers)
        if answer is None:
            return [ast.copy_location(ast.If(one.test, self.body(one.body), self.body(one.orelse)), one)]
        self.asked |= {node.id for node in ast.walk(one.test) if isinstance(node, ast.Name)}
        self.dropped += one.orelse if answer else one.body
        return [ast.copy_location(ast.Expr(one.test), one.test), *self.body(one.body if answer else one.orelse)]


def _set_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}


def _goes_one_way(loop: ast.While, name: str) -> bool:
    """Whether a loop never changes a variable, or only by steps that are all up, or all down."""
    stores, steps = 0, list[int]()
    for node in ast.walk(loop):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            stores += 1
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            steps.append(step_of(node))
    return len(steps) == stores and (all(step > 0 for step in steps) or all(step < 0 for step in steps))
