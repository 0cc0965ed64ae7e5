"""Reading stacks: which thread decides, which of its frames mean something, and whether two stacks are the same.

Three dumpers write the same stack in three ways. py-spy shortens the names of nested functions, pystack spells template
arguments, faulthandler knows neither classes nor native frames; one numbers the first line of a statement and another
the last. So stacks of different sources are never compared, and a function is compared by its bare name.

Of a thread two things are asked. *Where is it?* is its innermost Python frame outside the standard library, else its
innermost frame with a name (``telling_frame``). *Is it still there?* is all of its Python frames, line by line, and its
native frames where samples show them (``same_stacks``): a Python stack alone does not change while C++ works.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from harness.core.evidence import Frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.evidence import StackSample, ThreadStack

_UNNAMED = re.compile(r"^(0x[0-9a-fA-F]+|\?*)$")
_INTERPRETER_FILE = re.compile(
    r"(^|/)(lib)?python[\d.]*(\.so[\d.]*)?$|/lib-dynload/|(^|/)(Modules|Python|Objects|Parser|Include)/.*\.[ch]$"
)
_SYSTEM_FILE = re.compile(
    r"(^|/)(libc|libpthread|ld-linux[^/]*|libffi|libm|libdl)([.-][^/]*)?\.so"  # a library, as py-spy names it
    r"|^\.\.?/(nptl|sysdeps|csu|io|posix|signal|misc|socket|time)/.*\.[chS]$"  # its sources, as pystack does
)
_RUNTIME_FUNCTION = re.compile(r"^_?Py[A-Z_]|^_PyEval|^lock_PyThread|^ffi_|^(clone3?|start_thread|_start|__libc_start)")
_STDLIB = re.compile(
    r"(^|/)(lib(64)?/(python3\.\d+t?|pypy3(\.\d+)?)|lib-python/3)/(?!(site|dist)-packages/)|/python3\d+t?\.zip/|^<frozen"
)
_STDLIB_FILES = frozenset({"threading.py", "queue.py", "subprocess.py", "selectors.py", "socket.py", "popen_fork.py"})
_INSTALLED = re.compile(r"^.*/(?:site-packages|dist-packages)/(?P<package>[^/]+)")
_TEMPLATE = re.compile(r"<(?!locals>|lambda>|module>|genexpr>|listcomp>|dictcomp>|setcomp>)[^<>]*>")
STUB_LINES = 12
"""Lines at most of the script that an installer writes to start a program (pip, uv and conda need 7 to 12)."""

BY_VALUE = "<dynamic-code>"
"""What cloudpickle writes for the file of a function that it sends to a worker: its name and its line are right."""

SHIM_FILE = "/nsa_harness_shim.py"
"""The file of our own wrappers in a stranger's program; its frames lie between the program's and torch's."""

_TRACEBACK_LINE = re.compile(
    r'^[\s|]*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>.+?))?\s*$', re.MULTILINE
)
_BEHIND_THE_NAME = re.compile(r"\(.*$|\[clone.*$|@.*$|\.(isra|part|cold|constprop|lto_priv)\b.*$")


# -- one frame


def is_runtime(frame: Frame) -> bool:
    """Whether a native frame belongs to the interpreter or the C library."""
    return frame.native and bool(
        _RUNTIME_FUNCTION.match(frame.function)
        or _INTERPRETER_FILE.search(frame.file)
        or _SYSTEM_FILE.search(frame.file)
    )


def is_noise(frame: Frame) -> bool:
    """Whether a native frame says nothing about where the program is: the runtime's own, or without a name."""
    return frame.native and (is_runtime(frame) or bool(_UNNAMED.match(frame.function)))


def is_compiled_work(frame: Frame) -> bool:
    """Whether a native frame belongs to torch, an extension or any library of theirs, named or not.

    Work may go on there that Python does not see.
    """
    return frame.native and not is_runtime(frame)


def is_stdlib(frame: Frame) -> bool:
    """Whether a Python frame belongs to the standard library."""
    return not frame.native and _is_stdlib_file(frame.file)


@lru_cache(maxsize=4096)
def _is_stdlib_file(file: str) -> bool:
    return bool(_STDLIB.search(file)) or PurePosixPath(file).name in _STDLIB_FILES


_SERVICES = ("resource_sharer.py", "resource_tracker.py", "forkserver.py")
"""Files of multiprocessing that serve other processes descriptors, names to clean up, or forks."""


def is_service(thread: ThreadStack) -> bool:
    """Whether a thread runs one of multiprocessing's own services, which know nothing of the program.

    Not so a process that was forked by one and runs something else on top of it.
    """
    for frame in python_frames(thread):
        if not is_stdlib(frame) or bare(frame) == "_bootstrap":
            return False
        if "/multiprocessing/" in frame.file and frame.file.endswith(_SERVICES):
            return True
    return False


def package(frame: Frame) -> str:
    """The installed package that a Python frame belongs to, ``tqdm``; empty for the program's own and the library's."""
    return "" if frame.native else _package_of(frame.file)


@lru_cache(maxsize=4096)
def _package_of(file: str) -> str:
    match = _INSTALLED.match(file)
    return match["package"] if match else ""


def traceback_frames(text: str) -> tuple[Frame, ...]:
    """The frames of all tracebacks in ``text``, as Python writes them, less those of our own wrappers.

    The line of a file that is no Python, of a SyntaxError, stands there without a function: it is the module's.
    """
    frames: list[Frame] = []
    for row in _TRACEBACK_LINE.finditer(text):
        function = row["function"] or ("" if row["file"].startswith("<") else "<module>")
        if function and not row["file"].endswith(SHIM_FILE):
            frames.append(Frame(function=function, file=row["file"], line=int(row["line"]), native=False))
    return tuple(frames)


def is_own(frame: Frame) -> bool:
    """Whether a Python frame is the program's own: neither the standard library's nor an installed package's."""
    return not frame.native and not is_stdlib(frame) and not package(frame)


def own_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Those of ``frames``, which come innermost first, that are the program's own, less what starts an installed one.

    That is a script without a suffix in the ``bin`` of the same environment, which does nothing but call the package.
    """
    own: list[Frame] = []
    inside: Frame | None = None
    for frame in frames:
        if is_own(frame) and not (inside is not None and _is_stub(frame, inside)):
            own.append(frame)
        inside = frame
    return own


def _is_stub(frame: Frame, inside: Frame) -> bool:
    """Whether ``frame`` is that of a script which an installer wrote, and ``inside`` the one that it calls."""
    installed = _INSTALLED.match(inside.file)
    folder, _, name = frame.file.rpartition("/")
    if installed is None or "." in name or bare(frame) != "<module>" or frame.line > STUB_LINES:
        return False
    packages = PurePosixPath(inside.file[: installed.start("package")])  # /venv/lib/python3.11/site-packages
    return len(packages.parents) > 2 and folder == str(packages.parents[2] / "bin")


def own_line(frames: Sequence[Frame]) -> Frame:
    """The one of ``frames``, which come innermost first, to look at: the innermost of the program's own.

    Code that a library made, of a template or of a class, is in no file, and counts only where the whole program was
    typed in. A program that is all installed began in one of its packages: of that the innermost; else of any code.
    """
    own = own_frames(frames)
    in_a_file = [frame for frame in own if not is_in_no_file(frame)]
    typed_in = [frame for frame in own if frame.file == frames[-1].file]
    packages = [package(frame) for frame in frames if package(frame)]
    started = [frame for frame in frames if packages and package(frame) == packages[-1]]
    return next(iter((*in_a_file, *typed_in, *started, *own, *frames)))


def bare(frame: Frame) -> str:
    """The name of its function alone: only some sources say in which class or function that was defined."""
    return frame.function if frame.native else frame.function.rpartition(".")[2]


def plain(function: str) -> str:
    """A function's bare name: without class, enclosing function, template arguments, parameters, clone suffix."""
    name = function.replace("(anonymous namespace)::", "")
    while (shorter := _TEMPLATE.sub("", name)) != name:
        name = shorter
    name = _BEHIND_THE_NAME.sub("", name).strip()
    return name if "::" in name else name.rpartition(".")[2] or name


def short_path(path: str) -> str:
    """``path`` from its package on: what follows site-packages, or else its last three parts."""
    _, separator, rest = path.rpartition("/site-packages/")
    return rest if separator else "/".join(PurePosixPath(path).parts[-3:]).removeprefix("//").removeprefix("/")


def spell(frame: Frame | None) -> str:
    """``acquire_forever (harness/specimens/backward_deadlock.py:21)``: the path cut to what tells."""
    if frame is None:
        return "code of which no frame was seen"
    return f"{plain(frame.function)} ({short_path(frame.file)}{f':{frame.line}' if frame.line else ''})"


# -- one thread


def python_frames(thread: ThreadStack) -> tuple[Frame, ...]:
    """The Python frames of a thread, innermost first."""
    return thread.python_frames


def native_leaf(thread: ThreadStack) -> tuple[Frame, ...]:
    """The native frames inside the innermost Python frame (all of them in a thread without Python), innermost first."""
    leaf: list[Frame] = []
    for frame in thread.frames:
        if not frame.native:
            break
        leaf.append(frame)
    return tuple(leaf)


def named_frames(thread: ThreadStack) -> tuple[Frame, ...]:
    """The frames of a thread that say something about where the program is, innermost first."""
    return tuple(frame for frame in thread.frames if not is_noise(frame))


def mentions(frames: Iterable[Frame], *parts: str) -> bool:
    """Whether any of these is part of the name of any of the functions."""
    for frame in frames:
        for part in parts:
            if part in frame.function:
                return True
    return False


def own_frame(thread: ThreadStack) -> Frame | None:
    """The innermost frame of the program's own code; None where none is on the stack."""
    return _in_a_file(own_frames(begun_by_the_program(thread)))


def stands_in_own_code(thread: ThreadStack) -> bool:
    """Whether it waits in no function but the program's own: at a lock, say, and in no queue of the library's."""
    innermost = next(iter(python_frames(thread)), None)
    return innermost is not None and is_own(innermost)


def telling_frame(thread: ThreadStack) -> Frame | None:
    """The frame to name: the innermost Python one outside the standard library, else the innermost that has a name.

    Of the library's alone what was called, ``queue.join`` at the exit say, before the wait of ``threading.py`` in it.
    """
    python = begun_by_the_program(thread)
    own = _in_a_file(frame for frame in python if not is_stdlib(frame))
    waits = (frame for frame in python if not frame.file.endswith("/threading.py"))
    return own or next(waits, None) or next(iter(python or named_frames(thread)), None)


def _in_a_file(frames: Iterable[Frame]) -> Frame | None:
    """The first frame whose code a reader can open, else the first: that of ``exec`` and ``-c`` is in no file."""
    first: Frame | None = None
    for frame in frames:
        if not is_in_no_file(frame):
            return frame
        first = first or frame
    return first


def is_in_no_file(frame: Frame) -> bool:
    """Whether nobody can open its code: that of ``exec`` and ``-c``, or that a library made."""
    return frame.file.startswith("<") and frame.file != BY_VALUE


def begun_by_the_program(thread: ThreadStack) -> tuple[Frame, ...]:
    """The Python frames of a thread less ``<module> (<string>:1)``, by which multiprocessing starts a child.

    Of a child that it forks, less those that its parent was in when it did.
    """
    python = python_frames(thread)
    for depth, frame in enumerate(python):
        if bare(frame) == "_launch" and frame.file.endswith("/multiprocessing/popen_fork.py"):
            python = python[:depth]
            break
    started = len(python) > 1 and python[-1].file == "<string>" and "/multiprocessing/" in python[-2].file
    return python[:-1] if started else python


# -- one sample


def thread_of(sample: StackSample, tid: int) -> ThreadStack | None:
    """The thread called ``tid``; None for a source that does not number threads as the kernel does."""
    return next((thread for thread in sample.threads if thread.tid == tid), None)


def deciding_thread(sample: StackSample) -> ThreadStack | None:
    """The thread that holds the process up: the main one, or the one it waits for, in the engine, a join or an exit."""
    main = thread_of(sample, sample.pid) or next((t for t in sample.threads if t.name == "MainThread"), None)
    if main is None:
        return sample.threads[0] if sample.threads else None
    others: list[ThreadStack] = []
    if joined := _joined(sample, main):
        return joined
    if _in_engine(main):
        others = _of_the_engine(sample, main)
    elif _exits(main):
        others = [thread for thread in sample.threads if thread is not main and own_frame(thread) is not None]
    return others[0] if len(others) == 1 else main


def _joined(sample: StackSample, thread: ThreadStack) -> ThreadStack | None:
    """The thread at whose end all is that ``thread`` waits for, one after the other; None where it waits for none."""
    whom = dict(sample.joins)
    passed, tid = {thread.tid}, thread.tid
    while (following := whom.get(tid)) is not None and following not in passed:
        passed.add(following)
        tid = following
    return thread_of(sample, tid) if tid != thread.tid else None


def _of_the_engine(sample: StackSample, main: ThreadStack) -> list[ThreadStack]:
    """The threads of the autograd engine, by their native frames; without those all that may be one."""
    workers: list[ThreadStack] = []
    engine: list[ThreadStack] = []
    for thread in sample.threads:
        if thread is main or all(map(is_stdlib, python_frames(thread))):
            continue
        workers.append(thread)
        # A thread of the program's own may be in its own code too; the main one waits for the engine's.
        if mentions(thread.frames, "autograd::Engine::"):
            engine.append(thread)
    return engine or workers


def _exits(main: ThreadStack) -> bool:
    """Whether the main thread is through, and the interpreter waits for the threads that it left running."""
    innermost = next(iter(python_frames(main)), None)
    return innermost is not None and bare(innermost) == "_shutdown" and is_stdlib(innermost)


def _in_engine(main: ThreadStack) -> bool:
    """Whether the main thread waits inside backward for a thread of the autograd engine."""
    leaf = native_leaf(main)
    if leaf:
        return mentions(leaf, "ReadyQueue::pop")
    innermost = next(iter(python_frames(main)), None)
    return innermost is not None and bare(innermost) == "_engine_run_backward"


# -- several samples of one process


def native_samples(samples: Iterable[StackSample]) -> tuple[StackSample, ...]:
    """Those that show native frames, from the one source that has most of them; sources are never compared."""
    groups: dict[str, list[StackSample]] = {}
    for sample in samples:
        if sample.native:
            groups.setdefault(sample.source, []).append(sample)
    return tuple(max(groups.values(), key=len, default=()))


def best_thread(samples: Sequence[StackSample]) -> ThreadStack | None:
    """The deciding thread in the last sample with native frames, or in the last of all."""
    sample = best_sample(samples)
    return deciding_thread(sample) if sample is not None else None


def best_sample(samples: Sequence[StackSample]) -> StackSample | None:
    """The last sample with native frames, or the last of all."""
    return next((sample for sample in reversed(samples) if sample.native), samples[-1] if samples else None)


def same_stacks(samples: Sequence[StackSample]) -> bool:
    """Whether the deciding thread stays where it is in all of at least two samples of one process.

    Its Python frames are the same in all samples, line by line, and its native frames in all that have them. Which
    thread decides is taken from a sample with native frames, if there is one: only those show who waits for whom.
    """
    if len(samples) < 2:
        return False
    decides = best_thread(samples)
    if decides is None:
        return False
    shapes: set[tuple[tuple[str, str, int], ...]] = set()
    for sample in samples:
        thread = thread_of(sample, decides.tid) or deciding_thread(sample)
        if thread is None:
            return False
        shapes.add(tuple((plain(f.function), f.file, f.line) for f in python_frames(thread)))
    return len(shapes) == 1 and different_stacks(native_samples(samples)) <= 1


def same_frames(one: ThreadStack | None, other: ThreadStack | None) -> bool:
    """Whether two stacks agree line by line; without one of them they don't."""
    return one is not None and other is not None and one.frames == other.frames


def different_places(threads: Iterable[ThreadStack]) -> int:
    """In how many different places threads are, by the Python functions on their stacks."""
    places: set[tuple[tuple[str, str], ...]] = set()
    for thread in threads:
        places.add(tuple((frame.function, frame.file) for frame in python_frames(thread)))
    return len(places)


def different_stacks(samples: Iterable[StackSample]) -> int:
    """How many different stacks the deciding thread has in ``samples``, which are of one source."""
    stacks: set[tuple[Frame, ...]] = set()
    for sample in samples:
        thread = deciding_thread(sample)
        if thread is not None:
            stacks.add(thread.frames)
    return len(stacks)


def moved_between(samples: Sequence[StackSample]) -> bool:
    """Whether the deciding thread was seen in two places by one and the same source."""
    places: dict[str, set[tuple[Frame, ...]]] = {}
    for sample in samples:
        thread = deciding_thread(sample)
        if thread is not None:
            places.setdefault(sample.source, set()).add(python_frames(thread))
    return any(len(stacks) > 1 for stacks in places.values())
