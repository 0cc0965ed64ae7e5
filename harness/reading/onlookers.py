"""Which threads merely look on: whatever they do next, nobody who waits for a lock, a pipe or a signal is let on by it.

Beside nearly every training there is a thread that wakes every few seconds: it writes a metric, prints that it lives,
asks for the memory. When training hangs it goes on, and from outside it looks like one that may yet give back a lock,
or kill what is stuck after half a minute. What tells the two apart is what they do next, and that stands in their
source: the calls in the loops around the line where a thread sleeps, and those behind it, in each of its frames.

A thread *looks on* if all of these are known to do nothing that another can wait for, *acts* if one is not, or its own
source cannot be read; of one that runs code of a package nothing is said, unless a loop of its own asks that again and
again. So a name that is not known is an act: to wait too long for a bystander costs minutes, to take a watchdog for one
costs the truth. And where the same file defines what such a name may come to (``emit`` of a handler, a property,
``__format__``), that is read, too. What it may come to in another file of the program is not: an onlooker is *plain*
only where its file uses nothing but well-known packages, and puts nothing of its own in the place of what they call.

What does not work: looking for ``kill`` and its like. ``self.on_timeout()`` is a function that somebody handed over.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING

from harness.reading.frames import bare, is_own, is_stdlib, python_frames
from harness.reading.loops import path_to, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from harness.core.evidence import Frame, StackSample, ThreadStack

_STARTS = ("/threading.py", "/multiprocessing/process.py")
"""Files of the standard library that call a thread's or a process's function, and hand its result to nobody."""


_WAITS = (
    "/threading.py", "/queue.py", "/selectors.py", "/socket.py", "/ssl.py", "/subprocess.py", "/signal.py",
    "/multiprocessing/connection.py", "/multiprocessing/popen_fork.py", "/multiprocessing/popen_spawn_posix.py",
    "/multiprocessing/popen_forkserver.py", "/multiprocessing/process.py", "/multiprocessing/queues.py",
    "/multiprocessing/synchronize.py", "/concurrent/futures/_base.py",
)  # fmt: skip
"""Files of the standard library that a thread may sleep in and that then call nothing of the program's own: not the
loop of ``asyncio`` or ``sched``, nor a server."""


def _words(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


_MODULES = _words(
    "collections csv datetime functools gc itertools json logging math numpy operator pathlib platform pprint psutil",
    "pynvml random re resource select selectors shutil statistics string textwrap time tqdm traceback tracemalloc",
)
"""Modules whose functions do nothing that another thread or process can wait for."""

_OF_MODULES = {
    "os": _words(
        "cpu_count environ fspath fsync getenv getloadavg getpid getppid listdir makedirs mkdir path replace rename",
        "scandir stat times uname utime",
    ),
    "sys": _words("stdout stderr getsizeof"),
    "torch": _words("cuda mps no_grad"),
}
"""Of these modules only what begins with one of these names."""

_FUNCTIONS = _words(
    "abs all any bool chr dict dir divmod enumerate filter float format frozenset hasattr hash id int isinstance",
    "issubclass iter len list map max min nullcontext open ord print range repr reversed round set sorted str sum",
    "suppress tuple type vars zip",
)

_METHODS = _words(
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
"""Methods by which nothing changes but what people read, whatever they are called on."""

_PACKAGES = sys.stdlib_module_names - {"codecs"} | _words(
    "accelerate aim apex comet_ml datasets deepspeed einops evaluate flash_attn gym gymnasium h5py huggingface_hub",
    "jax joblib lightning lightning_fabric matplotlib mlflow neptune numpy pandas peft PIL prometheus_client psutil",
    "pyarrow pynvml pytorch_lightning ray rich safetensors scipy seaborn sentencepiece sklearn tensorboard",
    "tensorboardX tiktoken timm tokenizers torch torchaudio torchdata torchmetrics torchvision tqdm transformers",
    "triton trl wandb xformers yaml",
)
"""Of a file that imports nothing else, nothing that it uses is the program's own and defined elsewhere; who registers
codecs has each text that is printed pass by."""

_EVALUATES = frozenset({"exec", "eval", "setattr", "__import__", "globals", "vars"})
_REPLACES = _words(
    "__dict__ import_module settrace setprofile addaudithook displayhook addFilter setLoggerClass",
)
"""Functions, and attributes, by which a file may put code in the place of what other code calls."""

_OF_FILES = _words(
    "close read readline readlines read_text seek tell touch truncate write writeheader writelines writerow writerows",
    "write_text",
)
"""Methods that a thread may call on what MAKES_FILES gave in the same file of source, and on the standard streams."""

MAKES_FILES = frozenset({"open", "writer", "DictWriter", "Path"})

_OF_LOCALS = _words("add append clear copy extend get insert pop setdefault sort update")
"""Methods that it may call on what its function made itself."""

_STREAMS = frozenset({"stdout", "stderr"})

_ASKED = frozenset({"wait", "join", "is_set", "is_alive", "poll"})
"""Methods whose answer only another thread or process can change."""

_BASES = frozenset({"Thread", "Process", "ABC", "object"})

_HOLDS_NOTHING = frozenset({"open", "suppress", "nullcontext", "no_grad"})

DEEP = 5
"""Functions of the same file that are followed into each other."""

_LEAVES = (ast.Break, ast.Return, ast.Raise)
_LOOPS = (ast.While, ast.For)
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_WAITS_FOR_OTHERS = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor, ast.AsyncWith, ast.Delete)


def looks_on(thread: ThreadStack, source_of: Mapping[str, str]) -> bool | None:
    """Whether nothing that ``thread`` does next lets anybody on; None where it runs other code than the program's.

    One whose own code acts, or cannot be read, is taken to act whoever called it.
    """
    frames, is_all = _own_frames(thread)
    places = [_place(frame, source_of) for frame in frames]
    if not places:
        return False if _asks_a_package_and_acts(thread, source_of) else None
    inner = takewhile(lambda frame: not is_own(frame), python_frames(thread))
    if not all(frame.file.endswith(_WAITS) for frame in inner):
        return False
    understood = [place for place in places if place is not None]
    if len(understood) < len(places):
        return False
    innermost, *callers = understood
    if innermost.goes_on_harmlessly(waits=True) and all(place.goes_on_harmlessly() for place in callers):
        return True if is_all else None
    return False


def _asks_a_package_and_acts(thread: ThreadStack, source_of: Mapping[str, str]) -> bool:
    """Whether it is in a package's function that its own loop asks again and again, and does more than that.

    ``while not context.join(timeout=5):`` with a count and a ``kill`` in it. Of other loops around a package's wait
    nothing is said: in those of training stands everything.
    """
    calls = next((frame for frame in python_frames(thread) if is_own(frame)), None)
    place = None if calls is None else _place(calls, source_of)
    return place is not None and place.is_asked_in_a_loop and not place.goes_on_harmlessly(waits=True)


def _own_frames(thread: ThreadStack) -> tuple[Sequence[Frame], bool]:
    """The frames of the program's own code, the innermost first, up to a package's; and whether that is all it runs."""
    frames = python_frames(thread)
    begins = next((depth for depth, frame in enumerate(frames) if bare(frame).startswith("_bootstrap")), len(frames))
    others = (depth for depth, frame in enumerate(frames[:begins]) if not is_stdlib(frame) and not is_own(frame))
    ends = next(others, begins)
    own = [depth for depth, frame in enumerate(frames[:ends]) if is_own(frame)]
    called_by = frames[own[-1] + 1 : ends] if own else ()
    is_all = ends == begins and all(frame.file.endswith(_STARTS) for frame in called_by)
    return [frames[depth] for depth in own], is_all


def of_sample(sample: StackSample, source_of: Mapping[str, str]) -> StackSample:
    """A sample with its threads that look on, the plain and the endless ones of them, and those that act."""
    onlookers: list[ThreadStack] = []
    actors: list[int] = []
    for thread in sample.threads:
        looks = looks_on(thread, source_of)
        if looks:
            onlookers.append(thread)
        elif looks is False:
            actors.append(thread.tid)

    def tids(which: Callable[[ThreadStack], bool]) -> tuple[int, ...]:
        return tuple(thread.tid for thread in filter(which, onlookers))

    return replace(
        sample,
        onlookers=tids(lambda _: True),
        plain_onlookers=tids(lambda thread: _is_plain(thread, source_of)),
        endless_onlookers=tids(lambda thread: _is_endless(thread, source_of)),
        actors=tuple(actors),
    )


def sets_an_alarm(sample: StackSample, source_of: Mapping[str, str]) -> bool:
    """Whether the program's own source sets an alarm, or has it end later: ``dump_traceback_later(25, exit=True)``."""
    for thread in sample.threads:
        for frame in filter(is_own, python_frames(thread)):
            file = _file(source_of.get(frame.file, ""))
            if file is not None and file.sets_an_alarm:
                return True
    return False


def _is_plain(onlooker: ThreadStack, source_of: Mapping[str, str]) -> bool:
    """Whether the files that it runs use nothing that another file of the program may define."""
    files = (_file(source_of.get(frame.file, "")) for frame in _own_frames(onlooker)[0])
    return all(file is not None and file.is_plain for file in files)


def _is_endless(onlooker: ThreadStack, source_of: Mapping[str, str]) -> bool:
    """Whether it is in a loop that does not end by itself."""
    places = (_place(frame, source_of) for frame in _own_frames(onlooker)[0])
    return any(place is not None and place.loop is not None and _is_endless_loop(place.loop) for place in places)


def _place(frame: Frame, source_of: Mapping[str, str]) -> _Place | None:
    """Where in its source a frame is; None where that is not understood."""
    file = _file(source_of.get(frame.file, ""))
    if file is None or not frame.line or bare(frame) == "<lambda>":
        return None
    path = path_to(file.tree, frame.line)
    depth = max((depth for depth, node in enumerate(path) if isinstance(node, _FUNCTION)), default=-1)
    function = path[depth] if depth >= 0 else file.tree
    return _Place(frame.line, path[depth + 1 :], _Scope(file, function)) if path else None


@dataclass(frozen=True)
class _Place:
    """A line in its function: ``inside`` are the statements around it, the outermost first."""

    line: int
    inside: tuple[ast.AST, ...]
    scope: _Scope

    def goes_on_harmlessly(self, *, waits: bool = False) -> bool:
        """Whether what follows lets nobody on; ``waits``: the call at the line is the wait itself, no other frame."""
        if any(map(self._holds_now, self.inside)) or not self.scope.file.hides_nothing:
            return False  # it sleeps with what it gives back afterwards, or may call what no call names
        if self.loop is None:
            return self._is_harmless_behind(self.line)
        turns = self.scope.are_harmless((*self.loop.body, _head(self.loop)), but=self.line if waits else 0)
        return turns and (_only_others_end(self.loop) or self._is_harmless_behind(self.loop.end_lineno or self.line))

    @property
    def loop(self) -> ast.While | ast.For | None:
        """The outermost loop around it."""
        return next((node for node in self.inside if isinstance(node, _LOOPS)), None)

    @property
    def is_asked_in_a_loop(self) -> bool:
        """Whether it is the question that a loop asks: ``while not context.join(timeout=5)``."""
        test = self.loop.test if isinstance(self.loop, ast.While) else None
        return test is not None and test.lineno <= self.line <= (test.end_lineno or 0)

    def _is_harmless_behind(self, last: int) -> bool:
        return self.scope.are_harmless(self.scope.body, after=last)

    def _holds_now(self, node: ast.AST) -> bool:
        return isinstance(node, ast.With) and _holds(node) and node.body[0].lineno <= self.line


def _head(loop: ast.While | ast.For) -> ast.expr:
    return loop.test if isinstance(loop, ast.While) else loop.iter


def _holds(node: ast.With) -> bool:
    """Whether something is given back at its end that another may wait for."""
    return not all(
        isinstance(item.context_expr, ast.Call) and _last_name(item.context_expr.func) in _HOLDS_NOTHING
        for item in node.items
    )


def _only_others_end(loop: ast.While | ast.For) -> bool:
    """Whether a loop has no way out but an answer of another thread or process, or none at all."""
    asks = isinstance(loop, ast.While) and _is_question(loop.test)
    return asks and not any(isinstance(node, _LEAVES) for node in ast.walk(loop))


def _is_endless_loop(loop: ast.While | ast.For) -> bool:
    """Whether it has no way out, not even by what a missing item, a division or an assertion raises."""
    return _only_others_end(loop) and not any(map(_may_raise, ast.walk(loop)))


def _may_raise(node: ast.AST) -> bool:
    match node:
        case ast.Subscript(ctx=ast.Load(), slice=key):
            return not (isinstance(key, ast.Constant) and isinstance(key.value, str))
        case ast.Assert():
            return True
        case ast.BinOp(op=ast.Div() | ast.FloorDiv() | ast.Mod(), left=left, right=right):
            fills_a_text = isinstance(left, ast.Constant) and isinstance(left.value, str)
            return not fills_a_text and not isinstance(right, ast.Constant)
        case _:
            return False


def _is_question(test: ast.expr) -> bool:
    """Whether only others can change what a condition gives: ``not stop.wait(5)``, ``child.poll() is None``, True."""
    match test:
        case ast.UnaryOp(operand=ast.expr() as one) | ast.Compare(left=one, comparators=[ast.Constant(value=None)]):
            return _is_question(one)
        case ast.BoolOp(values=several):
            return all(map(_is_question, several))
        case ast.Call(func=ast.Name(id="any" | "all"), args=[ast.GeneratorExp(elt=one)]):
            return _is_question(one)
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _ASKED
        case ast.Constant(value=value):
            return bool(value)
        case _:
            return False


def _last_name(node: ast.expr) -> str:
    """``sleep`` of ``time.sleep``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _first(dotted: str) -> str:
    return dotted.partition(".")[0]


def _names(node: ast.expr) -> tuple[str, ...]:
    """``("torch", "cuda", "memory_allocated")``; empty where it does not begin with a name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (*reversed((*names, node.id)),) if isinstance(node, ast.Name) else ()


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all in it that runs with it: not the functions and classes that it defines."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        children = ast.iter_child_nodes(one)
        waiting.extend(child for child in children if not isinstance(child, (*_FUNCTION, ast.ClassDef)))


def _is_of_a_text(method: ast.expr) -> bool:
    return isinstance(method, ast.Attribute) and isinstance(method.value, ast.Constant)


def _is_of_a_file(method: ast.expr) -> bool:
    of = method.value if isinstance(method, ast.Attribute) else None
    return isinstance(of, ast.Call) and _last_name(of.func) in MAKES_FILES


_BEHIND = _words(
    "emit filter handle default rotator doRollover print write flush",
    "__format__ __str__ __repr__ __getattr__ __getattribute__ __missing__ __bool__ __del__ __next__",
    "__len__ __hash__ __int__ __float__ __index__ __contains__",
    "__eq__ __lt__ __gt__ __le__ __ge__ __iadd__ __isub__ __ior__ __iand__ __imul__ __set__ __setattr__",
)
"""Functions that run without a call that names them: for whoever writes a record or a text, compares or counts."""

_HOOKS = frozenset({"excepthook", "finalize", "callbacks", "setLogRecordFactory", "MemoryHandler", "redirect_stdout"})
"""Names by which a file has such functions called from elsewhere."""


class _File:
    """What the names of one file of source stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.functions: dict[str, list[ast.AST]] = {}
        self.imported: dict[str, tuple[str, ...]] = {}
        self.opened: set[str] = set()
        self.mentions: set[str] = set()
        self.properties: set[str] = set()
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    self.functions.setdefault(name, []).append(node)
                    if any("property" in _last_name(one) for one in node.decorator_list):
                        self.properties.add(name)
                case ast.Import(names=names):
                    self.imported.update((one.asname or _first(one.name), (_first(one.name),)) for one in names)
                case ast.ImportFrom(module=str(module), names=names):
                    self.imported.update((one.asname or one.name, (*module.split("."), one.name)) for one in names)
                case ast.Assign() | ast.withitem():
                    self._opens(node)
                case ast.Attribute(attr=name):
                    self.mentions.add(name)
                case _:
                    pass

    @cached_property
    def hides_nothing(self) -> bool:
        """Whether its functions that run without being named let nobody on."""
        hidden = [function for name in _BEHIND for function in self.functions.get(name, ())]
        return not self.mentions & _HOOKS and _Scope(self, self.tree).follows(hidden)

    @cached_property
    def is_plain(self) -> bool:
        """Whether behind a name of a well-known package no other file of the program can put anything."""
        return not any(_brings_more(node) or self._replaces(node) for node in ast.walk(self.tree))

    def readers(self, attribute: str) -> set[ast.AST]:
        """The functions, classes and the module itself that read an attribute of this name; a class, that define it."""
        return self._readers.get(attribute, set())

    @cached_property
    def _readers(self) -> dict[str, set[ast.AST]]:
        readers: dict[str, set[ast.AST]] = {}
        for scope in ast.walk(self.tree):
            if not isinstance(scope, (ast.Module, ast.ClassDef, *_FUNCTION)):
                continue
            for node in _within(scope):
                if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Store):
                    readers.setdefault(node.attr, set[ast.AST]()).add(scope)
                elif isinstance(scope, ast.ClassDef) and isinstance(node, ast.Name):
                    readers.setdefault(node.id, set()).add(scope)  # what stands there may be called when it is set
        return readers

    def is_a_plain_method(self, function: ast.AST) -> bool:
        """Whether it is one of a class of the file's own that at most is a thread or a process."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef) and function in node.body:
                return all(_last_name(base) in _BASES for base in node.bases)
        return False

    @cached_property
    def sets_an_alarm(self) -> bool:
        """Whether it calls what sets one."""
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        return any(self._is_an_alarm(_names(call.func)) or _ends_later(call) for call in calls)

    def _is_an_alarm(self, names: tuple[str, ...]) -> bool:
        whole = (*self.imported.get(names[0], ()), *names[1:]) if names else ()
        return whole in (("signal", "alarm"), ("signal", "setitimer"))

    def _replaces(self, node: ast.AST) -> bool:
        match node:
            case ast.Assign(targets=[ast.Attribute(value=base)], value=value) if not isinstance(value, ast.Constant):
                return not self.imported.keys().isdisjoint(_names(base)[:1])
            case ast.Name(id=name, ctx=ctx):
                return name in (_FUNCTIONS if isinstance(ctx, ast.Store) else _EVALUATES)
            case ast.Attribute(attr=name):
                return name in _REPLACES
            case _:
                return False

    def _opens(self, node: ast.Assign | ast.withitem) -> None:
        value, targets = (
            (node.value, node.targets) if isinstance(node, ast.Assign) else (node.context_expr, [node.optional_vars])
        )
        if isinstance(value, ast.Call) and _last_name(value.func) in MAKES_FILES:
            self.opened.update(_last_name(target) for target in targets if target is not None)


def _ends_later(call: ast.Call) -> bool:
    exits = any(word.arg == "exit" and getattr(word.value, "value", True) for word in call.keywords)
    return exits and _last_name(call.func) == "dump_traceback_later"


def _brings_more(node: ast.AST) -> bool:
    """Whether a statement imports what is not a well-known package."""
    match node:
        case ast.Import(names=names):
            return any(_first(one.name) not in _PACKAGES for one in names)
        case ast.ImportFrom(module=module, level=level):
            return level > 0 or _first(module or "") not in _PACKAGES
        case _:
            return False


@lru_cache(maxsize=32)
def _file(source: str) -> _File | None:
    tree = tree_of(source) if source else None
    return None if tree is None else _File(tree)


@dataclass(frozen=True)
class _Scope:
    """A function, or a module, of a file: what runs in it, and what it made itself."""

    file: _File
    function: ast.AST
    deep: int = 0

    @cached_property
    def _made_here(self) -> frozenset[str]:
        stored: set[str] = set()
        for node in _within(self.function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                stored.add(node.id)
        return frozenset(stored) - self._of_others

    @cached_property
    def _of_others(self) -> frozenset[str]:
        declared: set[str] = set()
        for node in _within(self.function):
            if isinstance(node, ast.Global | ast.Nonlocal):
                declared.update(node.names)
        return frozenset(declared)

    def are_harmless(self, parts: Iterable[ast.AST], *, but: int = 0, after: int = 0) -> bool:
        """Whether all in ``parts`` lets nobody on, less the calls at line ``but`` and what is not ``after`` a line."""
        nodes = (node for part in parts for node in _within(part) if getattr(node, "lineno", 0) > after)
        return all(self._lets_nobody_on(node, but) for node in nodes)

    def _lets_nobody_on(self, node: ast.AST, but: int) -> bool:
        match node:
            case ast.Call(lineno=first, end_lineno=last):
                return first <= but <= (last or 0) or (self._is_known(node) and self._hands_over_no_act(node))
            case ast.Attribute(ctx=ast.Store(), value=ast.Name(id="self"), attr=name) if self._alone_reads(name):
                return True
            case ast.Attribute(ctx=ast.Store(), value=base) | ast.Subscript(ctx=ast.Store(), value=base):
                return self._is_made_here(_names(base))
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

    def _is_known(self, call: ast.Call) -> bool:
        """Whether a call is known to let nobody on."""
        names = _names(call.func)
        if names[:-1] in ((), ("self",), ("cls",)) and (functions := self.file.functions.get(_last_name(call.func))):
            return self.follows(functions)
        if names and names[0] in self.file.imported:
            return self._is_imported(names) or (len(names) > 1 and names[-1] in _METHODS)
        if len(names) == 1:
            return names[0] in _FUNCTIONS
        return self._is_harmless_method(call, names)

    def _hands_over_no_act(self, call: ast.Call) -> bool:
        """Whether the functions are harmless that a call is given to call in its turn: ``map(age, jobs)``."""
        calls = call.args[:1] if _names(call.func) in (("map",), ("filter",)) else []
        given = [*call.args]
        for keyword in call.keywords:
            (calls if keyword.arg == "key" else given).append(keyword.value)
        calls += [value for value in given if _last_name(value) in self.file.functions]
        return all(map(self._may_be_called, calls))

    def _may_be_called(self, function: ast.expr) -> bool:
        """Whether a function lets nobody on; what a lambda does is read where it stands."""
        is_read_here = isinstance(function, ast.Lambda | ast.Constant)
        return is_read_here or self._is_known(ast.Call(func=function, args=[], keywords=[]))

    def _is_harmless_method(self, call: ast.Call, names: tuple[str, ...]) -> bool:
        name = _last_name(call.func)
        if name in self.file.functions:
            return self.follows(self.file.functions[name])  # whose it is, the source of one file does not tell
        if name in _METHODS or _is_of_a_text(call.func):
            return True
        if name in ("set", "wait"):
            return bool(call.args or call.keywords)  # a gauge's value, and a wait with a limit: not an event's
        if name in _OF_FILES:
            return _is_of_a_file(call.func) or not _STREAMS.union(self.file.opened).isdisjoint(names[-2:-1])
        return name in _OF_LOCALS and self._is_made_here(names)

    @property
    def body(self) -> tuple[ast.AST, ...]:
        """Its statements."""
        return tuple(getattr(self.function, "body", ()))

    def _is_imported(self, names: tuple[str, ...]) -> bool:
        module, *rest = (*self.file.imported[names[0]], *names[1:])
        return module in _MODULES or (bool(rest) and rest[0] in _OF_MODULES.get(module, ()))

    def follows(self, functions: Iterable[ast.AST]) -> bool:
        """Whether functions of the same file, one of which is called, let nobody on."""
        if self.deep >= DEEP:
            return False
        scopes = [_Scope(self.file, function, self.deep + 1) for function in functions]
        return all(scope.are_harmless(scope.body) for scope in scopes)
