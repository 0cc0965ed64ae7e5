"""What a loop does at every turn as long as no process that it asks has ended.

``while any(p.poll() is None for p in procs): time.sleep(1)`` is how people write a launcher, and around it stands
what it does when a rank fails: ``if p.poll() not in (None, 0): stop_all()``. From outside that is a process which wakes
every second and may do anything. By its source it does nothing until a child ends: the call that stops the others is
not reached, and neither is the way out. So one turn is walked through, with the answer of somebody who goes on in the
place of every question (``poll()`` is None, ``is_alive()`` is True), and of every other value it is noted whether it
can be another one at the next turn: a clock's can, a count's can, what the loop never sets cannot. What is asked of
values that cannot change was answered at all turns before as it will be at the next one. A function of the same file
(``while self.any_alive()``) is walked through in the same way.

What does not work: looking for a clock. A call that is not known (``self.check()``) may read one, so whatever it gives
*changes*, and what it does is for the caller to judge (``Turn.reached``).
"""

from __future__ import annotations

import ast
import operator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from harness.reading.own_source import SourceFile


class Unknown(Enum):
    """What is known of a value that the source does not tell."""

    STEADY = auto()
    """It is the same at every turn."""
    SOME = auto()
    """The same, and it is true: a count of those that go on, for instance."""
    CHANGES = auto()
    """It may be another one at the next turn."""


@dataclass(frozen=True)
class Many:
    """A collection that is not empty, and what each of its items is."""

    each: Value


Value: TypeAlias = Any
"""An ``Unknown``, a ``Many``, or what a value is: None, a number, a text, a tuple of values."""

STEADY, SOME, CHANGES = Unknown.STEADY, Unknown.SOME, Unknown.CHANGES
NOTHING: tuple[Value, ...] = ()
"""An empty collection."""

_OF_PROCESSES: dict[str, Value] = {"poll": None, "is_alive": True, "join": None}
"""What methods give that ask whether a child has ended, while it has not."""

_OF_ITS_END = frozenset({"exitcode", "returncode"})
"""Attributes of a process that are None until it has ended."""

_TIMES_OUT = "TimeoutExpired"
"""What ``wait(timeout=1)`` of a child raises that goes on."""

_RECEIVES = frozenset({"recv", "recv_bytes", "recv_into", "recv_pyobj", "recv_multipart", "recv_string", "recv_json"})
"""Methods by whose side ``poll()`` asks for a message, which may come from anybody."""

_ORDERS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Gt: operator.gt,
    ast.Lt: operator.lt,
    ast.GtE: operator.ge,
    ast.LtE: operator.le,
}
_SAME_ITEMS = frozenset({"list", "tuple", "set", "sorted", "reversed", "items", "values", "keys", "copy", "dict"})
_OF_VALUES = frozenset(
    {"bool", "int", "isinstance", "range", "min", "max", "abs", "str", "repr", "id", "type", "getattr"}
)
_FILLS = frozenset({"append", "add"})
_MUTATES = _FILLS | {
    "remove",
    "discard",
    "pop",
    "popitem",
    "popleft",
    "clear",
    "extend",
    "insert",
    "update",
    "setdefault",
}
_HAS_MORE = (ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal)
_RAISES = (ast.Raise, ast.Assert)
_OF_PARTS = (ast.BinOp, ast.JoinedStr, ast.FormattedValue, ast.Subscript, ast.Slice, ast.Starred, ast.Dict)


@dataclass(frozen=True)
class Turn:
    """One turn of a loop: the statements and expressions that may run in it, and whether it may be the last one.

    ``asks`` says that it asks whether a child has ended.
    """

    reached: tuple[ast.AST, ...]
    may_leave: bool
    asks: bool


DEEP = 3
"""Functions of the file that are walked through below each other."""


def turn_of(loop: ast.While, own: frozenset[str], file: SourceFile) -> Turn:
    """What a loop does at a turn in which no child ends.

    Args:
        loop: the loop.
        own: names that its function has made itself. What the condition asks of other names may be another thread's
            doing.
        file: where it stands.
    """
    calls = {_last(node.func) for node in ast.walk(loop) if isinstance(node, ast.Call)}
    walk = _Walk(own=own, file=file, receives=not calls.isdisjoint(_RECEIVES))
    for _ in range(2):  # the second time with what the first has set
        walk.reached, walk.may_leave = [], False
        walk.turn(loop)
        walk.set_before = set()
    return Turn(reached=tuple(walk.reached), may_leave=walk.may_leave, asks=walk.asks)


def truth(value: Value) -> bool | None:
    """Whether a value counts as true; None where that is not known."""
    if isinstance(value, Unknown):
        return True if value is SOME else None
    return True if isinstance(value, Many) else bool(value)


def _each(value: Value) -> Value:
    """The items of a collection."""
    if isinstance(value, Many):
        return value.each
    if isinstance(value, tuple) and value:
        return _joined(cast("tuple[Value, ...]", value))
    return CHANGES if value is CHANGES else STEADY


def _joined(values: Iterable[Value]) -> Value:
    """What holds for a value that is one of these."""
    first, *rest = values
    for other in rest:
        if other is CHANGES or first is CHANGES:
            return CHANGES
        if other != first or type(other) is not type(first):
            first = SOME if truth(first) and truth(other) else STEADY
    return first


@dataclass
class _Walk:
    """One walk through a turn: what stands for every name, and what was reached."""

    own: frozenset[str]
    file: SourceFile
    receives: bool
    inside: tuple[str, ...] = ()
    names: dict[str, Value] = field(default_factory=dict[str, Value])
    set_before: set[str] = field(default_factory=set[str])
    reached: list[ast.AST] = field(default_factory=list[ast.AST])
    may_leave: bool = False
    asks: bool = False
    returns: list[Value] = field(default_factory=list[Value])
    turns_on_change: bool = False
    raises: bool = False
    catches_limits: bool = False
    processes: set[str] = field(default_factory=set[str])

    def turn(self, loop: ast.While) -> None:
        """Walk through one turn of the loop that is asked about."""
        test = self._value(loop.test)
        answer = truth(test)
        self.may_leave = answer is False or test is CHANGES or (answer is None and not self._is_own(loop.test))
        self.reached.append(loop.test)
        self._run(loop.body, exits=True, inner=False)

    def _is_own(self, tree: ast.AST) -> bool:
        """Whether all that it asks of are names that are set here, and attributes of ``self`` that the file sets."""
        calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        names = {*self.own, *self.file.functions, *_OF_VALUES, *_SAME_ITEMS, "any", "all", "len", "sum", "self"}
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) if name not in names:
                    return False
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in self.file.attributes:
                    pass
                case ast.Attribute(attr=name) if id(node) not in calls and name not in _OF_ITS_END:
                    return False
                case _:
                    pass
        return True

    # Each of these says whether what follows is reached. ``exits``: a way out that is reached may be taken at a later
    # turn, though it was at none before; ``inner``: a ``break`` here leaves another loop than the one asked about.

    def _run(self, body: Sequence[ast.stmt], *, exits: bool, inner: bool) -> bool:
        return all(self._statement(one, exits=exits, inner=inner) for one in body)

    def _statement(self, one: ast.stmt, *, exits: bool, inner: bool) -> bool:
        match one:
            case ast.If(test=test, body=body, orelse=orelse):
                return self._branch(test, body, orelse, exits=exits, inner=inner)
            case ast.For(target=target, iter=over, body=body, orelse=orelse):
                self.reached.append(ast.Starred(value=over))  # it is gone through
                items = self._value(over)
                self.turns_on_change |= items is CHANGES
                if truth(items) is not False:
                    self._bind(target, _each(items))
                    self._run(body, exits=exits, inner=True)
                return self._run(orelse, exits=exits, inner=inner)
            case ast.While(test=test, body=body, orelse=orelse):
                self.reached.append(test)
                self.turns_on_change = True
                if truth(self._value(test)) is not False:
                    self._run(body, exits=exits, inner=True)
                return self._run(orelse, exits=exits, inner=inner)
            case ast.With(items=items, body=body):
                self.reached += items
                for item in items:
                    self._value(item.context_expr)
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, CHANGES)
                return self._run(body, exits=exits, inner=inner)
            case ast.Try():
                return self._try(one, exits=exits, inner=inner)
            case _:
                return self._simple(one, exits=exits, inner=inner)

    def _simple(self, one: ast.stmt, *, exits: bool, inner: bool) -> bool:
        self.reached.append(one)
        match one:
            case ast.Continue():
                return False
            case ast.Break():
                self.may_leave |= exits and not inner
                return False
            case ast.Return(value=value):
                self.returns.append(self._value(value) if value is not None else None)
                self.may_leave |= exits
                return False
            case ast.Raise():
                self.raises |= exits
                self.may_leave |= exits
                return False
            case ast.Assign(targets=targets, value=value):
                result = self._value(value)
                for target in targets:
                    self._bind(target, result)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, self._value(value))
            case ast.AugAssign(target=target, op=op, value=value):
                self._bind(target, self._added(_dotted(target), op, self._value(value)))
            case ast.Delete(targets=targets):
                for target in targets:
                    self._set(_dotted(target), CHANGES)
            case ast.Expr(value=value):
                self._value(value)
            case ast.Assert():
                self.raises = self.may_leave = True
            case ast.Match() | ast.AsyncFor() | ast.AsyncWith() | ast.TryStar():
                self.may_leave = True
            case _:
                pass
        return True

    def _branch(
        self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], *, exits: bool, inner: bool
    ) -> bool:
        self.reached.append(test)
        asked = self._value(test)
        answer = truth(asked)
        if answer is not None:
            return self._run(body if answer else orelse, exits=exits, inner=inner)
        changes = asked is CHANGES
        self.turns_on_change |= changes
        before = dict(self.names), set(self.set_before)
        ends = self._run(body, exits=changes, inner=inner)
        after = self.names, self.set_before
        self.names, self.set_before = before
        otherwise = self._run(orelse, exits=changes, inner=inner)
        if ends and otherwise:
            self._join(*after, changes=changes)
        elif ends:
            self.names, self.set_before = after
        return ends or otherwise

    def _join(self, names: dict[str, Value], set_before: set[str], *, changes: bool) -> None:
        """Take what another way to the same place has set into account."""
        for name in names.keys() | self.names.keys():
            one, other = names.get(name, STEADY), self.names.get(name, STEADY)
            if one is not other:
                self.names[name] = CHANGES if changes else _joined((one, other))
        self.set_before &= set_before

    def _try(self, one: ast.Try, *, exits: bool, inner: bool) -> bool:
        self.turns_on_change = True
        timed = [handler for handler in one.handlers if _TIMES_OUT in _catches(handler)]
        goes_on, caught = True, self.catches_limits
        for statement in one.body:
            self.catches_limits = bool(timed) or caught
            goes_on = self._statement(statement, exits=exits, inner=inner)
            self.catches_limits = caught
            if timed and any(map(_asks_with_a_limit, ast.walk(statement))):
                self.asks = True
                goes_on = self._run(timed[0].body, exits=exits, inner=inner)
                return self._run(one.finalbody, exits=exits, inner=inner) and goes_on
            if not goes_on:
                break
        goes_on = goes_on and self._run(one.orelse, exits=exits, inner=inner)
        for handler in one.handlers:  # nobody knows whether one is reached
            goes_on = self._run(handler.body, exits=True, inner=inner) or goes_on
        return self._run(one.finalbody, exits=exits, inner=inner) and goes_on

    # -- names

    def _bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            parts = cast("tuple[Value, ...]", value) if isinstance(value, tuple) else ()
            parts = parts if len(parts) == len(target.elts) else None
            for index, element in enumerate(target.elts):
                self._bind(element, _each(value) if parts is None else parts[index])
        elif isinstance(target, ast.Subscript):
            self._set(_dotted(target), CHANGES)
        else:
            self._set(_dotted(target), value)

    def _set(self, name: str, value: Value) -> None:
        if name:
            self.names[name] = value
            self.set_before.add(name)

    def _added(self, name: str, op: ast.operator, value: Value) -> Value:
        """What a count is after something was added: one that was not set in the same turn goes on over turns."""
        before = self.names.get(name)
        if name not in self.set_before or CHANGES in (before, value):
            return CHANGES
        counts = isinstance(op, ast.Add) and isinstance(value, int) and value > 0
        is_count = before is SOME or (isinstance(before, int) and before >= 0)
        return SOME if counts and is_count else STEADY

    # -- values

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name() | ast.Attribute():
                return self._of_name(node)
            case ast.NamedExpr(target=target, value=value):
                result = self._value(value)
                self._bind(target, result)
                return result
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                value = self._value(operand)
                answer = truth(value)
                return not answer if answer is not None else value
            case ast.BoolOp(op=op, values=values):
                return _decided([self._value(one) for one in values], by=isinstance(op, ast.Or))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return _compared(self._value(left), op, self._value(right))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                answer = truth(self._value(test))
                ways = [body, orelse] if answer is None else [body if answer else orelse]
                return _joined([self._value(way) for way in ways])
            case ast.List(elts=elts) | ast.Tuple(elts=elts) | ast.Set(elts=elts):
                values = tuple(map(self._value, elts))
                return CHANGES if CHANGES in values else values
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self._comprehended(node)
            case ast.Call():
                return self._called(node)
            case ast.DictComp() | ast.Lambda():
                return CHANGES
            case _:
                return self._of_parts(node)

    def _of_name(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Attribute) and node.attr in _OF_ITS_END:
            self.asks = True
            return None
        name = _dotted(node)
        if name in self.names:
            return self.names[name]
        return self._of_parts(node)

    def _of_parts(self, node: ast.expr) -> Value:
        """Of what is not understood: steady where all its parts are. A sum of a thousand is a thousand deep."""
        waiting: list[ast.AST] = [*ast.iter_child_nodes(node)]
        while waiting:
            one = waiting.pop()
            if isinstance(one, _OF_PARTS):
                waiting.extend(ast.iter_child_nodes(one))
            elif isinstance(one, ast.expr) and self._value(one) is CHANGES:
                return CHANGES
        return STEADY

    def _comprehended(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        first, *more = node.generators
        items = self._value(first.iter)
        if truth(items) is False:
            return NOTHING
        before = dict(self.names), set(self.set_before)
        self._bind(first.target, _each(items))
        tests = [self._value(test) for test in first.ifs]
        each = self._value(node.elt)
        self.names, self.set_before = before
        if more or CHANGES in (items, each, *tests):
            return CHANGES
        answers = set(map(truth, tests))
        if False in answers:
            return NOTHING
        return STEADY if None in answers else Many(each)

    def _called(self, call: ast.Call) -> Value:
        name, of = _last(call.func), call.func.value if isinstance(call.func, ast.Attribute) else None
        # Within ``poll`` of the program's own, ``self.proc.poll()`` is that of a process.
        functions = () if name in self.inside else self.file.functions.get(name, ())
        if of is not None and not functions:
            return self._asked(call, name, of)
        values = [self._value(one) for one in call.args]
        by_name: dict[str, Value] = {}
        for word in call.keywords:
            by_name[word.arg or ""] = self._value(word.value)
        if functions:  # whose method it is, nothing tells: then it is that of the file
            return self._of_own(name, functions, values if of is None else [STEADY, *values], by_name)
        if CHANGES in (*values, *by_name.values()):
            return CHANGES
        first = values[0] if values else STEADY
        match name:
            case "any" | "all" | "bool":
                return _any_or_all(name, first)
            case "len" | "sum":
                return _counted(name, first)
            case "enumerate":
                return Many((STEADY, _each(first))) if isinstance(first, Many) else STEADY
            case "zip":
                return Many(tuple(map(_each, values))) if all(isinstance(one, Many) for one in values) else STEADY
            case _ if name in _SAME_ITEMS:
                return first
            case _:
                return STEADY if name in _OF_VALUES else CHANGES

    def _of_own(
        self, name: str, functions: Sequence[ast.AST], values: Sequence[Value], by_name: Mapping[str, Value]
    ) -> Value:
        """What a function of the file gives, where its source tells that; what it may raise ends the loop."""
        function = functions[0]
        if len(functions) > 1 or len(self.inside) >= DEEP or not _is_plain(function, len(values)):
            for node in (node for one in functions for node in ast.walk(one)):
                self.raises |= isinstance(node, _RAISES)
                self._set(_changed_by(node), CHANGES)
            self.may_leave |= self.raises
            return CHANGES
        names = dict(by_name)
        for parameter, value in zip(function.args.args, values, strict=False):
            names[parameter.arg] = value
        stored = (node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        own = frozenset({*names, *(node.id for node in stored)})
        walk = _Walk(
            own=own, file=self.file, receives=self.receives, inside=(*self.inside, name), names=names,
            catches_limits=self.catches_limits, processes=self.processes,
        )  # fmt: skip
        if walk._run(function.body, exits=True, inner=False):
            walk.returns.append(None)
        self.asks |= walk.asks
        self.raises |= walk.raises
        self.may_leave |= walk.raises
        for changed in walk.names.keys() - own:
            self._set(changed, CHANGES)
        if walk.turns_on_change or not walk.returns:
            return CHANGES
        result = _joined(walk.returns)
        return result if truth(result) is not None or walk._is_own(function) else CHANGES

    def _asked(self, call: ast.Call, name: str, of: ast.expr) -> Value:
        """What a method gives, and what it does to what it is called on."""
        if name == "waitpid" and any(_last(one) == "WNOHANG" for one in call.args):
            self.asks = True
            return (0, 0)
        if name in _OF_PROCESSES and not (name == "poll" and (self.receives or call.args or call.keywords)):
            self.asks = True
            self.processes.add(_dotted(of))
            return _OF_PROCESSES[name]
        on = _dotted(of)
        if on in self.processes and _asks_with_a_limit(call) and not self.catches_limits:
            self.raises = self.may_leave = True  # TimeoutExpired, once the limit is over
        if name in _MUTATES and on:
            filled = name in _FILLS and on in self.set_before and isinstance(self.names[on], Many | tuple)
            self._set(on, Many(self._value(call.args[0])) if filled and call.args else CHANGES)
            return STEADY
        same = name in _SAME_ITEMS and not call.args
        return self._value(of) if same else CHANGES


def _any_or_all(name: str, value: Value) -> Value:
    if name == "bool":
        answer = truth(value)
        return STEADY if answer is None else answer
    if value == NOTHING:
        return name == "all"
    answer = truth(_each(value)) if isinstance(value, Many) else None
    return STEADY if answer is None else answer


def _counted(name: str, value: Value) -> Value:
    """The length or the sum of a collection."""
    if value == NOTHING:
        return 0
    if not isinstance(value, Many):
        return STEADY
    answer = True if name == "len" else truth(value.each)
    return STEADY if answer is None else SOME if answer else 0


def _decided(values: Sequence[Value], *, by: bool) -> Value:
    """``or`` of values, which a true one decides (``by``), or ``and``, which a false one does."""
    answers = [truth(value) for value in values]
    if by in answers:
        return by
    if CHANGES in values:
        return CHANGES
    return STEADY if None in answers else not by


def _compared(left: Value, op: ast.cmpop, right: Value) -> Value:
    if CHANGES in (left, right):
        return CHANGES
    if isinstance(left, Unknown | Many) or isinstance(right, Unknown | Many):
        return _compared_with_some(left, op, right)
    match op:
        case ast.Is() | ast.Eq():
            return left == right
        case ast.IsNot() | ast.NotEq():
            return left != right
        case ast.In() if isinstance(right, tuple):
            return left in right
        case ast.NotIn() if isinstance(right, tuple):
            return left not in right
        case _ if type(op) in _ORDERS and isinstance(left, int) and isinstance(right, int):
            return _ORDERS[type(op)](left, right)
        case _:
            return STEADY


def _compared_with_some(left: Value, op: ast.cmpop, right: Value) -> Value:
    """A count that is above 0 beside 0; of others nothing is known."""
    if left is SOME and right == 0 and not isinstance(right, Many):
        if isinstance(op, ast.Eq | ast.LtE):
            return False
        if isinstance(op, ast.NotEq | ast.Gt):
            return True
    return STEADY


def _catches(handler: ast.ExceptHandler) -> set[str]:
    """The names of the exceptions that a handler is for."""
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {_last(one) for one in types if one is not None}


def _asks_with_a_limit(node: ast.AST) -> bool:
    """``child.wait(timeout=1)``, which raises while the child goes on."""
    if not isinstance(node, ast.Call) or _last(node.func) not in ("wait", "communicate"):
        return False
    return bool(node.args or node.keywords)


def _changed_by(node: ast.AST) -> str:
    """The name of what a part of a function sets or fills; empty where it does neither."""
    match node:
        case ast.Name(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
            return _dotted(node)
        case ast.Call(func=ast.Attribute(attr=name, value=of)) if name in _MUTATES:
            return _dotted(of)
        case _:
            return ""


def _is_plain(node: ast.AST, n_values: int) -> TypeGuard[ast.FunctionDef]:
    """Whether it is a function that can be walked through with so many values."""
    if not isinstance(node, ast.FunctionDef) or node.decorator_list or node.args.vararg or node.args.kwarg:
        return False
    has_more = any(isinstance(part, _HAS_MORE) for part in ast.walk(node))
    return not has_more and n_values <= len(node.args.args)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _dotted(node: ast.expr) -> str:
    """``self.procs`` of the expression, or of what an item is taken of; empty where it does not begin with a name."""
    while isinstance(node, ast.Subscript):
        node = node.value
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join(reversed((*names, node.id))) if isinstance(node, ast.Name) else ""
