"""Who may go on: whatever thread of a process may give another what it waits for, or whatever signal it handles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.classify.facts import threads_slept
from harness.classify.rules.stalled import _may_wake
from harness.core.evidence import Evidence, Frame, LoopSample, ProcessState, StackSample, ThreadStack, ThreadState
from harness.reading.ranks import job_of
from harness.reading.standing import Chance, alive, culprit, standing, standings
from harness.reading.waits import RESTART, Ender

SITE = "/venv/lib/python3.11/site-packages"
LIB = "/usr/lib/python3.11"
PARENT, CHILD = 100, 120
LOCK = {"wchan": "futex_do_wait", "call": "futex", "timed": False}
NAP = {"wchan": "hrtimer_nanosleep", "call": "clock_nanosleep", "timed": True}
FOR_CHILD = {"wchan": "do_wait", "call": "wait4", "timed": False, "holders": (CHILD,), "outside": False}
FROM_PARENT = {"wchan": "pipe_read", "call": "pipe-read", "timed": False, "holders": (PARENT,), "outside": False}
FROM_AFAR = {"wchan": "wait_woken", "call": "socket-inet", "timed": False, "holders": (), "outside": True}


def asleep(tid: int, wait: dict[str, Any]) -> ThreadState:
    return ThreadState(
        tid=tid, name="python", state="S", cpu_s=1.0, voluntary_switches=9, involuntary_switches=0, **wait
    )


def looks(pid: int, *waits: dict[str, Any], parent: int = 1, handles: tuple[str, ...] = ()) -> list[ProcessState]:
    """Three looks at a process that sleeps; its threads by what they wait for, the main thread's first."""
    return [
        ProcessState(
            id=f"look-{pid}-{n}", t_s=1.0 + n, rank=0, pid=pid, state="S",
            threads=tuple(asleep(pid + i, wait) for i, wait in enumerate(waits)),
            rss_bytes=0, minor_faults=0, read_bytes=0, written_bytes=0, children=0, parent=parent, handles=handles,
            undisturbed_since=f"look-{pid}-{n - 1}" if n else None,
        )
        for n in range(3)
    ]  # fmt: skip


def live(*processes: list[ProcessState]) -> set[int]:
    known = frozenset(seen[-1].pid for seen in processes)
    below = {pid: frozenset(s[-1].pid for s in processes if s[-1].parent == pid) for pid in known}
    return set(alive({s[-1].pid: standing(s, [], job_pids=known, children=below[s[-1].pid]) for s in processes}))


@pytest.mark.parametrize(("thread", "goes_on"), [(NAP, {PARENT, CHILD}), (FROM_AFAR, {PARENT, CHILD}), (LOCK, set())])
def test_a_child_gets_what_a_thread_of_the_parent_that_waits_for_it_sends(thread, goes_on):
    assert live(looks(PARENT, FOR_CHILD, thread), looks(CHILD, FROM_PARENT, parent=PARENT)) == goes_on


@pytest.mark.parametrize(("wakes", "goes_on"), [(True, {PARENT}), (False, set())])
def test_who_was_sent_something_in_this_silence_may_be_sent_more(wakes, goes_on):
    """By a bystander of its child, which prints that it lives: a parent that counts lines ends it at the twelfth."""
    reads = FROM_PARENT | {"holders": (CHILD,)}
    parent, child = looks(PARENT, reads), looks(CHILD, LOCK, parent=PARENT)
    early = [replace(look, id=f"early-{look.id}", t_s=look.t_s - 9.0) for look in parent]
    early[1] = replace(early[1], undisturbed_since=early[0].id)
    early[2] = replace(early[2], undisturbed_since=None)
    if wakes:
        early[0] = replace(early[0], threads=(replace(early[0].threads[0], voluntary_switches=8),))
    samples = [
        StackSample(id=f"s{n}", source="py-spy", native=False, t_s=t_s, rank=0, pid=PARENT, threads=())
        for n, t_s in enumerate((0.2, 0.4, 0.6))
    ]
    both = frozenset({PARENT, CHILD})
    stand = {
        PARENT: standing([*early, *parent], samples, job_pids=both, children=frozenset({CHILD})),
        CHILD: standing(child, [], job_pids=both),
    }
    assert set(alive(stand)) == goes_on


EVENT = {"wchan": "eventfd_read", "call": "eventfd", "timed": False, "holders": (PARENT,), "outside": False}


@pytest.mark.parametrize(("other", "goes_on"), [(EVENT, False), (LOCK, False), (NAP, True), (FROM_AFAR, True)])
def test_an_event_comes_from_a_thread_of_the_process_that_may_itself_go_on(other, goes_on):
    """Of two that each wait for an event of the other, both are lost."""
    assert (live(looks(PARENT, EVENT, other)) == {PARENT}) is goes_on


POLLS = {"wchan": "poll_schedule_timeout", "call": "poll", "timed": None, "outside": None}


@pytest.mark.parametrize(("child", "goes_on"), [(LOCK, set()), (NAP, {PARENT, CHILD})])
def test_a_thread_of_a_library_that_wakes_now_and_then_does_not_move_a_main_thread_that_waits_for_a_child(
    child, goes_on
):
    """CUDA's and NCCL's own threads poll their connections whether or not the program goes on."""
    woken: list[ProcessState] = []
    for n, look in enumerate(looks(PARENT, FOR_CHILD, POLLS)):
        main, other = look.threads
        woken.append(replace(look, threads=(main, replace(other, voluntary_switches=9 + 5 * n))))
    assert live(woken, looks(CHILD, child, parent=PARENT)) == goes_on


@pytest.mark.parametrize(("library", "goes_on"), [("libcamera.so", True), ("libnccl.so.2", False)])
def test_a_thread_that_polls_for_a_library_may_call_what_gives_a_lock_back(library, goes_on):
    """It has never run Python, and will when its camera has a picture."""
    seen = looks(PARENT, LOCK, {**NAP, "library": library})
    frame = Frame(function="wait", file="/usr/lib/python3.11/threading.py", line=320)
    stacks = [
        StackSample(
            id=f"stack-{n}", source="py-spy", native=False, t_s=1.0 + n, rank=0, pid=PARENT,
            threads=tuple(
                ThreadStack(tid=PARENT + i, name="", frames=(frame,) if i == 0 else ()) for i in range(2)
            ),
        )
        for n in range(3)
    ]  # fmt: skip
    one = standing(seen, stacks, job_pids=frozenset({PARENT}))
    assert (set(alive({PARENT: one})) == {PARENT}) is goes_on


@pytest.mark.parametrize(("called_by", "goes_on"), [("libc.so.6", False), ("libzmq.so.5", True)])
def test_nccls_threads_write_nothing_to_a_pipe_that_python_itself_reads(called_by, goes_on):
    """They poll their connections as long as the process lives; a library's call may wait for its own threads."""
    own_pipe = {"wchan": "pipe_read", "call": "pipe-read", "timed": False, "holders": (PARENT,), "outside": False}
    of_nccl = {**POLLS, "timed": True, "library": "libnccl.so.2"}
    call = Frame(function="read", file=called_by, line=None, native=True)
    python = Frame(function="wait", file="/src/train.py", line=3)
    threads = (
        ThreadStack(tid=PARENT, name="", frames=(call, python)), ThreadStack(tid=PARENT + 1, name="", frames=()),
    )  # fmt: skip
    stacks = [
        StackSample(
            id=f"stack-{n}", source="pystack", native=True, t_s=1.0 + n, rank=0, pid=PARENT, threads=threads,
        )
        for n in range(3)
    ]  # fmt: skip
    one = standing(looks(PARENT, own_pipe, of_nccl), stacks, job_pids=frozenset({PARENT}))
    assert (set(alive({PARENT: one})) == {PARENT}) is goes_on


INTO_PIPE = {"wchan": "anon_pipe_write", "call": "pipe-write", "timed": False, "holders": (PARENT,), "outside": False}
TO_CHILD = {**INTO_PIPE, "holders": (CHILD,)}


@pytest.mark.parametrize(
    ("library", "goes_on"), [("python3.12", False), ("libpython3.12.so.1.0", False), ("libzmq.so.5", True)]
)
def test_who_wrote_is_known_of_a_process_that_nobody_may_stop_in_the_middle_of_its_write(library, goes_on):
    """No native frames are taken of it, and NCCL's threads beside it poll as ever."""
    of_nccl = {**POLLS, "timed": True, "library": "libnccl.so.2"}
    frame = Frame(function="strike", file="/src/train.py", line=3)
    threads = (ThreadStack(tid=PARENT, name="", frames=(frame,)), ThreadStack(tid=PARENT + 1, name="", frames=()))
    stacks = [
        StackSample(id=f"stack-{n}", source="py-spy", native=False, t_s=1.0 + n, rank=0, pid=PARENT, threads=threads)
        for n in range(3)
    ]
    one = standing(looks(PARENT, {**INTO_PIPE, "library": library}, of_nccl), stacks, job_pids=frozenset({PARENT}))
    assert (set(alive({PARENT: one})) == {PARENT}) is goes_on


@pytest.mark.parametrize(
    ("handles", "goes_on"),
    [(("SIGHUP", "SIGTERM"), set()), (("SIGHUP",), {PARENT, CHILD}), (("SIGTERM", "SIGUSR1"), {PARENT, CHILD})],
)
def test_a_program_that_ends_alike_when_its_terminal_hangs_up_is_let_on_by_nobody(handles, goes_on):
    """gzip does, into which a program writes more than it reads of it."""
    assert live(looks(PARENT, TO_CHILD), looks(CHILD, INTO_PIPE, parent=PARENT, handles=handles)) == goes_on


def test_a_python_program_may_take_a_hang_up_for_a_message():
    rows = looks(PARENT, LOCK, handles=("SIGHUP", "SIGTERM"))
    frame = Frame(function="wait", file="/usr/lib/python3.11/threading.py", line=320)
    thread = ThreadStack(tid=PARENT, name="", frames=(frame,))
    sample = StackSample(id="stack-0", source="py-spy", native=False, t_s=1.0, rank=0, pid=PARENT, threads=(thread,))
    one = standing(rows, [sample], job_pids=frozenset({PARENT}))
    assert PARENT in alive({PARENT: one})


def test_several_timers_of_one_process_are_one_chance():
    one = standing(looks(PARENT, LOCK, handles=("SIGALRM", "alarm")), (), job_pids=frozenset({PARENT}))
    timers = [chance.how for chance in one.chances if chance.ender is Ender.TIMER]
    assert timers == ["a timer of its own may send it a signal (SIGALRM, alarm)"]


@pytest.mark.parametrize(
    ("handles", "goes_on"), [("SIGUSR1", True), ("SIGALRM", True), ("SIGTERM", False), ("SIGCHLD", False)]
)
def test_the_handler_of_a_signal_that_somebody_may_send_lets_a_main_thread_go_on(handles, goes_on):
    assert (live(looks(PARENT, LOCK, handles=(handles,))) == {PARENT}) is goes_on


@pytest.mark.parametrize(("command", "goes_on"), [("python", True), ("pt_data_worker", False)])
def test_sigterm_ends_the_wait_of_an_event_loop_but_torch_alone_handles_it_in_a_loaders_worker(command, goes_on):
    waits = {"wchan": "do_epoll_wait", "call": "epoll_wait", "timed": False, "outside": False}
    rows = [replace(row, command=command) for row in looks(PARENT, waits, handles=("SIGTERM",))]
    frame = Frame(function="select", file="/usr/lib/python3.11/selectors.py", line=468)
    thread = ThreadStack(tid=PARENT, name="", frames=(frame,))
    stacks = [
        StackSample(id="s", source="py-spy", native=False, t_s=1.5 + n, rank=0, pid=PARENT, threads=(thread,))
        for n in range(2)
    ]
    one = standing(rows, stacks, job_pids=frozenset({PARENT}))
    assert (set(alive({PARENT: one})) == {PARENT}) is goes_on


@pytest.mark.parametrize(("child", "goes_on"), [(NAP, {PARENT, CHILD}), (LOCK, set())])
def test_the_end_of_a_child_lets_whoever_handles_its_signal_go_on(child, goes_on):
    assert live(looks(PARENT, LOCK, handles=("SIGCHLD",)), looks(CHILD, child, parent=PARENT)) == goes_on


@pytest.mark.parametrize(("wait", "may"), [(LOCK, False), (NAP, True), (FROM_AFAR, True), (FROM_PARENT, False)])
def test_a_thread_that_waits_for_somebody_outside_may_change_what_a_loop_asks(wait, may):
    assert _may_wake(asleep(PARENT, wait)) is may


def test_so_may_one_that_waits_for_a_process_that_goes_on():
    assert _may_wake(asleep(CHILD, FROM_PARENT), {PARENT})
    assert not _may_wake(asleep(CHILD, FROM_PARENT), {CHILD})


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGQUIT", "SIGCONT", "SIGWINCH"])
def test_a_handler_of_the_programs_own_may_end_what_it_waits_for(name):
    """``signal.signal(SIGTERM, lambda *_: done.set()); done.wait()``: a daemon."""
    assert live([replace(look, own_handles=(name,)) for look in looks(PARENT, LOCK)]) == {PARENT}
    assert live(looks(PARENT, LOCK)) == set()


@pytest.mark.parametrize(
    ("file", "function", "goes_on"),
    [
        ("/usr/lib/python3.11/threading.py", "Event.wait", True),
        ("/usr/lib/python3.11/threading.py", "Thread.join", False),
        ("/src/train.py", "save", False),
    ],
)
def test_a_handler_of_the_programs_own_gives_no_lock_back_and_ends_no_thread(file, function, goes_on):
    """As programs have it that save when their time is nearly up: ``signal.signal(SIGTERM, save_and_leave)``."""
    rows = [replace(look, own_handles=("SIGTERM",)) for look in looks(PARENT, LOCK)]
    thread = ThreadStack(tid=PARENT, name="", frames=(Frame(function=function, file=file, line=3),))
    stacks = [
        StackSample(id="s", source="py-spy", native=False, t_s=1.5 + n, rank=0, pid=PARENT, threads=(thread,))
        for n in range(3)
    ]
    one = standing(rows, stacks, job_pids=frozenset({PARENT}))
    assert (set(alive({PARENT: one})) == {PARENT}) is goes_on


IN_A_LOCK = Frame(function="worker", file="/src/serve.py", line=7)
TAKES = Frame(function="lock_PyThread_acquire_lock", file="./Modules/_threadmodule.c", line=179, native=True)
IN_A_LIBRARY = Frame(function="ring::take", file="/src/ring.cpp", line=70, native=True)
IN_A_QUEUE = Frame(function="_queue_SimpleQueue_get_impl", file="./Modules/_queuemodule.c", line=415, native=True)
JOIN = Frame(function="join", file=f"{LIB}/threading.py", line=1119)
SHUTDOWN = Frame(function="_shutdown", file=f"{LIB}/threading.py", line=1590)
GET = Frame(function="get", file=f"{LIB}/queue.py", line=171)


@pytest.mark.parametrize(
    ("main", "others", "goes_on"),
    [
        ((IN_A_QUEUE, IN_A_LOCK), (), True),
        ((IN_A_LIBRARY, IN_A_LOCK), (), True),
        ((TAKES, IN_A_LOCK), (), False),
        ((IN_A_LOCK,), (), False),
        ((SHUTDOWN,), ((GET, IN_A_LOCK), (GET, IN_A_LOCK)), True),
        ((SHUTDOWN,), ((GET,), (IN_A_QUEUE, IN_A_LOCK)), True),
        ((SHUTDOWN,), ((GET,), (IN_A_LOCK,)), False),
        ((SHUTDOWN,), ((GET,), (JOIN, IN_A_LOCK)), False),
        ((SHUTDOWN,), (), False),
        ((JOIN, IN_A_LOCK), ((GET, IN_A_LOCK), (GET, IN_A_LOCK)), True),
        ((JOIN, IN_A_LOCK), ((GET, IN_A_LOCK), (IN_A_LOCK,)), False),
    ],
)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_handler_may_end_threads_that_all_wait_for_what_it_may_give(main, others, goes_on, name):
    """``signal.signal(SIGTERM, lambda *_: jobs.put(None))``, and workers that take jobs until there is none."""
    rows = [replace(look, handles=(name,), own_handles=(name,)) for look in looks(PARENT, *(LOCK,) * (1 + len(others)))]
    threads = tuple(ThreadStack(tid=PARENT + n, name="", frames=frames) for n, frames in enumerate((main, *others)))
    stacks = [
        StackSample(id="s", source="pystack", native=True, t_s=1.5 + n, rank=0, pid=PARENT, threads=threads)
        for n in range(3)
    ]
    one = standing(rows, stacks, job_pids=frozenset({PARENT}))
    assert (set(alive({PARENT: one})) == {PARENT}) is goes_on


SHARED = {"wchan": "futex_do_wait", "call": "futex-shared", "timed": False, "holders": (PARENT,), "outside": False}
ASKS = {"wchan": "poll_schedule_timeout", "call": "poll", "timed": True, "holders": (CHILD,), "outside": False}
ENTER = Frame(function="__enter__", file=f"{LIB}/multiprocessing/synchronize.py", line=95)
EVENT_WAIT = Frame(function="wait", file=f"{LIB}/multiprocessing/synchronize.py", line=349)
TRACKER = Frame(function="main", file=f"{LIB}/multiprocessing/resource_tracker.py", line=211)
POLL = Frame(function="poll", file=f"{LIB}/multiprocessing/popen_fork.py", line=43)
PROCESS_JOIN = Frame(function="join", file=f"{LIB}/multiprocessing/process.py", line=149)


def supervised(waits: dict[str, Any], children: list[tuple[dict[str, Any], tuple[Frame, ...]]]) -> set[int]:
    """Who may go on below a parent that handles SIGTERM and joins its children, each by its wait and its frames."""
    parent = [replace(look, own_handles=("SIGTERM",)) for look in looks(PARENT, waits)]
    if waits is ASKS:
        parent = [
            replace(look, threads=(replace(look.threads[0], voluntary_switches=9 + n),))
            for n, look in enumerate(parent)
        ]
    processes, frames = [*parent], {PARENT: (POLL, PROCESS_JOIN, IN_A_LOCK)}
    for n, (wait, stack) in enumerate(children):
        processes += looks(CHILD + n, wait, parent=PARENT)
        frames[CHILD + n] = stack
    stacks = [
        StackSample(
            id=f"s{pid}-{n}", source="py-spy", native=False, t_s=1.2 + 0.1 * n, rank=0, pid=pid,
            threads=(ThreadStack(tid=pid, name="", frames=stack),),
        )
        for pid, stack in frames.items()
        for n in range(3)
    ]  # fmt: skip
    return set(
        alive(standings(Evidence(processes=tuple(processes), stacks=tuple(stacks), steps_wanted=0), since_s=0.0))
    )


@pytest.mark.parametrize("waits", [FOR_CHILD, ASKS], ids=["it waits", "it asks"])
@pytest.mark.parametrize(
    ("children", "goes_on"),
    [
        ([(SHARED, (EVENT_WAIT, IN_A_LOCK))], True),
        ([(FROM_PARENT, (GET, IN_A_LOCK))], True),
        ([(LOCK, (IN_A_LOCK,))], False),
        ([(SHARED, (ENTER, IN_A_LOCK))], False),
        ([(SHARED, (IN_A_LOCK,))], False),
        ([(LOCK, (IN_A_LOCK,)), (FROM_PARENT, (TRACKER,))], False),
        ([(LOCK, (IN_A_LOCK,)), (FROM_PARENT, (GET, IN_A_LOCK))], False),
    ],
    ids=[
        "an event",
        "a pipe",
        "a lock of its own",
        "a shared lock",
        "one it acquires",
        "beside a service",
        "beside one that waits",
    ],
)
def test_a_handler_of_a_parent_lets_on_only_children_that_wait_for_it(waits, children, goes_on):
    """``signal.signal(SIGTERM, lambda *_: stop.set())``, and not a launcher's that ends its ranks."""
    assert bool(supervised(waits, children)) is goes_on


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_what_a_launcher_that_is_no_python_is_told_lets_its_child_not_go_on(name):
    """``xargs`` takes these two, to start more or fewer."""
    stuck = looks(CHILD, LOCK, parent=PARENT)
    assert live(looks(PARENT, FOR_CHILD, handles=(name,)), stuck) == set()


@pytest.mark.parametrize(
    ("file", "woke", "acts", "may"),
    [
        ("/src/train.py", 0, False, True),
        ("/src/train.py", 1, False, False),  # it ticks: a heartbeat of the program's own
        ("/src/train.py", 1, True, True),  # it writes piece by piece, and then sets a key
        ("/usr/lib/python3.11/threading.py", 0, False, False),
    ],
)
def test_a_rank_may_yet_come_by_a_thread_of_its_program_that_sleeps_all_the_while_or_acts(file, woke, acts, may):
    seen = looks(PARENT, LOCK, NAP)
    last = seen[-1].threads[1]
    woken = replace(last, voluntary_switches=last.voluntary_switches + woke)
    seen[-1] = replace(seen[-1], threads=(seen[-1].threads[0], woken))
    threads = [(PARENT, "/src/train.py"), (PARENT + 1, file)]
    stacks = [
        StackSample(
            id=f"stack-{n}", source="py-spy", native=False, t_s=1.0 + n, rank=0, pid=PARENT,
            threads=tuple(
                ThreadStack(tid=tid, name="", frames=(Frame(function="f", file=at, line=1),)) for tid, at in threads
            ),
            actors=(PARENT + 1,) if acts else (),
        )
        for n in range(3)
    ]  # fmt: skip
    assert standing(seen, stacks, job_pids=frozenset({PARENT})).may_act_by_a_thread is may


@pytest.mark.parametrize(("states", "unwoken"), [("SSS", False), ("RSS", True)])
def test_a_thread_that_fell_asleep_between_two_looks_has_not_woken(states, unwoken):
    """``p.join(30)``, seen before it began to wait: one wait until its limit, and not one that is made again."""
    seen = looks(PARENT, NAP)
    for n, state in enumerate(states):
        switched = replace(seen[n].threads[0], state=state, voluntary_switches=9 + min(n, 1))
        seen[n] = replace(seen[n], threads=(switched,))
    one = standing(seen, [], job_pids=frozenset({PARENT}))
    assert (PARENT in one.unwoken) is unwoken
    assert one.ticks is not unwoken


@pytest.mark.parametrize(
    ("call", "looking", "goes_on"),
    [("futex-shared", True, False), ("futex-shared", False, True), ("pipe-read", True, True)],
)
def test_who_merely_looks_on_gives_no_lock_back_that_processes_share_but_may_write(call, looking, goes_on):
    waits = {"wchan": "futex_do_wait" if call != "pipe-read" else "pipe_read", "call": call, "timed": False}
    waiting = looks(PARENT, {**waits, "holders": (CHILD,), "outside": False})
    frame = Frame(function="clock", file="/src/train.py", line=9)
    thread = ThreadStack(tid=CHILD, name="", frames=(frame,))
    sample = StackSample(id="s", source="py-spy", native=False, t_s=3.5, rank=0, pid=CHILD, threads=(thread,))
    sample = replace(sample, onlookers=(CHILD,) if looking else (), actors=() if looking else (CHILD,))
    evidence = Evidence(processes=(*waiting, *looks(CHILD, NAP, parent=PARENT)), stacks=(sample,), steps_wanted=0)
    assert (PARENT in alive(standings(evidence, since_s=0.0))) is goes_on


@pytest.mark.parametrize(("seen_before", "known"), [((PARENT, CHILD), True), ((PARENT,), False), ((CHILD,), False)])
def test_a_call_that_an_earlier_silence_interrupted_is_known_by_its_looks_when_all_were_there(seen_before, known):
    """``mp.spawn`` waits in one poll while its ranks live; a dump during their start makes the kernel repeat that."""
    poll = {"wchan": "do_sys_poll", "call": "poll", "timed": False, "holders": (CHILD,), "outside": False}
    before = [look for pid in seen_before for look in looks(pid, poll)]
    repeated = [replace(look, t_s=look.t_s + 60.0) for look in looks(PARENT, {"wchan": "do_sys_poll", "call": RESTART})]
    child = [replace(look, t_s=look.t_s + 60.0) for look in looks(CHILD, FROM_PARENT, parent=PARENT)]
    evidence = Evidence(processes=(*before, *repeated, *child), stacks=(), steps_wanted=0)
    outside = any(chance.ender is not None for chance in standings(evidence, since_s=50.0)[PARENT].chances)
    assert outside is not known


def beside(file, function, *, wakes=True, main="/src/train.py"):
    """A process whose main thread waits for a lock, with a thread that ticks in ``file``, or sleeps there."""
    rows = looks(PARENT, LOCK, NAP)
    ticking = [replace(row, threads=(row.threads[0], woke(row.threads[1], wakes * n))) for n, row in enumerate(rows)]
    waits = ThreadStack(tid=PARENT, name="", frames=(Frame(function="wait", file=main, line=2),))
    thread = ThreadStack(tid=PARENT + 1, name="", frames=(Frame(function=function, file=file, line=9),))
    samples = [
        StackSample(id="s", source="py-spy", native=False, t_s=1.5 + n, rank=0, pid=PARENT, threads=(waits, thread))
        for n in range(2)
    ]
    return standing(ticking, samples, job_pids=frozenset({PARENT}), children=frozenset())


@pytest.mark.parametrize(
    ("file", "is_a_timer"),
    [
        (f"{SITE}/torch/distributed/elastic/rendezvous/utils.py", False),
        ("/src/a.py", True),
    ],
    ids=["torchrun tells that it lives", "the program's own"],
)
def test_a_thread_that_sleeps_on_a_timer_may_do_something_once_but_torchs_own(file, is_a_timer):
    one = beside(file, "_run", wakes=False, main=f"{SITE}/torch/distributed/elastic/agent/server/api.py")
    assert one.has_a_timer_thread is is_a_timer


PIN = f"{SITE}/torch/utils/data/_utils/pin_memory.py"
LOADER = f"{SITE}/torch/utils/data/dataloader.py"


@pytest.mark.parametrize(("file", "goes_on"), [(PIN, set()), ("/src/train.py", {PARENT, CHILD})])
def test_the_thread_that_pins_batches_only_asks_the_workers_for_them(file, goes_on):
    """A worker sleeps in a queue that the rank alone could empty: the thread that takes its batches will not."""
    shared = LOCK | {"call": "futex-shared", "holders": (PARENT,), "outside": False}
    for_batch = LOCK | {"timed": True, "limit_s": 0.5}
    take = {"wchan": "poll_schedule_timeout", "call": "poll", "timed": True}
    frame = Frame(function="do_one_step", file=file, line=9)
    thread = ThreadStack(tid=PARENT + 1, name="", frames=(frame,))
    main = ThreadStack(tid=PARENT, name="", frames=(Frame(function="_get_data", file=LOADER, line=2),))
    stacks = [
        StackSample(id="s", source="py-spy", native=False, t_s=1.5 + n, rank=0, pid=PARENT, threads=(main, thread))
        for n in range(2)
    ]
    pids = frozenset({PARENT, CHILD})
    rank = standing(looks(PARENT, for_batch, take), stacks, job_pids=pids, children=frozenset({CHILD}))
    worker = standing(looks(CHILD, shared, parent=PARENT), [], job_pids=pids)
    assert set(alive({PARENT: rank, CHILD: worker})) == goes_on


@pytest.mark.parametrize(
    ("main", "leaf", "behind"),
    [
        (LOCK, "cuStreamSynchronize", True),
        (LOCK, "mkl_blas_sgemm", False),
        (LOCK | {"timed": True}, "cuStreamSynchronize", False),
        (FROM_AFAR, "cuStreamSynchronize", False),
    ],
    ids=["a thread spins at the gpu", "a thread computes", "it wakes by itself", "somebody outside lets it on"],
)
def test_a_rank_is_behind_its_gpu_whose_thread_spins_there_with_what_the_main_thread_waits_for(main, leaf, behind):
    rows = looks(PARENT, main, {"wchan": "", "call": "", "timed": None})
    spinning = [
        replace(row, threads=(row.threads[0], replace(row.threads[1], state="R", cpu_s=1.0 + n)))
        for n, row in enumerate(rows)
    ]
    frames = (
        Frame(function=leaf, file="/lib/libcuda.so", line=0, native=True),
        Frame(function="run", file="/src/a.py", line=9),
    )
    thread = ThreadStack(tid=PARENT + 1, name="", frames=frames)
    locked = ThreadStack(tid=PARENT, name="", frames=(Frame(function="f", file="/src/a.py", line=2),))
    sample = StackSample(id="s", source="pystack", native=True, t_s=1.5, rank=0, pid=PARENT, threads=(locked, thread))
    assert standing(spinning, [sample], job_pids=frozenset({PARENT})).is_behind_a_gpu is behind


def woke(thread, turns):
    return replace(thread, voluntary_switches=9 + turns)


@pytest.mark.parametrize(
    ("file", "calls"),
    [
        (f"{SITE}/watchdog/observers/polling.py", True),
        (f"{SITE}/rich/live.py", False),
        (f"{SITE}/tqdm/_monitor.py", False),
        ("/src/train.py", False),
    ],
)
def test_a_thread_of_a_package_that_wakes_may_call_what_it_was_given(file, calls):
    one = beside(file, "run")
    assert one.callers == ({PARENT + 1} if calls else frozenset())
    to_its_stream = replace(one, samples=tuple(replace(sample, is_written_to=True) for sample in one.samples))
    assert bool(to_its_stream.callers) is ("site-packages" in file)


def test_a_thread_that_keeps_the_gil_may_wait_for_another_one_of_its_library():
    """``ctypes.PyDLL``: an instrument's library measures in a thread of its own for a minute."""
    rows = looks(PARENT, LOCK, LOCK, NAP)
    frames = {PARENT: "join", PARENT + 1: "measure"}
    threads: list[ThreadStack] = []
    for tid, name in frames.items():
        stack = (Frame(function=name, file="/src/a.py", line=2),)
        threads.append(ThreadStack(tid=tid, name="", frames=stack, owns_gil=tid != PARENT))
    samples = [
        StackSample(id="s", source="py-spy", native=False, t_s=0.5 + n, rank=0, pid=PARENT, threads=tuple(threads))
        for n in range(3)
    ]
    seen = standing(rows, samples, job_pids=frozenset({PARENT}))
    assert [chance.ender for chance in seen.chances] == [Ender.TIMER]


@pytest.mark.parametrize(
    ("main", "is_one"),
    [("/src/train.py", False), (f"{SITE}/psutil/__init__.py", True), ("/usr/lib/python3.11/x.py", False)],
)
def test_what_is_in_a_package_is_not_in_the_programs_own_code(main, is_one):
    assert beside("/src/beat.py", "run", main=main).is_in_a_package is is_one


@pytest.mark.parametrize("supervises", [True, False])
def test_who_waits_for_a_thread_that_looks_on_until_a_child_ends_depends_on_that_child(supervises):
    """``while child.poll() is None: sleep(2)``, and behind that ``done.set()``."""
    child = PARENT + 500
    one = beside("/src/train.py", "supervise")
    marks = {"onlookers": (PARENT + 1,), "plain_onlookers": (PARENT + 1,)}
    marks |= {"supervisors": (PARENT + 1,)} if supervises else {}
    marked = [replace(sample, **marks) for sample in one.samples]
    seen = standing(one.looks, marked, job_pids=frozenset({PARENT, child}), children=frozenset({child}))
    expected = [frozenset({child})] if supervises else []
    assert [[chance.who for chance in chances] for chances in (seen.chances, seen.helps)] == [expected] * 2


@pytest.mark.parametrize(("has_callbacks", "timed"), [(True, True), (False, True), (True, False)])
def test_a_thread_of_gloo_that_is_in_a_collective_may_call_what_the_program_gave_its_result(has_callbacks, timed):
    """``work.get_future().then(lambda _: done.set())``, and the rank that is late is one of another machine."""
    rows = looks(PARENT, LOCK, LOCK | {"timed": timed})
    rows = [replace(row, threads=(row.threads[0], replace(row.threads[1], name="pt_gloo_runloop"))) for row in rows]
    samples = [replace(sample, has_callbacks=has_callbacks) for sample in beside("/src/train.py", "run").samples]
    samples = [replace(sample, threads=sample.threads[:1]) for sample in samples]
    chances = standing(rows, samples, job_pids=frozenset({PARENT})).chances
    assert [chance.ender for chance in chances] == ([Ender.MACHINE] if has_callbacks and timed else [])


@pytest.mark.parametrize(("function", "has"), [("LocalTimerServer._watchdog_loop", True), ("run", False)])
def test_a_function_that_is_called_watchdog_is_one(function, has):
    assert beside(f"{SITE}/torch/distributed/elastic/timer/api.py", function).has_a_watchdog is has


@pytest.mark.parametrize(("limit_s", "moves", "asks"), [(0.9, False, True), (1.1, False, False), (0.9, True, False)])
def test_whoever_is_in_a_wait_for_longer_than_twice_its_limit_began_it_anew(limit_s, moves, asks):
    """A loader asks its workers every five seconds: on a busy machine no look may be near the moment when it wakes."""
    frame = Frame(function="_try_get_data", file="/venv/torch/utils/data/dataloader.py", line=1291)
    thread = ThreadStack(tid=PARENT, name="", frames=(frame,))
    stacks = [
        StackSample(id="s", source="py-spy", native=False, t_s=1.5 + n, rank=0, pid=PARENT, threads=(thread,))
        for n in range(3)
    ]
    for_batch = {"wchan": "poll_schedule_timeout", "call": "poll", "timed": True, "limit_s": limit_s}
    seen = looks(PARENT, for_batch)
    if moves:
        elsewhere = replace(seen[1].threads[0], wchan="futex_do_wait")
        seen[1] = replace(seen[1], threads=(elsewhere,))
    one = standing(seen, stacks, job_pids=frozenset({PARENT, CHILD}), children=frozenset({CHILD}))
    assert one.asks is asks


@pytest.mark.parametrize(
    ("endless", "other", "handles", "goes_on"),
    [
        ((PARENT,), LOCK, (), set()),
        ((PARENT,), LOCK, ("SIGTERM",), set()),
        ((), LOCK, (), {PARENT}),
        ((PARENT,), FROM_AFAR, (), {PARENT}),
        ((PARENT,), LOCK, ("SIGALRM",), {PARENT}),
        ((PARENT,), LOCK, ("SIGUSR1",), {PARENT}),
    ],
    ids=[
        "does nothing until a child ends", "handles its own end", "may act", "another thread may act", "has an alarm",
        "hears of somebody",
    ],
)  # fmt: skip
def test_a_launcher_that_by_its_source_only_asks_its_children_goes_on_as_they_do(endless, other, handles, goes_on):
    frame = Frame(function="<module>", file="/src/launch.py", line=4)
    sample = StackSample(
        id="s", source="py-spy", native=False, t_s=1.5, rank=0, pid=PARENT,
        threads=(ThreadStack(tid=PARENT, name="", frames=(frame,)),),
        onlookers=endless, launchers=endless,
    )  # fmt: skip
    pids = frozenset({PARENT, CHILD})
    launcher = standing(
        looks(PARENT, NAP, other, handles=handles), [sample], job_pids=pids, children=frozenset({CHILD})
    )
    child = standing(looks(CHILD, LOCK, parent=PARENT), [], job_pids=pids)
    assert set(alive({PARENT: launcher, CHILD: child})) == goes_on


@pytest.mark.parametrize(
    ("endless", "launches", "acts", "asks", "may_give_up"),
    [
        (True, False, False, True, False), (False, True, False, True, False), (False, False, False, False, True),
        (False, True, True, True, False), (False, False, True, False, True),
    ],
    ids=[
        "only the child ends its loop", "a launcher", "its loop ends by itself", "a launcher that stops the others",
        "until a time, and then it acts",
    ],
)  # fmt: skip
def test_whoever_gives_its_child_so_many_seconds_does_not_wait_for_it_alone(
    *, endless, launches, acts, asks, may_give_up
):
    frames = (
        Frame(function="wait", file=f"{LIB}/multiprocessing/popen_fork.py", line=40),
        Frame(function="main", file="/src/train.py", line=9),
    )
    stacks = [
        StackSample(
            id="s", source="py-spy", native=False, t_s=1.5 + n, rank=0, pid=PARENT,
            threads=(ThreadStack(tid=PARENT, name="", frames=frames),),
            onlookers=() if acts else (PARENT,), endless_onlookers=(PARENT,) if endless else (),
            launchers=(PARENT,) if launches else (), actors=(PARENT,) if acts else (),
        )
        for n in range(3)
    ]  # fmt: skip
    wait = {"wchan": "poll_schedule_timeout", "call": "poll", "timed": True, "limit_s": 0.9}
    one = standing(looks(PARENT, wait), stacks, job_pids=frozenset({PARENT, CHILD}), children=frozenset({CHILD}))
    assert (one.asks, one.may_give_up) == (asks, may_give_up)


@pytest.mark.parametrize(
    ("header", "asks"), [("while self._pin_memory_thread.is_alive():", True), ("if self._timeout > 0:", False)]
)
def test_whoever_is_in_the_loop_of_a_question_asks_anew_though_nobody_saw_it_wake(header, asks):
    """A loader that pins its batches sleeps in a queue of threads, of which the kernel tells no time limit."""
    frame = Frame(function="_get_data", file=LOADER, line=1473)
    loop = LoopSample(
        tid=PARENT,
        depth=2,
        outer=5,
        function="_Iter._get_data",
        file=LOADER,
        line=1473,
        header_line=1472,
        header=header,
    )
    sample = StackSample(
        id="s", source="py-spy", native=False, t_s=1.5, rank=0, pid=PARENT, loops=(loop,) if asks else (),
        threads=(ThreadStack(tid=PARENT, name="", frames=(frame,)),),
    )  # fmt: skip
    one = standing(
        looks(PARENT, LOCK | {"timed": True}), [sample], job_pids=frozenset({PARENT}), children=frozenset({CHILD})
    )
    assert one.asks is asks


@pytest.mark.parametrize(("circle", "place", "named"), [
    (True, "/opt/lib/python3.11/multiprocessing/queues.py", PARENT),
    (True, "/src/clean.py", CHILD),
    (True, "<string>", PARENT),
    (False, "<string>", CHILD),
    (False, "/opt/lib/python3.11/multiprocessing/queues.py", CHILD),
])  # fmt: skip
def test_of_a_circle_whoever_waits_in_the_programs_own_code_is_named(circle, place, named):
    """A pool whose worker was killed: what waits for work in its place closes the circle, and is not to blame."""
    stand = {}
    for pid, other, file in ((PARENT, CHILD, "/src/train.py"), (CHILD, PARENT, place)):
        thread = ThreadStack(tid=pid, name="", frames=(Frame(function="f", file=file, line=2),))
        who = frozenset({other}) if circle or pid == PARENT else frozenset[int]()
        one = standing(looks(pid, LOCK), [], job_pids=frozenset({PARENT, CHILD}))
        stand[pid] = replace(one, thread=thread, chances=(Chance(how="", who=who),))
    assert culprit(stand, PARENT).pid == named


@pytest.mark.parametrize(("innermost", "named"), [("/src/step.py", CHILD + 2), (f"{LIB}/queue.py", CHILD)])
def test_of_several_workers_that_are_sent_work_the_one_at_a_lock_of_its_own_is_named_and_no_idle_one(innermost, named):
    """Each has a thread that reads its work from the parent, so that any of them may be let on."""
    stand = {}
    files = {PARENT: f"{LIB}/queue.py", CHILD: f"{LIB}/queue.py", CHILD + 2: innermost}
    for pid, file in files.items():
        frames = (Frame(function="f", file=file, line=2), Frame(function="main", file="/src/train.py", line=9))
        who = frozenset(files) - {PARENT} if pid == PARENT else frozenset({PARENT})
        one = standing(looks(pid, LOCK), [], job_pids=frozenset(files))
        stand[pid] = replace(
            one, thread=ThreadStack(tid=pid, name="", frames=frames), chances=(Chance(how="", who=who),)
        )
    assert culprit(stand, PARENT).pid == named


@pytest.mark.parametrize(
    ("onlookers", "other", "outside", "goes_on"),
    [
        ((-1,), LOCK, False, False),
        ((), LOCK, False, True),
        ((PARENT + 1,), LOCK, False, True),
        ((-1,), FROM_AFAR, False, True),  # a thread of its own may hand it something
        ((-1,), NAP, False, True),
        ((-1,), LOCK, True, True),
    ],
)
def test_an_event_loop_that_wakes_for_onlookers_alone_waits_for_all_else_without_a_limit(
    onlookers, other, outside, goes_on
):
    holders = () if outside else (PARENT,)
    polls = {"wchan": "ep_poll", "call": "epoll_wait", "timed": True, "holders": holders, "outside": outside}
    rows = looks(PARENT, polls, other)
    woken = [replace(row, threads=(woke(row.threads[0], 40 * n), row.threads[1])) for n, row in enumerate(rows)]
    thread = ThreadStack(tid=PARENT, name="", frames=(Frame(function="main", file="/src/serve.py", line=9),))
    samples = [
        StackSample(
            id=f"s{n}", source="py-spy", native=False, t_s=1.5 + n, rank=0, pid=PARENT, threads=(thread,),
            onlookers=onlookers,
        )
        for n in range(3)
    ]  # fmt: skip
    one = standing(woken, samples, job_pids=frozenset({PARENT}))
    assert (PARENT in alive({PARENT: one})) is goes_on
    watching = [replace(sample, supervisors=onlookers) for sample in samples]
    family = {"job_pids": frozenset({PARENT, CHILD}), "children": frozenset({CHILD})}
    chances = standing(woken, watching, **family).chances
    assert any(CHILD in chance.who for chance in chances) is (onlookers == (-1,) and not outside)


@pytest.mark.parametrize(
    ("holders", "outside", "file", "itself"),
    [
        ((PARENT,), False, f"{LIB}/asyncio/base_events.py", True),
        ((PARENT,), True, f"{LIB}/asyncio/base_events.py", False),
        ((PARENT, CHILD), False, f"{LIB}/asyncio/base_events.py", False),
        ((PARENT,), False, "/src/loop.py", False),
    ],
)
def test_an_event_loop_that_waits_for_nobody_else_awaits_itself(holders, outside, file, itself):
    polls = {"wchan": "ep_poll", "call": "socket-unix", "timed": False, "holders": holders, "outside": outside}
    frames = (
        Frame(function="select", file=f"{LIB}/selectors.py", line=468),
        Frame(function="run_until_complete", file=file, line=640),
    )
    thread = ThreadStack(tid=PARENT, name="", frames=frames)
    sample = StackSample(id="s", source="py-spy", native=False, t_s=1.5, rank=0, pid=PARENT, threads=(thread,))
    assert standing(looks(PARENT, polls), [sample], job_pids=frozenset({PARENT})).awaits_itself is itself


@pytest.mark.parametrize(
    ("late_s", "children", "threads", "ticks_on"),
    [(0.0, 0, 2, False), (60.0, 0, 2, True), (0.0, 1, 2, True), (0.0, 0, 3, True)],
    ids=["as it was", "samples of a minute ago", "a child has ended", "a thread has ended"],
)
def test_what_an_event_loop_was_asked_counts_only_while_it_cannot_have_changed(late_s, children, threads, ticks_on):
    """A child ends, and the main task sleeps on a timer of its own from then on: the loop's wait looks the same."""
    polls = {"wchan": "ep_poll", "call": "epoll_wait", "timed": True, "holders": (PARENT,), "outside": False}
    *before, last = looks(PARENT, polls, LOCK, LOCK)
    before = [replace(look, threads=look.threads[:threads], children=children) for look in before]
    woke = replace(last.threads[0], voluntary_switches=last.threads[0].voluntary_switches + 1)
    seen = [*before, replace(last, threads=(woke, *last.threads[1:2]), t_s=last.t_s + late_s)]
    thread = ThreadStack(tid=PARENT, name="", frames=(Frame(function="main", file="/src/serve.py", line=9),))
    sample = StackSample(
        id="s", source="py-spy", native=False, t_s=1.5, rank=0, pid=PARENT, threads=(thread,), onlookers=(-1,)
    )
    samples = [replace(sample, id=f"s{n}", t_s=1.5 + n / 2) for n in range(3)]
    one = standing(seen, samples, job_pids=frozenset({PARENT}))
    assert one.wakes_for_onlookers is not ticks_on


@pytest.mark.parametrize(("running", "ran_at"), [((), 0), ((0,), 1), ((0, 1), 2)])
def test_looks_at_which_a_program_still_ran_are_not_said_to_have_shown_it_asleep(running, ran_at):
    """It came to a stop while it was looked at: "11 of 11 looks" was said of one that had run at four of them."""
    own = looks(PARENT, LOCK)
    for n in running:
        own[n] = replace(own[n], state="R", threads=(replace(own[n].threads[0], state="R"),))
    one = standing(own, [])
    assert one.ran_at == ran_at
    assert threads_slept(one) == f"its only thread slept at {3 - ran_at} of 3 looks"


@pytest.mark.parametrize(
    ("command", "started_it", "may"),
    [("orted", False, False), ("orted", True, True), ("timeout", False, True), ("sleep", False, False)],
)
def test_a_daemon_of_open_mpi_beside_a_program_ends_it_only_where_it_started_it(command, started_it, may):
    """``import mpi4py`` starts one, which lightning does: each hang beside it was told after four limits."""
    own = looks(PARENT, LOCK, parent=CHILD if started_it else 1)
    beside = [replace(look, command=command) for look in looks(CHILD, NAP, parent=1 if started_it else PARENT)]
    job = job_of(Evidence(steps_wanted=0, processes=(*own, *beside), main=PARENT), since_s=0.0, main=PARENT)
    assert job.may_be_ended({PARENT}, job.alive()) is may
