"""Signature: the same text for the same failure, whatever the addresses, lines, processes and paths."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from harness.core import verdict
from harness.reading.frames import (
    SHIM_FILE,
    begun_by_the_program,
    is_noise,
    native_leaf,
    own_frames,
    plain,
    python_frames,
)
from harness.reading.printed import fatal_frames, raised_at, raised_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.evidence import Frame, ThreadStack, WorkerResult
    from harness.core.verdict import Kind

FRAMES = 6
"""Innermost frames that identify a failure: enough to tell call paths apart, few enough to survive refactoring."""

_INLINED = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
"""Functions that exist up to Python 3.11 and are part of the one around them from 3.12 on."""

LONGEST_LINE = 200
"""Letters of a line that are quoted at most."""

_ERROR = re.compile(r"(?:^|[\s:])(?:[\w.]*error|fatal)(?: \w+)?: (?P<what>.*\w.*)", re.IGNORECASE)
"""A line that says what was wrong: argparse's ``train.py: error: ..``, click's ``Error: ..``, git's ``fatal: ..``."""

_VARYING = re.compile(r"/\S+|[\w.+-]*\d[\w.,:+-]*")
"""What differs from trial to trial of one failure, or with the value along an axis: paths, and every word with a digit
in it, as numbers, addresses, hosts and numbers of requests have."""


def signature(kind: Kind, cause: str | None, names: Iterable[str]) -> str:
    """As :func:`harness.core.verdict.signature`, of the innermost FRAMES of ``names``."""
    return verdict.signature(kind, cause, islice(names, FRAMES))


def stack_names(thread: ThreadStack) -> tuple[str, ...]:
    """What a stack is known by: the named native frames inside its innermost Python frame, then the Python frames.

    Native frames further out are left out, so that a source without native frames gives the same names for the
    same wait in Python.
    """
    return frame_names((*native_leaf(thread), *python_frames(thread)))


def stack_path(thread: ThreadStack) -> tuple[str, ...]:
    """As :func:`own_path`, of the stack of a thread."""
    return own_path(begun_by_the_program(thread))


def own_path(frames: Iterable[Frame]) -> tuple[str, ...]:
    """The innermost FRAMES functions among ``frames`` that are the program's own; of any code where none is.

    A function that calls itself, or others that call it, stands once, where it was called first: how deep it went has
    no part in it. Neither have functions of packages, which a switch or another version puts between the same two.
    """
    python = [frame for frame in frames if not frame.native and not frame.file.endswith(SHIM_FILE)]
    names = frame_names(own_frames(python)) or frame_names(python)
    return tuple(reversed(dict.fromkeys(reversed(names))))[:FRAMES]


def traceback_names(text: str) -> tuple[str, ...]:
    """The functions of the last traceback in ``text``, innermost first."""
    return frame_names(raised_in(text))


def raised_names(result: WorkerResult | None) -> tuple[str, ...]:
    """The functions in which the exception of a rank was raised, innermost first."""
    return frame_names(raised_at(result)) if result is not None else ()


def fatal_names(text: str) -> tuple[str, ...]:
    """The functions of the first thread in a faulthandler dump within ``text``, innermost first."""
    return frame_names(fatal_frames(text))


def error_line(lines: Sequence[str]) -> str:
    """What a program says of its end in its last line with a word in it, without the program's name.

    That is a line that names an error, or the only line there is; a line of a log says nothing of the end. Empty
    without one.
    """
    spoken = [line.strip() for line in lines if re.search(r"\w", line)]
    match = _ERROR.search(spoken[-1]) if spoken else None
    if match is not None:
        return match["what"][:LONGEST_LINE]
    return spoken[0][:LONGEST_LINE] if len(spoken) == 1 else ""


def line_names(line: str) -> tuple[str, ...]:
    """The one name of a failure that is known by what it said: ``line`` in quotes, with ``#`` for numbers and paths."""
    return (f'"{_VARYING.sub("#", line)}"',) if line else ()


def frame_names(frames: Iterable[Frame]) -> tuple[str, ...]:
    """What a failure in these frames is known by: ``module.function`` of each."""
    return tuple(_name(frame) for frame in frames if not _is_left_out(frame))


def _is_left_out(frame: Frame) -> bool:
    return is_noise(frame) if frame.native else plain(frame.function) in _INLINED


def _name(frame: Frame) -> str:
    return plain(frame.function) if frame.native else _python_name(frame.function, frame.file)


def _python_name(function: str, file: str) -> str:
    return f"{PurePosixPath(file).stem}.{plain(function)}"
