"""What a file's source shows of its names: which of them only ever stand for a number, or for what Python itself makes.

A value that was seen once tells nothing of what it is the next time: an attribute may be computed whenever it is asked,
a name be given an object with operators of its own. Where all statements of a file, wherever they stand, give a name
nothing but constants, it is plain.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from threading import Lock, Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_ONE_AT_A_TIME = Lock()
"""Ranks are looked at in threads, and Python 3.11 counts the depth of a tree once for all of them (SystemError)."""


@lru_cache(maxsize=16)
def _parsed(source: str) -> ast.Module:
    with _ONE_AT_A_TIME:
        return ast.parse(source)


def tree_of(source: str) -> ast.Module | None:
    """The tree of ``source``, None where it is not understood, or somebody else's thread made Python miscount."""
    try:
        return _parsed(source)
    except (SyntaxError, ValueError, RecursionError, SystemError):
        return None


def nodes_of(source: str) -> list[ast.AST]:
    """All nodes of ``source``, those around others first; none where it is not understood."""
    tree = tree_of(source)
    return list(ast.walk(tree)) if tree is not None else []


def path_to(node: ast.AST, line: int) -> tuple[ast.AST, ...]:
    """All nodes below ``node`` that hold ``line``, each within the one before."""
    path: list[ast.AST] = []
    child = node
    while (child := _child_at(child, line)) is not None:
        path.append(child)
    return tuple(path)


def _child_at(node: ast.AST, line: int) -> ast.AST | None:
    for child in ast.iter_child_nodes(node):
        if holds(child, line):
            return child
    return None


def holds(node: ast.AST, line: int) -> bool:
    """Whether a node's source is, at least in part, on that line."""
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last


def called_name(call: ast.Call) -> str:
    """The last part of the name that is called; empty where it has none."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


SLEEP = "sleep"
"""The function that a loop may call to wait between two turns; what it asks meanwhile, another process may change."""
_CLOCKS = frozenset({"time", "asyncio"})

HOOKS = frozenset({"addaudithook", "settrace", "setprofile", "monitoring", "callbacks", "finalize"})
"""Names of ``sys``, ``gc`` and ``weakref`` by which a function is run within others, a sleep among them."""


@lru_cache(maxsize=16)
def sets_hooks(source: str) -> bool:
    """Whether a file may have Python run a function of its own now and then, which may set what a loop waits for."""
    for node in nodes_of(source):
        match node:
            case ast.Attribute(attr=name) | ast.alias(name=name) if name in HOOKS:
                return True
            case _:
                pass
    return False


@lru_cache(maxsize=16)
def sleeps_by_the_clock(source: str) -> bool:
    """Whether all that a file calls ``sleep`` is the one of ``time`` or ``asyncio``: another may do more."""
    modules: set[str] = set()
    functions: set[str] = set()
    called: list[ast.expr] = []
    for node in nodes_of(source):
        match node:
            case ast.Import(names=names):
                modules.update(one.asname or one.name for one in names if one.name in _CLOCKS)
            case ast.ImportFrom(module=module, names=names) if module in _CLOCKS:
                functions.update(one.name for one in names if one.asname is None)
            case ast.Call(func=function) if called_name(node) == SLEEP:
                called.append(function)
            case (
                ast.Name(id="sleep", ctx=ast.Store())
                | ast.Attribute(attr="sleep", ctx=ast.Store())
                | ast.FunctionDef(name="sleep")
                | ast.AsyncFunctionDef(name="sleep")
                | ast.arg(arg="sleep")
            ):
                return False
            case _:
                pass
    for function in called:
        match function:
            case ast.Attribute(value=ast.Name(id=module)) if module in modules:
                pass
            case ast.Name() if SLEEP in functions:
                pass
            case _:
                return False
    return True


@lru_cache(maxsize=16)
def plain_names(source: str) -> frozenset[str]:
    """The names that all statements of a file, wherever they stand, give constants or add constants to."""
    return _names_of(nodes_of(source), _is_number)


def _names_of(nodes: Sequence[ast.AST], fits: Callable[[ast.expr | None], bool]) -> frozenset[str]:
    """The names that all statements, wherever they stand, give only what ``fits``."""
    targets = _fitting_targets(nodes, fits)
    fitting: set[str] = set()
    other: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            (fitting if id(node) in targets else other).add(node.id)
        elif isinstance(node, ast.alias):
            other.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.arg):
            other.add(node.arg)
        elif isinstance(node, _NAMED):
            other.add(node.name or "")
        elif isinstance(node, ast.MatchMapping):
            other.add(node.rest or "")
    return frozenset(fitting - other) if "*" not in other else frozenset()


@lru_cache(maxsize=16)
def plain_attributes(source: str) -> Mapping[str, frozenset[str]]:
    """The attributes that hold a number or nothing by all that a file gives them, by class.

    They are those of a class that the file defines without anything above it, or in it, that could make an attribute
    more than what was put there. A thread's own attributes are Python's to set.
    """
    nodes = nodes_of(source)
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    targets: list[ast.Name | ast.Attribute] = [*_stored(nodes, ast.Attribute)]
    others = set(_OF_A_THREAD)
    for one in classes:
        targets += _targets_in(one)
        others |= _functions_in(one)
    plainly = _fitting_targets(nodes, _is_number)
    constants: set[str] = set()
    for target in targets:
        name = target.attr if isinstance(target, ast.Attribute) else target.id
        (constants if id(target) in plainly else others).add(name)
    simple = _spellings(nodes, _SIMPLE_BASES) - {one.name for one in classes}
    names: list[str] = []
    for one in classes:
        if _is_simple(one, simple):
            names.append(one.name)
            simple.add(one.name)
    return dict.fromkeys(names, frozenset(constants - others))


@lru_cache(maxsize=16)
def attributes_of_names(source: str) -> frozenset[str]:
    """The same as ``s.done``: of each such class by its own name, and by the names that only get one of its objects."""
    own, names = plain_attributes(source), set[str]()
    for simple, attributes in own.items():
        for base in (simple, *_objects(nodes_of(source), {simple})):
            names.update(f"{base}.{attribute}" for attribute in attributes)
    return frozenset(names)


@lru_cache(maxsize=16)
def functions_of(source: str) -> frozenset[str]:
    """The names of all functions of a file, the methods and properties of its classes among them."""
    return frozenset(node.name for node in nodes_of(source) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@lru_cache(maxsize=16)
def made_by(source: str, classes: frozenset[str]) -> frozenset[str]:
    """The names, and attributes as ``.done``, that a file gives nothing but new objects of these classes."""
    nodes = nodes_of(source)
    news = _spellings(nodes, classes)

    def is_new(value: ast.expr | None) -> bool:
        return isinstance(value, ast.Call) and ast.unparse(value.func) in news

    made = _fitting_targets(nodes, is_new)
    attributes: set[str] = set()
    others: set[str] = set()
    for target in _stored(nodes, ast.Attribute):
        (attributes if id(target) in made else others).add(target.attr)
    return _names_of(nodes, is_new) | {f".{attribute}" for attribute in attributes - others}


def _spellings(nodes: Sequence[ast.AST], classes: frozenset[str]) -> set[str]:
    """How a file may spell these classes, by what it imports."""
    spellings = set(classes)
    for node in nodes:
        if isinstance(node, ast.Import):
            for name in node.names:
                spellings.update(_renamed(classes, name.name, f"{name.asname or name.name}."))
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                spellings.update(_renamed(classes, f"{node.module}.{name.name}", name.asname or name.name))
    return spellings


def _renamed(classes: frozenset[str], original: str, name: str) -> set[str]:
    """How classes are spelt where ``original``, one of them or what begins their names, is called ``name``."""
    dotted = original if original in classes else f"{original}."
    return {name + one.removeprefix(dotted) for one in classes if one == dotted or one.startswith(f"{original}.")}


_SIMPLE_BASES = frozenset({"object", "threading.Thread"})
_OF_A_THREAD = frozenset(dir(Thread()))


def _is_simple(one: ast.ClassDef, simple: set[str]) -> bool:
    """Whether nothing that a class says, nor any above it, makes its attributes more than what was put there."""
    bound = _functions_in(one) | {target.id for target in _targets_in(one)}
    bases = {ast.unparse(base) for base in one.bases}
    return bases <= simple and not (one.keywords or one.decorator_list or _LOOKS_UP & bound)


def _fitting_targets(nodes: Sequence[ast.AST], fits: Callable[[ast.expr | None], bool]) -> set[int]:
    """The targets of all assignments whose value ``fits``."""
    targets: set[int] = set()
    for node in nodes:
        if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = [*zip(target.elts, node.value.elts, strict=False)]
            targets.update(id(one) for one, value in pairs if fits(value))
    return targets


def _objects(nodes: Sequence[ast.AST], classes: set[str]) -> set[str]:
    """The names that only ever get an object that one of these classes makes."""
    targets = _fitting_targets(nodes, lambda value: isinstance(value, ast.Call) and called_name(value) in classes)
    objects: set[str] = set()
    others: set[str] = set()
    for name in _stored(nodes, ast.Name):
        (objects if id(name) in targets else others).add(name.id)
    for node in nodes:
        if isinstance(node, ast.arg):
            others.add(node.arg)
    return objects - others


_Stored = TypeVar("_Stored", ast.Name, ast.Attribute)


def _stored(nodes: Sequence[ast.AST], kind: type[_Stored]) -> list[_Stored]:
    return [node for node in nodes if isinstance(node, kind) and not isinstance(node.ctx, ast.Load)]


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOKS_UP = frozenset({"__getattr__", "__getattribute__", "__slots__", "__setattr__", "__new__"})


def _functions_in(one: ast.ClassDef) -> set[str]:
    return {node.name for node in one.body if isinstance(node, _FUNCTIONS)}


def _targets_in(one: ast.ClassDef) -> list[ast.Name]:
    """The names that the statements of a class give a value, those of its functions left out."""
    nodes: list[ast.AST] = []
    for node in one.body:
        if not isinstance(node, _FUNCTIONS):
            nodes.extend(ast.walk(node))
    return _stored(nodes, ast.Name)


_NAMED = (ast.ExceptHandler, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.MatchAs, ast.MatchStar)
"""What binds a name that is not a node of its own."""


def _is_number(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | None)
