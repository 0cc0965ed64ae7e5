"""The end of what a trial printed, from the bounded files that its supervisor keeps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.core.evidence import LogTail
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TAIL_BYTES = 16_384
"""How much of the end of each stream becomes evidence; the files themselves keep more."""

DROPPED = re.compile(rb"\A\[\.\.\. (\d+) bytes dropped \.\.\.\]\n")

COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")


def log_tails(trial_dir: Path, sizes: Mapping[str, int] | None = None) -> tuple[LogTail, ...]:
    """The ends of ``stdout`` and ``stderr``; a stream that was never opened is left out.

    ``sizes`` are those in bytes that they had when we began to end the trial, None if we did not.
    """
    tails: list[LogTail] = []
    for stream in ("stdout", "stderr"):
        tail = log_tail(trial_dir, stream, size=(sizes or {}).get(stream))
        if tail is not None:
            tails.append(tail)
    return tuple(tails)


def log_tail(trial_dir: Path, stream: str, *, size: int | None = None) -> LogTail | None:
    """The end of one stream; None when there is no such file.

    ``size_bytes`` is what the trial wrote in all, ``dropped_bytes`` what the supervisor could not keep of it.
    """
    head = _read(layout.output(trial_dir, stream))
    if head is None:
        return None
    dropped, tail = split_tail(_read(layout.output_tail(trial_dir, stream)) or b"")
    # With bytes lost between the two, the end of the head does not belong before the tail.
    text = tail if dropped else head + tail
    written = len(head) + dropped + len(tail)
    late = 0 if size is None else written - size
    begins = max(len(text) - TAIL_BYTES, 0)
    ends = max(len(text) - late, begins)
    after = without_colours(text[ends:])
    return LogTail(
        id=f"log-{stream}",
        stream=stream,
        text=(without_colours(text[begins:ends]) + after).decode(errors="replace"),
        size_bytes=written,
        dropped_bytes=dropped,
        late_bytes=len(after),
    )


def without_colours(text: bytes) -> bytes:
    """Output as it is read for judgement: Python 3.13 colours its tracebacks, also the files and lines in them."""
    return COLOUR.sub(b"", text)


def split_tail(text: bytes) -> tuple[int, bytes]:
    """How many bytes the supervisor dropped before this tail of a stream, and the tail itself."""
    mark = DROPPED.match(text)
    return (int(mark[1]), text[mark.end() :]) if mark else (0, text)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
