"""Reading stacks: which thread decides, and which of its frames mean something. Rules and reports read them alike."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from harness.core.evidence import Frame, StackSample, ThreadStack

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
_HELPED = (
    "/torch/utils/data/dataloader.py",
    "/multiprocessing/queues.py",
    "/multiprocessing/connection.py",
    "/multiprocessing/pool.py",
    "/concurrent/futures/process.py",
)
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


def bare(frame: Frame) -> str:
    """The name of its function alone: only some sources say in which class or function that was defined."""
    return frame.function if frame.native else frame.function.rpartition(".")[2]


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


def deciding_thread(sample: StackSample) -> ThreadStack | None:
    """The thread that holds the trial up: the main one, or the autograd thread it waits for inside the engine."""
    main = next((t for t in sample.threads if t.tid == sample.pid), None)
    main = main or next((t for t in sample.threads if t.name == "MainThread"), None)
    if main is None:
        return sample.threads[0] if sample.threads else None
    if any("ReadyQueue::pop" in frame.function for frame in native_leaf(main)):
        workers = [t for t in sample.threads if t is not main and python_frames(t) and not _parked(t)]
        # A thread of the program's own may be in its own code too; the main one waits for the engine's.
        engine = [t for t in workers if any("autograd::Engine::" in frame.function for frame in t.frames)]
        workers = engine or workers
        return workers[0] if len(workers) == 1 else main
    return main


def asks_helpers(sample: StackSample) -> bool:
    """Whether the deciding thread waits for what a worker process is to hand over: a batch, a result."""
    thread = deciding_thread(sample)
    return thread is not None and any(frame.file.endswith(_HELPED) for frame in python_frames(thread))


def _parked(thread: ThreadStack) -> bool:
    return all(is_stdlib(frame) for frame in python_frames(thread))
