"""Where the coroutines of an event loop wait.

A coroutine that awaits has no frame on any stack: a dump of a stuck ``asyncio`` program ends in ``select``, called by
``asyncio.run(main())``, whatever line of ``main`` it is stuck at. The process itself knows the chain of what its main
task awaits; it is put where it belongs, between the loop and what started the loop.

A loop that wakes every second goes on as far as the kernel can see, and what it does then stands in the tasks that
sleep in it. Where all of its timers are theirs, and each by its own source merely looks on and for ever (a heartbeat, a
gauge of memory), it wakes for nothing that the main task could wait for. What does not work: to ask for the tasks'
names, or to count how often it woke; a task may set an event after any number of turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.core.evidence import Frame, ThreadStack
from harness.reading.frames import bare, python_frames, thread_of
from harness.reading.onlookers import of_sample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.evidence import StackSample

LOOP_FILE, STARTS = "/asyncio/base_events.py", "run_until_complete"
SELECTS = {("select", "/selectors.py"), ("_run_once", LOOP_FILE)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLoop:
    """What a process says of the event loop that its main thread runs.

    ``awaited`` is where the coroutines stand that its main task awaits, innermost first; ``tasks`` are all others, as
    stacks with negative numbers, and ``timers`` how many timers it has.
    """

    awaited: tuple[Frame, ...] = ()
    tasks: tuple[ThreadStack, ...] = ()
    timers: int = 0


Row = tuple[str, str, int]


def event_loop(awaited: Sequence[Row], tasks: Sequence[tuple[str, Sequence[Row]]], timers: int) -> EventLoop:
    """The same from the rows in which the process says it: function, file, line."""
    stacks = [
        ThreadStack(tid=-number, name=name, frames=_frames(rows)) for number, (name, rows) in enumerate(tasks, start=1)
    ]
    return EventLoop(awaited=_frames(awaited), tasks=tuple(stacks), timers=int(timers))


def _frames(rows: Sequence[Row]) -> tuple[Frame, ...]:
    return tuple([Frame(function=str(name), file=str(file), line=int(line), native=False) for name, file, line in rows])


def rests_in_a_loop(thread: ThreadStack) -> bool:
    """Whether a thread waits in asyncio's own event loop for something to happen, and runs no coroutine."""
    innermost = next(iter(python_frames(thread)), None)
    if innermost is None or _index(thread) is None:
        return False
    return any(bare(innermost) == function and innermost.file.endswith(file) for function, file in SELECTS)


def with_awaited(sample: StackSample, awaited: Sequence[Frame]) -> StackSample:
    """The same sample, with what the main task awaits, innermost first, inside of what started its loop."""
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


def with_onlookers(sample: StackSample, loop: EventLoop, source_of: Mapping[str, str]) -> StackSample:
    """The same sample, with the tasks among its onlookers if the loop wakes for nothing but them.

    A task that asks for a process ends with that, which lets on whoever awaits it.
    """
    ticking = tuple(task for task in loop.tasks if task.frames and _sleeps(task))
    looking = of_sample(replace(sample, threads=ticking), source_of)
    tids = {task.tid for task in ticking}
    if not tids or len(tids) != loop.timers or not tids <= {*looking.onlookers} & {*looking.endless_onlookers}:
        return sample
    return replace(
        sample,
        onlookers=(*sample.onlookers, *looking.onlookers),
        plain_onlookers=(*sample.plain_onlookers, *looking.plain_onlookers),
        endless_onlookers=(*sample.endless_onlookers, *looking.endless_onlookers),
        supervisors=(*sample.supervisors, *looking.supervisors, *looking.launchers),
    )


def _sleeps(task: ThreadStack) -> bool:
    return task.frames[0].function == "sleep" and task.frames[0].file.endswith("/asyncio/tasks.py")


def _index(thread: ThreadStack) -> int | None:
    for index, frame in enumerate(thread.frames):
        if bare(frame) == STARTS and frame.file.endswith(LOOP_FILE):
            return index
    return None
