"""Printed: what a program's output tells of its end, and what in it only looks as if it did.

Torch's launcher prints beside its ranks, and none of that is where a rank failed. A program also prints exceptions that
it has dealt with (a cache that is not there, a test of an error) and goes on: only a traceback with which the output
ends says where the program did. What stands below one may belong to its message, or be of what came later: nobody can
tell from the text, so it is not said either way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.reading.frames import is_own, traceback_frames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.evidence import Frame

RANK = re.compile(r"^\[rank\d+\]: ?")
"""What torch puts in front of the lines of a rank's traceback."""

_FRAME = re.compile(r'\s*(?:\| *)*File "')
HEADING = "Traceback (most recent call last):"
"""How Python begins a traceback, but for that of a SyntaxError."""

_REMOTE = re.compile(r'RemoteTraceback: \n"""\n(?P<quoted>.*?)\n"""', re.DOTALL)
"""How multiprocessing and concurrent.futures quote the traceback of a worker, above the one of whoever asked it."""

_WORD = re.compile(r"\w")
_FATAL = re.compile(r"most recent call first\):\n(?P<frames>(?:\s+File .*\n?)+)")

LAUNCHER = re.compile(r"(?:[IWEF]\d{4} \S+ +\d+ |[A-Z]+:)torch[./]distributed[./](?:elastic|run)\b")
"""How a line begins that torch's launcher prints; behind the one that names an exit status it only says so again."""


def before_launcher(text: str) -> list[str]:
    """The lines of what a program printed, without those of torch's launcher and its closing report of who failed."""
    lines: list[str] = []
    for line in text.splitlines():
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

    Where an exception came from another process of a pool, that one's come before those of whoever waited for it.
    """
    before, _, last = text.rpartition(HEADING)
    frames = traceback_frames(last)[::-1]
    *_, remote = (None, *_REMOTE.finditer(before))
    if remote is None or HEADING in before[remote.end() :]:  # that was of an earlier one
        return frames
    return traceback_frames(remote["quoted"])[::-1] + frames


def own_line(frames: Sequence[Frame]) -> Frame:
    """The innermost of ``frames``, which come innermost first, that is the program's own; of any code where none is."""
    return next(filter(is_own, frames), frames[0])


def fatal_frames(text: str) -> tuple[Frame, ...]:
    """The frames of the first thread in a faulthandler dump within ``text``, innermost first; empty without one."""
    block = _FATAL.search(text)
    return traceback_frames(block["frames"]) if block else ()
