"""What moved between two looks: nothing is still unless everything is."""

from dataclasses import replace

import pytest

from harness.core.codec import from_json, to_json
from harness.core.evidence import Frame, ProcessState, StackSample, ThreadStack, ThreadState
from harness.reading.stillness import background, between, is_ticker, quiet_windows

THREAD = ThreadState(
    tid=7,
    name="python",
    state="S",
    wchan="futex_do_wait",
    cpu_s=1.5,
    voluntary_switches=10,
    involuntary_switches=5,
    timed=False,
)
LOOK = ProcessState(
    id="proc-1",
    t_s=10.0,
    rank=0,
    pid=7,
    state="S",
    threads=(THREAD,),
    rss_bytes=4096,
    minor_faults=100,
    read_bytes=50,
    written_bytes=60,
    children=1,
)


def frame(function, file):
    return Frame(function=function, file=file, line=3)


def later(seconds=1.0, *, thread=None, since="proc-1", **changes):
    threads = (replace(THREAD, **(thread or {})),)
    return replace(
        LOOK, **{"id": "proc-2", "t_s": 10.0 + seconds, "threads": threads, "undisturbed_since": since} | changes
    )


def test_nothing_moved():
    moved = between(LOOK, later())
    assert moved.still
    assert str(moved).startswith("in 1.0 s: CPU 0.000 s, 0 context switches")


@pytest.mark.parametrize(
    "change",
    [
        {"thread": {"cpu_s": 1.51}},
        {"thread": {"voluntary_switches": 13}},
        {"thread": {"involuntary_switches": 8}},
        {"thread": {"state": "R"}},
        {"minor_faults": 103},
        {"read_bytes": 51},
        {"written_bytes": 61},
        {"threads": ()},
        {"threads": (THREAD, replace(THREAD, tid=8, cpu_s=0.0, voluntary_switches=0, involuntary_switches=0))},
    ],
    ids=lambda change: next(iter(change.get("thread", change))),
)
def test_any_one_thing_that_moved_is_between(change):
    assert not between(LOOK, later(**change)).still


def test_new_thread_brings_all_of_its_cpu_time():
    new = replace(THREAD, tid=8, cpu_s=0.5)
    assert between(LOOK, later(threads=(THREAD, new))).cpu_share == pytest.approx(0.5)


def test_window_of_no_length_has_no_cpu_share():
    assert between(LOOK, later(0.0, thread={"cpu_s": 2.0})).cpu_share == 0.0


def test_only_looks_without_a_dumper_in_between_make_a_window():
    middle = later(1.0)
    longest = later(2.0, id="proc-3")
    after_a_dump = later(5.0, id="proc-4", since=None)
    (window,) = quiet_windows((LOOK, middle, longest, after_a_dump))
    assert (window.first, window.last, window.seconds) == ("proc-1", "proc-3", 2.0)


def test_window_whose_opening_was_not_kept_is_left_out():
    assert quiet_windows((later(since="proc-0"),)) == ()


def test_look_survives_the_journal():
    assert from_json(ProcessState, to_json(later())) == later()


def test_pythons_own_service_of_descriptors_is_background_and_the_programs_own_server_is_not():
    server = replace(THREAD, tid=8, wchan="__skb_wait_for_more_packets", call="socket-unix", outside=True)
    looks = [replace(LOOK, threads=(THREAD, server)), replace(later(), threads=(THREAD, server))]

    def sample(file):
        frames = (frame("accept", "/usr/lib/python3.11/socket.py"), frame("_serve", file))
        main = ThreadStack(tid=7, name="MainThread", frames=(frame("train", "/home/me/train.py"),))
        stacks = (main, ThreadStack(tid=8, name="serve", frames=frames))
        return StackSample(id="s", source="py-spy", native=False, t_s=10.5, rank=0, pid=7, threads=stacks)

    assert background(looks, [sample("/usr/lib/python3.11/multiprocessing/resource_sharer.py")]) == {8}
    assert background(looks, [sample("/home/me/serve.py")]) == frozenset()


@pytest.mark.parametrize(
    ("library", "behind"),
    [("libnccl.so.2", {8}), ("libtorch_cuda.so", {8}), ("libserver.so", set()), ("python3.11", set()), ("", set())],
)
def test_who_listens_for_nccls_other_ranks_is_background(library, behind):
    """The root of a communicator that is being made, to which nobody but those ranks connects."""
    root = replace(THREAD, tid=8, wchan="inet_csk_accept", call="accept", outside=True, library=library)
    looks = [replace(LOOK, threads=(THREAD, root)), replace(later(), threads=(THREAD, root))]
    main = ThreadStack(tid=7, name="MainThread", frames=(frame("recv", "/home/me/train.py"),))
    seen = StackSample(id="s", source="py-spy", native=False, t_s=10.5, rank=0, pid=7, threads=(main,))
    assert background(looks, [seen]) == behind


@pytest.mark.parametrize(
    ("waits_in", "endless", "behind"), [("queue.py", (), {8}), ("threading.py", (), set()), ("threading.py", (8,), {8})]
)
def test_where_the_end_of_a_thread_is_waited_for_only_who_never_ends_looks_on(waits_in, endless, behind):
    naps = replace(THREAD, tid=8, wchan="hrtimer_nanosleep", call="clock_nanosleep", timed=True)
    woke = replace(naps, voluntary_switches=naps.voluntary_switches + 1)
    first = replace(LOOK, threads=(THREAD, naps))
    looks = [first, replace(later(), threads=(THREAD, woke), undisturbed_since=first.id)]
    main = ThreadStack(tid=7, name="MainThread", frames=(frame("join", f"/usr/lib/python3.11/{waits_in}"),))
    beside = ThreadStack(tid=8, name="beat", frames=(frame("beat", "/home/me/train.py"),))
    seen = StackSample(
        id="s", source="py-spy", native=False, t_s=10.5, rank=0, pid=7, threads=(main, beside),
        onlookers=(8,), endless_onlookers=endless,
    )  # fmt: skip
    assert background(looks, [seen]) == behind
    asleep = [first, replace(looks[1], threads=(THREAD, naps))]
    assert background(asleep, [seen]) == set()  # nobody has met it awake: what it does then it may not have done before


def test_a_poll_of_which_one_look_does_not_tell_the_limit_is_still_background():
    """The kernel hides it right after a stack dump, and of one that ends while it is looked at."""
    poll = replace(THREAD, tid=8, wchan="do_epoll_wait", call="epoll_wait", timed=True, voluntary_switches=0)
    waits = [replace(poll, voluntary_switches=100 * n) for n in range(4)]
    waits[2] = replace(waits[2], timed=None, call="restart")
    frames = (frame("train", "/home/me/train.py"),)
    main = (ThreadStack(tid=7, name="MainThread", frames=frames),)
    seen = [StackSample(id="s", source="py-spy", native=False, t_s=10.5, rank=0, pid=7, threads=main)]

    def looks(threads):
        return [replace(later(1.0 + n), threads=(THREAD, one)) for n, one in enumerate(threads)]

    assert background(looks(waits), seen) == {8}
    without_limit = replace(waits[2], timed=False, call="epoll_wait")
    assert background(looks([*waits[:2], without_limit, waits[3]]), seen) == frozenset()


@pytest.mark.parametrize(
    ("package", "behind"),
    [("tqdm/_monitor.py", True), ("requests/api.py", False), ("watchdog/observers/api.py", False)],
)
def test_a_thread_of_a_package_is_background_only_where_it_calls_nothing_of_the_programs(package, behind):
    """One that a pool runs, or that calls what it was given, is whom the program waits for."""
    main = ThreadStack(tid=7, name="MainThread", frames=(frame("main", "/home/me/train.py"),))
    other = ThreadStack(tid=8, name="", frames=(frame("run", f"/opt/lib/python3.11/site-packages/{package}"),))
    sample = StackSample(id="s", source="py-spy", native=False, t_s=10.5, rank=0, pid=7, threads=(main, other))
    looks = [replace(one, threads=(*one.threads, replace(THREAD, tid=8))) for one in (LOOK, later())]
    assert (8 in background(looks, [sample])) is behind


POOL = "/usr/lib/python3.11/concurrent/futures/thread.py"
RECEIVES = {"wchan": "sk_wait_data", "call": "recvfrom", "timed": False, "outside": True}


@pytest.mark.parametrize(
    ("file", "below", "waits", "behind"),
    [
        ("torch/_inductor/subproc_pool.py", "/usr/lib/python3.11/threading.py", {}, True),
        ("torch/hub.py", "/usr/lib/python3.11/threading.py", RECEIVES, False),
        ("torch/serialization.py", "/usr/lib/python3.11/threading.py", {"state": "D", "wchan": "folio_wait"}, False),
        ("torch/serialization.py", POOL, {}, False),
        ("tqdm/contrib/concurrent.py", POOL, {}, False),
        ("wandb/sdk/interface.py", "/usr/lib/python3.11/threading.py", RECEIVES, True),
    ],
    ids=["is idle", "fetches weights", "saves", "a pool saves", "a pool counts", "sends metrics"],
)
def test_a_quiet_packages_thread_may_do_what_is_awaited(file, below, waits, behind):
    """Only a package's own line is on its stack, and the program asks for the result."""
    main = ThreadStack(tid=7, name="MainThread", frames=(frame("result", "/home/me/train.py"),))
    frames = (frame("run", f"/opt/lib/python3.11/site-packages/{file}"), frame("run", below))
    other = ThreadStack(tid=8, name="", frames=frames)
    sample = StackSample(id="s", source="py-spy", native=False, t_s=10.5, rank=0, pid=7, threads=(main, other))
    beside = replace(THREAD, tid=8, **waits)
    looks = [replace(one, threads=(*one.threads, beside)) for one in (LOOK, later())]
    assert (8 in background(looks, [sample])) is behind


@pytest.mark.parametrize(
    ("call", "state", "behind"),
    [("futex", "S", True), ("futex", "R", True), ("poll", "S", False), ("epoll_wait", "S", False)],
    ids=["draws a bar", "is met awake", "asks a connection for messages", "serves"],
)
def test_a_packages_thread_that_wakes_often_is_background_only_where_it_waits_for_the_clock(call, state, behind):
    """``rich`` draws ten times a second; a client of MQTT asks its broker as often, and calls what it was given."""
    main = ThreadStack(tid=7, name="MainThread", frames=(frame("main", "/home/me/train.py"),))
    other = ThreadStack(tid=8, name="", frames=(frame("run", "/opt/lib/python3.11/site-packages/paho/client.py"),))
    sample = StackSample(id="s", source="py-spy", native=False, t_s=10.5, rank=0, pid=7, threads=(main, other))
    ticks = [replace(THREAD, tid=8, timed=True, call=call, voluntary_switches=n) for n in (10, 20)]
    ticks[1] = ticks[1] if state == "S" else replace(ticks[1], state=state, timed=None, call="")
    looks = [replace(one, threads=(*one.threads, tick)) for one, tick in zip((LOOK, later()), ticks, strict=True)]
    assert (8 in background(looks, [sample])) is behind


@pytest.mark.parametrize(("name", "ticks"), [("cuda00001400006", True), ("cuda0-loader", False), ("pt_tcpstore", True)])
def test_a_thread_that_the_program_named_after_a_card_is_no_ticker(name, ticks):
    assert is_ticker(replace(THREAD, name=name)) is ticks


@pytest.mark.parametrize(("waits_in", "behind"), [("/home/me/train.py", True), ("lightning/trainer.py", False)])
def test_a_trainers_progress_bar_has_nothing_to_do_with_what_the_programs_own_code_waits_for(waits_in, behind):
    site = "/opt/lib/python3.11/site-packages"
    waits = waits_in if waits_in.startswith("/") else f"{site}/{waits_in}"
    frames = (frame("flush", waits), frame("fit", f"{site}/lightning/loops.py"), frame("main", "/home/me/train.py"))
    bar = ThreadStack(tid=8, name="", frames=(frame("run", f"{site}/lightning/rich_progress.py"),))
    main = ThreadStack(tid=7, name="MainThread", frames=frames)
    sample = StackSample(id="s", source="py-spy", native=False, t_s=10.5, rank=0, pid=7, threads=(main, bar))
    ticks = [replace(THREAD, tid=8, timed=True, voluntary_switches=n) for n in (10, 20)]
    looks = [replace(one, threads=(*one.threads, tick)) for one, tick in zip((LOOK, later()), ticks, strict=True)]
    assert (8 in background(looks, [sample])) is behind
