"""At fault: of the threads of a process that can never go on, those that were to do what the deciding one waits for.

A main thread that waits in ``queue.join``, for a result, or for an answer of a server of its own is only the victim of
the worker that is stuck. Nobody sees who holds a lock or owes a result, so a worker is named only where it cannot be an
idle one: it stands at a lock in a line of the program's own, it waits inside of a pool for the pool's own results, or
it serves and asks the same address as the thread that waits for its answer. Workers in several lines name none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.reading.frames import (
    deciding_thread,
    mentions,
    native_leaf,
    own_frame,
    python_frames,
    stands_in_own_code,
)
from harness.reading.waits import in_python_lock

if TYPE_CHECKING:
    from harness.core.evidence import ProcessState, StackSample, ThreadStack

CAUSES = frozenset({"deadlock", "blocked-io"})
"""What a hang is called in which the deciding thread may wait for another one of its process."""

RESULTS = ("/concurrent/futures/_base.py",)
POOLS = ("/concurrent/futures/thread.py",)
SERVERS = ("/socketserver.py", "/asyncio/base_events.py", "/asyncio/runners.py")


def threads_at_fault(sample: StackSample, look: ProcessState | None) -> tuple[ThreadStack, ...]:
    """The threads beside the deciding one whose line is to be looked at, all in the same one; empty: it is its own."""
    decides = deciding_thread(sample)
    if decides is None or stands_in_own_code(decides):
        return ()
    waits_on = {thread.tid: thread.on for thread in look.threads} if look is not None else {}
    stuck: list[ThreadStack] = []
    for thread in sample.threads:
        if thread.tid == decides.tid or own_frame(thread) is None:
            continue
        if _may_owe_a_deed(thread, decides) or _asks_itself(thread, decides, waits_on):
            stuck.append(thread)
    return tuple(stuck) if len(set(map(own_frame, stuck))) == 1 else ()


def _may_owe_a_deed(thread: ThreadStack, decides: ThreadStack) -> bool:
    if not in_python_lock(decides):
        return False
    leaf = native_leaf(thread)
    if leaf and stands_in_own_code(thread) and in_python_lock(thread):
        return not mentions(leaf, "SimpleQueue")  # whose idle workers wait in no function of Python's
    return _is_in(thread, POOLS) and _is_in(thread, RESULTS) and _is_in(decides, RESULTS)


def _asks_itself(thread: ThreadStack, decides: ThreadStack, waits_on: dict[int, str]) -> bool:
    asked = waits_on.get(decides.tid)
    return bool(asked) and waits_on.get(thread.tid) == asked and _is_in(thread, SERVERS)


def _is_in(thread: ThreadStack, files: tuple[str, ...]) -> bool:
    return any(frame.file.endswith(files) for frame in python_frames(thread))
