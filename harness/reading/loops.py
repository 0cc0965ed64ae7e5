"""Loops: whether a process that computes gets on, by the counter of the loop that it is in, or never can.

A training step that is silent for a minute is most often a Python loop over something long: tokens, batches of an
evaluation, files. Its frame stays on the stack, and its locals say how far it is: ``t = 828`` of ``S = 4096``. So with
every stack sample the loops that the frames are in are kept (``LoopSample``), and here they are read:

- *It gets on* (``progress``): a whole number of a frame that stays on the stack only grows from sample to sample. With
  the loop's bound, from the ``for`` statement's own source, that gives a rate and an end.
- *It never ends* (``goes_nowhere``): the source of the innermost loop has no way out and calls nothing but a sleep, or
  only sleeps until a name, or an event, changes that nothing in it sets; its condition holds whatever its own numbers
  become; or it depends on nothing but locals that are the same in every sample, or came back to what they had been.
  Then no patience is needed. What no turn gets to from these numbers on is left out (``harness.reading.reached``).

What does not work: taking locals that stay the same for an endless loop. A matrix product of a minute is one call on
one line. So the loop itself is read (``read_loops``): what calls anything that is not known to be quick and harmless,
or computes with anything but plain numbers, may be at work. Nor is a text a value: py-spy cuts long lists and shows an
object by its address, so what the loop itself changes must be seen whole before it can be called the same. Nor are
equal variables one loop: a search of a microsecond that is called for ever new items looks the same at every look. The
process itself marks the call (``call_of`` in the shim); where it is not asked, no loop around may have turned, nor turn
unseen.
"""

from __future__ import annotations

import ast
import hashlib
import math
import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise
from math import prod
from typing import TYPE_CHECKING

from harness.core.evidence import LoopSample
from harness.reading.frames import bare, is_own, is_stdlib, thread_of
from harness.reading.plain import (
    SLEEP,
    attributes_of_names,
    called_name,
    functions_of,
    holds,
    made_by,
    nodes_of,
    path_to,
    plain_attributes,
    plain_names,
    sets_hooks,
    sleeps_by_the_clock,
    tree_of,
)
from harness.reading.ranges import holds_for_ever
from harness.reading.reached import reached, step_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import UnionType

    from harness.core.evidence import Frame, Position, StackSample

SAMPLES = 3
"""Samples in which a loop must be seen to say anything of it."""

LEAST_S = 2.0
"""Seconds between the first and the last of them."""

_NEVER_RAISE = frozenset({"len", "abs", "bool", "isinstance"})
QUICK = _NEVER_RAISE | {"min", "max", "int", "range", "divmod", "round"}
"""Functions that end at once and change nothing."""

SMALL = 64
"""A power, or a shift, of a whole number up to which it is at once there."""

ASKS = frozenset({"is_set", "done", "locked", "is_alive", "running", "cancelled"})
"""Methods that end at once and change nothing; what they answer, only other threads may change."""

EVENTS = frozenset({"threading.Event"})
"""What only a thread of the same process sets; an event of multiprocessing answers to the same questions."""

ANSWERS = EVENTS | {
    *("threading.Lock", "threading.RLock", "threading.Thread", "threading.Timer", "concurrent.futures.Future"),
    *(f"{of}.{one}" for of in ("multiprocessing", "torch.multiprocessing") for one in ("Event", "Lock", "Process")),
}
"""What answers the questions of ``ASKS`` as Python itself says; a class of another file may ask the clock."""

AWAITS = "it only sleeps, and nothing in it changes what it waits for"
"""Why a loop is endless that another thread alone can end."""

CIRCLES = "it calls nothing that may be at work, and all its variables came back to what they had been before"
"""Why a loop of plain locals is endless that goes round in a circle."""

UNSEEN = "unseen"
"""What a loop needs of which not all variables could be read."""

_CLASS = re.compile(r"<(\w+)")
"""How the text of an object begins: with its class."""

INSTANT = 100_000
"""Turns of a loop that calls nothing which are over long before it is looked at again."""

_WHOLE = re.compile(r"-?\d{1,18}")
_NUMBER = re.compile(r"-?\d{1,18}(\.\d+)?(e[-+]?\d+)?")
_PLAIN = re.compile(r"-?[\d.]+(e[-+]?\d+)?|True|False|None|\"[^\"]*\"|inf|-inf|nan")
_HOLDS = '[({"'
"""How the text of a list, a tuple, a dictionary or a string begins."""
_ITEMS = re.compile(r"[\[({]#(\d+) ")
"""How that of a container begins which the process itself spelt: with the number of its items."""

ENDLESS = frozenset({"count", "cycle"})
"""What gives items for ever, of ``itertools``."""

ENDS = frozenset({"next", "exit", "_exit", "quit", "abort"})
"""Functions that may leave the loop they are called in: by ``StopIteration``, or with the program."""

SPEAKS = frozenset(
    {
        "print", "write", "writerow", "echo", "info", "debug", "warning", "log", "log_metrics", "add_scalar",
        "set_postfix", "set_description", "update", "backward", "step", "zero_grad", "save",
    }
)  # fmt: skip
"""Functions whose call is heard outside, or is part of a training step: a silence ends within a turn that makes one."""

_COUNT = frozenset({"range", "trange", "enumerate", "count"})
"""What numbers the turns of a ``for``."""

_OVER = frozenset({"enumerate", "tqdm", "iter", "reversed", "track"})
"""Functions that give their first argument's items one by one."""


# -- a loop by its source


class Loop:
    """One loop by its source.

    ``plain`` are names, and attributes as ``s.done``, that the whole file gives nothing but constants, ``own`` the
    attributes of each of its plain classes of which that holds, ``owner`` the class that the loop is in, and
    ``own_object`` what its method calls its own object. ``events`` are names that the file gives nothing but events of
    this process, ``askable`` nothing but what Python itself makes and answers for, and ``functions`` what it defines.
    ``outermost`` is the loop around all others of its function. ``is_hooked`` says that something else than the loop
    may run in it, and set what it waits for.
    """

    def __init__(
        self,
        node: ast.For | ast.While | ast.AsyncFor,
        *,
        header: str,
        owner: str,
        own_object: str,
        outermost: ast.AST,
        source: str,
    ) -> None:
        self.node, self.header, self.is_hooked = node, header, sets_hooks(source)
        self.owner, self.own_object, self.outermost = owner, own_object, outermost
        self.own = plain_attributes(source)
        self.plain = plain_names(source) | attributes_of_names(source)
        self.events = self._names(made_by(source, EVENTS))
        self.askable = self._names(made_by(source, ANSWERS))
        self.functions, self.source = functions_of(source), source

    def _names(self, names: frozenset[str]) -> frozenset[str]:
        """``names`` with attributes as this loop spells them."""
        return frozenset(f"{self.own_object}{name}" if name.startswith(".") else name for name in names)

    @property
    def target(self) -> tuple[str, ...]:
        """The names that a ``for`` sets."""
        if isinstance(self.node, ast.While):
            return ()
        return tuple(node.id for node in ast.walk(self.node.target) if isinstance(node, ast.Name))

    @property
    def bound(self) -> tuple[str, ...]:
        """The arguments of the ``range`` that a ``for`` runs over, through an ``enumerate`` or a progress bar."""
        over = None if isinstance(self.node, ast.While) else self.node.iter
        while isinstance(over, ast.Call) and called_name(over) in _OVER and over.args:
            over = over.args[0]
        if isinstance(over, ast.Call) and called_name(over) in ("range", "trange"):
            return tuple(ast.unparse(argument) for argument in over.args)
        return ()

    @property
    def counts(self) -> bool:
        """Whether a ``for`` numbers its turns; what other iterators give are no turns, though they may grow."""
        over = None if isinstance(self.node, ast.While) else self.node.iter
        while isinstance(over, ast.Call) and called_name(over) in _OVER - _COUNT and over.args:
            over = over.args[0]
        return isinstance(over, ast.Call) and called_name(over) in _COUNT

    @property
    def while_below(self) -> tuple[str, str] | None:
        """The counter and the bound of ``while i < n``; None for other conditions."""
        test = self.node.test if isinstance(self.node, ast.While) else None
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.left, ast.Name):
            return None
        counts_up = isinstance(test.ops[0], ast.Lt | ast.LtE | ast.NotEq)
        return (test.left.id, ast.unparse(test.comparators[0])) if counts_up else None

    def is_numbered_by(self, counter: str) -> bool:
        """Whether that is another number in every turn: of a ``for`` over numbers, or by ``i += 1`` at its end."""
        stores = [node for node in ast.walk(self.node) if _sets(node, counter)]
        if len(stores) != 1:
            return False
        if isinstance(self.node, ast.For):
            return self.counts
        steps = [one.target for one in self.node.body if isinstance(one, ast.AugAssign) and step_of(one)]
        return stores[0] in steps and not any(isinstance(node, ast.Continue) for node in ast.walk(self.node))

    @property
    def only_counted(self) -> frozenset[str]:
        """The names of which it, and all around it in its function, only counts on: they decide nothing there.

        None where some loop goes through items: how far it is nobody sees, and what it counts may be all that shows it.
        """
        asked: set[str] = set()
        steps: set[str] = set()
        nodes = [self.outermost]
        for node in nodes:
            if isinstance(node, ast.For | ast.comprehension):
                return frozenset()
            if isinstance(node, ast.AugAssign) and step_of(node) and isinstance(node.target, ast.Name):
                steps.add(node.target.id)
            elif isinstance(node, ast.Name):
                asked.add(node.id)
            elif not isinstance(node, ast.Return):
                nodes += ast.iter_child_nodes(node)
        return frozenset(steps - asked)

    def turning(self, numbers: Mapping[str, int], *, line: int) -> Loop:
        """The same without what no turn gets to from these numbers on, which were seen at ``line``."""
        if not isinstance(self.node, ast.While):
            return self
        return Loop(
            reached(self.node, numbers, line=line),
            header=self.header,
            owner=self.owner,
            own_object=self.own_object,
            outermost=self.outermost,
            source=self.source,
        )

    @property
    def speaks(self) -> bool:
        """Whether something is printed, logged or trained in it."""
        return any(isinstance(node, ast.Call) and called_name(node) in SPEAKS for node in ast.walk(self.node))

    @property
    def forever(self) -> bool:
        """Whether it turns until something leaves it: ``while True``, ``for i in itertools.count()``."""
        if isinstance(self.node, ast.While):
            return isinstance(self.node.test, ast.Constant) and bool(self.node.test.value)
        return isinstance(self.node.iter, ast.Call) and called_name(self.node.iter) in ENDLESS

    @property
    def awaited(self) -> frozenset[str]:
        """The names that the condition of a ``while`` asks; none where something in the loop may set one of them."""
        if not isinstance(self.node, ast.While) or self.is_hooked:
            return frozenset()
        names = _variables(self.node.test, ast.Load) | self.reads.asks
        return frozenset() if names & _variables(self.node, ast.Store | ast.Del) else names

    @cached_property
    def leaves(self) -> bool:
        """Whether something in it may leave it."""
        return any(_leaves(statement) for statement in self.node.body)

    @property
    def kind(self) -> str:
        """What may make a ``while`` end, as its reader says; empty for other loops."""
        return self.reads.kind if isinstance(self.node, ast.While) else ""

    @cached_property
    def reads(self) -> _Reader:
        """What its condition and its statements touch."""
        reader = _Reader()
        for node in (*([self.node.test] if isinstance(self.node, ast.While) else []), *self.node.body):
            reader.visit(node)
        reader.computed -= reader.containers
        reader.tested -= reader.computed | reader.containers
        return reader


def read_loops(source: str, *, line: int) -> tuple[Loop, ...]:
    """The loops around ``line`` within its innermost function, the innermost first; none where it is not understood."""
    tree = tree_of(source)
    if tree is None:
        return ()
    texts = source.splitlines()
    around: list[ast.For | ast.While | ast.AsyncFor] = []
    owner, own_object = "", "self"
    around_it: ast.AST = tree
    for inner in path_to(tree, line):
        if isinstance(inner, ast.ClassDef):
            owner = inner.name
        if isinstance(around_it, ast.ClassDef) and isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            own_object = _own_object(inner)
        around_it = inner
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            around = []
        if isinstance(inner, ast.For | ast.While | ast.AsyncFor) and not any(holds(s, line) for s in inner.orelse):
            around.append(inner)
    loops: list[Loop] = []
    for one in reversed(around):
        header = texts[one.lineno - 1].strip() if one.lineno <= len(texts) else ""
        loops.append(Loop(one, header=header, owner=owner, own_object=own_object, outermost=around[0], source=source))
    return tuple(loops)


def _own_object(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The name of a method's first parameter; empty where that is no object of its class for good."""
    first = next(iter([*method.args.posonlyargs, *method.args.args]), None)
    is_of_none = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in method.decorator_list)
    if first is None or is_of_none or any(_sets(node, first.arg) for node in ast.walk(method)):
        return ""
    return first.arg


_REPEATS = (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def runs_once(source: str, *, line: int) -> bool:
    """Whether what is at ``line`` runs once in a call of its function: no loop and no comprehension is around it."""
    around = [node for node in nodes_of(source) if holds(node, line)]
    inside = around
    for node in around:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = [*ast.walk(node)]
    return bool(around) and not any(isinstance(node, _REPEATS) and holds(node, line) for node in inside)


def _variables(node: ast.AST, how: type[ast.expr_context] | UnionType) -> frozenset[str]:
    """The names in a piece of code that are read or given a value, one's attribute as ``s.done``; no functions."""
    left_out: set[int] = set()
    names: set[str] = set()
    for inner in ast.walk(node):  # what is around something comes before it
        match inner:
            case ast.Call(func=function):
                left_out.add(id(function))
                continue
            case ast.Attribute(value=ast.Name() as value):
                left_out.add(id(value))
            case ast.Name():
                pass
            case _:
                continue
        if id(inner) not in left_out and isinstance(inner.ctx, how):
            names.add(ast.unparse(inner))
    return frozenset(names)


def _sets(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)


def _leaves(statement: ast.AST, *, nested: bool = False) -> bool:
    """Whether a statement may leave the loop around it."""
    if isinstance(statement, ast.Return | ast.Raise | ast.Yield | ast.YieldFrom | ast.Await | ast.Assert):
        return True
    if isinstance(statement, ast.Break):
        return not nested
    if isinstance(statement, ast.Call) and called_name(statement) in ENDS:
        return True
    inside = nested or isinstance(statement, ast.For | ast.While | ast.AsyncFor)
    return any(_leaves(child, nested=inside) for child in ast.iter_child_nodes(statement))


_HARMLESS = (
    ast.Pass, ast.Continue, ast.Break, ast.Return, ast.If, ast.While, ast.For, ast.Assign, ast.AugAssign, ast.Expr,
    ast.Name, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.IfExp, ast.NamedExpr,
    ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop,
)  # fmt: skip


_MAY_RAISE = (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
"""Operators that raise for some numbers, unless the right one is a constant: a zero, a power beyond a float."""


class _Reader(ast.NodeVisitor):
    """Collects what the statements of a loop touch.

    ``kind`` becomes empty at the first thing that may be at work; else it is ``locals`` where there are only names and
    numbers, and ``threads`` where attributes are read as well, or methods asked that only other threads can make answer
    otherwise, of the objects in ``asks``. ``tested`` are the names whose truth alone is asked, ``computed`` all others.
    ``sleeps`` says that it calls ``sleep``, ``may_raise`` that it divides, or the like, by what may change,
    ``puts_items`` that it puts something into a container. ``passes`` are the loops over items within it, ``searched``
    the names after an ``in``.
    """

    def __init__(self) -> None:
        self.kind = "locals"
        self.sleeps = self.may_raise = self.puts_items = False
        self.asks: set[str] = set()
        self.methods: set[str] = set()
        self.attributes: set[str] = set()
        self.stored: set[str] = set()
        self.loaded: set[str] = set()
        self.tested: set[str] = set()
        self.containers: set[str] = set()
        self.computed: set[str] = set()
        self.searched: set[str] = set()
        self.passes: list[ast.For] = []

    def visit(self, node: ast.AST) -> None:
        """One node and what is below it."""
        if isinstance(node, ast.Call):
            self._call(node)
            return
        if isinstance(node, ast.Attribute):
            self._attribute(node)
            return
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            self.containers.add(node.value.id)
            self.puts_items = self.puts_items or not isinstance(node.ctx, ast.Load)
            self.may_raise = True  # there may be no such item
            self.visit(node.slice)
            return
        if not isinstance(node, _HARMLESS) or _is_long_work(node):
            self.kind = ""
            return
        if isinstance(node, ast.For):
            self._passes(node)
        if isinstance(node, ast.BinOp | ast.Compare | ast.AugAssign):
            self.computed |= _names(node)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            self.searched |= {one.id for one in node.comparators if isinstance(one, ast.Name)}
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, _MAY_RAISE):
            by = node.right if isinstance(node, ast.BinOp) else node.value
            is_safe = isinstance(by, ast.Constant) and bool(by.value) and not isinstance(node.op, ast.Pow)
            self.may_raise = self.may_raise or not is_safe
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self.tested.add(node.id)
        for child in ast.iter_child_nodes(node):
            self.visit(child)

    def _passes(self, node: ast.For) -> None:
        """A loop over numbers, or over one container by its name; what else gives items one by one may be at work."""
        self.passes.append(node)
        if isinstance(node.iter, ast.Name):
            self.containers.add(node.iter.id)
        elif not isinstance(node.iter, ast.Call) or called_name(node.iter) != "range":
            self.kind = ""

    def _attribute(self, node: ast.Attribute) -> None:
        """One that the loop both sets and asks is a number of its own, which no text of its variables shows."""
        (self.loaded if isinstance(node.ctx, ast.Load) else self.stored).add(node.attr)
        is_own = bool(self.stored & self.loaded)
        self.kind = self.kind and "threads" if _is_dotted(node) and not is_own else ""
        self.attributes.add(ast.unparse(node))

    def _call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in QUICK and not node.keywords and not _goes_through(node):
            self.may_raise = self.may_raise or node.func.id not in _NEVER_RAISE
            if node.func.id == "len" and isinstance(node.args[0], ast.Name):
                self.containers.add(node.args[0].id)
                return
            for argument in node.args:
                self.computed |= _names(argument)
                self.visit(argument)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ASKS and not node.args and not node.keywords:
            self.kind = self.kind and "threads" if isinstance(node.func.value, ast.Name | ast.Attribute) else ""
            self.methods.add(node.func.attr)
            self.asks.add(ast.unparse(node.func.value))
        elif called_name(node) == SLEEP and len(node.args) == 1 and isinstance(node.args[0], ast.Constant | ast.Name):
            self.sleeps = True
        else:
            self.kind = ""


def _is_long_work(node: ast.AST) -> bool:
    """Whether one step of it may take long: a power, or a shift, by what is no small constant, or one of another."""
    if not isinstance(node, ast.BinOp | ast.AugAssign) or not isinstance(node.op, ast.Pow | ast.LShift):
        return False
    of = ast.walk(node.left) if isinstance(node, ast.BinOp) else ()
    if any(isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Pow | ast.LShift) for inner in of):
        return True
    by = node.right if isinstance(node, ast.BinOp) else node.value
    return not (isinstance(by, ast.Constant) and isinstance(by.value, int | float) and abs(by.value) <= SMALL)


def _goes_through(call: ast.Call) -> bool:
    """Whether it looks at all that one argument gives: ``max(range(n))``."""
    return called_name(call) in ("min", "max") and len(call.args) == 1


def _is_dotted(node: ast.AST) -> bool:
    """Whether an expression is names with dots in between: nothing is called or looked up on the way."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _names(node: ast.AST) -> set[str]:
    """The names of values in an expression; functions that are called are none."""
    called: set[int] = set()
    names: set[str] = set()
    for inner in ast.walk(node):  # a call comes before its function
        if isinstance(inner, ast.Call):
            called.add(id(inner.func))
        elif isinstance(inner, ast.Name) and id(inner) not in called:
            names.add(inner.id)
    return names


# -- a loop in a frame that was seen


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of one frame of the main thread, as text: its locals, and the globals that its code names.

    ``outer`` counts frames from the outermost, as for a loop; ``call`` is the same as long as it is the same frame.
    """

    outer: int
    locals: Mapping[str, str]
    shared: Mapping[str, str]
    call: int = 0


def is_to_be_asked(sample: StackSample) -> bool:
    """Whether the main thread is in a loop of names and numbers, which the process itself knows best.

    From outside no globals are read, which all variables of a script's own level are, nor whether it is still the same
    call of its function.
    """
    return any(loop.needs and loop.depth == 0 and loop.tid == sample.pid for loop in sample.loops)


def with_variables(sample: StackSample, variables: Sequence[Variables], source_of: Mapping[str, str]) -> StackSample:
    """The same sample, with the main thread's loops read again by what the process itself said of its variables."""
    main = thread_of(sample, sample.pid)
    if main is None:
        return sample
    calls: dict[int, int] = {}
    locals_of: dict[tuple[int, int], Mapping[str, str]] = {}
    shared_of: dict[tuple[int, int], frozenset[str]] = {}
    for row in variables:
        place = (main.tid, len(main.frames) - row.outer)
        calls[row.outer] = row.call
        locals_of[place] = {**row.shared, **row.locals}
        shared_of[place] = frozenset(row.shared)
    again = loop_samples(replace(sample, threads=(main,)), locals_of, source_of, shared_of)
    fresh = [replace(loop, call=calls[loop.outer]) for loop in again if loop.outer in calls]
    others = [loop for loop in sample.loops if loop.tid != main.tid or loop.outer not in calls]
    return replace(sample, loops=tuple(sorted([*fresh, *others], key=lambda loop: (loop.tid != main.tid, loop.depth))))


def loop_samples(
    sample: StackSample,
    locals_of: Mapping[tuple[int, int], Mapping[str, str]],
    source_of: Mapping[str, str],
    shared_of: Mapping[tuple[int, int], frozenset[str]] | None = None,
) -> tuple[LoopSample, ...]:
    """The loops that the Python frames of ``sample`` are in, of every thread the innermost first.

    ``locals_of`` gives the variables of a frame as text, by thread and the frame's index in it, and ``shared_of`` which
    of them are globals; ``source_of`` the source of a file. Frames without source are left out.
    """
    loops: list[LoopSample] = []
    for thread in sample.threads:
        depth, inner = 0, len(loops)
        called, within = "", set[tuple[str, str]]()
        for index, frame in enumerate(thread.frames):
            if frame.native:
                continue
            source = source_of.get(frame.file)
            if source is not None and frame.line:
                values = locals_of.get((thread.tid, index), {})
                place = (thread.tid, depth, len(thread.frames) - index)
                shared = (shared_of or {}).get((thread.tid, index), frozenset())
                calls_itself = is_own(frame) and (frame.function, frame.file) in within
                if calls_itself or (called and _calls_unseen(called, source, frame.line)):
                    loops[inner:] = map(_recurring, loops[inner:])
                own = len(loops)
                for loop in read_loops(source, line=frame.line):
                    around = _loop_sample(loop, frame, values, place, shared)
                    if not loop.is_numbered_by(around.counter):
                        loops[inner:own] = map(_recurring, loops[inner:own])
                        loops[own:] = [_within(around, one) for one in loops[own:]]
                    loops.append(around)
            depth += frame.function.rpartition(".")[2] not in ASKS or not is_stdlib(frame)
            called = bare(frame)
            within.add((frame.function, frame.file))
    return tuple(loops)


_CALLS_AGAIN = re.compile(
    r"\b(accumulate|all|any|batched|chain|cycle|dropwhile|filter|filterfalse|groupby|islice|iter|map|max|min|product|reduce"
    r"|repeat|sorted|starmap|sum|takewhile|timeit|zip)\s*\(|\.sort\s*\("
)
"""What calls a function again and again in C."""


def _calls_unseen(function: str, source: str, line: int) -> bool:
    """Whether this line only hands on a function to what calls it again and again in C: ``sum(map(is_even, ns))``."""
    lines = source.splitlines()
    text = lines[line - 1] if line <= len(lines) else ""
    is_called = re.search(rf"\b{re.escape(function)}\s*\(", text)
    return is_called is None and _CALLS_AGAIN.search(text) is not None


def _recurring(loop: LoopSample) -> LoopSample:
    """A loop whose function may have been called anew meanwhile, with the same variables."""
    return replace(loop, recurs=True)


def _within(around: LoopSample, loop: LoopSample) -> LoopSample:
    """A loop within one of the same frame whose turns no number tells: what both need, or nothing that is sure.

    Equal variables prove it endless only if the loop around it, too, computes with nothing but these variables.
    """
    if around.endless or loop.needs in ("", UNSEEN, around.needs):
        return loop
    return replace(loop, needs=around.needs if around.needs in ("", UNSEEN) else "threads")


def endless_by_source(
    sample: StackSample, source_of: Mapping[str, str], *, also: Callable[[LoopSample], bool] = lambda _: False
) -> tuple[LoopSample, ...]:
    """The loops of a sample without locals that never end whatever their variables are, and those of ``also``."""
    return tuple(loop for loop in loop_samples(sample, {}, source_of) if loop.endless or also(loop))


def _loop_sample(
    loop: Loop, frame: Frame, values: Mapping[str, str], place: tuple[int, int, int], shared: frozenset[str]
) -> LoopSample:
    whole = {name: int(text) for name, text in values.items() if _WHOLE.fullmatch(text)}
    counter = next((name for name in loop.target if name in whole), "") if loop.counts else ""
    bound = _stop(loop, whole) if counter else None
    if loop.while_below is not None and loop.while_below[0] in whole:
        counter = loop.while_below[0]
        bound = _number(loop.while_below[1], whole)
    tid, depth, outer = place
    counted = loop.only_counted & whole.keys()
    has_no_end = loop.forever and not loop.leaves and not loop.reads.may_raise
    return LoopSample(
        tid=tid,
        depth=depth,
        outer=outer,
        function=frame.function,
        file=frame.file,
        line=frame.line,
        header_line=loop.node.lineno,
        header=loop.header[:120],
        counters=tuple(whole.items()),
        counter=counter,
        bound=bound,
        state=_fingerprint(values),
        deciding=_fingerprint({name: values[name] for name in values.keys() - counted}) if counted else "",
        unending=loop.forever and not loop.leaves,
        speaks=loop.speaks,
        endless=_endless(loop, values) or _turns_for_ever(loop, values, shared),
        needs="" if has_no_end else _needs(loop.turning(whole, line=frame.line), values, shared),
    )


def _stop(loop: Loop, values: Mapping[str, int]) -> int | None:
    """Where a ``for`` over a range ends, if it counts up and the frame's locals tell."""
    numbers = [_number(text, values) for text in loop.bound]
    if not numbers or None in numbers:
        return None
    stop = numbers[0] if len(numbers) == 1 else numbers[1]
    step = numbers[2] if len(numbers) == 3 else 1
    return stop if step is not None and step > 0 else None


def _number(text: str, values: Mapping[str, int]) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else values.get(text)


def _fingerprint(values: Mapping[str, str]) -> str:
    """What stands for all locals of a frame; their values may be secrets and are not kept."""
    text = "\n".join(f"{name}={value}" for name, value in sorted(values.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _endless(loop: Loop, values: Mapping[str, str]) -> str:
    if (
        loop.leaves
        or loop.reads.may_raise
        or not _computes_numbers(loop, values)
        or (loop.reads.sleeps and not all(_is_plain(name, loop, values) for name in loop.reads.attributes))
        or (loop.reads.sleeps and not sleeps_by_the_clock(loop.source))
    ):
        return ""
    if loop.forever:
        return f"it has no way out and {'only sleeps' if loop.reads.sleeps else 'calls nothing that could raise'}"
    if not loop.reads.sleeps or loop.reads.containers or not loop.awaited:
        return ""
    for name in loop.awaited:
        if name not in loop.events and not _is_plain(name, loop, values):
            return ""
    return AWAITS


def _turns_for_ever(loop: Loop, values: Mapping[str, str], shared: frozenset[str]) -> str:
    """Why a loop that computes with its own numbers alone never ends, whatever they become; or empty."""
    node = loop.node
    if not isinstance(node, ast.While) or loop.leaves or loop.reads.sleeps:
        return ""
    if loop.kind != "locals" or loop.reads.containers:
        return ""
    own: dict[str, float] = {}
    for name, text in values.items():
        if name not in shared and _NUMBER.fullmatch(text):
            own[name] = int(text) if _WHOLE.fullmatch(text) else float(text)
    return "its condition holds whatever its numbers become" if holds_for_ever(node, own) else ""


def _needs(loop: Loop, values: Mapping[str, str], shared: frozenset[str]) -> str:
    reads = loop.reads
    if not loop.kind or reads.sleeps:
        return ""
    if (_alone(reads.computed, loop) | reads.containers) - values.keys():
        return UNSEEN
    if not _computes_numbers(loop, values):
        return ""
    if not _shows_its_turn(loop, values):
        return UNSEEN
    if any(name not in loop.plain for name in reads.tested - values.keys()):
        return UNSEEN  # it may ask the clock whether it is true
    for name in reads.tested & values.keys():
        if not _PLAIN.fullmatch(values[name]) and values[name][:1] not in _HOLDS:
            return ""  # what is asked whether it is true may be shared with another process, as a tensor can be
    changed = _alone(reads.computed, loop) | _variables(loop.node, ast.Store)
    changed |= reads.containers if reads.puts_items else set()
    for name in changed & values.keys():
        if not _is_whole(values[name]):
            return ""  # what the loop changes may lie behind the part that is shown
    used = reads.tested | reads.computed | reads.containers
    if loop.kind == "threads" or used - values.keys():
        return "threads"
    return "python" if used & shared or reads.containers else "locals"


def _shows_its_turn(loop: Loop, values: Mapping[str, str]) -> bool:
    """Whether equal variables say that a loop is where it was, whatever ``for`` is within it.

    How far a ``for`` is, its variables show only where its target is another number in every turn. Items may repeat:
    then all passes together must be over in an instant, by containers that are shown whole.
    """
    turns = 1.0
    for name in loop.reads.searched:
        text = values.get(name, "")
        turns *= 1 if text.startswith('"') else _most_items(text)
    for inner in loop.reads.passes:
        if isinstance(inner.iter, ast.Name):
            turns *= _most_items(values.get(inner.iter.id, ""))
            continue
        target = inner.target.id if isinstance(inner.target, ast.Name) else ""
        stores = [node for node in ast.walk(loop.node) if _sets(node, target)]
        if len(stores) != 1 or not _WHOLE.fullmatch(values.get(target, "")):
            return False
    return turns <= INSTANT


def _most_items(text: str) -> float:
    """How many items a container has at most, by its text; infinitely many where that does not tell."""
    counted = _ITEMS.match(text)
    if counted:
        return int(counted[1])
    return len(text) if text[:1] in "[({" and _is_whole(text) else math.inf


def _computes_numbers(loop: Loop, values: Mapping[str, str]) -> bool:
    """Whether all that the loop computes with is plain: what has operators of its own may be at work.

    An attribute of what is not known to be plain may lie in memory that is shared, or be computed whenever it is asked,
    and so may the answer of an object that a file of the program's own has made.
    """
    reads = loop.reads
    if not loop.kind or reads.methods & loop.functions or not reads.asks <= loop.askable:
        return False
    for name in reads.attributes | _alone(reads.computed, loop):
        if not _is_plain(name, loop, values):
            return False
    texts = [values.get(name, "?") for name in reads.containers]
    return all(text[:1] in _HOLDS and (text.startswith('"') or "<" not in text) for text in texts)


def _is_whole(text: str) -> bool:
    """Whether a value's text shows all of it: py-spy cuts long ones, and tells nothing of objects and large numbers."""
    if text.startswith('"'):
        return not text.endswith('..."')
    return not any(sign in text for sign in ("...", "<", "+bigint"))


def _alone(names: set[str], loop: Loop) -> set[str]:
    """Those of a loop's names that stand for more than whose attribute is meant."""
    return names - {attribute.partition(".")[0] for attribute in loop.reads.attributes}


def _is_plain(name: str, loop: Loop, values: Mapping[str, str]) -> bool:
    """Whether a name stands for a number, a text or nothing: by its value, or by all that the file gives it."""
    if name in values:
        return _PLAIN.fullmatch(values[name]) is not None
    base, _, attribute = name.partition(".")
    if base != loop.own_object:
        return name in loop.plain
    spelt = _CLASS.match(values.get(base, ""))
    return attribute in loop.own.get(spelt[1] if spelt else loop.owner, ())


# -- what several samples show


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a loop is: ``value`` of ``bound`` turns (None: not known), ``per_s`` a second, ``remaining_s`` to go.

    ``per_s`` is 0 of a loop that began anew between the samples: how fast it is, they do not tell.
    """

    name: str
    value: int
    bound: int | None
    per_s: float
    remaining_s: float | None
    loop: LoopSample
    ids: tuple[str, ...]

    def __str__(self) -> str:
        of = f" of {self.bound}" if self.bound is not None else ""
        rate = f", {self.per_s:.0f} a second" if self.per_s >= 10 else f", {self.per_s:.2g} a second"
        rest = f"; this loop needs {self.remaining_s:.0f} s more" if self.remaining_s is not None else ""
        pace = f"{rate}{rest}" if self.per_s else ""
        file = self.loop.file.rpartition("/")[2]
        return f"{self.name} is {self.value}{of} in {self.loop.function} ({file}:{self.loop.header_line}){pace}"


def progress(samples: Sequence[StackSample]) -> tuple[Progress, ...]:
    """The loops of one process that get on by a counter which only grows, the outermost first.

    A loop within one that turned began anew in between: that its counter grew, too, means nothing. Nor does any within
    one that turned and, by its source, has no end to get to. Where a loop around began anew itself, only that one is
    given, without a rate.
    """
    groups = _same_loop([sample for sample in samples if not any(map(_is_misread, sample.loops))])
    growing = filter(None, map(_grows, groups))
    loops: list[Progress] = []
    for one in sorted(growing, key=lambda one: (one.loop.outer, one.loop.header_line)):
        if one.loop.unending:
            break
        loops.append(one)
        if one.bound is not None or one.name == one.loop.counter:
            break
    return _with_rates_that_hold(loops, groups, samples) if loops else ()


def _with_rates_that_hold(
    loops: list[Progress], groups: Sequence[Sequence[_Moment]], samples: Sequence[StackSample]
) -> tuple[Progress, ...]:
    """``loops``; where a loop or a list around them went on to another turn, the outermost of them without a rate."""
    first = loops[0].loop
    for moments in sorted(groups, key=lambda moments: (moments[-1].loop.outer, moments[-1].loop.header_line)):
        around = moments[-1].loop
        if (around.outer, around.header_line) >= (first.outer, first.header_line):
            break
        numbers = _counted(moments, around.counter) if around.counter and around.tid == first.tid else []
        if numbers != sorted(numbers):
            ids = tuple(one.stack for one in moments)
            value, bound = numbers[-1], around.bound
            return (
                Progress(
                    name=around.counter, value=value, bound=bound, per_s=0, remaining_s=None, loop=around, ids=ids
                ),
            )
    lists = [sample.positions for sample in samples[-SAMPLES:] if sample.positions]
    places = {tuple(one for one in positions if one.outer < first.outer) for positions in lists}
    return tuple(loops) if len(places) <= 1 else (replace(loops[0], per_s=0.0, remaining_s=None),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remainder:
    """How long a process's loops will take: ``remaining_s``, or ``at_least`` that where an outer loop is unknown.

    ``around`` are the lists that the loops around the innermost one go through.
    """

    remaining_s: float
    at_least: bool
    around: tuple[Position, ...] = ()


def remainder(samples: Sequence[StackSample]) -> Remainder | None:
    """How long the loops that one process is in need until the outermost known one ends; None where nothing tells.

    By the share of the work that was done at the first and at the last of the samples: loops within loops, each by its
    counter and bound or by the list that it goes through. Samples that tell fewer loops than others do not count.
    """
    plain = [sample for sample in samples if not sample.native and _levels(sample)]
    if not plain:
        return None
    telling = max(plain, key=lambda sample: (len(_levels(sample)), sample.t_s))
    shares: list[tuple[float, float]] = []
    for sample in plain:
        if _shape(sample) != _shape(telling):
            continue
        share = _share(sample)
        if shares and share < shares[-1][1]:
            shares.clear()  # it began anew
        shares.append((sample.t_s, share))
    (first_s, first), (last_s, last) = shares[0], shares[-1]
    rate = (last - first) / (last_s - first_s) if last_s > first_s else _rate_of_innermost(samples, telling)
    if rate <= 0.0:
        return None
    return Remainder(remaining_s=(1.0 - last) / rate, at_least=_is_within_unknown(telling), around=telling.positions)


def _rate_of_innermost(samples: Sequence[StackSample], telling: StackSample) -> float:
    """The share of all the work that is done in a second, by the innermost loop's own rate; 0 where that is unknown."""
    inner = [one for one in progress(samples) if one.bound]
    return inner[-1].per_s / prod(turns for *_, turns in _levels(telling)) if inner else 0.0


def _levels(sample: StackSample) -> list[tuple[int, int, int, int]]:
    """The main thread's loops whose end is known, outermost first: frame, line, turns done, turns in all."""
    levels = [(position.outer, 0, position.place, position.of) for position in sample.positions]
    for loop in sample.loops:
        bound = loop.bound or 0
        if bound <= 0 or loop.tid != sample.pid or _is_misread(loop):
            continue
        levels.append((loop.outer, loop.header_line, dict(loop.counters)[loop.counter], bound))
    return sorted(levels)


def _is_misread(loop: LoopSample) -> bool:
    """Whether its counter was read while its number was let go and used for another: it is beyond its bound."""
    return loop.bound is not None and loop.bound > 0 and dict(loop.counters).get(loop.counter, 0) > loop.bound


def _shape(sample: StackSample) -> list[tuple[int, int, int]]:
    return [(outer, line, turns) for outer, line, _, turns in _levels(sample)]


def _share(sample: StackSample) -> float:
    share = 0.0
    for _, _, turn, turns in reversed(_levels(sample)):
        share = (turn + share) / turns
    return share


def _is_within_unknown(sample: StackSample) -> bool:
    """Whether a loop of unknown length lies around the known ones; one whose turns are heard aside.

    A silence ends within a turn of such a loop.
    """
    levels = _levels(sample)
    places = {(outer, line) for outer, line, *_ in levels}
    listed = {position.outer for position in sample.positions}
    for loop in sample.loops:
        at = (loop.outer, loop.header_line)
        is_known = at in places or loop.outer in listed or loop.speaks
        if loop.tid == sample.pid and at < max(places) and not is_known:
            return True
    return False


def goes_nowhere(
    samples: Sequence[StackSample], *, tid: int, alone: bool, alone_in_python: bool = False
) -> LoopSample | None:
    """The loop that a thread of one process is in, if it can never end; None where it may.

    ``alone`` says that no other thread, and no other process of the job, can run and change what the loop asks;
    ``alone_in_python`` that no other thread can that runs Python: such a one may end the program, and so any loop.
    """
    last = may_be_endless(samples, tid=tid)
    if last is None or not (alone or alone_in_python):
        return None
    nobodys = {"locals", "python", "threads"} if alone else {"locals", "python"}
    return last if last.endless or last.needs in nobodys else None


def may_be_endless(samples: Sequence[StackSample], *, tid: int) -> LoopSample | None:
    """The innermost loop of a thread, if nothing that was seen of it changes and it calls nothing; None otherwise."""
    for moments in _same_loop(samples):
        last = moments[-1].loop
        if last.tid != tid or last.depth != 0 or moments[-1].t_s - moments[0].t_s < LEAST_S:
            continue
        same = len({(_where(one.loop), one.loop.needs) for one in moments}) == 1
        if all(one.loop.endless for one in moments) or (same and last.needs and _is_one_call(moments, samples)):
            return last
        if _comes_back(last, samples):
            return replace(last, endless=CIRCLES)
    return None


def _where(loop: LoopSample) -> str:
    """What stands for all that decides what a loop does next."""
    return loop.deciding or loop.state


def _comes_back(last: LoopSample, samples: Sequence[StackSample]) -> bool:
    """Whether one call of a loop of its own locals alone was where it had been before, and elsewhere in between.

    What it does next is told by these variables alone, so it goes the same way again. One that holds others may pass by
    the same variables in two of them.
    """
    if last.needs != "locals" or not last.call:
        return False
    states: list[str] = []
    for sample in samples:
        own = [loop for loop in sample.loops if loop.tid == last.tid and loop.depth == 0]
        if own and own[0].call == last.call and own[0].needs == last.needs and _key(own[0]) == _key(last):
            states.append(_where(own[0]))
    ways = [state for state, _ in groupby(states)]
    return len(set(ways)) < len(ways)


def _is_one_call(moments: Sequence[_Moment], samples: Sequence[StackSample]) -> bool:
    """Whether it is one call of its function that was seen in the loop: millions of short ones look the same.

    The process itself marks the frame. Where it was not asked, no loop around may have turned, nor turn unseen.
    """
    calls = {one.loop.call for one in moments}
    if calls != {0}:
        return len(calls) == 1
    last = moments[-1].loop
    if last.recurs:
        return False
    for around in _same_loop(samples):
        loop = around[-1].loop
        if loop.tid == last.tid and loop.counter and len(set(_counted(around, loop.counter))) != 1:
            return False
    return True


def sleeps_for_ever(samples: Sequence[StackSample], *, tid: int) -> LoopSample | None:
    """The loop without a way out in which a thread was seen to sleep in all of the last samples; None otherwise."""
    loops: list[LoopSample] = []
    for sample in samples[-SAMPLES:]:
        loops += [loop for loop in sample.loops if loop.tid == tid and loop.depth == 0 and loop.endless][:1]
    return loops[-1] if len(loops) == SAMPLES and len(set(map(_key, loops))) == 1 else None


def changes(samples: Sequence[StackSample]) -> LoopSample | None:
    """The innermost loop that may come to its end, as far as its variables tell; None without one.

    They differ between samples, and the loop calls what may be at work, or the number that it compares comes nearer to
    what it is compared with. A loop of plain numbers that turn in a circle may not.
    """
    for moments in _same_loop(samples):
        last = moments[-1].loop
        if len({one.loop.state for one in moments}) == 1 or last.endless:
            continue
        if not last.needs or last.recurs or last.unending or _comes_nearer(moments):
            return last
    return None


def _comes_nearer(moments: Sequence[_Moment]) -> bool:
    """Whether ``while x > n`` was seen with ever smaller x, or with one whose values are not kept; so for ``<``."""
    tree = tree_of(f"{moments[-1].loop.header} pass")
    if tree is None or len(tree.body) != 1:
        return True
    test = tree.body[0].test if isinstance(tree.body[0], ast.While) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.left, ast.Name):
        return False
    numbers = _counted(moments, test.left.id)
    if not numbers:
        return True
    steps = [after - before for before, after in pairwise(numbers)]
    if isinstance(test.ops[0], ast.Gt | ast.GtE):
        return all(step < 0 for step in steps)
    return isinstance(test.ops[0], ast.Lt | ast.LtE) and all(step > 0 for step in steps)


@dataclass(frozen=True, slots=True)
class _Moment:
    """A loop in one sample."""

    loop: LoopSample
    t_s: float
    stack: str


def _same_loop(samples: Sequence[StackSample]) -> list[list[_Moment]]:
    """The moments of each loop that was seen in every one of the last samples that tell loops, in order."""
    last = [sample for sample in samples if not sample.native][-SAMPLES:]
    if len(last) < SAMPLES:
        return []
    by_key: dict[tuple[object, ...], list[_Moment]] = {}
    for sample in last:
        for loop in sample.loops:
            by_key.setdefault(_key(loop), []).append(_Moment(loop, sample.t_s, sample.id))
    groups: list[list[_Moment]] = []
    for loop in last[-1].loops:
        moments = by_key[_key(loop)]
        if len(moments) == SAMPLES:
            groups.append(moments)
    return groups


def _key(loop: LoopSample) -> tuple[object, ...]:
    return loop.tid, loop.outer, loop.function, loop.file, loop.header_line


def _counted(moments: Sequence[_Moment], name: str) -> list[int]:
    """A whole number of the loop's frame, moment by moment; none where it was not one at all of them."""
    numbers: list[int] = []
    for one in moments:
        number = dict(one.loop.counters).get(name)
        if number is None:
            return []
        numbers.append(number)
    return numbers


def _grows(moments: Sequence[_Moment]) -> Progress | None:
    last = moments[-1].loop
    seconds = moments[-1].t_s - moments[0].t_s
    if last.header.startswith("while") and last.bound is None:
        return None  # what merely counts on may do so for ever
    for name in [last.counter] if last.counter else dict(last.counters):
        numbers = _counted(moments, name)
        bound = last.bound if name == last.counter else None
        if seconds <= 0 or not _is_a_count(numbers, bound, by_hand=last.header.startswith("while")):
            continue
        if not last.counter and len(set(numbers)) < len(numbers):
            continue  # a number of which nothing says that it counts may be one that only takes turns
        per_s = (numbers[-1] - numbers[0]) / seconds
        remaining_s = (bound - numbers[-1]) / per_s if bound is not None else None
        return Progress(
            name=name,
            value=numbers[-1],
            bound=bound,
            per_s=per_s,
            remaining_s=remaining_s,
            loop=last,
            ids=tuple(one.stack for one in moments),
        )
    return None


def _is_a_count(numbers: Sequence[int], bound: int | None, *, by_hand: bool) -> bool:
    """Whether numbers that were read one after the other are those of a counter that grows.

    They are read while the program runs: a number that it lets go at that moment may be read as another one, which
    takes its place in memory. What is beyond its bound is such a one, and so may be what leaps once and stands still
    otherwise where the program counts ``by_hand`` and may assign the same number in every turn.
    """
    if len(numbers) < 2 or numbers[-1] <= numbers[0] or list(numbers) != sorted(numbers):
        return False
    if bound is not None and numbers[-1] > bound:
        return False
    steps = [after - before for before, after in pairwise(numbers)]
    return not (by_hand and 0 in steps and max(steps) > 1)
