"""Who is at fault for a wait: never an idle worker, and nobody where the stuck ones stand in several lines."""

from __future__ import annotations

import pytest

from harness.core.evidence import Frame, ProcessState, StackSample, ThreadStack, ThreadState
from harness.reading.fault import threads_at_fault

LIB = "/usr/lib/python3.11"
MAIN, FIRST, SECOND = 7, 8, 9


def python(function: str, file: str, line: int = 5) -> Frame:
    return Frame(function=function, file=file, line=line, native=False)


def native(function: str) -> Frame:
    return Frame(function=function, file="Python/thread_pthread.h", line=0, native=True)


LOCKED = native("PyThread_acquire_lock_timed")
RUN = python("run", f"{LIB}/threading.py")
WAIT = (LOCKED, python("wait", f"{LIB}/threading.py"))
RESULT = (*WAIT, python("result", f"{LIB}/concurrent/futures/_base.py"))
IN_POOL = (python("run", f"{LIB}/concurrent/futures/thread.py"), RUN)
BODY = python("<module>", "/src/app.py", 24)
JOINS = (*WAIT, python("join", f"{LIB}/queue.py"), BODY)
AT_A_LOCK = (LOCKED, python("handle", "/src/app.py", 6), RUN)
IDLE = (*WAIT, python("get", f"{LIB}/queue.py"), python("worker", "/src/app.py", 11), RUN)
IDLE_IN_C = (LOCKED, native("_queue_SimpleQueue_get_impl"), python("worker", "/src/app.py", 11), RUN)
NESTED = (*RESULT, python("size", "/src/app.py", 9), *IN_POOL)
SERVICE = (*WAIT, python("wait", f"{LIB}/threading.py"), python("beat", "/src/app.py", 30), *IN_POOL)
READS = (python("readinto", f"{LIB}/socket.py"),)
SERVES = (*READS, python("do_GET", "/src/app.py", 7), python("serve_forever", f"{LIB}/socketserver.py"), RUN)
ASKS_TOO = (*READS, python("ask", "/src/app.py", 12), RUN)


def named(*stacks: tuple[Frame, ...], on: tuple[str, ...] = ()) -> list[int]:
    """The threads at fault, by number, of a process with these stacks, the main thread's first."""
    threads = tuple(ThreadStack(tid=MAIN + i, name="", frames=frames) for i, frames in enumerate(stacks))
    sample = StackSample(id="s", source="pystack", native=True, t_s=1.0, rank=0, pid=MAIN, threads=threads)
    states = tuple(
        ThreadState(
            tid=MAIN + i, name="", state="S", wchan="", cpu_s=0.0, voluntary_switches=1, involuntary_switches=0, on=what
        )
        for i, what in enumerate(on)
    )
    look = ProcessState(
        id="p", t_s=1.0, rank=0, pid=MAIN, state="S", threads=states, rss_bytes=0, minor_faults=0, read_bytes=0,
        written_bytes=0, children=0,
    )  # fmt: skip
    return [thread.tid for thread in threads_at_fault(sample, look)]


@pytest.mark.parametrize(
    ("main", "others", "at_fault"),
    [
        (JOINS, (AT_A_LOCK, AT_A_LOCK), [FIRST, SECOND]),
        (JOINS, (AT_A_LOCK, IDLE), [FIRST]),
        (JOINS, (IDLE, IDLE_IN_C), []),
        ((*RESULT, BODY), (NESTED, NESTED), [FIRST, SECOND]),
        ((*RESULT, BODY), (SERVICE,), []),
        (JOINS, (NESTED,), []),
        (JOINS, (AT_A_LOCK, (LOCKED, python("other", "/src/app.py", 16), RUN)), []),
        ((LOCKED, BODY), (AT_A_LOCK,), []),
        (JOINS, ((*AT_A_LOCK[1:],),), []),
    ],
    ids=[
        "a lock that nobody gives back", "beside an idle one", "all idle", "a pool that waits for itself",
        "a service in the pool", "the pool's own result, and main waits for another thing", "in several lines",
        "main at a lock itself", "without native frames it may sleep",
    ],
)  # fmt: skip
def test_who_was_to_do_what_the_main_thread_waits_for_is_named_and_no_idle_worker(main, others, at_fault):
    assert named(main, *others) == at_fault


@pytest.mark.parametrize(
    ("other", "on", "at_fault"),
    [(SERVES, "a socket to :80", [FIRST]), (SERVES, "a socket to :99", []), (ASKS_TOO, "a socket to :80", [])],
    ids=["a server of one thread that asks itself", "it asks somebody else", "another client"],
)
def test_a_server_that_asks_itself_is_named_and_not_whoever_waits_for_its_answer(other, on, at_fault):
    assert named((*READS, BODY), other, on=("a socket to :80", on)) == at_fault
