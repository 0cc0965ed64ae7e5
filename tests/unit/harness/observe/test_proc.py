"""/proc, from a folder that looks like it and from this process itself."""

import os
import shutil
import threading

import pytest

from harness.observe.oom import OomKills
from harness.observe.proc import Proc, script_of
from harness.observe.syscalls import blocked_call
from harness.reading.stillness import between, quiet_windows

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
    state = Proc(str(root)).look(7, id="proc-1", t_s=3.0, children=1, since="proc-0")
    assert (state.state, state.minor_faults, state.read_bytes, state.written_bytes) == ("S", 10, 100, 40)
    assert state.rss_bytes == 3 * os.sysconf("SC_PAGE_SIZE")
    assert [(t.tid, t.name, t.state, t.wchan) for t in state.threads] == [
        (7, "thread7", "S", "futex_do_wait"),
        (8, "thread8", "D", "futex_do_wait"),
    ]
    assert [t.cpu_s for t in state.threads] == [1.5, 0.25]
    assert (state.threads[0].voluntary_switches, state.threads[0].involuntary_switches) == (5, 2)
    assert (state.children, state.parent, state.undisturbed_since) == (1, 1, "proc-0")
    assert Proc(str(root)).peak_rss_bytes(7) == 2048 * 1024
    assert Proc(str(root)).tracer(7) == 9
    assert Proc(str(root)).states(7) == "SD"


FUTEX = "202 0x1 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f35"


@pytest.mark.parametrize(
    ("state", "wchan", "syscall", "call", "timed"),
    [
        ("R", "0", "running", "", None),
        ("S", "futex_do_wait", FUTEX, "futex", False),
        ("S", "hrtimer_nanosleep", "", "", True),
        ("S", "do_sys_poll", "7 0x1 0x1 0xffffffff 0x0 0x0 0x0 0x7f 0x7f", "poll", False),
        ("S", "do_sys_poll", "7 0x1 0x1 0x64 0x0 0x0 0x0 0x7f 0x7f", "poll", True),
        ("D", "nfs_wait", "0 0x1 0x2 0x3 0x0 0x0 0x0 0x7f 0x7f", "read", False),
    ],
)
def test_what_a_thread_is_blocked_in_and_whether_that_ends_by_itself(
    root, monkeypatch, state, wchan, syscall, call, timed
):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    stat = STAT.format(pid=7, state=state, faults=0, utime=0, stime=0, pages=1)
    put(root, "7/task/7", stat=stat, comm="python\n", wchan=wchan, syscall=syscall)
    thread = Proc(str(root)).look(7, id="proc-1", t_s=3.0).threads[0]
    assert (thread.call, thread.timed) == (call, timed)


@pytest.mark.parametrize(
    ("thread", "links", "has_a_card"),
    [
        ("cuda00001400006", ("pipe:[7]", "/dev/nvidia0"), True),
        ("cuda00001400006", ("pipe:[7]", "/dev/null"), False),
        ("pt_nccl_watchdg", ("/dev/dxg",), True),
        ("cuda00001400006", (), True),  # nobody may read which files it has open
        ("python", ("/dev/null",), True),  # nobody asks
    ],
)
def test_a_process_with_threads_of_cudas_has_a_card_if_it_has_one_open(root, thread, links, has_a_card):
    put(root, "7/task/8", comm=f"{thread}\n")
    for number, link in enumerate(links):
        put(root, "7/fd")
        (root / f"7/fd/{number}").symlink_to(link)
    assert Proc(str(root)).look(7, id="proc-1", t_s=3.0).has_a_card is has_a_card


def test_signals_that_a_timer_of_its_own_may_send_are_named_where_it_handles_them(root):
    (root / "7/status").write_text("SigCgt:\t0000000000002000\n")
    assert Proc(str(root)).look(7, id="proc-1", t_s=3.0).handles == ("SIGALRM",)


@pytest.mark.parametrize(("number", "handles"), [(29, ("SIGIO",)), (37, ("SIGRTMIN+3",)), (45, ()), (60, ()), (61, ())])
def test_a_signal_by_which_programs_tell_each_other_something_is_named_and_ours_is_not(root, number, handles):
    (root / "7/status").write_text(f"SigCgt:\t{1 << (number - 1):016x}\n")
    assert Proc(str(root)).look(7, id="proc-1", t_s=3.0).handles == handles


EXIT_TRAP, WAIT4, READ = (
    "SigCgt:\t0000000043817ef9\n",
    "61 0xffffffff 0x7ffd 0x0 0x0 0x0 0x0 0x7ffd 0x7f35",
    "0 0x0 0x2 0x3 0x0 0x0 0x0 0x7f 0x7f",
)
"""What bash handles once a script has a trap for EXIT, and two calls that it may be in."""

TIDY = "trap 'rm -rf $d' EXIT\n./train\n"
ENDS_IN_ORDER = ("SIGTERM", "SIGCHLD")
WOKEN = ("SIGALRM", "SIGVTALRM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGTERM", "SIGCHLD")


@pytest.mark.parametrize(
    ("program", "words", "script", "call", "handles"),
    [
        ("bash", "bash train.sh", TIDY, WAIT4, ENDS_IN_ORDER),
        ("bash", "/bin/bash -e ./train.sh", TIDY, WAIT4, ENDS_IN_ORDER),
        ("bash", f"bash -ec {TIDY}", "", WAIT4, ENDS_IN_ORDER),
        ("bash", "bash train.sh", TIDY, READ, WOKEN),  # read -t sets itself an alarm
        ("bash", "bash train.sh", f"trap reload USR1\n{TIDY}", WAIT4, WOKEN),
        ("bash", "bash train.sh", f"trap reload 10\n{TIDY}", WAIT4, WOKEN),
        ("bash", "bash train.sh", f". ./traps.sh\n{TIDY}", WAIT4, WOKEN),
        ("bash", "bash", "", WAIT4, WOKEN),  # from its standard input: nobody can read it
        ("python3.11", "python3 train.sh", TIDY, WAIT4, WOKEN),
        ("sort", "sort -o a a", "", READ, ENDS_IN_ORDER),
    ],
)
def test_a_program_that_handles_whatever_would_end_it_tidies_up_and_is_let_on_by_nobody(
    root, program, words, script, call, handles
):
    (root / "7/status").write_text(EXIT_TRAP)
    (root / "7/exe").symlink_to(f"/usr/bin/{program}")
    put(root, "home", **{"train.sh": script})
    (root / "7/cwd").symlink_to(root / "home")
    first, _, rest = words.partition(" -ec ")
    split = [*first.split(), "-ec", rest] if rest else first.split()
    put(root, "7", cmdline="\0".join([*split, ""]))
    shutil.rmtree(root / "7/task/8")
    put(root, "7/task/7", syscall=call)
    assert Proc(str(root)).look(7, id="proc-1", t_s=3.0).handles == handles


@pytest.mark.parametrize(
    ("program", "words", "speaks"),
    [
        ("bash", ["bash", "-c", "perl -e 'alarm shift; exec @ARGV' 30 make"], True),
        ("bash", ["bash", "-c", "false_alarms=3 make"], False),
        ("perl", ["perl", "-ealarm 30"], False),  # it has begun another program since, or reads its own
    ],
)
def test_a_shell_whose_script_speaks_of_an_alarm_may_have_started_what_it_ends(root, program, words, speaks):
    (root / "7/exe").symlink_to(f"/usr/bin/{program}")
    put(root, "7", cmdline="\0".join([*words, ""]))
    assert Proc(str(root)).speaks_of_alarms(7) is speaks


def test_a_posix_timer_and_a_limit_of_cpu_time_are_named_among_what_may_let_it_go_on(root):
    (root / "7" / "timers").write_text("ID: 0\nsignal: 37/0x1\nnotify: signal/pid.7\nClockID: 1\n")
    (root / "7" / "limits").write_text(
        "Limit  Soft Limit  Hard Limit  Units\nMax cpu time              30  40  seconds\n"
    )
    look = Proc(str(root)).look(7, id="proc-1", t_s=3.0)
    assert (look.handles, look.cpu_limit_s) == (("timer_create", "RLIMIT_CPU"), 30.0)
    (root / "7" / "timers").write_text("ID: 0\nsignal: 0/0x1\nnotify: none/pid.7\nClockID: 1\n")
    (root / "7" / "limits").write_text("Max cpu time              unlimited  unlimited  seconds\n")
    assert Proc(str(root)).look(7, id="proc-1", t_s=3.0).handles == ()


@pytest.mark.parametrize(
    ("program", "names", "child", "handles"),
    [
        ("train", b"\0alarm\0", "", ("alarm",)),
        ("train", b"\0setitimer\0", "", ("alarm",)),
        ("train", b"\0alarmed\0", "", ()),
        ("python3.11", b"\0alarm\0", "", ()),  # its own source says whether it does
        ("bash", b"\0alarm\0", "", ()),
        ("launch", b"\0alarm\0", "99 ", ()),
        ("perl", b"\0alarm\0", "", ()),
        ("perl-with-alarm", b"", "", ("alarm",)),
    ],
)
def test_a_program_that_is_linked_to_what_sets_an_alarm_may_be_ended_by_one(root, program, names, child, handles):
    """Without a handler nothing else tells: a C test of a deadlock lets its child be ended by ``alarm(24)``."""
    (root / program).write_bytes(b"\x7fELF\0puts" + names + b"exit\0")
    (root / "7" / "exe").symlink_to(root / program)
    put(root, "7", cmdline="\0".join([program, "-e", "alarm 30" if program == "perl-with-alarm" else "sleep 30", ""]))
    if child:
        put(root, "7/task/7", children=child)
    assert Proc(str(root)).look(7, id="proc-1", t_s=3.0).handles == handles


@pytest.mark.parametrize(
    ("program", "names", "script", "sends"),
    [
        ("watchdog", b"\0kill\0", "", True),
        ("watchdog", b"\0killed\0", "", False),
        ("python3.11", b"\0kill\0", "kill", False),  # its own source says whether it does
        ("perl", b"\0kill\0", "print 1", False),
        ("perl", b"", "sleep 30; kill 9, $p", True),
        ("node", b"", "child.kill()", True),
        ("bash", b"", "read -t 30; kill $p", True),
    ],
)
def test_a_program_that_may_send_a_signal_is_known_by_its_links_or_by_its_script(root, program, names, script, sends):
    (root / program).write_bytes(b"\x7fELF\0puts" + names + b"exit\0")
    (root / "7" / "exe").symlink_to(root / program)
    put(root, "7", cmdline="\0".join([program, "-c" if program == "bash" else "-e", script, ""]))
    assert Proc(str(root)).look(7, id="proc-1", t_s=3.0).sends_signals is sends


def test_a_script_that_is_a_pipe_is_not_read(root):
    """``bash script.fifo``: whoever opens a named pipe waits for its other end, and takes what the shell is to read."""
    (root / "bash").write_bytes(b"")
    (root / "7" / "exe").symlink_to(root / "bash")
    (root / "7" / "cwd").symlink_to(root)
    os.mkfifo(root / "script")
    put(root, "7", cmdline="bash\0script\0")
    assert Proc(str(root)).look(7, id="proc-1", t_s=3.0).sends_signals is False


@pytest.mark.parametrize(("exit_code", "dead"), [(9, 1), (256, 1), (0, 0)])
def test_a_child_that_has_not_ended_well_and_was_not_waited_for_is_counted(root, exit_code, dead):
    put(root, "7/task/7", children="99 98 ")
    ended = STAT.format(pid=99, state="Z", faults=0, utime=0, stime=0, pages=1) + " 0" * 26 + " {code}"
    put(root, "99", stat=ended.format(code=exit_code))
    put(root, "98", stat=STAT.format(pid=98, state="S", faults=0, utime=0, stime=0, pages=1))
    assert Proc(str(root)).look(7, id="proc-1", t_s=3.0).dead_children == dead


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
    assert (proc.peak_rss_bytes(12), proc.states(12), proc.signals("12", "SigCgt")) == (0, "", frozenset())


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
    moved = between(first, last)
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
    assert getattr(blocked_call(line, machine="x86_64"), "timed", None) is timed


@pytest.mark.parametrize(
    ("line", "wchan", "name", "timed"),
    [
        ("219 0x7f 0x1 0xffffffff 0x0 0x0 0x0 0x7fff 0x7f35", "poll_schedule_timeout.constprop.0", "poll", False),
        ("219 0x7f 0x1 0x1388 0x0 0x0 0x0 0x7fff 0x7f35", "do_sys_poll", "poll", True),
        ("219 0x1 0x1 0x7f 0x0 0x0 0x0 0x7fff 0x7f35", "hrtimer_nanosleep", "nanosleep", True),
        ("219 0x56 0x189 0x0 0x7f 0x0 0x0 0x7fff 0x7f35", "futex_do_wait", "futex", True),
        ("219 0x56 0x189 0x0 0x7f 0x0 0x0 0x7fff 0x7f35", "do_syscall_64", "restart", None),
    ],
)
def test_a_call_that_is_gone_on_with_keeps_its_arguments(line, wchan, name, timed):
    call = blocked_call(line, wchan=wchan, machine="x86_64")
    assert (call.name, call.timed) == (name, timed)


def test_time_limit_on_arm_and_on_an_unknown_machine():
    futex = "98 0x56 0x189 0x0 {} 0x0 0xffffffff 0x7fff 0x7f35"
    assert blocked_call(futex.format("0x0"), machine="aarch64").timed is False
    assert blocked_call(futex.format("0x7ffe"), machine="aarch64").timed is True
    assert blocked_call(futex.format("0x0"), machine="riscv64") is None


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


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["bash", "run.sh", "-c"], "of run.sh"),
        (["/bin/bash", "-e", "run.sh"], "of run.sh"),
        (["bash", "-euo", "pipefail", "-c", "kill 7"], "kill 7"),
        (["bash", "-o", "pipefail", "run.sh"], "of run.sh"),
        (["-zsh", "-ec", "kill 7", "name"], "kill 7"),
        (["bash", "--norc", "+x", "run.sh"], "of run.sh"),
        (["perl", "-we", "alarm 7", "run.sh"], "alarm 7"),
        (["bash"], ""),
        ([], ""),
    ],
)
def test_what_a_shell_runs_stands_in_its_command_line_or_in_a_file(words, script):
    assert script_of(words, lambda file: f"of {file}") == script
