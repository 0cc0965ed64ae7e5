"""Printed: what a program's output tells of its end, and what in it only looks as if it did.

Torch's launcher prints beside its ranks, and none of that is where a rank failed. A program also prints exceptions that
it has dealt with (a cache that is not there, a test of an error) and goes on: only a traceback with which the output
ends says where the program did. What stands below one may belong to its message, or be of what came later: nobody can
tell from the text, so it is not said either way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.reading.frames import traceback_frames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.evidence import Frame, WorkerResult

RANK = re.compile(r"^\[rank\d+\]: ?")
"""What torch puts in front of the lines of a rank's traceback."""

_FRAME = re.compile(r'\s*(?:\| *)*File "')
HEADING = "Traceback (most recent call last):"
"""How Python begins a traceback, but for that of a SyntaxError."""

_REMOTE = re.compile(r'RemoteTraceback: \n"""\n(?P<quoted>.*?)\n"""', re.DOTALL)
"""How multiprocessing and concurrent.futures quote the traceback of a worker, above the one of whoever asked it."""

_QUOTES = re.compile(r"^(?:Original |-- Process \d+ terminated with the following error:\n|-{75}\n)\Z", re.MULTILINE)
"""What torch, and a manager of multiprocessing, put in front of another process's traceback within a message."""

_SYNTAX = re.compile(r'^  File "[^"\n]+", line \d+\n(?: .*\n)*(?:Syntax|Indentation|Tab)Error\b', re.MULTILINE)
"""The traceback of a SyntaxError in the program itself."""

_ERROR = re.compile(r"^[A-Za-z_][\w.]*(?:: .*|:?)$", re.MULTILINE)
"""The line below the frames of a traceback; what follows is the message's."""

_IGNORED = re.compile(
    r"^(?:Exception ignored |Error in atexit)[^\n]*\nTraceback \(most recent call last\):\n(?:[ \t].*\n)*(?:\S.*\n?)?",
    re.MULTILINE,
)
"""What Python prints of an exception in a destructor or at its exit, by which nothing ends."""

COMPILER, USER_CODE = "torch._dynamo.", "\nfrom user code:\n"
"""The module of what torch's compiler raises, and how it begins the stack of the code that it could not compile."""

_WORD = re.compile(r"\w")
FATAL = "Fatal Python error: "
"""How the dump begins that faulthandler prints where a signal ends a program."""

_THREAD = re.compile(
    r"^(?P<current>Current )?.*most recent call first\):\n(?P<frames>(?:\s+File .*\n?)+)", re.MULTILINE
)

LAUNCHER = re.compile(
    r"(?:[IWEF]\d{4} \S+ +\d+ |[A-Z]+:)torch[./]distributed[./](?:elastic|run)\b|"
    r"\*{41}$|Setting OMP_NUM_THREADS environment variable for each process "
)
"""How a line begins that torch's launcher prints; behind the one that names an exit status it only says so again."""


def of_its_end(text: str) -> list[str]:
    """The lines of what a program printed that may tell of its end.

    Those of torch's launcher are not among them, nor its closing report of who failed, nor what Python ignored.
    """
    lines: list[str] = []
    for line in _IGNORED.sub("", text).splitlines():
        if not LAUNCHER.match(line):
            lines.append(line)
        elif "failed (exitcode" in line:
            break
    return lines


def ending_traceback(lines: Sequence[str]) -> str:
    """Output as one text, where the last thing in it is a traceback; empty where anything was printed below the last.

    Lines may carry a rank in front, as torch puts it there. A SyntaxError has no heading, and the errors of a group all
    stand to the right.
    """
    own = [RANK.sub("", line) for line in lines]
    frames = [at for at, line in enumerate(own) if _FRAME.match(line)]
    below = own[frames[-1] + 1 :] if frames else []
    spoken = [line for line in below if _WORD.search(line) and not line.startswith(" ")]
    of_error = 0 if any(line.lstrip().startswith("+--") for line in below) else 1
    return "\n".join(own) if frames and len(spoken) <= of_error else ""


def raised_in(text: str) -> tuple[Frame, ...]:
    """The frames of the last traceback in ``text``, innermost first.

    Where an exception came from another process, whose traceback is quoted, that one's come before those of whoever
    waited for it.
    """
    before, heading, last = text.rpartition(HEADING)
    error = _ERROR.search(last) if heading else None
    if heading and error is not None:
        later = _SYNTAX.search(last, error.end())
        last = later[0] if later else last[: error.start()]
    frames = traceback_frames(last)[::-1]
    if _QUOTES.search(before):
        return frames + raised_in(before)
    *_, remote = (None, *_REMOTE.finditer(before))
    if remote is None or HEADING in before[remote.end() :]:  # that was of an earlier one
        return frames
    return raised_in(remote["quoted"]) + frames


def quoted_in(message: str) -> str:
    """The traceback that ``message`` quotes of another process, with its error; empty where no library put it there.

    A program may put one into a message of its own, of something that failed earlier.
    """
    before, _, quoted = message.rpartition(HEADING)
    return quoted if _QUOTES.search(before) else ""


def raised_at(result: WorkerResult) -> tuple[Frame, ...]:
    """The frames of the exception that ended a rank, innermost first.

    Those of another process, whose exception it hands on, come before its own; so do those of the user's code in which
    torch's compiler failed, as it says.
    """
    if not result.frames:
        return raised_in(result.traceback or "")
    message = result.message or ""
    if (result.exception or "").startswith(COMPILER):
        return traceback_frames(message.rpartition(USER_CODE)[2])[::-1] + result.frames
    elsewhere = raised_in(message if quoted_in(message) else result.quoted or "")
    return elsewhere + result.frames


def fatal_frames(text: str) -> tuple[Frame, ...]:
    """The frames, innermost first, of the thread that a signal met, by faulthandler's dump within ``text``.

    Of the first thread in it where none is said to be that one; empty without such a dump. One that a program asks for
    while it runs is not of its end.
    """
    threads = list(_THREAD.finditer(text.partition(FATAL)[2]))
    met = [thread for thread in threads if thread["current"]] or threads
    return traceback_frames(met[0]["frames"]) if met else ()
