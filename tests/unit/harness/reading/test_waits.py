"""What a blocked thread waits for, and who can end that: the table of waits, row by row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.evidence import Frame, ProcessState, StackSample, ThreadStack, ThreadState
from harness.reading.waits import (
    RESTART,
    Ender,
    Wait,
    asks_again,
    gil_holder,
    joined_threads,
    lock_cause,
    may_call_back,
    wait_of,
    waits_for_a_thread,
    with_calls,
)

SITE = "/venv/lib/python3.11/site-packages"
LIB = "/usr/lib/python3.11"
BLOCKED = ThreadState(
    tid=7, name="python", state="S", wchan="", cpu_s=1.0, voluntary_switches=1, involuntary_switches=0, timed=False
)


def wait(**facts) -> Wait:
    found = wait_of(replace(BLOCKED, **facts))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kernel", "call", "cause", "ender"),
    [
        ("rpc_wait_bit_killable", "read", "blocked-io", Ender.MACHINE),
        ("fuse_request_wait_answer", "read", "blocked-io", Ender.PROGRAM),
        ("do_wait", "wait4", "waiting-for-child", Ender.UNKNOWN),
        ("flock_lock_inode_wait", "flock", "blocked-io", Ender.PROGRAM),
        ("anon_pipe_write", "write", "blocked-pipe", Ender.PROGRAM),
        ("anon_pipe_read", "read", "blocked-io", Ender.PROGRAM),
        ("wait_for_partner", "openat", "blocked-io", Ender.PROGRAM),
        ("sk_wait_data", "recvfrom", "blocked-io", Ender.MACHINE),
        ("unix_stream_read_generic", "recvfrom", "blocked-io", Ender.PROGRAM),
        ("do_poll.constprop.0", "poll", "blocked-io", Ender.PROGRAM),
        ("ep_poll", "epoll_wait", "blocked-io", Ender.PROGRAM),
        ("__do_sys_pause", "pause", "blocked-io", Ender.PROGRAM),
        ("do_semtimedop", "semop", "blocked-io", Ender.PROGRAM),
        ("n_tty_read", "read", "blocked-io", Ender.PROGRAM),
        ("io_cqring_wait", "io_uring_enter", "blocked-io", Ender.DEVICE),
        ("futex_do_wait", "futex", "native-wait", Ender.PROCESS),
        # The kernel hides where it sleeps: then the call tells.
        ("", "futex", "native-wait", Ender.PROCESS),
        ("", "flock", "blocked-io", Ender.PROGRAM),
        ("", "accept", "blocked-io", Ender.PROGRAM),
        ("", "connect", "blocked-io", Ender.MACHINE),
        ("", "", "unseen-wait", Ender.UNKNOWN),
        ("", "call 999", "unseen-wait", Ender.UNKNOWN),
    ],
)
def test_every_kind_of_wait_has_a_cause_and_whoever_can_end_it(kernel, call, cause, ender):
    found = wait(wchan=kernel, call=call)
    assert (found.cause, found.enders) == (cause, frozenset({ender}))


@pytest.mark.parametrize("state", ["R", "Z", "X"])
def test_what_runs_or_is_over_waits_for_nothing(state):
    assert wait_of(replace(BLOCKED, state=state, wchan="futex_do_wait")) is None


@pytest.mark.parametrize(("state", "what"), [("T", "to be continued"), ("t", "its debugger")])
def test_what_is_stopped_goes_on_when_somebody_says_so_whatever_it_waits_for(state, what):
    found = wait(state=state, wchan="futex_do_wait", call="futex", timed=True)
    assert (found.cause, found.what, found.enders) == ("stopped", what, frozenset({Ender.SOMEBODY}))


@pytest.mark.parametrize("kernel", ["futex_do_wait", "do_sys_poll", "hrtimer_nanosleep", "sk_wait_data"])
def test_a_time_limit_ends_any_wait_but_one_for_a_child(kernel):
    assert wait(wchan=kernel, timed=True).cause == "timed-wait"
    assert wait(wchan=kernel, timed=True).outside == {Ender.TIMER}
    assert wait(wchan="do_wait", call="wait4", timed=True).cause == "waiting-for-child"


def test_a_lock_whose_time_limit_nobody_could_see_may_end_by_itself():
    assert wait(wchan="futex_do_wait", timed=False).outside == frozenset()
    assert wait(wchan="futex_do_wait", timed=None).outside == {Ender.UNKNOWN}


@pytest.mark.parametrize(
    ("kernel", "call", "ender"),
    [
        ("folio_wait_bit", "read", Ender.DEVICE),
        ("futex_do_wait", "futex", Ender.DEVICE),
        ("", "", Ender.DEVICE),
        ("nfs_wait_bit_killable", "read", Ender.MACHINE),
        ("fuse_request_wait_answer", "read", Ender.PROGRAM),
    ],
)
def test_what_cannot_be_interrupted_waits_for_a_device_unless_a_file_systems_server_is_seen(kernel, call, ender):
    assert wait(state="D", wchan=kernel, call=call).enders == {ender}


@pytest.mark.parametrize(
    ("holders", "outside", "enders"),
    [
        ((), None, {Ender.PROGRAM}),
        ((), True, {Ender.PROGRAM}),
        ((), False, set()),
        ((8,), False, {Ender.JOB}),
        ((8,), True, {Ender.JOB, Ender.PROGRAM}),
    ],
    ids=["nobody looked", "held outside", "held by nobody", "held by the job", "held by both"],
)
@pytest.mark.parametrize(
    ("kernel", "call"), [("anon_pipe_read", "pipe-read"), ("flock_lock_inode_wait", "flock"), ("ep_poll", "epoll_wait")]
)
def test_whoever_was_seen_to_hold_the_other_end_comes_before_the_table(kernel, call, holders, outside, enders):
    found = wait(wchan=kernel, call=call, holders=holders, outside=outside)
    assert (found.enders, found.holders) == (frozenset(enders), holders)


def test_a_lock_of_the_process_stays_its_own_whoever_has_looked():
    assert wait(wchan="futex_do_wait", call="futex", outside=False).enders == {Ender.PROCESS}


def test_a_lock_that_processes_share_is_told_by_its_call_since_it_sleeps_where_any_lock_does():
    shared = {"wchan": "futex_do_wait", "call": "futex-shared", "holders": (8,)}
    found = wait(**shared, outside=False)
    assert (found.cause, found.enders) == ("deadlock", frozenset({Ender.JOB}))
    assert wait(wchan="futex_do_wait", call="futex-shared").cause == "native-wait", "nobody has looked what it is about"


def test_a_wait_is_described_by_what_it_is_about_and_where_the_kernel_sleeps():
    told = replace(BLOCKED, wchan="flock_lock_inode_wait", call="flock", on="a lock on a file, held by process 77")
    assert wait_of(told).what == "a lock on a file, held by process 77"
    assert wait_of(replace(BLOCKED, call="flock")).what == "a lock on a file"


# --- A call that the kernel goes on with ------------------------------------------------------------------------------


def look(thread: ThreadState) -> ProcessState:
    return ProcessState(
        id="proc", t_s=1.0, rank=0, pid=7, state="S", threads=(thread,), rss_bytes=0, minor_faults=0, read_bytes=0,
        written_bytes=0, children=0,
    )  # fmt: skip


def test_a_call_that_is_gone_on_with_is_the_one_of_an_earlier_look_at_the_same_place():
    before = replace(BLOCKED, wchan="do_sys_poll", call="poll", timed=True, on="a socket", holders=(8,), outside=False)
    after = replace(BLOCKED, wchan="do_sys_poll", call=RESTART, timed=None)
    *_, last = with_calls((look(before), look(after)))
    assert last.threads == (before,)


def test_whoever_was_stopped_in_an_earlier_silence_is_in_the_call_that_it_never_left():
    poll = replace(BLOCKED, wchan="do_sys_poll", call="poll", timed=False, on="a pipe", holders=(8,), outside=False)
    after = replace(poll, call=RESTART, timed=None, on="", holders=(), outside=None)
    moved = replace(BLOCKED, wchan="anon_pipe_read", call="pipe-read", timed=False)
    assert with_calls((look(after),), earlier=(look(poll), look(after)))[-1].threads == (poll,)
    for earlier in ((look(poll), look(moved)), (look(poll), look(replace(after, wchan="futex_do_wait")))):
        assert with_calls((look(after),), earlier=earlier)[-1].threads == (after,)


@pytest.mark.parametrize(("kernel", "timed"), [("futex_do_wait", True), ("do_sys_poll", None)])
def test_without_an_earlier_look_only_a_lock_is_known_to_have_a_limit(kernel, timed):
    elsewhere = replace(BLOCKED, wchan="anon_pipe_read", call="pipe-read", timed=False)
    after = replace(BLOCKED, wchan=kernel, call=RESTART, timed=None)
    *_, last = with_calls((look(elsewhere), look(after)))
    assert (last.threads[0].call, last.threads[0].timed) == (RESTART, timed)


# --- By the stack -----------------------------------------------------------------------------------------------------


def stack(*frames: tuple[str, str], native: tuple[str, ...] = ()) -> ThreadStack:
    leaf = tuple(Frame(function=name, file="/lib/libc.so.6", line=0, native=True) for name in native)
    return ThreadStack(
        tid=7, name="MainThread", frames=(*leaf, *(Frame(function=name, file=file, line=1) for name, file in frames))
    )


OWN = ("train", "/src/train.py")
LOADER = f"{SITE}/torch/utils/data/dataloader.py"


@pytest.mark.parametrize(
    ("frames", "asks"),
    [
        ([("select", f"{LIB}/selectors.py"), ("_Iter._try_get_data", LOADER), OWN], "if it woke"),
        ([("wait", f"{LIB}/threading.py"), ("serve_forever", f"{LIB}/multiprocessing/managers.py")], "always"),
        # The program gave the time limit, and may do something else when it is over.
        ([("poll", f"{LIB}/multiprocessing/popen_fork.py"), OWN], "if it woke"),
        ([("join", f"{SITE}/torch/multiprocessing/spawn.py"), OWN], "if it woke"),
        # It wakes twenty times a second until its limit is over, of which nothing is seen.
        ([("Popen._wait", f"{LIB}/subprocess.py"), ("Popen.wait", f"{LIB}/subprocess.py"), OWN], "never"),
        ([("wait", f"{LIB}/threading.py"), OWN], "never"),
        # The loader's own work in the main process, and a function of the program's below one that asks.
        ([("fetch", f"{SITE}/torch/utils/data/_utils/fetch.py"), ("_Iter._next_data", LOADER), OWN], "never"),
        ([("poll_server", "/src/train.py"), ("join", f"{LIB}/multiprocessing/popen_fork.py")], "never"),
        # What sleeps in the program's own function, in a pool's worker or a child that was started: not in the asking.
        ([("worker", f"{LIB}/multiprocessing/pool.py"), ("run", f"{LIB}/multiprocessing/process.py")], "never"),
        ([("_launch", f"{LIB}/multiprocessing/popen_fork.py"), OWN], "never"),
    ],
)  # fmt: skip
def test_who_asks_its_own_processes_again_and_again_is_known_by_the_innermost_functions(frames, asks):
    assert asks_again(stack(*frames), woke=True) is (asks != "never")
    assert asks_again(stack(*frames), woke=False) is (asks == "always")


@pytest.mark.parametrize(
    ("thread", "native", "cause"),
    [
        (None, True, "unseen-wait"),
        (stack(OWN, native=("sem_wait", "PyThread_acquire_lock_timed")), True, "deadlock"),
        (stack(("wait", f"{LIB}/threading.py"), OWN), False, "deadlock"),
        (stack(("get", f"{LIB}/multiprocessing/queues.py"), OWN), False, "deadlock"),
        (stack(OWN, native=("__lll_lock_wait", "pthread_mutex_lock")), True, "native-lock"),
        (stack(OWN, native=("my_wait",)), True, "native-wait"),
        (stack(OWN), False, "unseen-wait"),
    ],
)
def test_a_lock_is_pythons_or_cs_by_the_stack_and_unseen_without_native_frames(thread, native, cause):
    assert lock_cause(thread, native=native) == cause


def sample(**owners: bool | None) -> StackSample:
    threads = tuple(ThreadStack(tid=int(tid[1:]), name="", frames=(), owns_gil=owns) for tid, owns in owners.items())
    return StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=7, threads=threads)


@pytest.mark.parametrize(
    ("samples", "holder"),
    [
        ([sample(t7=False, t8=True), sample(t7=False, t8=True)], 8),
        ([sample(t7=False, t8=True), sample(t7=None, t8=None)], 8),
        ([sample(t7=False, t8=True), sample(t7=True, t8=False)], None),
        ([sample(t7=False, t8=True), sample(t7=False, t8=False)], None),
        ([sample(t7=None, t8=None)], None),
        ([], None),
    ],
    ids=["always the same", "one sample cannot tell", "it changes hands", "it is given back", "nobody tells", "none"],
)
def test_a_thread_keeps_the_interpreters_lock_only_if_it_has_it_in_every_sample_that_tells(samples, holder):
    assert gil_holder(samples) == holder


@pytest.mark.parametrize(("call", "timed"), [("clock_nanosleep", True), ("poll", None)])
def test_a_sleep_that_a_dump_interrupted_goes_on_as_a_sleep_wherever_the_kernel_says_it_is(call, timed):
    """A poll may be gone on with as well, and has a limit or none."""
    slept = replace(BLOCKED, wchan="hrtimer_nanosleep", call=call, timed=True)
    goes_on = replace(BLOCKED, wchan="do_syscall_64", call=RESTART, timed=None)
    looks = [
        ProcessState(
            id=f"look-{n}", t_s=float(n), rank=0, pid=7, state="S", threads=(thread,), rss_bytes=0, minor_faults=0,
            read_bytes=0, written_bytes=0, children=0,
        )
        for n, thread in enumerate((slept, goes_on))
    ]  # fmt: skip
    assert with_calls(looks)[-1].threads[0].timed is timed


@pytest.mark.parametrize(
    ("library", "may"),
    [
        ("libcamera.so.0.2", True),
        ("_cygrpc.cpython-311-x86_64-linux-gnu.so", True),
        ("libcuda.so.580.95", False),
        ("libnccl.so.2", False),
        ("libtorch_cpu.so", False),
        ("libopen-pal.so.40.30.2", False),
        ("mca_oob_tcp.so", False),
        ("libevent_core-2.1.so.7", True),
        ("python3.11", False),
        ("libpython3.13t.so.1.0", False),
        ("python_midi.so", True),
        ("libnvstream.so", True),
        ("libnvrtc.so.12", False),
        ("libtorchplay.so", True),
        ("libompipe.so", True),
        *(
            (name, False)
            for name in ("libtorch_cuda.so", "libcuda.so.1", "libcudart-d0da41ae.so.12", "libcudnn_ops.so.9")
        ),
        *(
            (name, False)
            for name in ("libgomp-24e2ab19.so.1.0.0", "libscipy_openblas64_-32a4b2a6.so", "libmkl_rt.so.2")
        ),
        *(
            (name, False)
            for name in ("libopen-pal.so.40.30.3", "libpmix.so.2.13.1", "python3.12", "libpython3.12.so.1.0")
        ),
        ("", False),
    ],
)
def test_a_thread_of_a_library_that_is_not_known_may_call_back(library, may):
    assert may_call_back(replace(BLOCKED, timed=True, library=library)) is may


def _thread(tid: int, *functions: str) -> ThreadStack:
    frames = tuple(Frame(function=name, file=f"{LIB}/threading.py", line=1) for name in functions)
    return ThreadStack(tid=tid, name="", frames=frames)


@pytest.mark.parametrize(
    ("timeout", "whom", "pairs"),
    [
        ("None", "<Writer at 0x7f01>", ((7, 8),)),
        ("None", "<Writer at 0x7f02>", ()),
        ("30.0", "<Writer at 0x7f01>", ()),
        (None, None, ()),
    ],
    ids=["the same object", "one that was never started", "with a limit", "no locals"],
)
def test_whom_a_thread_joins_is_told_by_the_object_that_both_have(timeout, whom, pairs):
    main = _thread(7, "Thread._wait_for_tstate_lock", "Thread.join")
    writer, other = _thread(8, "work", "Thread.run", "Thread._bootstrap"), _thread(9, "work", "Thread._bootstrap")
    values = {(8, 1): {"self": "<Writer at 0x7f01>"}, (8, 2): {"self": "<Writer at 0x7f01>"}}
    values[9, 1] = {"self": "<Thread at 0x7f03>"}
    if whom is not None:
        values[7, 0], values[7, 1] = {"self": whom}, {"self": whom, "timeout": timeout}
    assert joined_threads((other, main, writer), values) == pairs


def test_asyncio_joins_the_threads_of_its_executor_at_its_end():
    loop = Frame(function="Runner.close", file=f"{LIB}/asyncio/runners.py", line=73)
    ending = Frame(function="BaseEventLoop._do_shutdown", file=f"{LIB}/asyncio/base_events.py", line=590)
    main, ends = ThreadStack(tid=7, name="MainThread", frames=(loop,)), ThreadStack(tid=8, name="", frames=(ending,))
    assert joined_threads((main, ends, _thread(9, "work")), {}) == ((7, 8),)
    assert waits_for_a_thread(main)


@pytest.mark.parametrize(
    ("file", "asks"),
    [
        ("/opt/lib/site-packages/xdist/dsession.py", True),
        ("/home/me/taxdist/main.py", False),
        ("/home/me/xdist/main.py", False),
    ],
)
def test_only_an_installed_package_of_that_name_asks_again_and_again(file, asks):
    stack = ThreadStack(tid=7, name="", frames=(Frame(function="main", file=file, line=1),))
    assert asks_again(stack, woke=False) is asks


def test_a_limit_that_the_program_gives_to_torchs_agent_is_the_programs():
    api = "/opt/lib/site-packages/torch/distributed/elastic/multiprocessing/api.py"
    agent = "/opt/lib/site-packages/torch/distributed/elastic/agent/server/api.py"
    waits = Frame(function="PContext.wait", file=api, line=1)
    own, torchs = Frame(function="main", file="/home/me/main.py", line=1), Frame(function="run", file=agent, line=1)
    assert asks_again(ThreadStack(tid=7, name="", frames=(waits, torchs)), woke=True)
    assert not asks_again(ThreadStack(tid=7, name="", frames=(waits, own)), woke=True)
