"""Where the object comes from that a name of a file stands for: a builtin, a known package's, or anybody's.

``bus.poll()`` may do anything where ``bus`` came in as a parameter, or is of another file of the program; that of a
``psutil.Process()`` made here asks the kernel. An object is *common* if every place of the file that sets its name sets
what a builtin or a well-known package made. What is not understood is not common.

What does not work: going by the method's name. ``done()`` of a program's own wait group lets its main thread on.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


def words(*lines: str) -> frozenset[str]:
    """The words of some lines."""
    return frozenset(" ".join(lines).split())


MODULES = words(
    "collections csv datetime functools itertools json logging math numpy operator pathlib platform pprint psutil",
    "pynvml random re resource select selectors shutil statistics string textwrap time tqdm traceback tracemalloc",
)
"""Modules whose functions do nothing that another thread or process can wait for."""

ANSWER = words("wait join is_set is_alive poll")
"""Methods whose answer, a number or none, only another thread or process can change."""

METHODS = words(
    # what they ask
    "cancelled count cpu_percent cpu_times dim done element_size empty endswith exists full index io_counters is_alive",
    "is_file is_set isoformat item items keys locked max_memory_allocated mean memory_allocated memory_full_info",
    "memory_info memory_percent memory_reserved monotonic name num_fds num_threads numel perf_counter poll qsize rss",
    "running size startswith stat status std strftime timestamp tolist total_seconds utilization values virtual_memory",
    # texts
    "encode format ljust lower lstrip rjust rsplit rstrip split splitlines strip upper zfill",
    # words for people
    "add_histogram add_scalar add_scalars critical debug dec error exception flush inc info labels log log_metric",
    "log_metrics observe set_description set_description_str set_postfix warning",
    # a wait of its own
    "join",
)
"""Methods by which nothing changes but what people read, on whatever a builtin or a well-known package has made."""

PACKAGES = sys.stdlib_module_names - {"codecs"} | words(
    "accelerate aim apex comet_ml datasets deepspeed einops evaluate flash_attn gym gymnasium h5py huggingface_hub",
    "jax joblib lightning lightning_fabric matplotlib mlflow neptune numpy pandas peft PIL prometheus_client psutil",
    "pyarrow pynvml pytorch_lightning ray rich safetensors scipy seaborn sentencepiece sklearn tensorboard",
    "tensorboardX tiktoken timm tokenizers torch torchaudio torchdata torchmetrics torchvision tqdm transformers",
    "triton trl wandb xformers yaml",
)
"""Of a file that imports nothing else, nothing that it uses is the program's own and defined elsewhere; who registers
codecs has each text that is printed pass by."""

DEEP = 5
"""Functions of the same file that are followed into each other."""

FunctionNode: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)


def last_name(node: ast.expr) -> str:
    """``sleep`` of ``time.sleep``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def first_name(dotted: str) -> str:
    """``torch`` of ``torch.cuda``."""
    return dotted.partition(".")[0]


def names_of(node: ast.expr) -> tuple[str, ...]:
    """``("torch", "cuda", "memory_allocated")``; empty where it does not begin with a name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (*reversed((*names, node.id)),) if isinstance(node, ast.Name) else ()


def within(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all in it that runs with it: not the functions and classes that it defines."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        children = ast.iter_child_nodes(one)
        waiting.extend(child for child in children if not isinstance(child, (*FUNCTION_NODES, ast.ClassDef)))


_VALUES = words(
    "abs bool bytes chr dict dir divmod enumerate float format frozenset hasattr hash id int isinstance issubclass len",
    "list map open ord print range repr reversed round set sorted str tuple type zip filter",
)
"""Builtins that give what has no methods but a builtin's."""

_OF_ITEMS = words("enumerate filter frozenset iter list reversed set sorted tuple")
"""Builtins whose result has the items of what they are called with last."""

_ONE_OF = words("max min next sum")
"""Builtins that give one of the items, or of what they are called with."""

_HAND_BACK = frozenset({"functools", "operator"})
"""Modules of those above whose functions give what they were handed, or what anybody has made."""

_FILLED_BY = words("add append appendleft insert setdefault extend update")
_EMPTIED_BY = words("clear discard pop popitem popleft remove")
_SAME_ITEMS = words("copy items keys values")
_CONTAINERS = words("Counter OrderedDict defaultdict deque")

_GIVERS = words("active_children current_process current_thread enumerate get_context getLogger init main_thread now")
"""Functions of packages that give objects of their own, though they are no classes."""

_WRAPPERS = words("LoggerAdapter SimpleNamespace")
"""Classes of packages that call what they were handed, or have it for an attribute."""

_BUILTINS = frozenset(dir(builtins))
_SELF = frozenset({"self", "cls"})
_NAMED_CALLS = words("__init__ __new__ __post_init__ __init_subclass__ __call__ __str__ __repr__ __format__ __len__")
_DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_PLAIN = (ast.Constant, ast.JoinedStr, ast.Compare, *_DISPLAYS)
_OF_OPERANDS = (ast.BinOp, ast.BoolOp, ast.IfExp, ast.UnaryOp, ast.NamedExpr)

_STEPS, _CHAIN = 3000, 40
"""So many questions, and so many that follow from each other, are asked about one object."""


@dataclass(frozen=True)
class Source:
    """What a name is set to: ``value``, read in ``function``, or (``is_item``) one of its items."""

    value: ast.expr
    function: ast.AST
    is_item: bool = False


class Origins:
    """What the names of one file come from."""

    def __init__(self, tree: ast.Module, imported: Mapping[str, tuple[str, ...]]) -> None:
        self.tree = tree
        self.imported = imported
        self._around: dict[ast.AST, ast.AST] = {}
        self._classes: dict[str, ast.ClassDef] = {}
        self._functions: dict[str, list[FunctionNode]] = {}
        self._called_as: dict[ast.AST, str] = {}
        self._names: dict[tuple[ast.AST, str], list[Source]] = {}
        self._unclear: set[tuple[ast.AST, str]] = set()
        self._attributes: dict[str, list[Source]] = {}
        self._filled: dict[str, list[Source]] = {}
        self._emptied: set[str] = set()
        self._calls: dict[str, list[tuple[ast.Call, ast.AST]]] = {}
        self._parameters: dict[tuple[ast.AST, str], tuple[FunctionNode, ast.arg]] = {}
        self._mentions: Counter[str] = Counter()
        self._defined: Counter[str] = Counter()
        self._owners: dict[ast.AST, str] = {}
        self._asking: set[tuple[str, int]] = set()
        self._steps = 0
        for scope in (tree, *self._scopes(tree, tree)):
            self._note_all(scope)

    # -- questions

    def is_common(self, node: ast.expr, function: ast.AST) -> bool:
        """Whether ``node``, read in ``function``, is an object of a builtin or of a well-known package's class."""
        match node:
            case ast.Name(id="self" | "cls") if function in self._owners:
                return self._is_a_common_class(self._owners[function])
            case ast.Name(id=name):
                return self._is_common_name(node, name, function)
            case ast.Attribute(attr=name) if _is_of_self(node):
                return self._are_common(self._attributes.get(name))
            case ast.Attribute():
                return bool(self.package_of(node, function))
            case ast.Call():
                return self.once("call", node, lambda: self._gives_common(node, function))
            case ast.Subscript(value=value):
                return self.has_common_items(value, function)
            case _ if isinstance(node, _OF_OPERANDS):
                return all(self.is_common(one, function) for one in operands_of(node))
            case _:
                return isinstance(node, _PLAIN)

    def has_common_items(self, node: ast.expr, function: ast.AST) -> bool:
        """Whether all that it holds is common, as ``procs`` is that was filled with ``Popen(...)``."""
        match node:
            case ast.Constant() | ast.JoinedStr():
                return True
            case ast.Name(id=name):
                return self._have_common_items(name, self.sources_of(name, function))
            case ast.Attribute(attr=name) if _is_of_self(node):
                return self._have_common_items(name, self._attributes.get(name))
            case ast.Call():
                return self.once("items", node, lambda: self._gives_common_items(node, function))
            case _:
                return isinstance(node, _DISPLAYS) and all(
                    self._is_common_item(one, function) for one in items_of(node)
                )

    def sources_of(self, name: str, function: ast.AST) -> list[Source] | None:
        """All that a name is set to which ``function`` reads; None where that is not clear, or it is not set."""
        at = self._where(name, function)
        if at is None or at in self._unclear:
            return None
        by_calls = self._of_parameter(*self._parameters[at]) if at in self._parameters else []
        return None if by_calls is None else self._names.get(at, []) + by_calls

    def attributes_of(self, name: str) -> list[Source] | None:
        """The same of an attribute of ``self``."""
        return self._attributes.get(name)

    def had_by(self, node: ast.expr, function: ast.AST) -> list[Source] | None:
        """All that a name, or an attribute of ``self``, is ever set to, and what is put into it; None if not clear."""
        name = last_name(node)
        sources = self.sources_of(name, function) if isinstance(node, ast.Name) else self._attributes.get(name)
        return None if sources is None else [*sources, *self._filled.get(name, [])]

    def keeps(self, node: ast.expr, function: ast.AST, *, runs: ast.AST) -> bool:
        """Whether a name or an attribute of ``self`` still has what it was set to once, and all that was put into it.

        A name of the module, or of the function that ``runs``: what another one had may be gone with it.
        """
        name = last_name(node)
        if name in self._emptied:
            return False
        if not isinstance(node, ast.Name):
            return len(self._attributes.get(name, [])) == 1
        at = self._where(name, function)
        if at is None or at[0] not in (self.tree, runs):
            return at is None
        return len(self._names.get(at, [])) + (at in self._parameters) == 1

    def package_of(self, node: ast.expr, function: ast.AST) -> str:
        """``torch`` of ``cuda.memory_allocated``, where a well-known package was imported; empty for all else."""
        names = names_of(node)
        if not names or names[0] not in self.imported or self._where(names[0], function) is not None:
            return ""
        package = self.imported[names[0]][0]
        return package if package in PACKAGES else ""

    def takes_from_others(self, function: ast.AST) -> bool:
        """Whether a parameter of it, less ``self``, is not common."""
        names = [name for one, name in self._parameters if one is function and name not in _SELF]
        return not all(self._are_common(self.sources_of(name, function)) for name in names)

    # -- objects

    def _is_common_name(self, node: ast.Name, name: str, function: ast.AST) -> bool:
        if self._where(name, function) is not None:
            return self._are_common(self.sources_of(name, function))
        if name in self.imported:
            return bool(self.package_of(node, function))
        return name in _BUILTINS and name not in self._functions and name not in self._classes

    def _are_common(self, sources: Iterable[Source] | None) -> bool:
        return self._all(sources, "source", lambda one: self._one_is_common(one))

    def _one_is_common(self, one: Source) -> bool:
        return (self.has_common_items if one.is_item else self.is_common)(one.value, one.function)

    def _have_common_items(self, name: str, sources: Sequence[Source] | None) -> bool:
        """The same of what a container was made with, and of what was put into it."""
        if sources is None:
            return False
        made = [one for one in sources if one.is_item or not _is_empty(one.value)]
        if not all(not one.is_item and self.once("made", one.value, self._asks_items(one)) for one in made):
            return False
        filled = self._filled.get(name, [])
        return bool(made or filled) and (not filled or self._all(filled, "filled", self._one_is_common_inside))

    def _asks_items(self, one: Source) -> Callable[[], bool]:
        return lambda: self.has_common_items(one.value, one.function)

    def _one_is_common_inside(self, one: Source) -> bool:
        ask = self.has_common_items if one.is_item else self._is_common_item
        return ask(one.value, one.function)

    def _is_common_item(self, node: ast.expr, function: ast.AST) -> bool:
        if isinstance(node, ast.Starred):
            return self.has_common_items(node.value, function)
        return self.has_common_items(node, function) if isinstance(node, _DISPLAYS) else self.is_common(node, function)

    def _all(self, sources: Iterable[Source] | None, question: str, ask: Callable[[Source], bool]) -> bool:
        some = tuple(sources or ())
        return bool(some) and all(self.once(question, one.value, partial(ask, one)) for one in some)

    def once(self, question: str, node: ast.AST, ask: Callable[[], bool]) -> bool:
        """The answer; True where it is asked for on the way to it, as that of ``line = line.strip()`` is."""
        one = (question, id(node))
        if one in self._asking:
            return True
        self._steps = self._steps + 1 if self._asking else 0
        if self._steps > _STEPS or len(self._asking) > _CHAIN:
            return False
        self._asking.add(one)
        try:
            return ask()
        finally:
            self._asking.discard(one)

    # -- what calls give

    def _gives_common(self, call: ast.Call, function: ast.AST) -> bool:
        if isinstance(call.func, ast.Name) and call.func.id not in self.imported:
            return self._where(call.func.id, function) is None and self._here_gives_common(call, call.func.id, function)
        package = self.package_of(call.func, function)
        if package:
            names = names_of(call.func)
            name = (*self.imported[names[0]], *names[1:])[-1]
            return package in (MODULES - _HAND_BACK) or package == "os" or _is_a_maker(name)
        return isinstance(call.func, ast.Attribute) and self._method_gives_common(call, call.func, function)

    def _method_gives_common(self, call: ast.Call, method: ast.Attribute, function: ast.AST) -> bool:
        if method.attr in self._functions:
            return _is_of_self(method) and self._returns_common(method.attr)
        if method.attr == "get":
            others = all(self.is_common(one, function) for one in call.args[1:])
            return others and self.has_common_items(method.value, function)
        return (method.attr in METHODS or _is_a_maker(method.attr)) and self.is_common(method.value, function)

    def _here_gives_common(self, call: ast.Call, name: str, function: ast.AST) -> bool:
        """The same of a class or a function of the file, or a builtin."""
        if name in self._classes:
            return self._is_a_common_class(name)
        if name in self._functions:
            return self._returns_common(name)
        if name in _ONE_OF:
            ask = self.has_common_items if len(call.args) == 1 else self.is_common
            return all(ask(one, function) for one in call.args)
        return name in _VALUES

    def _is_a_common_class(self, name: str) -> bool:
        """Whether it inherits nothing from another file of the program, and no operation on it calls a method."""
        one = self._classes[name]
        for part in one.body:
            if isinstance(part, FUNCTION_NODES) and part.name.startswith("__") and part.name not in _NAMED_CALLS:
                return False
        return self.once("class", one, lambda: all(map(self._is_a_common_base, one.bases)))

    def _is_a_common_base(self, base: ast.expr) -> bool:
        is_own = isinstance(base, ast.Name) and base.id in self._classes
        return self._is_a_common_class(last_name(base)) if is_own else self.is_common(base, self.tree)

    def _returns_common(self, name: str) -> bool:
        """Whether functions of the file give only what is common."""
        return self._are_common(self._results_of(name))

    def _results_of(self, name: str) -> list[Source]:
        """What functions of the file return; nothing of those that yield."""
        results: list[Source] = []
        for function in self._functions[name]:
            for node in within(function):
                if isinstance(node, ast.Yield | ast.YieldFrom):
                    return []
                if isinstance(node, ast.Return) and node.value is not None:
                    results.append(Source(node.value, function))
        return results

    def _gives_common_items(self, call: ast.Call, function: ast.AST) -> bool:
        name = last_name(call.func)
        if isinstance(call.func, ast.Name) and name in _BUILTINS:
            if name == "zip":
                return all(self.has_common_items(one, function) for one in call.args)
            of_last = name in _OF_ITEMS and bool(call.args) and self.has_common_items(call.args[-1], function)
            return of_last or name in ("range", "open")
        if isinstance(call.func, ast.Attribute) and name in _SAME_ITEMS:
            return self.has_common_items(call.func.value, function)
        if isinstance(call.func, ast.Name) and name in self._functions:
            return self._all(
                self._results_of(name), "items", lambda one: self.has_common_items(one.value, one.function)
            )
        return name not in {*_CONTAINERS, *self._functions} and self.is_common(call, function)

    # -- what sets what

    def _where(self, name: str, function: ast.AST) -> tuple[ast.AST, str] | None:
        """The function, or the module, whose name it is; None where the file does not set it, or by an import."""
        while True:
            at = (function, name)
            if at in self._names or at in self._unclear or at in self._parameters:
                return at
            if function is self.tree:
                return None
            function = self._around[function]

    def _of_parameter(self, function: FunctionNode, parameter: ast.arg) -> list[Source] | None:
        """What the callers of a function of the file hand over; None where not all are calls that are understood."""
        if parameter.annotation is not None:
            made = ast.Call(func=parameter.annotation, args=[], keywords=[])
            if self.is_common(made, self.tree):
                return [Source(made, self.tree)]
        called_as = self._called_as[function]
        calls = self._calls.get(called_as, [])
        if not calls or len(calls) != self._mentions[called_as] or self._defined[called_as] > 1:
            return None
        sources: list[Source] = []
        for call, caller in calls:
            value = _argument(call, function, parameter.arg)
            if value is None:
                return None
            sources.append(Source(value, caller))
        return sources

    def _scopes(self, node: ast.AST, around: ast.AST) -> Iterator[ast.AST]:
        """All functions and classes in ``node``."""
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.ClassDef, *FUNCTION_NODES)):
                yield from self._scopes(child, around)
                continue
            self._around[child] = self._function_of(around)
            if isinstance(child, ast.ClassDef):
                self._classes[child.name] = child
            else:
                self._functions.setdefault(child.name, []).append(child)
                self._called_as[child] = child.name
                if isinstance(around, ast.ClassDef):
                    self._owners[child] = around.name
                    self._called_as[child] = around.name if child.name == "__init__" else child.name
                self._defined[self._called_as[child]] += 1
                self._note_parameters(child)
            yield child
            yield from self._scopes(child, child)

    def _function_of(self, scope: ast.AST) -> ast.AST:
        """The function, or the module, whose names a class reads."""
        while isinstance(scope, ast.ClassDef):
            scope = self._around[scope]
        return scope

    def _note_parameters(self, function: FunctionNode) -> None:
        parameters = function.args
        for one in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
            self._parameters[function, one.arg] = function, one
            if function.decorator_list:
                self._unclear.add((function, one.arg))
        for one in filter(None, (parameters.vararg, parameters.kwarg)):
            self._unclear.add((function, one.arg))

    def _note_all(self, scope: ast.AST) -> None:
        """Note what is set, filled, called and mentioned in a function, a class or the module."""
        function = self._function_of(scope)
        places: dict[str, ast.AST] = {}
        for node in within(scope):
            if isinstance(node, ast.Global):
                places.update(dict.fromkeys(node.names, self.tree))
            elif isinstance(node, ast.Nonlocal):
                places.update(dict.fromkeys(node.names, self._around[function]))
        for node in within(scope):
            for target, source in _set_by(node, function):
                self._note_set(target, source, scope, places)
            for name in _unclear_in(node):
                self._unclear.add((function, name))
            self._note_use(node, function)

    def _note_set(self, target: ast.expr, source: Source, scope: ast.AST, places: Mapping[str, ast.AST]) -> None:
        match target:
            case ast.Name(id=name) if isinstance(scope, ast.ClassDef):
                self._attributes.setdefault(name, []).append(source)
            case ast.Name(id=name):
                self._names.setdefault((places.get(name, scope), name), []).append(source)
            case ast.Attribute(attr=name):
                self._attributes.setdefault(name, []).append(source)
            case ast.Subscript(value=container):
                self._filled.setdefault(last_name(container), []).append(source)
            case ast.Starred(value=one):
                self._note_set(one, source, scope, places)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                values = source.value.elts if isinstance(source.value, ast.Tuple) and not source.is_item else []
                by_one = len(values) == len(elts) and not any(isinstance(one, ast.Starred) for one in values)
                for number, one in enumerate(elts):
                    of = (
                        Source(values[number], source.function)
                        if by_one
                        else Source(source.value, source.function, is_item=True)
                    )
                    self._note_set(one, of, scope, places)
            case _:
                pass

    def _note_use(self, node: ast.AST, function: ast.AST) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                self._mentions[name] += 1
            case ast.Call():
                for call in (node, *_started_by(node)):
                    self._calls.setdefault(last_name(call.func), []).append((call, function))
                if isinstance(node.func, ast.Attribute) and node.func.attr in _EMPTIED_BY:
                    self._emptied.add(last_name(node.func.value))
                if isinstance(node.func, ast.Attribute) and node.func.attr in _FILLED_BY and node.args:
                    source = Source(node.args[-1], function, is_item=node.func.attr in ("extend", "update"))
                    self._filled.setdefault(last_name(node.func.value), []).append(source)
            case ast.Delete(targets=targets):
                self._emptied.update(last_name(one.value if isinstance(one, ast.Subscript) else one) for one in targets)
            case _:
                pass


def _set_by(node: ast.AST, function: ast.AST) -> Iterator[tuple[ast.expr, Source]]:
    """What a part of a function sets, each with what it sets that to."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield target, Source(value, function)
        case ast.AnnAssign(target=target, value=None, annotation=annotation):
            yield target, Source(ast.Call(func=annotation, args=[], keywords=[]), function)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, Source(value, function)
        case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            yield target, Source(value, function)
        case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
            yield target, Source(value, function)
        case ast.For(target=target, iter=over) | ast.AsyncFor(target=target, iter=over):
            yield target, Source(over, function, is_item=True)
        case ast.comprehension(target=target, iter=over):
            yield target, Source(over, function, is_item=True)
        case ast.ExceptHandler(name=str() as name):
            yield ast.Name(id=name, ctx=ast.Store()), Source(ast.Constant(value=None), function)
        case _:
            pass


def _unclear_in(node: ast.AST) -> Iterator[str]:
    """The names that it sets to what is not followed."""
    match node:
        case ast.Lambda(args=parameters):
            yield from (one.arg for one in ast.walk(parameters) if isinstance(one, ast.arg))
        case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
            yield name
        case _:
            pass


def _started_by(call: ast.Call) -> Iterator[ast.Call]:
    """The call of its own function that a thread or a process makes: ``Thread(target=beat, args=(stop,))``."""
    by_name = {word.arg: word.value for word in call.keywords}
    function = by_name.get("target")
    if function is None:
        return
    args, more = by_name.get("args", ast.Tuple(elts=[])), by_name.get("kwargs", ast.Dict(keys=[], values=[]))
    handed = args.elts if isinstance(args, ast.Tuple | ast.List) else [ast.Starred(value=args)]
    words_of = zip(more.keys, more.values, strict=True) if isinstance(more, ast.Dict) else [(None, more)]
    keywords = [ast.keyword(arg=getattr(key, "value", None), value=value) for key, value in words_of]
    yield ast.Call(func=function, args=list(handed), keywords=keywords)


def _argument(call: ast.Call, function: FunctionNode, name: str) -> ast.expr | None:
    """What a call hands over for a parameter, or its default; None where that is not clear."""
    if any(isinstance(one, ast.Starred) for one in call.args) or any(word.arg is None for word in call.keywords):
        return None
    by_name = {word.arg: word.value for word in call.keywords}
    if name in by_name:
        return by_name[name]
    parameters = function.args
    places = [one.arg for one in (*parameters.posonlyargs, *parameters.args)]
    defaults = dict(zip(reversed(places), reversed(parameters.defaults), strict=False))
    defaults.update(
        (one.arg, value)
        for one, value in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
        if value is not None
    )
    places = places[1:] if places[:1] and places[0] in _SELF else places
    if name in places and places.index(name) < len(call.args):
        return call.args[places.index(name)]
    return defaults.get(name)


def _is_of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in _SELF


def _is_a_maker(name: str) -> bool:
    """Whether it is a class by its name, or gives objects as one does."""
    is_a_class = name.lstrip("_")[:1].isupper() and name not in _WRAPPERS
    return is_a_class or name in _GIVERS


def _is_empty(value: ast.expr) -> bool:
    """``[]``, ``dict()``, ``defaultdict(list)``: it holds only what is put into it."""
    if isinstance(value, ast.Call):
        makes = last_name(value.func)
        return makes == "defaultdict" or (makes in {*_CONTAINERS, "dict", "list", "set"} and not value.args)
    return isinstance(value, ast.List | ast.Tuple | ast.Set | ast.Dict) and not items_of(value)


def items_of(display: ast.expr) -> list[ast.expr]:
    """What is put into a display."""
    match display:
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return items
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            fillings = [value if key is not None else ast.Starred(value=value) for key, value in pairs]
            return [*(key for key in keys if key is not None), *fillings]
        case ast.DictComp(key=key, value=value):
            return [key, value]
        case ast.ListComp(elt=item) | ast.SetComp(elt=item) | ast.GeneratorExp(elt=item):
            return [item]
        case _:
            return []


def operands_of(node: ast.expr) -> list[ast.expr]:
    """What an operation works on, through those within it: a sum of a thousand is a thousand deep."""
    operands: list[ast.expr] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        match one:
            case ast.BinOp(left=left, right=right):
                waiting += [left, right]
            case ast.BoolOp(values=values):
                waiting += values
            case ast.IfExp(body=body, orelse=orelse):
                waiting += [body, orelse]
            case ast.UnaryOp(operand=value) | ast.NamedExpr(value=value):
                waiting.append(value)
            case _:
                operands.append(one)
    return operands
