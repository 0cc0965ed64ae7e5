"""Stacks for people: which thread to look at, what to call the place where it waits, frames as lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.report.text import short_path

if TYPE_CHECKING:
    from harness.core.evidence import Evidence, Frame, StackSample, ThreadStack
    from harness.core.verdict import Verdict

_STDLIB = re.compile(r"(^|/)lib/python3\.\d+/(?!site-packages/)|^<frozen|^(threading|queue|selectors|socket)\.py$")
_WAITS_FOR_ENGINE = "ReadyQueue::pop"


def deciding_sample(evidence: Evidence, verdict: Verdict) -> StackSample | None:
    """The stack sample that the verdict cites, native frames preferred; else the last that was taken."""
    cited = [s for s in evidence.stacks if s.id in verdict.cites] or list(evidence.stacks[-1:])
    return max(cited, key=lambda sample: (sample.native, sample.t_s), default=None)


def deciding_thread(sample: StackSample) -> ThreadStack | None:
    """The thread that holds the trial up: the main one, or the only autograd thread that it waits for."""
    main = next((t for t in sample.threads if t.tid == sample.pid or t.name == "MainThread"), None)
    if main is None:
        return sample.threads[0] if sample.threads else None
    if any(frame.native and _WAITS_FOR_ENGINE in frame.function for frame in main.frames):
        busy = [t for t in sample.threads if t is not main and any(_is_own(f) for f in t.frames)]
        return busy[0] if len(busy) == 1 else main
    return main


def telling_frame(thread: ThreadStack) -> Frame | None:
    """The frame to name: the innermost Python one outside the standard library, else the innermost that there is."""
    python = [frame for frame in thread.frames if not frame.native]
    own = next((frame for frame in python if _is_own(frame)), None)
    return own or next(iter(python), None) or next(iter(thread.frames), None)


def same_in(evidence: Evidence, sample: StackSample) -> tuple[int, int]:
    """In how many of the samples from this source the deciding thread's stack is the same, line by line."""
    wanted = deciding_thread(sample)
    alike = [s for s in evidence.stacks if (s.source, s.native, s.pid) == (sample.source, sample.native, sample.pid)]
    same = [s for s in alike if wanted and (t := deciding_thread(s)) and t.frames == wanted.frames]
    return len(same), len(alike)


def place(frame: Frame) -> str:
    """``acquire_forever (harness/specimens/backward_deadlock.py:27)``."""
    at = f"{short_path(frame.file)}:{frame.line}" if frame.line else short_path(frame.file)
    return f"{frame.function} ({at})" if at else frame.function


def lines(thread: ThreadStack, *, most: int = 40) -> str:
    """A thread's stack, innermost first; native frames are marked, the telling one is pointed at."""
    telling = telling_frame(thread)
    shown = thread.frames[:most]
    text = [f"{_mark(frame, telling)} {place(frame)}" for frame in shown]
    if len(thread.frames) > most:
        text.append(f"   ... {len(thread.frames) - most} more frames")
    return "\n".join(text) or "   (no frames)"


def _mark(frame: Frame, telling: Frame | None) -> str:
    return "=> " if frame is telling else "[C]" if frame.native else "   "


def _is_own(frame: Frame) -> bool:
    return not frame.native and not _STDLIB.search(frame.file)
