"""Threads of a communication library without a name of their own: told by what they do not do."""

from __future__ import annotations

from dataclasses import replace

from harness.core.evidence import Frame, ProcessState, StackSample, ThreadStack, ThreadState
from harness.core.movement import is_ticker, movement
from harness.core.services import with_services

MAIN, LOOP, SERVER, LOCK = 7, 8, 9, 10


def thread(tid: int, t_s: float, *, wchan: str = "futex_do_wait", per_s: int = 0, timed: bool = False) -> ThreadState:
    return ThreadState(
        tid=tid, name="python", state="S", wchan=wchan, cpu_s=1.0 + 0.002 * t_s if per_s else 1.0,
        voluntary_switches=100 + int(per_s * t_s), involuntary_switches=0, timed=timed,
    )  # fmt: skip


def look(number: int, t_s: float, *, faults: int = 0) -> ProcessState:
    """A rank that hangs in a lock beside gloo's loop (LOOP) and a poller in Python of its own (SERVER)."""
    return ProcessState(
        id=f"proc-{number}", t_s=t_s, rank=1, pid=MAIN, state="S",
        threads=(
            thread(MAIN, t_s),
            thread(LOOP, t_s, wchan="do_epoll_wait", per_s=100, timed=True),
            thread(SERVER, t_s, wchan="do_sys_poll", per_s=2, timed=True),
            thread(LOCK, t_s),
        ),
        rss_bytes=0, minor_faults=faults, read_bytes=4 * faults, written_bytes=0, children=0,
    )  # fmt: skip


def stack(*python: int, source: str = "py-spy") -> StackSample:
    frame = Frame(function="serve", file="/src/metrics.py", line=3)
    threads = tuple(ThreadStack(tid=tid, name="", frames=(frame,)) for tid in python)
    return StackSample(id="stack-1", source=source, native=False, t_s=1.0, rank=1, pid=MAIN, threads=threads)


def names(looks: tuple[ProcessState, ...]) -> dict[int, bool]:
    return {thread.tid: is_ticker(thread) for thread in looks[-1].threads}


def test_a_poller_without_python_is_a_service_and_one_with_python_is_not():
    looks = with_services((look(1, 1.0), look(2, 2.0)), [stack(MAIN, SERVER)])
    assert names(looks) == {MAIN: False, LOOP: True, SERVER: False, LOCK: False}


def test_without_a_sample_that_could_have_seen_python_nothing_is_renamed():
    before = (look(1, 1.0), look(2, 2.0))
    assert with_services(before, []) == before
    assert with_services(before, [stack(MAIN, source="faulthandler (SIGUSR1 was sent)")]) == before


def test_what_a_service_did_while_it_started_does_not_count():
    first = look(1, 1.0)
    starting = tuple(replace(t, wchan="futex_do_wait", timed=False) if t.tid == LOOP else t for t in first.threads)
    looks = (replace(first, threads=starting), look(2, 9.0), look(3, 10.0))
    assert not names(with_services(looks, [stack(MAIN, SERVER)]))[LOOP]
    assert names(with_services(looks, [stack(MAIN, SERVER)], since_s=5.0))[LOOP]


def test_a_thread_that_computes_is_no_service():
    busy = look(2, 2.0)
    busy = replace(busy, threads=tuple(replace(t, cpu_s=t.cpu_s + 0.5) if t.tid == LOOP else t for t in busy.threads))
    assert not names(with_services((look(1, 1.0), busy), [stack(MAIN, SERVER)]))[LOOP]


def test_faults_and_bytes_of_a_window_in_which_only_services_woke_are_theirs():
    first, last = with_services((look(1, 1.0), look(2, 2.0, faults=99)), [stack(MAIN)])
    moved = movement(first, last)
    assert moved.still
    assert (moved.switches, moved.minor_faults, moved.io_bytes) == (0, 0, 0)


def test_they_count_as_soon_as_any_other_thread_ran():
    first, last = with_services((look(1, 1.0), look(2, 2.0, faults=99)), [stack(MAIN, SERVER)])
    moved = movement(first, last)
    assert not moved.still
    assert (moved.minor_faults, moved.io_bytes) == (99, 396)


def seen(at: ProcessState, /, **changes: object) -> ProcessState:
    """The same look with the loop's thread in another state."""
    threads = tuple(replace(t, **changes) if t.tid == LOOP else t for t in at.threads)
    return replace(at, threads=threads)


def test_a_service_that_is_seen_awake_once_is_still_one_and_one_that_waits_for_a_lock_is_not():
    """One that wakes 200 times a second was seen awake at one look of ten on a host with 64 cores."""
    looks = [look(n, float(n)) for n in range(1, 5)]
    awake = [*looks[:2], seen(looks[2], state="R", wchan="", timed=None), looks[3]]
    assert names(with_services(awake, [stack(MAIN, SERVER)]))[LOOP]
    locked = [*looks[:2], seen(looks[2], wchan="futex_do_wait", timed=False), looks[3]]
    assert not names(with_services(locked, [stack(MAIN, SERVER)]))[LOOP]
    mostly_awake = [looks[0], *(seen(look, state="R", wchan="", timed=None) for look in looks[1:])]
    assert not names(with_services(mostly_awake, [stack(MAIN, SERVER)]))[LOOP]
