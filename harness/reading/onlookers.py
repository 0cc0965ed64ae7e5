"""Which threads merely look on: whatever they do next, nobody who waits for a lock, a pipe or a signal is let on by it.

Beside nearly every training there is a thread that wakes every few seconds: it writes a metric, prints that it lives,
asks for the memory. When training hangs it goes on, and from outside it looks like one that may yet give back a lock,
or kill what is stuck after half a minute. What tells the two apart is what they do next, and that stands in their
source: the calls in the loop around the line where a thread sleeps, and those of the functions called from there.

A thread *looks on* if it is in a loop without a way out, and all that it calls there is known to do nothing that
another can wait for. It *acts* if one call is not, if its own source cannot be read, or if it ever gets out of its
loop: who sleeps once does something then that it never did before, and the end of a function, or of a thread, lets go
of whatever it had. Of one that runs code of a package nothing is said, unless a loop of its own asks that again and
again. So a name that is not known is an act: to wait too long for a bystander costs minutes, to take a watchdog for one
costs the truth. And where the same file defines what such a name may come to (``emit`` of a handler, a property,
``__format__``), that is read, too. What it may come to in another file of the program is not: an onlooker is *plain*
only where its file uses nothing but well-known packages, and puts nothing of its own in the place of what they call.

What does not work: looking for ``kill`` and its like. ``self.on_timeout()`` is a function that somebody handed over.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeGuard

from harness.reading.frames import bare, is_own, is_stdlib, python_frames
from harness.reading.loops import path_to
from harness.reading.origins import ANSWER, FUNCTION_NODES, PACKAGES, within
from harness.reading.own_source import Scope, file_of
from harness.reading.raising import may_raise, raising_calls
from harness.reading.turns import turn_of
from harness.reading.waits import ADDRESSES, DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.evidence import Frame, StackSample, ThreadStack

_STARTS = ("/threading.py", "/multiprocessing/process.py")
"""Files of the standard library that call a thread's or a process's function, and hand its result to nobody."""

_WAITS = (
    "/threading.py", "/queue.py", "/selectors.py", "/socket.py", "/ssl.py", "/subprocess.py", "/signal.py",
    "/multiprocessing/connection.py", "/multiprocessing/popen_fork.py", "/multiprocessing/popen_spawn_posix.py",
    "/multiprocessing/popen_forkserver.py", "/multiprocessing/process.py", "/multiprocessing/queues.py",
    "/multiprocessing/synchronize.py", "/concurrent/futures/_base.py", "/asyncio/tasks.py",
)  # fmt: skip
"""Files of the standard library that a thread may sleep in and that then call nothing of the program's own: not the
loop of ``asyncio`` (its tasks sleep in another file) or ``sched``, nor a server."""

_WAITS_IN_C = frozenset({
    "sleep", "acquire", "select", "poll", "epoll_wait", "recv", "recv_into", "recvfrom", "read", "readline",
    "readlines", "accept", "connect", "get", "join", "wait", "wait3", "wait4", "waitid", "waitpid", "pause", "sigwait",
    "sigwaitinfo", "sigtimedwait", "input", "open", "flock", "lockf", "nanosleep", "usleep",
})  # fmt: skip
"""Functions in C that a thread may sleep in; what else stands on that line it does before, or afterwards."""

_SHARES_EVENTS = frozenset({"multiprocessing", "torch"})
"""Packages whose events are shared by processes."""

_STARTS_PROCESSES = frozenset({"subprocess", "multiprocessing", "torch"})

_HOLDS_NOTHING = frozenset({("contextlib", "suppress"), ("contextlib", "nullcontext"), ("torch", "no_grad")})

_LEAVES = (ast.Break, ast.Return, ast.Raise)
_LOOPS = (ast.While, ast.For)


def looks_on(thread: ThreadStack, source_of: Mapping[str, str]) -> bool | None:
    """Whether nothing that ``thread`` does next lets anybody on; None where it runs other code than the program's.

    One whose own code acts, or cannot be read, is taken to act whoever called it.
    """
    frames, is_all = _own_frames(thread)
    if not frames:
        return False if _asks_a_package_and_acts(thread, source_of) else None
    inner = takewhile(lambda frame: not is_own(frame), python_frames(thread))
    if not all(frame.file.endswith(_WAITS) for frame in inner):
        return False
    stays = False
    for depth, (frame, calls) in enumerate(frames):
        place = _place(frame, calls, source_of)
        if place is None or (not stays and not place.goes_on_harmlessly(waits=depth == 0)):
            return False
        if place.is_endless:
            return True if is_all else None  # it does not come back to whoever called it
        stays = stays or place.stays
        if stays and not place.drops_harmlessly:
            return False
    return (True if is_all else None) if stays else False


def _asks_a_package_and_acts(thread: ThreadStack, source_of: Mapping[str, str]) -> bool:
    """Whether it is in a package's function that its own loop asks again and again, and does more than that.

    ``while not context.join(timeout=5):`` with a count and a ``kill`` in it. Of other loops around a package's wait
    nothing is said: in those of training stands everything.
    """
    frames = python_frames(thread)
    depth = next((depth for depth, frame in enumerate(frames) if is_own(frame)), None)
    place = None if depth is None else _place(frames[depth], _called_from(frames, depth), source_of)
    return place is not None and place.is_asked_in_a_loop and not place.goes_on_harmlessly(waits=True)


def _own_frames(thread: ThreadStack) -> tuple[Sequence[tuple[Frame, frozenset[str]]], bool]:
    """The frames of the program's own code, the innermost first, up to a package's; and whether that is all it runs.

    Each with the names that the function may have which it is in: that of the next frame, or of C.
    """
    own: list[tuple[Frame, frozenset[str]]] = []
    is_all = True
    frames = python_frames(thread)
    for depth, frame in enumerate(frames):
        if bare(frame).startswith("_bootstrap"):
            break
        if is_own(frame):
            own.append((frame, _called_from(frames, depth)))
        elif not is_stdlib(frame):
            return own, False
        elif own and not frame.file.endswith(_STARTS):
            is_all = False
    return own, is_all


def _called_from(frames: Sequence[Frame], depth: int) -> frozenset[str]:
    """The names that the function may have which the frame at ``depth`` is in."""
    return frozenset({bare(frames[depth - 1])}) if depth else _WAITS_IN_C


def of_sample(sample: StackSample, source_of: Mapping[str, str]) -> StackSample:
    """A sample with its threads that look on, the plain and the endless ones of them, and those that act."""
    onlookers: list[int] = []
    plain: list[int] = []
    endless: list[int] = []
    launchers: list[int] = []
    supervisors: list[int] = []
    actors: list[int] = []
    for thread in sample.threads:
        looks = looks_on(thread, source_of)
        if looks is False:
            actors.append(thread.tid)
        if _launches(thread, source_of):
            launchers.append(thread.tid)
        if looks:
            onlookers.append(thread.tid)
            plain += [thread.tid] if _is_plain(thread, source_of) else []
            endless += [thread.tid] if _is_endless(thread, source_of) else []
            supervisors += [thread.tid] if _supervises(thread, source_of) else []
    return replace(
        sample,
        onlookers=tuple(onlookers),
        plain_onlookers=tuple(plain),
        endless_onlookers=tuple(endless),
        launchers=tuple(launchers),
        supervisors=tuple(supervisors),
        actors=tuple(actors),
    )


def sets_an_alarm(source_of: Mapping[str, str]) -> bool:
    """Whether some file of the program sets an alarm, or has it end later: ``dump_traceback_later(25, exit=True)``."""
    files = map(file_of, source_of.values())
    return any(file is not None and file.sets_an_alarm for file in files)


def are_written_to(source_of: Mapping[str, str]) -> bool:
    """Whether a progress bar, say, may write to a stream that some file of the program makes, or draw by its class."""
    files = map(file_of, source_of.values())
    return any(file is not None and file.is_written_to for file in files)


def have_callbacks(source_of: Mapping[str, str]) -> bool:
    """Whether some file of the program asks a collective for its future, to give that a function to call."""
    files = map(file_of, source_of.values())
    return any(file is not None and "get_future" in file.mentions for file in files)


def compile_texts(source_of: Mapping[str, str]) -> bool:
    """Whether some file of the program may run under a file's name what does not stand in that file."""
    files = map(file_of, source_of.values())
    return any(file is not None and file.compiles_texts for file in files)


def words_that_hand_out(source_of: Mapping[str, str]) -> frozenset[str]:
    """The words in a program's files by which somebody outside may know where it listens, or have what it opened."""
    files = [file for file in map(file_of, source_of.values()) if file is not None]
    return frozenset[str]().union(*(file.mentions & (ADDRESSES | DESCRIPTORS) for file in files))


def _is_plain(onlooker: ThreadStack, source_of: Mapping[str, str]) -> bool:
    """Whether the files that it runs use nothing that another file of the program may define."""
    for frame, calls in _own_frames(onlooker)[0]:
        place = _place(frame, calls, source_of)
        if place is None or not place.is_plain:
            return False
    return True


def stand_between(source_of: Mapping[str, str]) -> bool:
    """Whether some file of the program may put code of its own behind what its other files call.

    Then none of its onlookers is plain: ``log.info`` of one file comes to the handler that another one made, and
    ``self.on_tick()`` to that of a class which another one made of this.
    """
    if any(PurePosixPath(name).stem in PACKAGES for name in source_of):
        return True  # its own ``statistics.py``
    files = [file for file in map(file_of, source_of.values()) if file is not None]
    overrides = frozenset[str]().union(*(file.overrides for file in files))
    return any(file.steps_between or file.hooks & overrides for file in files)


def _is_endless(onlooker: ThreadStack, source_of: Mapping[str, str]) -> bool:
    """Whether it is in a loop that nothing ends, not even what something in it raises."""
    for frame, calls in _own_frames(onlooker)[0]:
        place = _place(frame, calls, source_of)
        if place is not None and place.is_endless:
            return True
    return False


def _launches(thread: ThreadStack, source_of: Mapping[str, str]) -> bool:
    """Whether it does nothing until a process ends, which its own loop asks for: then it may act."""
    inner = takewhile(lambda frame: not is_own(frame), python_frames(thread))
    if not all(frame.file.endswith(_WAITS) for frame in inner):
        return False
    for depth, (frame, calls) in enumerate(_own_frames(thread)[0]):
        place = _place(frame, calls, source_of)
        if place is None:
            return False
        if place.awaits_processes(waits=depth == 0):
            return True
        if not place.goes_on_harmlessly(waits=depth == 0):
            return False
    return False


def _supervises(onlooker: ThreadStack, source_of: Mapping[str, str]) -> bool:
    """Whether it does more than look on once a process has ended for which its own loop asks."""
    asks = False
    for frame, calls in _own_frames(onlooker)[0]:
        place = _place(frame, calls, source_of)
        if place is None:
            return True
        asks = asks or place.asks_processes
        if asks and not place.ends_harmlessly:
            return True
    return False


def _place(frame: Frame, calls: frozenset[str], source_of: Mapping[str, str]) -> _Place | None:
    """Where in its source a frame is that is in one of the functions ``calls``; None where that is not understood."""
    file = file_of(source_of.get(frame.file, ""))
    if file is None or not frame.line or bare(frame) == "<lambda>":
        return None
    path = path_to(file.tree, frame.line)
    function: ast.AST = file.tree
    inside = path
    for depth, node in enumerate(path):
        if isinstance(node, FUNCTION_NODES):
            function, inside = node, path[depth + 1 :]
    return _Place(frame.line, calls, inside, Scope(file, function)) if path else None


@dataclass(frozen=True)
class _Place:
    """A line in its function: ``inside`` are the statements around it, the outermost first.

    ``calls`` are the names that the function may have which it is in: all else on the line may be still to come.
    """

    line: int
    calls: frozenset[str]
    inside: tuple[ast.AST, ...]
    scope: Scope

    def goes_on_harmlessly(self, *, waits: bool = False) -> bool:
        """Whether what follows lets nobody on; ``waits``: the call at the line is the wait itself, no other frame."""
        if any(map(self._holds_now, self.inside)) or not self.scope.file.hides_nothing:
            return False  # it sleeps with what it gives back afterwards, or may call what no call names
        if self.loop is None:
            rest = self.scope.are_harmless(self.scope.statements_at(self.line), but=self._is_in)
            return rest and self._is_harmless_behind(self.line)
        head = self.loop.test if isinstance(self.loop, ast.While) else self.loop.iter
        turns = self.scope.are_harmless((*self.loop.body, head), but=self._is_in if waits else None)
        return turns and (self.stays or self.ends_harmlessly)

    @property
    def is_plain(self) -> bool:
        """Whether its file uses nothing that another one may define, and its function was handed nothing by another."""
        file = self.scope.file
        return file.is_plain and not file.origins.takes_from_others(self.scope.function)

    @property
    def loop(self) -> ast.While | ast.For | None:
        """The outermost loop around it."""
        return next((node for node in self.inside if isinstance(node, _LOOPS)), None)

    @property
    def stays(self) -> bool:
        """Whether it is in a loop without a way out, but by what something in it raises."""
        return self.loop is not None and self._only_others_end(self.loop)

    @property
    def asks_processes(self) -> bool:
        """Whether it is in a loop that asks for the end of one, or an event that another process may set."""
        for loop in filter(_is_while, self.inside):
            if turn_of(loop, self.scope.sets, self.scope.file).asks or self._asks_what_is_shared(loop):
                return True
        return False

    def _asks_what_is_shared(self, loop: ast.While) -> bool:
        """Whether its condition asks for an event that is not seen to be one of ``threading``."""
        if {names[0] for names in self.scope.file.imported.values()}.isdisjoint(_SHARES_EVENTS):
            return False
        for node in ast.walk(loop.test):
            match node:
                case ast.Call(func=ast.Attribute(value=event, attr="wait" | "is_set")):
                    if not self.scope.is_made_by(event, "threading"):
                        return True
                case _:
                    pass
        return False

    @property
    def ends_harmlessly(self) -> bool:
        """Whether what follows its loop lets nobody on, or what follows its line where it is in none."""
        if self.loop is None:
            return self._is_harmless_behind(self.line)
        return self._is_harmless_behind(self.loop.end_lineno or self.line) and self.scope.are_harmless(self.loop.orelse)

    @property
    def drops_harmlessly(self) -> bool:
        """Whether an exception that ends its loop, or comes out of what it has called, lets nobody on here."""
        for node in self.inside:
            if node is self.loop and self.stays:
                return True
            if isinstance(node, ast.With | ast.AsyncWith) and self._holds_now(node):
                return False
            if isinstance(node, ast.Try) and not self._is_caught_harmlessly(node):
                return False
        return True

    def _is_caught_harmlessly(self, node: ast.Try) -> bool:
        if not self.scope.are_harmless((*node.handlers, *node.finalbody)):
            return False
        return not node.handlers or self._is_harmless_behind(node.end_lineno or self.line)

    @property
    def is_endless(self) -> bool:
        """Whether nothing in that loop raises, either."""
        return self.loop is not None and self.stays and not may_raise(self.loop, self.scope.file)

    def awaits_processes(self, *, waits: bool) -> bool:
        """Whether a loop around it does nothing that lets anybody on, and has no way out, until a process ends.

        Only of a file that starts some.
        """
        file = self.scope.file
        if not {names[0] for names in file.imported.values()} & _STARTS_PROCESSES:
            return False
        if any(map(self._holds_now, self.inside)) or not file.hides_nothing:
            return False
        for loop in filter(_is_while, self.inside):
            turn = turn_of(loop, self.scope.sets, file)
            if turn.asks and not turn.may_leave:
                raising = frozenset(raising_calls(loop, file))
                if any(node in raising for part in turn.reached for node in within(part)):
                    return False
                return self.scope.are_harmless(turn.reached, but=self._is_in if waits else None)
        return False

    @property
    def _is_in(self) -> ast.Call | None:
        """The call that it is in; None where that is not clear."""
        return self.scope.call_at(self.line, self.calls)

    @property
    def is_asked_in_a_loop(self) -> bool:
        """Whether it is the question that a loop asks: ``while not context.join(timeout=5)``."""
        test = self.loop.test if isinstance(self.loop, ast.While) else None
        return test is not None and test.lineno <= self.line <= (test.end_lineno or 0)

    def _is_harmless_behind(self, last: int) -> bool:
        return self.scope.are_harmless(self.scope.body, after=last)

    def _holds_now(self, node: ast.AST) -> bool:
        """Whether it is in a ``with`` at whose end something is given back that another may wait for."""
        if not isinstance(node, ast.With | ast.AsyncWith) or node.body[0].lineno > self.line:
            return False
        for item in node.items:
            call = item.context_expr
            if not isinstance(call, ast.Call):
                return True
            if self.scope.whole_name(call.func) not in _HOLDS_NOTHING and not self.scope.opens_a_file(call):
                return True
        return False

    def _only_others_end(self, loop: ast.While | ast.For) -> bool:
        """Whether a loop has no way out but an answer of another thread or process, or none at all."""
        asks = isinstance(loop, ast.While) and self._is_question(loop.test)
        return asks and not any(isinstance(node, _LEAVES) for node in ast.walk(loop))

    def _is_question(self, test: ast.expr) -> bool:
        """Whether only others can change what a condition gives: ``not stop.wait(5)``, ``child.poll() is None``, True.

        Asked of an event, a thread or a process; a connection that is polled answers when somebody outside writes.
        """
        match test:
            case ast.UnaryOp(operand=ast.expr() as one) | ast.Compare(left=one, comparators=[ast.Constant(value=None)]):
                return self._is_question(one)
            case ast.BoolOp(values=several):
                return all(map(self._is_question, several))
            case ast.Call(func=ast.Name(id="any" | "all"), args=[ast.GeneratorExp(elt=one)]):
                return self._is_question(one)
            case ast.Call(func=ast.Attribute(attr="poll"), args=[_, *_]):
                return False
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in ANSWER - self.scope.file.functions.keys() - self.scope.file.fields
            case ast.Constant(value=value):
                return bool(value)
            case _:
                return False


def _is_while(node: ast.AST) -> TypeGuard[ast.While]:
    return isinstance(node, ast.While)
