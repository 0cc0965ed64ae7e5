"""What the dumpers print -> threads and frames, innermost first. Every parser raises ValueError on other text."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from harness.core.evidence import Frame, ThreadStack
from harness.reading.frames import SHIM_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PYSTACK_THREAD = re.compile(r"Traceback for thread (\d+) (?:\((.*?)\) )?\[(.*?)\]")
_PYSTACK_FRAME = re.compile(r'^[ \t]+\((Python|C|C\+\+)\) File "(.*)", line (\d+), in (.*)', re.MULTILINE)
_LIBRARY = re.compile(r"( \(inlined\))?( \((?P<library>[^()]*/[^()]*)\))?$")
"""What pystack puts behind the name of a C function."""

_INTERPRETER = re.compile(r"(^|/)(lib)?python[\d.]*(\.so[\d.]*)?$")
_TELLING = re.compile(r"^_*(time|sys|gc|os|unicode|thread|stringio|sre|PyGILState|PyThread|r?lock)(_|$)")
"""Functions of the interpreter that say what a thread does; all others only carry Python's frames, which are there."""

_FAULT_THREAD = re.compile(r"(Current thread|Thread) 0x([0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")
_FAULT_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')


def parse_pyspy(text: str) -> tuple[ThreadStack, ...]:
    """The threads in the output of ``py-spy dump --json``."""
    threads: list[dict[str, Any]] | None = json.loads(text)
    if not isinstance(threads, list) or not threads:
        raise ValueError("no threads in the output of py-spy")
    try:
        return tuple(map(_pyspy_thread, threads))
    except (KeyError, TypeError) as error:
        raise ValueError(f"the output of py-spy lacks {error}") from error


def pyspy_locals(text: str, threads: Sequence[ThreadStack]) -> dict[tuple[int, int], dict[str, str]]:
    """The locals in the output of ``py-spy dump --locals --json``: by thread and frame, each as py-spy spells it.

    ``threads`` are those of it, and their frames, in the order of :func:`parse_pyspy`. A value that py-spy cannot spell
    is told by where it lies.
    """
    variables: dict[tuple[int, int], dict[str, str]] = {}
    for thread, printed in zip(threads, json.loads(text), strict=True):
        for index, frame in enumerate(_rows(printed)):
            values = frame.get("locals") or ()
            variables[thread.tid, index] = {str(v["name"]): str(v["repr"] or f"at {v['addr']}") for v in values}
    return variables


def _rows(thread: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The frames of a thread as py-spy writes them, less those of our own wrappers."""
    for frame in thread["frames"]:
        if not str(frame["filename"]).endswith(SHIM_FILE):
            yield frame


_ADDRESS = re.compile(r"0x[0-9a-f]+")


def _pyspy_thread(thread: dict[str, Any]) -> ThreadStack:
    return ThreadStack(
        tid=int(thread["os_thread_id"] or thread["thread_id"]),
        name=str(thread["thread_name"] or ""),
        frames=tuple(map(_pyspy_frame, _rows(thread))),
        active=bool(thread["active"]),
        owns_gil=bool(thread["owns_gil"]),
    )


def _pyspy_frame(frame: dict[str, Any]) -> Frame:
    return Frame(
        function=str(frame["name"]),
        file=str(frame["filename"]),
        line=int(frame["line"]),
        # Only native frames name their library; one that py-spy cannot open, in a chroot, leaves a bare address.
        native=frame["module"] is not None or _ADDRESS.fullmatch(str(frame["name"])) is not None,
    )


def parse_pystack(text: str) -> tuple[ThreadStack, ...]:
    """The threads in the output of ``pystack remote``, which prints the innermost frame last.

    Native frames are given as py-spy gives them: without parameters, and without the interpreter's own machinery.
    """
    threads: list[ThreadStack] = []
    for block in re.split(r"(?=^Traceback for thread )", text, flags=re.MULTILINE):
        head = _PYSTACK_THREAD.match(block)
        if head is None:
            continue
        frames = filter(None, map(_pystack_frame, _PYSTACK_FRAME.finditer(block)))
        threads.append(
            ThreadStack(
                tid=int(head[1]),
                name=head[2] or "",
                frames=tuple(reversed(list(frames))),
                owns_gil="Has the GIL" in head[3],
            )
        )
    if not threads:
        raise ValueError("no threads in the output of pystack")
    return tuple(threads)


def _pystack_frame(match: re.Match[str]) -> Frame | None:
    """A frame of Python or of C; None for one of our own wrappers, or inside the interpreter that tells nothing."""
    language, file, line, name = match.groups()
    if file.endswith(SHIM_FILE):
        return None
    if language == "Python":
        return Frame(function=name, file=file, line=int(line))
    behind = _LIBRARY.search(name)
    library = behind["library"] if behind and behind["library"] else file
    function = without_parameters(_LIBRARY.sub("", name))
    if _INTERPRETER.search(library) and not _TELLING.search(function):
        return None
    return Frame(function=function, file=library if file == "???" else file, line=int(line), native=True)


def without_parameters(function: str) -> str:
    """``at::mm`` for ``at::mm(at::Tensor const&) const``: a C++ name without its last pair of parentheses."""
    name = function.removesuffix(" const")
    if not name.endswith(")"):
        return function
    depth = 0
    for position in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[position], 0)
        if depth == 0:
            return name[:position] or function
    return function


def parse_faulthandler(text: str, *, pid: int) -> tuple[ThreadStack, ...]:
    """The threads in a dump by :mod:`faulthandler`.

    It prints threads newest first, so the last one is the main thread and gets ``pid`` as its number; the others
    have only the address that pthreads knows them by. Of two dumps, when an earlier signal was answered late, the last.
    """
    threads: dict[int, list[Frame]] = {}
    frames: list[Frame] = []
    for line in text.splitlines():
        if head := _FAULT_THREAD.match(line):
            ident = int(head[2], 16)
            threads.pop(ident, None)
            frames = threads[ident] = []
        elif (frame := _FAULT_FRAME.match(line)) and not frame[1].endswith(SHIM_FILE):
            number = 0 if frame[2] == "???" else int(frame[2])
            frames.append(Frame(function=frame[3], file=frame[1], line=number))
    if not threads:
        raise ValueError("no threads in the output of faulthandler")
    *others, (_, of_main) = threads.items()
    stacks = [ThreadStack(tid=ident, name="", frames=tuple(frames)) for ident, frames in others]
    return (*stacks, ThreadStack(tid=pid, name="MainThread", frames=tuple(of_main)))
