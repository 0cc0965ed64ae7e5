"""Where coroutines wait is put between their event loop and what started it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.evidence import Frame, FrameLocals, LoopSample, StackSample, ThreadStack
from harness.reading.awaits import EventLoop, event_loop, rests_in_a_loop, with_awaited, with_onlookers
from harness.reading.frames import own_frame

LIB = "/usr/lib/python3.11"


def frame(function, line, file, *, native=False):
    return Frame(function=function, file=file, line=line, native=native)


EPOLL = frame("epoll_wait", 0, "libc.so.6", native=True)
SELECT = frame("EpollSelector.select", 468, f"{LIB}/selectors.py")
ONCE = frame("_run_once", 1884, f"{LIB}/asyncio/base_events.py")
FOREVER = frame("run_forever", 607, f"{LIB}/asyncio/base_events.py")
STARTS = frame("BaseEventLoop.run_until_complete", 640, f"{LIB}/asyncio/base_events.py")
MODULE = frame("<module>", 11, "/home/me/serve.py")
AWAITED = (frame("get", 158, f"{LIB}/asyncio/queues.py"), frame("main", 9, "/home/me/serve.py"))


def sample(*frames, loops=(), variables=()):
    thread = ThreadStack(tid=7, name="MainThread", frames=frames)
    other = ThreadStack(tid=8, name="other", frames=(SELECT, MODULE))
    return StackSample(
        id="stack-1", source="py-spy", native=False, t_s=1.0, rank=0, pid=7, threads=(other, thread), loops=loops,
        variables=variables,
    )  # fmt: skip


@pytest.mark.parametrize("inner", [(EPOLL, SELECT, ONCE), (SELECT, ONCE), (ONCE,)])
def test_a_loop_without_work_shows_what_its_task_awaits(inner):
    before = sample(*inner, FOREVER, STARTS, MODULE)
    after = with_awaited(before, AWAITED)
    other, main = after.threads
    assert main.frames == (*inner, FOREVER, *AWAITED, STARTS, MODULE)
    assert other == before.threads[0]
    assert own_frame(main) == AWAITED[1]


@pytest.mark.parametrize(
    "frames",
    [
        (frame("sleep", 0, "/home/me/serve.py"), ONCE, FOREVER, STARTS, MODULE),  # a coroutine runs
        (SELECT, MODULE),
        (SELECT, ONCE, FOREVER, frame("run_until_complete", 3, "/home/me/loop.py"), MODULE),
    ],
)
def test_nothing_is_added_to_any_other_stack(frames):
    before = sample(*frames)
    assert with_awaited(before, AWAITED) is before
    assert not rests_in_a_loop(before.threads[1])


def test_what_is_known_of_frames_further_out_stays_theirs():
    own = FrameLocals(tid=7, depth=4, locals=(("n", "3"),))
    inner = FrameLocals(tid=7, depth=0, locals=(("timeout", "None"),))
    beside = FrameLocals(tid=8, depth=1, locals=())
    loops = [
        LoopSample(
            tid=tid, depth=depth, outer=5 - depth, function="f", file="", line=3, header_line=2, header="while 1:"
        )
        for tid, depth in ((7, 2), (7, 4), (8, 1))
    ]
    before = sample(SELECT, ONCE, FOREVER, STARTS, MODULE, variables=(inner, own, beside), loops=tuple(loops))
    after = with_awaited(before, AWAITED)
    assert [loop.depth for loop in after.loops] == [2, 6, 1]
    assert after.variables == (inner, replace(own, depth=6), beside)
    assert after.threads[1].frames[6] == MODULE


BEAT = "async def beat(path):\n    while True:\n        await asyncio.sleep(1)\n        {does}\n"
HEAD = "import asyncio, logging, time\nfrom pathlib import Path\n"
SLEEP = ("sleep", f"{LIB}/asyncio/tasks.py", 639)


ASKS = "child = subprocess.Popen('train')\nasync def beat():\n    while {does}:\n        await asyncio.sleep(1)\n"


def ticking(does, *, head=HEAD, timers=1, more=(), line=5, body=BEAT):
    """Which tasks look on of one that sleeps in ``body``; ``more`` are other tasks, and how many timers there are."""
    text = head + body.format(does=does)
    rows = ("Task-2", [SLEEP, ("beat", "/home/me/beat.py", line)])
    loop = event_loop([("main", "/home/me/serve.py", 9)], [rows, *more], timers)
    before = sample(SELECT, ONCE, FOREVER, STARTS, MODULE)
    after = with_onlookers(before, loop, {"/home/me/beat.py": text})
    assert after.threads == before.threads
    return (after.onlookers, after.supervisors) if body is ASKS else after.onlookers


@pytest.mark.parametrize(
    "does",
    [
        "pass",
        "logging.info('alive')",
        "try: Path('beat').write_text(str(time.time()))\n        except OSError: pass",
        "print(time.time()); await asyncio.sleep(2)",
    ],
)
def test_a_loop_that_wakes_for_a_heartbeat_wakes_for_an_onlooker(does):
    assert ticking(does) == (-1,)


@pytest.mark.parametrize(
    "does",
    [
        "done.set()",
        "queue.put_nowait(1)",
        "state['beats'] += 1",
        "await report()",
        "async with lock: pass",
        "task.cancel()",
        "future.set_result(1)",
        "if time.time() > 40: break",
        "Path(path).write_text('alive')",  # it may be a pipe that has a name
        "Path('beat').write_text('alive')",  # it may raise, which ends the task
    ],
)
def test_a_task_that_may_let_another_on_is_none(does):
    assert ticking(does) == ()


def test_every_timer_must_be_that_of_a_task_that_looks_on():
    waits = ("Task-3", [("get", f"{LIB}/asyncio/queues.py", 158), ("take", "/home/me/beat.py", 5)])
    unread = ("Task-4", [SLEEP, ("other", "/home/me/unread.py", 3)])
    assert ticking("pass", more=[waits]) == (-1,)
    assert ticking("pass", more=[unread], timers=2) == ()
    assert ticking("pass", timers=2) == ()  # call_later, a limit of wait_for, the main task's own sleep
    assert ticking("pass", timers=0) == ()


def test_a_task_that_ends_may_let_on_who_awaits_it():
    once = "async def beat(path):\n    for i in range(40):\n        await asyncio.sleep(1)\n        {does}\n"
    assert ticking("pass", body=once) == ()
    assert (
        ticking("pass", body="async def beat(path):\n    if path:\n        await asyncio.sleep(40)\n    {does}\n") == ()
    )


@pytest.mark.parametrize(("asks", "ends"), [("child.poll() is None", (-1,)), ("True", ())])
def test_a_task_that_asks_for_a_process_ends_with_that(asks, ends):
    assert ticking(asks, body=ASKS, head=f"import subprocess\n{HEAD}", line=7) == ((-1,), ends)


def test_without_tasks_a_sample_stays_as_it_is():
    before = sample(SELECT, ONCE, FOREVER, STARTS, MODULE)
    assert with_onlookers(before, EventLoop(), {}) is before
