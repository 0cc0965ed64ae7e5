"""/proc, from a folder that looks like it and from this process itself."""

import itertools
import os
import subprocess
import sys
import threading

import pytest

from harness.core.movement import movement, quiet_windows
from harness.observe.oom import OomKills
from harness.observe.proc import Proc
from harness.observe.syscalls import timed_wait

STAT = (
    "{pid} (a) b) {state} 1 7 7 0 -1 4194304 {faults} 0 0 0 {utime} {stime} 0 0 20 0 2 0 168099 12926976 {pages} 1844"
)


def put(root, at, **files):
    folder = root / at
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


@pytest.fixture
def root(tmp_path):
    stat = STAT.format(pid=7, state="S", faults=10, utime=150, stime=50, pages=3)
    put(
        tmp_path,
        "7",
        stat=stat,
        io="rchar: 100\nwchar: 40\nread_bytes: 0\n",
        status="VmHWM:\t  2048 kB\nTracerPid:\t9\n",
    )
    for tid, state, ns in ((7, "S", 1_500_000_000), (8, "D", 250_000_000)):
        put(
            tmp_path,
            f"7/task/{tid}",
            stat=STAT.format(pid=tid, state=state, faults=1, utime=0, stime=0, pages=3),
            comm=f"thread{tid}\n",
            status="voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n",
            wchan="futex_do_wait",
            schedstat=f"{ns} 17 3\n",
            syscall="202 0x1 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f35",
        )
    return tmp_path


def test_process_is_read_with_all_its_threads(root):
    state = Proc(str(root)).look(7, id="proc-1", t_s=3.0, others=(99,), since="proc-0")
    assert (state.state, state.minor_faults, state.read_bytes, state.written_bytes) == ("S", 10, 100, 40)
    assert state.rss_bytes == 3 * os.sysconf("SC_PAGE_SIZE")
    assert [(t.tid, t.name, t.state, t.wchan) for t in state.threads] == [
        (7, "thread7", "S", "futex_do_wait"),
        (8, "thread8", "D", "futex_do_wait"),
    ]
    assert [t.cpu_s for t in state.threads] == [1.5, 0.25]
    assert (state.threads[0].voluntary_switches, state.threads[0].involuntary_switches) == (5, 2)
    assert (state.children, state.others_cpu_s, state.undisturbed_since) == (1, 0.0, "proc-0")
    assert Proc(str(root)).peak_rss_bytes(7) == 2048 * 1024
    assert Proc(str(root)).tracer(7) == 9
    assert Proc(str(root)).states(7) == "SD"


def test_cpu_time_of_other_processes_is_counted(root):
    put(root, "99", stat=STAT.format(pid=99, state="R", faults=0, utime=120, stime=30, pages=1))
    state = Proc(str(root)).look(7, id="proc-1", t_s=3.0, others=(99,))
    assert state.others_cpu_s == pytest.approx(1.5)
    assert state.others_may_move == ""


def test_helper_that_wakes_for_a_moment_is_charged_the_moment_and_not_a_tick():
    """A poll of 0.1 ms in every five seconds must not read like ten."""
    code = "import sys; print(flush=True)\nfor line in sys.stdin: print(flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as helper:
        used_s = []
        for _ in range(30):
            helper.stdout.readline()
            used_s.append(Proc().look(os.getpid(), id="a", t_s=0.0, others=(helper.pid,)).others_cpu_s)
            helper.stdin.write(b"\n")
            helper.stdin.flush()
    assert used_s == sorted(used_s)
    assert used_s[0] > 0
    assert any(0 < after - before < 0.01 for before, after in itertools.pairwise(used_s))


@pytest.mark.parametrize(
    ("state", "wchan", "syscall", "how"),
    [
        ("R", "0", "running", "runs"),
        ("D", "nfs_wait", "0 0x1 0x2 0x3 0x0 0x0 0x0 0x7f 0x7f", "waits for a device (state D, nfs_wait)"),
        ("S", "hrtimer_nanosleep", "", "waits with a time limit (hrtimer_nanosleep)"),
        ("S", "sk_wait_data", "45 0x1 0x2 0x3 0x0 0x0 0x0 0x7f 0x7f", "waits for another machine (sk_wait_data)"),
        ("S", "futex_do_wait", "", None),
        ("T", "do_signal_stop", "", None),
    ],
)
def test_thread_of_another_process_that_may_move_by_itself_is_named(root, state, wchan, syscall, how):
    stat = STAT.format(pid=99, state=state, faults=0, utime=0, stime=0, pages=1)
    put(root, "99", stat=stat)
    put(root, "99/task/99", stat=stat, comm="child\n", wchan=wchan, syscall=syscall)
    look = Proc(str(root)).look(7, id="proc-1", t_s=3.0, others=(99,))
    assert look.others_may_move == (f"child (process 99) {how}" if how else "")


ACCEPT, RECEIVE = "43 0x3 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f", "45 0x3 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f"
FUTEX = "202 0x1 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f35"


@pytest.mark.parametrize(
    ("wchan", "syscall", "moves", "waits"),
    [
        ("futex_do_wait", FUTEX, "", ((99, "futex_do_wait"),)),
        ("do_sys_poll", "7 0x1 0x1 0xffffffff 0x0 0x0 0x0 0x7f 0x7f", "", ((99, "do_sys_poll"),)),
        ("hrtimer_nanosleep", "", "waits with a time limit", ()),
        ("__skb_wait_for_more_packets", RECEIVE, "waits for another machine", ()),
        # A listener on a socket of this machine: what multiprocessing has in every worker.
        ("__skb_wait_for_more_packets", ACCEPT, "", ((99, "unix_accept"),)),
    ],
)
def test_where_another_process_sleeps_for_good_is_told(root, monkeypatch, wchan, syscall, moves, waits):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    stat = STAT.format(pid=99, state="S", faults=0, utime=0, stime=0, pages=1)
    put(root, "99", stat=stat)
    put(root, "99/task/99", stat=stat, comm="pt_data_worker\n", wchan=wchan, syscall=syscall)
    look = Proc(str(root)).look(7, id="proc-1", t_s=3.0, others=(99,))
    assert moves in look.others_may_move
    assert look.others_waits == waits


def test_ticks_stand_in_where_the_kernel_has_no_schedstat(root):
    (root / "7/task/8/schedstat").unlink()
    (root / "7/task/8/stat").write_text(STAT.format(pid=8, state="R", faults=1, utime=150, stime=50, pages=3))
    assert Proc(str(root)).look(7, id="p", t_s=0.0).threads[1].cpu_s == pytest.approx(2.0)


def test_thread_that_vanishes_midway_is_left_out(root):
    (root / "7/task/8/comm").unlink()
    assert [t.tid for t in Proc(str(root)).look(7, id="p", t_s=0.0).threads] == [7]


def test_process_that_is_gone_is_none_and_no_error(root):
    proc = Proc(str(root))
    assert proc.look(12, id="p", t_s=0.0) is None
    assert (proc.peak_rss_bytes(12), proc.states(12), proc.parent(12), proc.signal_mask(12, "SigCgt")) == (
        0,
        "",
        None,
        0,
    )


def test_stat_that_makes_no_sense_is_a_process_that_is_gone(root):
    (root / "7/stat").write_text("7 (a")
    assert Proc(str(root)).look(7, id="p", t_s=0.0) is None


def test_this_process_really_burns_and_rests():
    proc, done, began = Proc(), threading.Event(), threading.Event()

    def rest():
        began.set()
        done.wait()

    thread = threading.Thread(target=rest)
    thread.start()
    began.wait()
    is_resting = False
    while not is_resting:  # it said that it began; on a busy machine it comes to its wait later
        first = proc.look(os.getpid(), id="a", t_s=0.0)
        is_resting = any(
            t.tid == thread.native_id and (t.state, t.timed or False) == ("S", False) for t in first.threads
        )
    total = sum(i * i for i in range(200_000))
    last = proc.look(os.getpid(), id="b", t_s=1.0, since="a")
    done.set()
    thread.join()
    moved = movement(first, last)
    assert total > 0
    assert moved.cpu_s > 0.001
    assert not moved.still
    resting = next(t for t in last.threads if t.tid == thread.native_id)
    assert (resting.state, resting.timed) in {("S", False), ("S", None)}
    assert quiet_windows((first, last)) == (moved,)


@pytest.mark.parametrize(
    ("line", "timed"),
    [
        ("202 0x56 0x189 0x0 0x0 0x0 0xffffffff 0x7fff 0x7f35", False),  # futex, no time-out
        ("202 0x56 0x189 0x0 0x7ffe 0x0 0xffffffff 0x7fff 0x7f35", True),  # futex with one
        ("230 0x1 0x1 0x7f 0x0 0x0 0x0 0x7fff 0x7f35", True),  # clock_nanosleep
        ("7 0x7f 0x1 0xffffffff 0x0 0x0 0x0 0x7fff 0x7f35", False),  # poll(-1)
        ("7 0x7f 0x1 0x1388 0x0 0x0 0x0 0x7fff 0x7f35", True),  # poll(5000)
        ("232 0x3 0x7f 0x10 0xffffffffffffffff 0x0 0x0 0x7fff 0x7f35", False),  # epoll_wait(-1)
        ("232 0x3 0x7f 0x10 0x64 0x0 0x0 0x7fff 0x7f35", True),
        ("1 0x3 0x7f 0x10 0x0 0x0 0x0 0x7fff 0x7f35", False),  # write
        ("219 0x3 0x7f 0x10 0x0 0x0 0x0 0x7fff 0x7f35", None),  # restart_syscall
        ("running", None),
        ("-1 0x7fff 0x7f35", None),
        ("", None),
    ],
)
def test_time_limit_of_a_system_call_is_read_from_its_arguments(line, timed):
    assert timed_wait(line, machine="x86_64") is timed


def test_time_limit_on_arm_and_on_an_unknown_machine():
    futex = "98 0x56 0x189 0x0 {} 0x0 0xffffffff 0x7fff 0x7f35"
    assert timed_wait(futex.format("0x0"), machine="aarch64") is False
    assert timed_wait(futex.format("0x7ffe"), machine="aarch64") is True
    assert timed_wait(futex.format("0x0"), machine="riscv64") is None


@pytest.mark.parametrize(
    ("cgroup", "file"),
    [
        ("4:memory:/job\n0::/\n", "sys/fs/cgroup/memory/job/memory.oom_control"),
        ("0::/job\n", "sys/fs/cgroup/job/memory.events"),
    ],
    ids=["version 1", "version 2"],
)
def test_oom_kills_are_counted_from_the_start(tmp_path, cgroup, file):
    put(tmp_path, "proc/7", cgroup=cgroup)
    counts = tmp_path / file
    counts.parent.mkdir(parents=True)
    counts.write_text("oom 4\noom_kill 2\n")
    kills = OomKills(7, root=tmp_path)
    assert kills.since_start() == 0
    counts.write_text("oom 5\noom_kill 3\n")
    assert kills.since_start() == 1


def test_no_control_group_means_no_oom_kills(tmp_path):
    assert OomKills(7, root=tmp_path).since_start() == 0
