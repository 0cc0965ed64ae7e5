"""What in a loop may end it by an exception: a thread that asks a file every second ends once that is gone.

Whoever joins such a thread, or awaits such a task, is let on by its end. So a loop without a way out is endless only if
all that it does cannot raise in practice, or stands in a ``try`` of the loop's own.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.reading.origins import DEEP, FUNCTION_NODES, last_name, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harness.reading.own_source import SourceFile

_NEVER = words(
    # the time, and a rest
    "isoformat monotonic now perf_counter process_time sleep strftime time timestamp total_seconds wait",
    # of others
    "cancelled done empty exists full is_alive is_file is_set join locked poll qsize running waitpid",
    "current_thread getpid memory_allocated max_memory_allocated memory_reserved memory_info cpu_percent",
    "virtual_memory",
    # words for people
    "critical debug error exception flush info labels log observe print set_description set_postfix warning",
    "add_scalar add_scalars dec inc set",
    # of files, and processes, that are not opened yet
    "Path PurePath Process",
    # builtins, and methods of theirs
    "abs add all any append bool clear copy dict enumerate format frozenset get getattr hasattr id isinstance items",
    "keys len list lower map range repr reversed round set sorted split str strip sum tuple type upper values zip",
)
"""Functions that raise nothing in practice."""

_ALL = frozenset({"", "Exception", "BaseException"})
_OF_THE_SYSTEM = frozenset({"OSError", "IOError", "EnvironmentError"})
_WAITING = (*FUNCTION_NODES, ast.ClassDef, ast.Lambda)
_ASKS_THE_SYSTEM = words("close open read read_text readline readlines stat touch utime write write_text writelines")


def may_raise(part: ast.AST, file: SourceFile, *, deep: int = 0) -> bool:
    """Whether anything in a part of ``file``, or in its functions that it calls, may raise what no ``try`` catches."""
    for node, caught in _guarded(part):
        own = _own(node, file)
        if not caught & _ALL and (_raises(node, caught) if not own else _any_may_raise(own, file, deep)):
            return True
    return False


def raising_calls(part: ast.AST, file: SourceFile, *, deep: int = 0) -> Iterator[ast.AST]:
    """The calls in it that may raise at one turn of a loop what they did not at the turn before."""
    for node, caught in _guarded(part):
        if not isinstance(node, ast.Call) or caught & _ALL:
            continue
        own = _own(node, file)
        inner = deep >= DEEP or any(any(raising_calls(one, file, deep=deep + 1)) for one in own)
        if inner if own else _raises(node, caught):
            yield node


def _any_may_raise(functions: Iterable[ast.AST], file: SourceFile, deep: int) -> bool:
    return deep >= DEEP or any(may_raise(one, file, deep=deep + 1) for one in functions)


def _guarded(part: ast.AST) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """A node and all in it that runs with it, each with the names of the exceptions that are caught around it."""
    waiting = [(part, frozenset[str]())]
    while waiting:
        node, caught = waiting.pop()
        yield node, caught
        inner = caught.union(*map(_catches, node.handlers)) if isinstance(node, ast.Try) else caught
        body = set(node.body) if isinstance(node, ast.Try) else frozenset[ast.AST]()
        runs = (one for one in ast.iter_child_nodes(node) if not isinstance(one, _WAITING))
        waiting.extend((child, inner if child in body else caught) for child in runs)


def _catches(handler: ast.ExceptHandler) -> set[str]:
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {"" if one is None else last_name(one) for one in types}


def _raises(node: ast.AST, caught: frozenset[str]) -> bool:
    match node:
        case ast.Subscript(ctx=ast.Load(), slice=key):
            return not (isinstance(key, ast.Constant) and isinstance(key.value, str))
        case ast.Assert() | ast.Raise():
            return True
        case ast.BinOp(op=ast.Div() | ast.FloorDiv() | ast.Mod(), left=left, right=right):
            fills_a_text = isinstance(left, ast.Constant) and isinstance(left.value, str)
            return not fills_a_text and not isinstance(right, ast.Constant)
        case ast.Call(func=function, args=args):
            name = last_name(function)
            is_caught = bool(caught & _OF_THE_SYSTEM) and name in _ASKS_THE_SYSTEM
            is_of_several = name in ("min", "max") and len(args) > 1
            return not is_caught and not is_of_several and name not in _NEVER
        case _:
            return False


def _own(node: ast.AST, file: SourceFile) -> list[ast.AST]:
    """The functions of the file that it may be a call of."""
    return file.functions.get(last_name(node.func), []) if isinstance(node, ast.Call) else []
