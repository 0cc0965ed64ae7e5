"""What is let go of when a name is given another value, and whether anybody can wait for the end of that.

A socket or a pipe is closed with the last reference to it, a generator runs its ``finally``, an object its finalizer.
None of that stands where it happens: ``end = turns`` is all there is to be read. So a thread that gives a name another
value, or empties a list, lets nobody on only where all that was there before is of no consequence: a number, a text,
what a harmless call gives, or what another name still has.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.reading.origins import ANSWER, METHODS, items_of, last_name, names_of, operands_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.reading.own_source import Scope

_EMPTIES = words("clear pop popleft update")
"""Methods by which a container loses what it had."""

_MEASURES = words("abs all any bool chr float format hasattr hash id int isinstance len ord repr round str sum")
"""Builtins that give a number or a text, whatever they are called with."""

_OF_FILES = words("read read_text readline readlines seek tell write")
_PARTS = words("item items keys values")
"""Methods that give parts of what they are called on."""

_PLAIN = (ast.Constant, ast.JoinedStr, ast.Compare)
_DISPLAYS = (
    ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp,
)  # fmt: skip


def drops_harmlessly(node: ast.AST, scope: Scope) -> bool:
    """Whether nobody can wait for the end of what a part of a function lets go of, by what its file shows."""
    return all(_had_harmlessly(place, scope, scope.function) for place in _places(node))


def _places(node: ast.AST) -> Iterator[ast.expr]:
    """The names, attributes and containers that lose something there."""
    match node:
        case ast.Assign(targets=targets):
            for target in targets:
                yield from _places_of(target)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
            yield from _places_of(target)
        case ast.Call(func=ast.Attribute(value=container, attr=name)) if name in _EMPTIES:
            yield container
        case _:
            pass


def _places_of(target: ast.expr) -> Iterator[ast.expr]:
    match target:
        case ast.Tuple(elts=several) | ast.List(elts=several):
            for one in several:
                yield from _places_of(one)
        case ast.Subscript(value=one) | ast.Starred(value=one):
            yield from _places_of(one)
        case _:
            yield target


def _had_harmlessly(place: ast.expr, scope: Scope, runs: ast.AST) -> bool:
    """The same of all that a name or an attribute ever had; ``runs`` is the function that lets go of it."""
    if not isinstance(place, ast.Name) and names_of(place)[:1] != ("self",):
        return True  # whatever it is, it is not made here, which is an act by itself
    had = scope.file.origins.had_by(place, scope.function)
    return had is not None and all(_ends_unnoticed(one.value, scope.within(one.function), runs) for one in had)


def _ends_unnoticed(node: ast.expr, scope: Scope, runs: ast.AST) -> bool:
    """Whether nobody can wait for the end of what an expression gives, and of what is in that."""
    return scope.file.origins.once("end", node, lambda: _ask(node, scope, runs))


def _ask(node: ast.expr, scope: Scope, runs: ast.AST) -> bool:
    match node:
        case ast.Name() | ast.Attribute(value=ast.Name(id="self")):
            is_there = scope.file.origins.keeps(node, scope.function, runs=runs)
            return is_there or _had_harmlessly(node, scope, runs)
        case ast.Attribute(attr=name) if name in scope.file.fields:
            return False
        case ast.Call(func=ast.Attribute(attr=name)) if (
            name in ANSWER - scope.file.functions.keys() - scope.file.fields
        ):
            return True
        case ast.Call() if not scope.is_known(node):
            return False
        case _ if isinstance(node, _PLAIN):
            return True
        case _:
            parts = _parts(node)
            return parts is not None and all(_ends_unnoticed(one, scope, runs) for one in parts)


def _parts(node: ast.expr) -> list[ast.expr] | None:
    """What may be in what an expression gives; None where that is not known."""
    match node:
        case ast.Call():
            return _handed_back(node)
        case ast.Attribute(value=of) | ast.Subscript(value=of) | ast.Starred(value=of):
            return [of]
        case _ if isinstance(node, _DISPLAYS):
            return items_of(node)
        case _:
            operands = operands_of(node)
            return None if operands == [node] else operands


def _handed_back(call: ast.Call) -> list[ast.expr]:
    """What a call may give of all that it is called with, and on."""
    name = last_name(call.func)
    if name in _MEASURES or (isinstance(call.func, ast.Attribute) and name in (METHODS | _OF_FILES) - _PARTS):
        return []
    of = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return [*of, *call.args, *(word.value for word in call.keywords)]
