"""Where the coroutines of an event loop wait.

A coroutine that awaits has no frame on any stack: a dump of a stuck ``asyncio`` program ends in ``select``, called by
``asyncio.run(main())``, whatever line of ``main`` it is stuck at. The process itself knows the chain of what its main
task awaits; it is put where it belongs, between the loop and what started the loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.reading.frames import bare, python_frames, thread_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.evidence import Frame, StackSample, ThreadStack

LOOP_FILE, STARTS = "/asyncio/base_events.py", "run_until_complete"
SELECTS = {("select", "/selectors.py"), ("_run_once", LOOP_FILE)}


def rests_in_a_loop(thread: ThreadStack) -> bool:
    """Whether a thread waits in asyncio's own event loop for something to happen, and runs no coroutine."""
    innermost = next(iter(python_frames(thread)), None)
    if innermost is None or _index(thread) is None:
        return False
    return any(bare(innermost) == function and innermost.file.endswith(file) for function, file in SELECTS)


def with_awaited(sample: StackSample, awaited: Sequence[Frame]) -> StackSample:
    """The same sample, with what the main thread's task awaits, innermost first, inside of what started its loop."""
    main = thread_of(sample, sample.pid)
    at = _index(main) if main is not None else None
    if main is None or at is None or not awaited or not rests_in_a_loop(main):
        return sample
    longer = replace(main, frames=(*main.frames[:at], *awaited, *main.frames[at:]))
    before = sum(not frame.native for frame in main.frames[:at])
    loops = [
        replace(loop, depth=loop.depth + len(awaited)) if loop.tid == main.tid and loop.depth >= before else loop
        for loop in sample.loops
    ]
    variables = [
        replace(one, depth=one.depth + len(awaited)) if one.tid == main.tid and one.depth >= at else one
        for one in sample.variables
    ]
    threads = tuple(longer if thread is main else thread for thread in sample.threads)
    return replace(sample, threads=threads, loops=tuple(loops), variables=tuple(variables))


def _index(thread: ThreadStack) -> int | None:
    for index, frame in enumerate(thread.frames):
        if bare(frame) == STARTS and frame.file.endswith(LOOP_FILE):
            return index
    return None
