"""What a piece of the program's own source may let somebody else on by: its file, and the scope that it stands in.

Everything here is a list of what is known to let nobody on, and a walk that looks for the rest. What a name of the
file's own may come to is followed into it; what another file of the program defines is not seen (``is_plain``).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from harness.reading.drops import drops_harmlessly
from harness.reading.loops import tree_of
from harness.reading.origins import (
    DEEP,
    FUNCTION_NODES,
    METHODS,
    MODULES,
    PACKAGES,
    Origins,
    first_name,
    last_name,
    names_of,
    within,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


_OF_MODULES = {
    "os": words(
        "cpu_count environ fspath fsync getenv getloadavg getpid getppid listdir makedirs mkdir path replace rename",
        "scandir stat times uname utime waitpid",
    ),
    "asyncio": words("sleep"),
    "gc": words("get_count get_objects get_stats get_threshold isenabled"),
    "contextlib": words("nullcontext suppress"),
    "sys": words("stdout stderr getsizeof"),
    "torch": words("cuda mps no_grad"),
}
"""Of these modules only what begins with one of these names."""

_FUNCTIONS = words(
    "abs all any bool chr dict dir divmod enumerate filter float format frozenset hasattr hash id int isinstance",
    "issubclass iter len list map max min open ord print range repr reversed round set sorted str sum tuple type vars",
    "zip",
)

_EVALUATES = frozenset({"exec", "eval", "setattr", "__import__", "globals", "vars"})
_REPLACES = words(
    "__dict__ settrace setprofile addaudithook displayhook addFilter filters setLoggerClass",
    "import_module dictConfig fileConfig",
)
"""Functions, and attributes, by which a file may put code in the place of what other code calls, or bring in what no
statement names: a text may name a class of a handler's."""

_OF_FILES = words(
    "close read readline readlines read_text seek tell touch truncate write writeheader writelines writerow writerows",
    "write_text",
)
"""Methods that a thread may call on a file that its own file has opened by a name, and on the standard streams."""

_WRITES_TO = {
    "dump": slice(1, 2),
    "writer": slice(0, 1),
    "DictWriter": slice(0, 1),
    "copyfileobj": slice(0, 2),
    "save": slice(0, 1),
    "savez": slice(0, 1),
    "savez_compressed": slice(0, 1),
    "savetxt": slice(0, 1),
}
"""Functions that read or write what they are handed, by the places of that among their arguments."""

_FILE_WORDS = words("file stream fp fsrc fdst")
"""The same by the name of the argument, of any function."""

_CALLS_THE_FIRST = {
    **dict.fromkeys(("map", "filter", "reduce", "starmap", "takewhile", "dropwhile", "filterfalse", "partial"), 1),
    **dict.fromkeys(("accumulate", "groupby", "methodcaller", "sub", "subn"), 2),
}
"""Functions that call one of so many of what they are handed first."""

_OF_PROPERTIES = frozenset({"setter", "getter", "deleter"})
_OF_PYTHON = frozenset({"property", "classmethod", "staticmethod"})
_DECORATORS = _OF_PROPERTIES | words(
    "abstractmethod asynccontextmanager cache cached_property classmethod contextmanager final inference_mode",
    "lru_cache no_grad overload override property staticmethod wraps",
)
"""Decorators that call what they are put on, and nothing else of the program's."""

_PATHS = words("Path PurePath abspath expanduser fspath join realpath str with_name with_suffix")
"""Functions that make a path of texts."""

_SHARES_FILES = words("fcntl flock lockf mkfifo mknod")
"""Functions, and modules, by which a file is also a lock or a pipe: then whoever writes or closes it lets others on."""

_OF_LOCALS = words("add append clear copy extend get insert pop setdefault sort update")
"""Methods that it may call on what its function made itself."""

_NEW = (
    ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp, ast.Constant, ast.JoinedStr,
    ast.BinOp, ast.UnaryOp, ast.Compare,
)  # fmt: skip
"""Expressions that give what nobody else has."""

_STREAMS = frozenset({("sys", "stdout"), ("sys", "stderr")})

_BASES = frozenset({"Thread", "Process", "ABC", "object"})

_WAITS_FOR_OTHERS = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor, ast.AsyncWith, ast.Delete)


_ALARMS = frozenset(
    {
        ("signal", "alarm"),
        ("signal", "setitimer"),
        ("signal", "raise_signal"),
        ("signal", "pthread_kill"),
        ("_thread", "interrupt_main"),
    }
)
"""Calls by which a program is interrupted later, or its main thread once that wakes, without a trace until then."""

_CALLS_C = frozenset({"ctypes", "cffi"})
_ALARMS_IN_C = re.compile(r"\b(u?alarm|setitimer)\b")

_AT_EACH_LINE = frozenset({"settrace", "setprofile", "addaudithook"})


_BEHIND = words(
    "emit filter handle default rotator doRollover print write flush",
    "__format__ __str__ __repr__ __getattr__ __getattribute__ __missing__ __bool__ __del__ __next__",
    "__len__ __hash__ __int__ __float__ __index__ __contains__ __get__ __delete__ __delattr__ __round__ __abs__",
    "__ceil__ __floor__ __trunc__ __bytes__ __complex__ __dir__",
    "__eq__ __lt__ __gt__ __le__ __ge__ __iadd__ __isub__ __ior__ __iand__ __imul__ __set__ __setattr__",
)
"""Functions that run without a call that names them: for whoever writes a record or a text, compares or counts."""

_ITERATES = words("__iter__ __next__ __getitem__ __reversed__")
_SUBSCRIBES = words("__getitem__ __setitem__ __delitem__ __missing__")
_OPERATORS = words("add sub mul matmul truediv floordiv mod pow lshift rshift and or xor neg pos invert divmod")
_CALCULATES = frozenset({f"__{before}{name}__" for name in _OPERATORS for before in ("", "r", "i")})
_OTHER_SPECIAL = words("__init__ __new__ __post_init__ __init_subclass__ __call__", *_BEHIND)

_ITERATE = words(
    "all any dict enumerate filter frozenset iter itertools list map max min next reversed set sorted sum tuple zip"
)
"""Builtins, and a module, that go through what they are called with."""

_WRITE_FOR_ALL = frozenset({"StreamHandler", "basicConfig", "tqdm", "trange", "Console"})
"""What writes, to the stream that it is made with, whatever other code logs or counts."""

_READS = frozenset({"read", "read_text"})

_BARS = frozenset({"tqdm", "rich"})
_DRAWS = frozenset({"get_renderable", "__rich__", "__rich_console__"})
"""Names by which a bar, or what it stands in, is drawn by code of the program's own."""

_REDIRECTS = words("redirect_stdout redirect_stderr dup2")
"""What sends elsewhere what others print."""

_HOOKS = _REDIRECTS | words(
    "excepthook finalize callbacks setLogRecordFactory",
    "MemoryHandler QueueHandler SocketHandler DatagramHandler HTTPHandler rotator namer",
)
"""Names by which a file has such functions called from elsewhere, or sends what it prints or logs to somebody."""


class SourceFile:
    """What the names of one file of source stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.functions: dict[str, list[ast.AST]] = {}
        self.imported: dict[str, tuple[str, ...]] = {}
        self.mentions: set[str] = set()
        self.properties: set[str] = set()
        self.replaced: set[str] = set()
        self.fields: set[str] = set()
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    self.functions.setdefault(name, []).append(node)
                    if any("property" in last_name(one) for one in node.decorator_list):
                        self.properties.add(name)
                case ast.Import(names=names):
                    self.imported.update((one.asname or first_name(one.name), (first_name(one.name),)) for one in names)
                case ast.ImportFrom(names=names):
                    whole = ["."] * node.level + (node.module.split(".") if node.module else [])
                    self.imported.update((one.asname or one.name, (*whole, one.name)) for one in names)
                    self.mentions.update(one.name for one in names)
                case ast.Attribute(attr=name, ctx=ctx):
                    self.mentions.add(name)
                    if isinstance(ctx, ast.Store):
                        self.replaced.add(name)
                        self.fields.add(name)
                case ast.ClassDef(body=body):
                    self.fields.update(
                        name for one in body if isinstance(one, ast.AnnAssign) for name in names_of(one.target)
                    )
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    self.replaced.add(name)
                case _:
                    pass

    @cached_property
    def hooks(self) -> frozenset[str]:
        """Its functions that it calls as methods of an object of its own: a class elsewhere may take their place."""
        called: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and names_of(node.func)[:1] == ("self",):
                called.add(last_name(node.func))
        return frozenset(called & self.functions.keys())

    @cached_property
    def overrides(self) -> frozenset[str]:
        """The functions of its classes whose base another file of the program defines."""
        names: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef) and any(map(self._is_of_another_file, node.bases)):
                names.update(one.name for one in node.body if isinstance(one, FUNCTION_NODES))
        return frozenset(names)

    def _is_of_another_file(self, base: ast.expr) -> bool:
        names = names_of(base)
        return bool(names) and self.imported.get(names[0], ("object",))[0] not in PACKAGES | {"object"}

    def is_as_defined(self, function: ast.AST) -> bool:
        """Whether what its name stands for is the function itself: not what a decorator made of it."""
        for decorator in getattr(function, "decorator_list", ()):
            names = names_of(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if not names or names[-1] not in _DECORATORS:
                return False
            is_property = names[0] in self.properties and names[-1] in _OF_PROPERTIES
            if not is_property and names[0] not in self.imported.keys() | _OF_PYTHON:
                return False
        return True

    @cached_property
    def origins(self) -> Origins:
        """What its names come from."""
        return Origins(self.tree, self.imported)

    @cached_property
    def shares_files(self) -> bool:
        """Whether it speaks of locks on files, or of pipes that have a name."""
        modules = {names[0] for names in self.imported.values()}
        return not _SHARES_FILES.isdisjoint(self.mentions | modules)

    @cached_property
    def special_methods(self) -> frozenset[str]:
        """Those of its classes that an operation calls: ``__add__``, ``__iter__``."""
        names = frozenset(name for name in self.functions if name.startswith("__")) - _OTHER_SPECIAL
        yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(self.tree))
        return names | {"__next__"} if yields else names

    @cached_property
    def hides_nothing(self) -> bool:
        """Whether its functions that run without being named let nobody on."""
        hidden: list[ast.AST] = []
        for name in _BEHIND:
            hidden += self.functions.get(name, ())
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef) and any(map(self._calls_its_own, node.bases)):
                hidden += [one for one in node.body if isinstance(one, FUNCTION_NODES)]
        if self.mentions & _HOOKS or not self.fields.isdisjoint(_BEHIND):
            return False
        if not all(map(self._is_for_people, ast.walk(self.tree))):
            return False
        return Scope(self, self.tree).follows(hidden)

    def _calls_its_own(self, base: ast.expr) -> bool:
        """Whether it is a class of a module whose functions are taken to be harmless: they call its methods."""
        names = names_of(base)
        return bool(names) and self.imported.get(names[0], ("",))[0] in MODULES

    @cached_property
    def is_written_to(self) -> bool:
        """Whether it has what others write to: a stream for a bar, or in the place of ``sys.stderr``, a bar's class."""
        if not self.mentions.isdisjoint(_REDIRECTS) or not _DRAWS.isdisjoint(self.functions):
            return True
        for node in ast.walk(self.tree):
            if isinstance(node, ast.keyword) and node.arg in _DRAWS:
                return True
            if not self._is_for_people(node) or self._is_a_stream_set(node):
                return True
            if isinstance(node, ast.ClassDef) and any(self._is_a_bar(base) for base in node.bases):
                return True
        return False

    @cached_property
    def compiles_texts(self) -> bool:
        """Whether it compiles what was not just read as if it stood in a file: ``compile(text, "a.py", "exec")``."""
        is_its_own = "compile" in self.imported or "compile" in self.functions
        return not is_its_own and any(map(_compiles_a_text, ast.walk(self.tree)))

    def _is_a_bar(self, base: ast.expr) -> bool:
        return self.imported.get(next(iter(names_of(base)), ""), ("",))[0] in _BARS

    def _is_a_stream_set(self, node: ast.AST) -> bool:
        """Whether ``sys.stderr`` becomes something else there than a file that people alone read."""
        scope = Scope(self, self.tree)
        is_one = isinstance(node, ast.Assign) and any(scope.whole_name(one) in _STREAMS for one in node.targets)
        return is_one and not scope.is_a_file(node.value)

    def _is_for_people(self, node: ast.AST) -> bool:
        """Whether what it makes of records, if that is what it does, nobody in the program can wait for."""
        if not isinstance(node, ast.Call) or last_name(node.func) not in _WRITE_FOR_ALL:
            return True
        streams = [word.value for word in node.keywords if word.arg in _FILE_WORDS]
        streams += node.args if last_name(node.func) == "StreamHandler" else []
        return all(map(Scope(self, self.tree).is_a_file, streams))

    @cached_property
    def is_plain(self) -> bool:
        """Whether behind a name of a well-known package no other file of the program can put anything."""
        brings = any(_brings_more(node) or self._replaces(node) for node in ast.walk(self.tree))
        return not brings and self.mentions.isdisjoint(_REPLACES)

    @cached_property
    def steps_between(self) -> bool:
        """Whether it may put code of its own behind what other files call: a handler, a stream, a finalizer."""
        if not self.hides_nothing or not self.mentions.isdisjoint(_REPLACES):
            return True
        return any(map(self._replaces_for_all, ast.walk(self.tree)))

    @cached_property
    def attributes(self) -> frozenset[str]:
        """What the file sets of ``self``, by name, less what it defines as a function, such as a property."""
        names: set[str] = set()
        for node in ast.walk(self.tree):
            match node:
                case ast.Attribute(ctx=ast.Store(), value=ast.Name(id="self"), attr=name):
                    names.add(name)
                case _:
                    pass
        return frozenset(names - self.functions.keys())

    def readers(self, attribute: str) -> set[ast.AST]:
        """The functions, classes and the module itself that read an attribute of this name; a class, that define it."""
        return self._readers.get(attribute, set())

    @cached_property
    def _readers(self) -> dict[str, set[ast.AST]]:
        readers: dict[str, set[ast.AST]] = {}
        for scope in ast.walk(self.tree):
            if not isinstance(scope, (ast.Module, ast.ClassDef, *FUNCTION_NODES)):
                continue
            for node in within(scope):
                if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Store):
                    readers.setdefault(node.attr, set[ast.AST]()).add(scope)
                elif isinstance(scope, ast.ClassDef) and isinstance(node, ast.Name):
                    readers.setdefault(node.id, set()).add(scope)  # what stands there may be called when it is set
        return readers

    def is_a_plain_method(self, function: ast.AST) -> bool:
        """Whether it is one of a class of the file's own that at most is a thread or a process."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef) and function in node.body:
                return all(last_name(base) in _BASES for base in node.bases)
        return False

    @cached_property
    def sets_an_alarm(self) -> bool:
        """Whether it calls what sets one, or has Python call a function of its own at each line, which may do so."""
        if not self.mentions.isdisjoint(_AT_EACH_LINE):
            return True
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and (self._is_an_alarm(names_of(node.func)) or _ends_later(node)):
                return True
            if self._calls_c and _ALARMS_IN_C.search(_word_of(node)):
                return True
        return False

    @cached_property
    def _calls_c(self) -> bool:
        """Whether it may call the C library itself: ``ctypes.CDLL(None).alarm(30)``."""
        return any(names[0] in _CALLS_C for names in self.imported.values())

    def _is_an_alarm(self, names: tuple[str, ...]) -> bool:
        if not names:
            return False
        by_star = (*self.imported.get("*", ())[:-1], names[0])
        whole = (*self.imported.get(names[0], by_star), *names[1:])
        return whole in _ALARMS

    def _replaces(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name, ctx=ctx) if name in (_FUNCTIONS if isinstance(ctx, ast.Store) else _EVALUATES):
                return True
            case _:
                return self._replaces_for_all(node)

    def _replaces_for_all(self, node: ast.AST) -> bool:
        match node:
            case ast.Assign(value=ast.Constant()):
                return False
            case ast.Assign(targets=[ast.Attribute(value=base), *_]):
                return not self.imported.keys().isdisjoint(names_of(base)[:1])
            case _:
                return isinstance(node, ast.Name) and node.id == "__import__"


def _innermost_at(nodes: Iterable[ast.AST], line: int) -> Iterator[ast.stmt]:
    for node in nodes:
        if isinstance(node, ast.expr) or not _is_at(node, line):
            continue
        inner = list(_innermost_at(ast.iter_child_nodes(node), line))
        if inner:
            yield from inner
        elif isinstance(node, ast.stmt):
            yield node


def _is_at(node: ast.AST, line: int) -> bool:
    """Whether ``line`` is one of a node's; handlers and cases of a statement have such lines, too."""
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is None or last is None or first <= line <= last


def _operation(node: ast.AST) -> tuple[Sequence[ast.expr], frozenset[str]]:
    """What an operation works on, and the special methods that it may call of that."""
    match node:
        case ast.Subscript(value=of):
            return [of], _SUBSCRIBES
        case ast.For(iter=of) | ast.comprehension(iter=of) | ast.Starred(value=of):
            return [of], _ITERATES
        case ast.Assign(targets=[ast.Tuple() | ast.List()], value=of):
            return [of], _ITERATES
        case (
            ast.Call(func=ast.Name(id=name), args=args)
            | ast.Call(func=ast.Attribute(value=ast.Name(id="itertools" as name)), args=args)
        ) if name in _ITERATE:
            return [one for one in args if not isinstance(one, ast.Starred)], _ITERATES
        case ast.BinOp(left=left, right=right):
            return [left, right], _CALCULATES
        case ast.AugAssign(target=left, value=right):
            return [left, right], _CALCULATES
        case ast.UnaryOp(operand=of):
            return [of], _CALCULATES
        case _:
            return [], frozenset()


def _line_of(node: ast.AST) -> int:
    match node:
        case ast.withitem(context_expr=one) | ast.comprehension(iter=one):
            return one.lineno
        case _:
            return getattr(node, "lineno", 0)


def _compiles_a_text(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="compile"), args=[ast.Call(func=reads), *_]) if last_name(reads) in _READS:
            return False
        case ast.Call(func=ast.Name(id="compile"), args=[_, ast.Constant(value=str()) as name, *_]):
            return not str(name.value).startswith("<")
        case ast.Call(func=ast.Name(id="compile")):
            return True
        case _:
            return False


def _word_of(node: ast.AST) -> str:
    """The name of an attribute, or a text: ``getattr(libc, "alarm")``, ``ffi.cdef("unsigned alarm(unsigned);")``."""
    match node:
        case ast.Attribute(attr=word):
            return word
        case ast.Constant(value=str()):
            return str(node.value)
        case _:
            return ""


def _ends_later(call: ast.Call) -> bool:
    exits = any(word.arg == "exit" and getattr(word.value, "value", True) for word in call.keywords)
    return exits and last_name(call.func) == "dump_traceback_later"


def _brings_more(node: ast.AST) -> bool:
    """Whether a statement imports what is not a well-known package."""
    match node:
        case ast.Import(names=names):
            return any(first_name(one.name) not in PACKAGES for one in names)
        case ast.ImportFrom(module=module, level=level):
            return level > 0 or first_name(module or "") not in PACKAGES
        case _:
            return False


@lru_cache(maxsize=256)
def file_of(source: str) -> SourceFile | None:
    """The file with this source; None where it cannot be read."""
    tree = tree_of(source) if source else None
    return None if tree is None else SourceFile(tree)


@dataclass(frozen=True)
class Scope:
    """A function, or a module, of a file: what runs in it, and what it made itself."""

    file: SourceFile
    function: ast.AST
    deep: int = 0

    @cached_property
    def sets(self) -> frozenset[str]:
        """The names that it sets, and nobody else may."""
        names: set[str] = set()
        for node in within(self.function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
        return frozenset(names) - self._of_others

    @cached_property
    def _made_here(self) -> frozenset[str]:
        """Names of the function that stand for what it made itself, and never for what somebody else has, too."""
        stored: Counter[str] = Counter()
        made: Counter[str] = Counter()
        for node in within(self.function):
            match node:
                case ast.Name(ctx=ast.Store(), id=name):
                    stored[name] += 1
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._is_new(value):
                    made[name] += 1
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if self._is_new(value):
                    made[name] += 1
                case _:
                    pass
        return frozenset(name for name in stored if made[name] == stored[name]) - self._of_others

    def _is_new(self, value: ast.expr) -> bool:
        """Whether nobody else has what it gives: ``[]``, ``dict(row)``, ``time.time()``, not ``self.rows``."""
        if not isinstance(value, ast.Call):
            return isinstance(value, _NEW)
        names = names_of(value.func)
        if len(names) == 1 and names[0] not in self.file.imported:
            return names[0] in _FUNCTIONS and names[0] not in self.file.functions
        if names and names[0] in self.file.imported:
            return self._is_imported(names)
        is_harmless = last_name(value.func) in METHODS and last_name(value.func) not in self.file.functions
        return is_harmless and isinstance(value.func, ast.Attribute) and self._is_common(value.func.value)

    @cached_property
    def _of_others(self) -> frozenset[str]:
        declared: set[str] = set()
        for node in within(self.function):
            if isinstance(node, ast.Global | ast.Nonlocal):
                declared.update(node.names)
        return frozenset(declared)

    def are_harmless(self, parts: Iterable[ast.AST], *, but: ast.Call | None = None, after: int = -1) -> bool:
        """Whether all in ``parts`` lets nobody on, less the call ``but`` and what is not ``after`` a line."""
        for part in parts:
            for node in within(part):
                if node is not but and _line_of(node) > after and not self._lets_nobody_on(node):
                    return False
        return True

    def statements_at(self, line: int) -> tuple[ast.stmt, ...]:
        """The innermost statements that hold ``line``: several where they stand on one line."""
        return tuple(_innermost_at(self.body, line))

    def call_at(self, line: int, names: frozenset[str]) -> ast.Call | None:
        """The only call in the statements at ``line`` of a function so named; None where there are more."""
        calls: list[ast.Call] = []
        for statement in self.statements_at(line):
            calls += [node for node in within(statement) if isinstance(node, ast.Call) and self._calls(node) in names]
        return calls[0] if len(calls) == 1 else None

    def _calls(self, call: ast.Call) -> str:
        """The function's own name, whatever it was imported as."""
        whole = self.whole_name(call.func)
        return whole[-1] if whole else last_name(call.func)

    def whole_name(self, function: ast.expr) -> tuple[str, ...]:
        """``("asyncio", "sleep")``, whatever was imported under which name; empty where it begins with no name."""
        names = names_of(function)
        return (*self.file.imported.get(names[0], names[:1]), *names[1:]) if names else ()

    def is_made_by(self, node: ast.expr, package: str) -> bool:
        """Whether a name, or an attribute of ``self``, is only ever set to what a class of this package makes."""
        had = self.file.origins.had_by(node, self.function) or []
        makers = [one.value.func for one in had if isinstance(one.value, ast.Call) and not one.is_item]
        packages = {self.file.origins.package_of(maker, self.file.tree) for maker in makers}
        return len(makers) == len(had) and packages == {package}

    def _is_common(self, node: ast.expr) -> bool:
        """Whether it is an object of a builtin or of a well-known package's class, as far as the file shows."""
        return self.file.origins.is_common(node, self.function)

    def _lets_nobody_on(self, node: ast.AST) -> bool:
        operands, methods = _operation(node)
        if not drops_harmlessly(node, self):
            return False
        if not self.file.special_methods.isdisjoint(methods) and not all(map(self._is_common, operands)):
            return False
        match node:
            case ast.withitem(context_expr=manager):
                return isinstance(manager, ast.Call) or self._is_common(manager)
            case ast.Call():
                return self.is_known(node) and self._hands_over_no_act(node)
            case ast.Await(value=ast.Call(func=function)):
                return self.whole_name(function) == ("asyncio", "sleep")
            case ast.Attribute(ctx=ast.Store(), value=ast.Name(id="self"), attr=name) if self._alone_reads(name):
                return True
            case ast.Assign(value=ast.Constant(value=None)):
                return False  # what stood there before is dropped, a connection for instance
            case ast.Attribute(ctx=ast.Store(), value=base) | ast.Subscript(ctx=ast.Store(), value=base):
                return self._is_made_here(names_of(base))
            case ast.Name(ctx=ast.Store(), id=name):
                return name not in self._of_others
            case ast.Attribute(attr=name) if name in self.file.properties:
                return self.follows(self.file.functions[name])
            case _:
                return not isinstance(node, _WAITS_FOR_OTHERS)

    def _alone_reads(self, attribute: str) -> bool:
        """Whether an attribute of ``self`` is read in this function and nowhere else, and so is as good as a local."""
        is_of_its_own = self.file.is_plain and self.file.is_a_plain_method(self.function)
        return is_of_its_own and self.file.readers(attribute) <= {self.function}

    def _is_made_here(self, names: tuple[str, ...]) -> bool:
        return bool(names) and names[0] in self._made_here

    def is_known(self, call: ast.Call) -> bool:
        """Whether a call is known to let nobody on."""
        names = names_of(call.func)
        if names[:-1] in ((), ("self",), ("cls",)) and (functions := self.file.functions.get(last_name(call.func))):
            return last_name(call.func) not in self.file.replaced and self.follows(functions)
        if names and names[0] in self.file.imported:
            if names[0] in self.file.replaced:
                return False
            return self._is_imported(names) or (names[-1] in METHODS and self._is_common(call.func))
        if len(names) == 1:
            is_builtin = names[0] in _FUNCTIONS and self._is_common(call.func)
            return is_builtin and (names[0] != "open" or self.is_a_file(call))
        return self._is_harmless_method(call, names)

    def _hands_over_no_act(self, call: ast.Call) -> bool:
        """Whether the functions are harmless that a call is given to call in its turn: ``map(age, jobs)``."""
        calls = call.args[: _CALLS_THE_FIRST.get(self._calls(call), 0)]
        given = [*call.args]
        for keyword in call.keywords:
            (calls if keyword.arg == "key" else given).append(keyword.value)
        calls += [value for value in given if last_name(value) in self.file.functions]
        files = [word.value for word in call.keywords if word.arg in _FILE_WORDS]
        files += call.args[_WRITES_TO.get(self._calls(call), slice(0))]
        return all(map(self._may_be_called, calls)) and all(map(self.is_a_file, files))

    def _may_be_called(self, function: ast.expr) -> bool:
        """Whether a function lets nobody on; what a lambda does is read where it stands."""
        is_read_here = isinstance(function, ast.Lambda | ast.Constant)
        return is_read_here or self.is_known(ast.Call(func=function, args=[], keywords=[]))

    def _is_harmless_method(self, call: ast.Call, names: tuple[str, ...]) -> bool:
        name, of = last_name(call.func), call.func.value if isinstance(call.func, ast.Attribute) else None
        if of is None:
            return False
        if name in _OF_FILES and self.is_a_file(of):
            return True
        if name in _OF_LOCALS and self._is_made_here(names):
            return True
        if name in self.file.fields or not self._is_common(of):
            return False
        if name in self.file.functions:
            return self.follows(self.file.functions[name])  # whose it is, the source of one file does not tell
        n_arguments = len(call.args) + len(call.keywords)
        if name == "set":
            return n_arguments == 1  # a gauge's value: not an event, nor a key of a store
        if name == "wait":
            return n_arguments > 0  # with a limit
        return name in METHODS or isinstance(of, ast.Constant)

    def opens_a_file(self, call: ast.Call) -> bool:
        """Whether it opens a file by a name, which nobody but people waits for."""
        return self._calls(call) == "open" and self.is_a_file(call)

    def is_a_file(self, node: ast.expr, deep: int = 0) -> bool:
        """Whether to write to it, and to close it, lets nobody on: a standard stream, or a file opened by a name."""
        if (isinstance(node, ast.Constant) and node.value is None) or self.whole_name(node) in _STREAMS:
            return True
        if not isinstance(node, ast.Call):
            return self._each_source(node, deep, Scope.is_a_file)
        method = node.func.value if isinstance(node.func, ast.Attribute) else None
        match self._calls(node), [*node.args, *(word.value for word in node.keywords)]:
            case "writer" | "DictWriter", [file, *_]:
                return self.is_a_file(file, deep + 1)
            case "open", [*_] if method is not None:
                return self._is_a_path(method, deep) and not self.file.shares_files
            case "open" | "Path", [path, *_]:
                return self._is_a_path(path, deep) and not self.file.shares_files
            case _:
                return False

    def _is_a_path(self, node: ast.expr, deep: int = 0) -> bool:
        """Whether a part of it is a text that stands in the file: a name that somebody handed over may be a pipe's."""
        match node:
            case ast.Constant(value=str() as text):
                return bool(text) and not text.startswith("/dev/")
            case ast.JoinedStr(values=parts):
                return any(isinstance(part, ast.Constant) for part in parts)
            case ast.BinOp(left=left, right=right):
                return any(self._is_a_path(one, deep + 1) for one in (left, right) if deep < DEEP)
            case ast.Call(func=function, args=args) if last_name(function) in _PATHS:
                return any(self._is_a_path(one, deep + 1) for one in args if deep < DEEP)
            case _:
                return self._each_source(node, deep, Scope._is_a_path)

    def _each_source(self, node: ast.expr, deep: int, ask: Callable[[Scope, ast.expr, int], bool]) -> bool:
        """Whether a question has the answer yes for all that a name, or an attribute of ``self``, is set to."""
        match node:
            case ast.Name(id=name):
                sources = self.file.origins.sources_of(name, self.function)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                sources = self.file.origins.attributes_of(name)
            case _:
                return False
        if not sources or deep >= DEEP:
            return False
        return all(not one.is_item and ask(Scope(self.file, one.function), one.value, deep + 1) for one in sources)

    def within(self, function: ast.AST) -> Scope:
        """The scope of another function of the same file."""
        return Scope(self.file, function, self.deep)

    @property
    def body(self) -> tuple[ast.AST, ...]:
        """Its statements."""
        return tuple(getattr(self.function, "body", ()))

    def _is_imported(self, names: tuple[str, ...]) -> bool:
        module, *rest = (*self.file.imported[names[0]], *names[1:])
        return module in MODULES or (bool(rest) and rest[0] in _OF_MODULES.get(module, ()))

    def follows(self, functions: Iterable[ast.AST]) -> bool:
        """Whether functions of the same file, one of which is called, let nobody on."""
        if self.deep >= DEEP:
            return False
        for function in functions:
            if not self.file.is_as_defined(function):
                return False
            scope = Scope(self.file, function, self.deep + 1)
            if not scope.are_harmless(scope.body):
                return False
        return True
