"""When waiting longer is pointless: what the watch in fake time cannot show, because it has one thread only."""

from dataclasses import replace

import pytest

from harness.core.evidence import Frame, ProcessState, StackSample, ThreadStack, ThreadState
from harness.observe.certainty import nobody_moves, nothing_moves

MAIN = ThreadState(
    tid=7,
    name="python",
    state="S",
    wchan="futex_do_wait",
    cpu_s=1.5,
    voluntary_switches=10,
    involuntary_switches=5,
    timed=False,
)


def looks(*others):
    """Four looks, two by two without a dumper in between."""
    first = ProcessState(
        id="proc-1",
        t_s=10.0,
        rank=0,
        pid=7,
        state="S",
        threads=(MAIN, *others),
        rss_bytes=4096,
        minor_faults=100,
        read_bytes=50,
        written_bytes=60,
        children=0,
        others_cpu_s=0.0,
        others_may_move="",
    )
    ids = ((1, None), (2, "proc-1"), (3, None), (4, "proc-3"))
    return [replace(first, id=f"proc-{n}", t_s=9.0 + n, undisturbed_since=since) for n, since in ids]


def stacks(*threads):
    frames = (Frame(function="sem_wait", file="libc.so", line=0, native=True), Frame(function="f", file="t.py", line=1))
    main = ThreadStack(tid=7, name="MainThread", frames=frames)
    sample = StackSample(id="stack-1", source="py-spy", native=True, t_s=10.5, rank=0, pid=7, threads=(main, *threads))
    python = replace(sample, native=False, threads=(replace(main, frames=frames[1:]),))
    return [python, sample, sample]


def test_all_at_rest_is_certain():
    assert nothing_moves(pid=7, looks=looks(), stacks=stacks(), alone=True).certain


def test_one_source_that_names_classes_and_one_that_does_not_agree():
    python, *native = stacks()
    (main,) = python.threads
    qualified = replace(python, threads=(replace(main, frames=(replace(main.frames[0], function="Model.f"),)),))
    assert nothing_moves(pid=7, looks=looks(), stacks=[qualified, *native], alone=True).certain
    other = replace(python, threads=(replace(main, frames=(replace(main.frames[0], function="Model.g"),)),))
    assert "the Python stacks differ" in nothing_moves(pid=7, looks=looks(), stacks=[other, *native]).because


OUTSIDE = (
    *("pipe_read", "anon_pipe_read", "do_wait", "ep_poll", "unix_stream_read_generic", "__do_sys_pause"),
    *("do_sigtimedwait", "locks_lock_inode_wait", "do_semtimedop", "request_wait_answer"),
)


@pytest.mark.parametrize("wchan", OUTSIDE)
def test_main_thread_that_waits_for_another_program_is_never_certain(wchan):
    waits = [replace(look, threads=(replace(MAIN, wchan=wchan),)) for look in looks()]
    verdict = nothing_moves(pid=7, looks=waits, stacks=stacks())
    assert not verdict.certain
    assert f"the main thread waits for another program ({wchan})" in verdict.because


def test_main_thread_that_was_answered_while_its_stacks_were_taken_is_not_at_rest():
    """One trial of 840 was ended as its answer came: that may be between the last stacks and the last look."""
    waits = [replace(look, threads=(replace(MAIN, wchan="sk_wait_data"),)) for look in looks()]
    answered = replace(looks()[-1], threads=(replace(MAIN, wchan=""),))
    assert "waits for another program" in nothing_moves(pid=7, looks=[*waits, answered], stacks=stacks()).because
    runs = replace(looks()[-1], threads=(replace(MAIN, wchan="", state="R"),), id="proc-5", undisturbed_since=None)
    verdict = nothing_moves(pid=7, looks=[*looks(), runs], stacks=stacks())
    assert (verdict.certain, verdict.because) == (False, "the main thread runs again")


@pytest.mark.parametrize("wchan", OUTSIDE)
def test_side_thread_that_waits_for_another_program_is_certain_only_at_a_limit(wchan):
    side = replace(MAIN, tid=8, wchan=wchan)
    assert nothing_moves(pid=7, looks=looks(side), stacks=stacks()).certain
    verdict = nothing_moves(pid=7, looks=looks(side), stacks=stacks(), alone=True)
    assert not verdict.certain
    assert f"thread 8 waits for another program ({wchan})" in verdict.because


@pytest.mark.parametrize("alone", [False, True])
def test_side_thread_that_will_wake_is_never_certain(alone):
    side = replace(MAIN, tid=8, timed=True, wchan="do_poll")
    verdict = nothing_moves(pid=7, looks=looks(side), stacks=stacks(), alone=alone)
    assert not verdict.certain
    assert "thread 8 waits with a time limit" in verdict.because


def test_threads_that_only_the_native_dump_shows_do_not_make_stacks_differ():
    gloo = ThreadStack(tid=9, name="gloo", frames=(Frame(function="loop", file="libtorch.so", line=0, native=True),))
    assert nothing_moves(pid=7, looks=looks(), stacks=stacks(gloo)).certain


def test_stacks_of_another_process_prove_nothing_about_this_one():
    assert not nothing_moves(pid=8, looks=looks(), stacks=stacks()).certain


SITE = "/venv/lib/python3.11/site-packages/torch/utils/data"
ASKS = Frame(function="_MultiProcessingDataLoaderIter._try_get_data", file=f"{SITE}/dataloader.py", line=1291)
READS = Frame(function="read_shard", file="/src/data.py", line=14)
IDLES = Frame(function="_worker_loop", file=f"{SITE}/_utils/worker.py", line=300)


def sample(frame, *, pid=7):
    main = ThreadStack(tid=pid, name="MainThread", frames=(frame,))
    return StackSample(id="stack-1", source="py-spy", native=False, t_s=10.5, rank=0, pid=pid, threads=(main,))


def loader_job(*, worker=READS, waits=((8, "futex_do_wait"),), asks=ASKS, moves="", taken=2, cpu_s=0.0):
    """A process that polls for a batch every five seconds, and one worker of its DataLoader."""
    polls = replace(MAIN, wchan="do_poll", timed=True)
    seen = [replace(look, threads=(polls,), children=1, others_waits=waits, others_may_move=moves) for look in looks()]
    seen[-1] = replace(seen[-1], others_cpu_s=cpu_s)
    return nobody_moves(
        ranks={0: 7}, looks=seen, stacks=[sample(asks)] * 3 + [sample(worker, pid=8)] * taken, alone=True
    )


def test_a_loader_whose_worker_sleeps_for_good_never_delivers():
    verdict = loader_job()
    assert verdict.certain
    assert "worker 8 sleeps without a time limit (futex_do_wait)" in verdict.because


@pytest.mark.parametrize(
    "job",
    [
        {"waits": ()},  # it runs, wakes by itself, or was not seen
        {"waits": ((8, "do_sys_poll"),)},
        {"waits": ((8, "anon_pipe_read"),)},
        {"waits": ((8, "do_wait"),)},
        {"moves": "pt_data_worker (process 8) waits with a time limit (do_poll)"},
        {"worker": IDLES},
        {"asks": READS},
        {"taken": 1},
        {"cpu_s": 0.2},
    ],
    ids=["unseen", "poll", "pipe", "child", "timer", "idle", "no loader", "one look", "works"],
)
def test_a_loader_that_may_still_deliver_is_not_certain(job):
    assert not loader_job(**job).certain
