"""Reading stacks: which thread decides, which of its frames mean something, and what they wait for."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from harness.classify.facts import main_pid, silence_began_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.evidence import Frame, StackSample, ThreadStack
    from harness.core.verdict import Case

_UNNAMED = re.compile(r"^(0x[0-9a-fA-F]+|\?*)$")
_INTERPRETER_FILE = re.compile(
    r"(^|/)(lib)?python[\d.]*(\.so[\d.]*)?$|/lib-dynload/|(^|/)(Modules|Python|Objects|Parser|Include)/.*\.[ch]$"
)
_SYSTEM_FILE = re.compile(
    r"(^|/)(libc|libpthread|ld-linux[^/]*|libffi|libm|libdl)([.-][^/]*)?\.so"  # a library, as py-spy names it
    r"|^\.\.?/(nptl|sysdeps|csu|io|posix|signal|misc|socket|time)/.*\.[chS]$"  # its sources, as pystack does
)
_RUNTIME_FUNCTION = re.compile(r"^_?Py[A-Z_]|^_PyEval|^lock_PyThread|^ffi_|^(clone3?|start_thread|_start|__libc_start)")
_STDLIB = re.compile(r"(^|/)lib/python3\.\d+/(?!site-packages/)|^<frozen")
_STDLIB_FILES = frozenset({"threading.py", "queue.py", "subprocess.py", "selectors.py", "socket.py", "popen_fork.py"})


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
    name = PurePosixPath(frame.file).name
    return not frame.native and (bool(_STDLIB.search(frame.file)) or name in _STDLIB_FILES)


def python_frames(thread: ThreadStack) -> tuple[Frame, ...]:
    """The Python frames of a thread, innermost first."""
    return tuple(frame for frame in thread.frames if not frame.native)


def native_leaf(thread: ThreadStack) -> tuple[Frame, ...]:
    """The native frames inside the innermost Python frame (all of them in a thread without Python), innermost first."""
    leaf: list[Frame] = []
    for frame in thread.frames:
        if not frame.native:
            break
        leaf.append(frame)
    return tuple(leaf)


def telling_frame(thread: ThreadStack) -> Frame | None:
    """The frame to name: the innermost Python one outside the standard library, else the innermost that has a name."""
    python = python_frames(thread)
    own = next((frame for frame in python if not is_stdlib(frame)), None)
    named = (frame for frame in thread.frames if not is_noise(frame))
    return own or next(iter(python), None) or next(named, None)


def spell(frame: Frame | None) -> str:
    """``acquire_forever (harness/specimens/backward_deadlock.py:21)``: the path cut to what tells."""
    if frame is None:
        return "a function without a name"
    return f"{plain(frame.function)} ({short_path(frame.file)}{f':{frame.line}' if frame.line else ''})"


def short_path(path: str) -> str:
    """``path`` from its package on: what follows site-packages, or else its last three parts."""
    _, found, rest = path.rpartition("/site-packages/")
    return rest if found else "/".join(PurePosixPath(path).parts[-3:]).removeprefix("//").removeprefix("/")


def plain(function: str) -> str:
    """A function's bare name: without class, enclosing function, template arguments, parameters, clone suffix."""
    name = function.replace("(anonymous namespace)::", "")
    while (
        shorter := re.sub(r"<(?!locals>|lambda>|module>|genexpr>|listcomp>|dictcomp>|setcomp>)[^<>]*>", "", name)
    ) != name:
        name = shorter
    name = re.sub(r"\(.*$|\[clone.*$|@.*$|\.(isra|part|cold|constprop|lto_priv)\b.*$", "", name).strip()
    return name if "::" in name else name.rpartition(".")[2] or name


def deciding_thread(sample: StackSample) -> ThreadStack | None:
    """The thread that holds the trial up: the main one, or the autograd thread it waits for inside the engine."""
    main = next((t for t in sample.threads if t.tid == sample.pid), None)
    main = main or next((t for t in sample.threads if t.name == "MainThread"), None)
    if main is None:
        return sample.threads[0] if sample.threads else None
    if any("ReadyQueue::pop" in frame.function for frame in native_leaf(main)):
        workers = [t for t in sample.threads if t is not main and python_frames(t) and not _parked(t)]
        return workers[0] if len(workers) == 1 else main
    return main


def _parked(thread: ThreadStack) -> bool:
    return all(is_stdlib(frame) for frame in python_frames(thread))


def silent_samples(case: Case) -> tuple[StackSample, ...]:
    """The stacks of the training process since its last mark, in order, of all sources."""
    pid, since_s = main_pid(case), silence_began_s(case)
    return tuple(s for s in case.evidence.stacks if s.pid == pid and s.t_s > since_s and s.threads)


def native_samples(samples: Iterable[StackSample]) -> tuple[StackSample, ...]:
    """Those that show native frames, from the one source that has most of them; sources are never compared."""
    groups: dict[str, list[StackSample]] = {}
    for sample in samples:
        if sample.native:
            groups.setdefault(sample.source, []).append(sample)
    return tuple(max(groups.values(), key=len, default=()))


def identical(samples: Sequence[StackSample]) -> bool:
    """Whether the deciding thread stays where it is.

    Its Python frames are the same in all samples, line by line, and its native frames in all that have them.
    """
    threads = [deciding_thread(sample) for sample in samples]
    if not threads or None in threads:
        return False
    python = {tuple((plain(f.function), f.file, f.line) for f in python_frames(t)) for t in threads if t is not None}
    return len(python) == 1 and distinct(native_samples(samples)) <= 1


def distinct(samples: Iterable[StackSample]) -> int:
    """How many different stacks the deciding thread has in ``samples``."""
    return len({thread.frames for sample in samples if (thread := deciding_thread(sample))})
