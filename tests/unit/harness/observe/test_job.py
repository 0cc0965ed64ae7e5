"""From one PID to the whole job: ranks, helpers, launcher, and who is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import threading

import pytest

from fake_clock import FakeClock
from harness.core.ports import ProcessRef
from harness.observe import proc
from harness.observe.census import Census
from harness.observe.job import Member, NoJobError, ProcessTable, ProcTree, find_job, read_member
from harness.observe.proc import Proc
from harness.observe.procfs import Files


def member(pid, parent, *, rank=None, world=2, python=True, **facts):
    env = {} if rank is None else {"RANK": str(rank), "WORLD_SIZE": str(world), **facts.pop("env", {})}
    facts = {"command": "python", "state": "S", **facts}
    return Member(pid=pid, started=pid, parent=parent, python=python, env=env, **facts)


def table(*rows):
    return ProcessTable({row.pid: row for row in rows})


SHELL = member(1, 0, python=False, command="bash")
TORCHRUN = member(10, 1, command="pt_elastic")


def ranks(job):
    return [(worker.member.rank, worker.member.pid) for worker in job.workers]


@pytest.mark.parametrize("pid", [10, 20, 21, 30])
def test_every_pid_of_the_job_leads_to_the_same_ranks(pid):
    rows = table(
        SHELL,
        TORCHRUN,
        member(20, 10, rank=1),
        member(21, 10, rank=0),
        member(30, 20, rank=1, command="pt_data_worker"),
    )

    job = find_job(pid, tree=rows)

    assert job.launcher.pid == 10
    assert ranks(job) == [(0, 21), (1, 20)]


def test_a_ranks_children_are_its_helpers_also_with_the_same_rank_in_their_environment():
    rows = table(
        TORCHRUN,
        member(20, 10, rank=0, world=1),
        member(30, 20, rank=0, world=1, command="pt_data_worker"),
        member(31, 20, rank=0, world=1, argv="python -c from multiprocessing.resource_tracker import main"),
        member(32, 20, rank=0, world=1, argv="python -m torch._inductor.compile_worker"),
        member(33, 20, python=False, command="cc1plus"),
        member(34, 20, rank=0, world=1, state="Z"),
    )

    (worker,) = find_job(10, tree=rows).workers

    assert worker.member.pid == 20
    assert [(m.pid, kind) for m, kind in worker.helpers] == [
        (30, "DataLoader worker"),
        (31, "resource tracker"),
        (32, "compile worker"),
        (33, "child cc1plus"),
    ]


def test_another_run_below_the_same_shell_is_not_this_job():
    one, two = {"MASTER_PORT": "29500"}, {"MASTER_PORT": "29501"}
    rows = table(SHELL, member(20, 1, rank=0, env=one), member(21, 1, rank=1, env=one), member(22, 1, rank=0, env=two))

    assert ranks(find_job(20, tree=rows)) == [(0, 20), (1, 21)]
    assert ranks(find_job(22, tree=rows)) == [(0, 22)]


def test_a_shell_that_carries_the_rank_is_no_rank_and_no_launcher():
    rows = table(
        SHELL,
        member(20, 1, rank=0, python=False, command="bash"),
        member(21, 20, rank=0),
        member(22, 1, rank=1, python=False, command="bash"),
        member(23, 22, rank=1),
    )

    assert ranks(find_job(21, tree=rows)) == [(0, 21), (1, 23)]


def test_without_ranks_every_python_process_that_is_no_helper_counts():
    rows = table(
        member(10, 1, argv="python train.py"),
        member(20, 10, argv="python -c from multiprocessing.spawn import spawn_main"),
        member(21, 10, argv="python -c from multiprocessing.resource_tracker import main"),
        member(22, 20, command="pt_data_worker"),
        member(23, 10, python=False, command="tee"),
    )

    assert [w.member.pid for w in find_job(10, tree=rows).workers] == [10, 20]
    assert [w.member.pid for w in find_job(20, tree=rows).workers] == [10, 20]
    assert [(m.pid, kind) for m, kind in find_job(10, tree=rows).workers[1].helpers] == [(22, "DataLoader worker")]


def test_a_rank_that_ended_is_missing_and_one_of_another_machine_is_not():
    local = {"LOCAL_WORLD_SIZE": "2"}
    rows = table(
        TORCHRUN,
        member(20, 10, rank=2, world=4, env={**local, "LOCAL_RANK": "0"}),
        member(21, 10, python=False, state="Z"),
    )

    job = find_job(10, tree=rows)

    assert job.absent == (
        (0, "is not here: it belongs to another launcher", False),
        (1, "is not here: it belongs to another launcher", False),
        (3, "has ended", True),
    )
    assert [m.pid for m in job.ended] == [21]


def absent(pid: int, *rows: Member) -> list[tuple[int, bool]]:
    """The ranks of the job of ``pid`` that are not in the table and should be, and whether they have ended."""
    job = find_job(pid, tree=table(*rows))
    return [(rank, rank in job.gone) for rank, _, must in job.absent if must]


def test_of_a_promised_rank_that_is_nowhere_nobody_knows_whether_it_ended():
    """Each rank may have been started by hand, below a shell of its own."""
    assert absent(20, SHELL, member(20, 1, rank=0)) == [(1, False)]
    script = member(10, 1, python=False, command="bash")
    assert absent(20, script, member(20, 10, rank=0), member(21, 10, state="Z")) == [(1, True)]


def test_a_rank_whose_launcher_is_gone_does_not_know_of_the_others():
    local = {"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    assert absent(20, member(20, 1, rank=0, env=local)) == [(1, False)]
    assert absent(20, TORCHRUN, member(20, 10, rank=0, env=local)) == [(1, True)]


def test_a_forked_child_belongs_to_the_program_that_forked_it():
    """What an idle worker of a pool waits for is its parent's to give."""
    rows = table(SHELL, member(10, 1, argv="python train.py"), member(20, 10, argv="python train.py", forked=True))
    assert [worker.member.pid for worker in find_job(20, tree=rows).workers] == [10, 20]
    adopted = table(SHELL, member(10, 1, argv="python sweep.py"), member(20, 10, argv="python train.py", forked=True))
    assert [worker.member.pid for worker in find_job(20, tree=adopted).workers] == [20]


def test_what_started_a_program_of_its_own_is_not_looked_at():
    looked_at: list[int] = []

    class Table(ProcessTable):
        def get(self, pid: int) -> Member | None:
            looked_at.append(pid)
            return super().get(pid)

    rows = {10: member(10, 1, argv="python notebook.py"), 20: member(20, 10, argv="python train.py")}
    assert [worker.member.pid for worker in find_job(20, tree=Table(rows)).workers] == [20]
    assert 10 not in looked_at


def test_orphans_of_process_one_stay_one_job():
    init = member(1, 0, python=False, command="init")
    rows = table(
        init, member(20, 1, rank=0), member(21, 1, rank=1), member(22, 1, python=False, state="Z"), member(23, 1)
    )

    job = find_job(20, tree=rows)

    assert ranks(job) == [(0, 20), (1, 21)]
    assert job.ended == ()


def test_no_process_and_no_python_are_errors_with_the_way_out():
    with pytest.raises(NoJobError, match="no process 99") as raised:
        find_job(99, tree=table(SHELL))
    assert "torchrun" in raised.value.help
    with pytest.raises(NoJobError, match=r"process 1 \(bash\) has no Python"):
        find_job(1, tree=table(SHELL))


def test_the_number_of_a_thread_is_no_process():
    """``top -H`` shows threads; a job was told by the frames of another thread as if they were the main one's."""
    stay = threading.Event()
    other = threading.Thread(target=stay.wait)
    other.start()
    try:
        with pytest.raises(NoJobError, match=f"^{other.native_id} is a thread of process {os.getpid()}: name that one"):
            find_job(other.native_id, tree=ProcTree(own=0))
    finally:
        stay.set()
        other.join()


def test_what_proc_says_is_read_and_what_it_refuses_is_left_empty(tmp_path):
    stat = "{pid} (pt) S 1 " + "0 " * 17 + "5 0 0"
    for pid in (20, 21):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat.format(pid=pid))
        (tmp_path / str(pid) / "comm").write_text("pt\n")
    folder = tmp_path / "20"
    (folder / "cmdline").write_bytes(b"python3\0train.py\0")
    (folder / "environ").write_bytes(b"RANK=3\0SECRET=x\0WORLD_SIZE=4\0")
    (folder / "status").write_text("Name:\tpt\nNSpid:\t20\t7\n")
    (folder / "exe").symlink_to("/usr/bin/python3.11 (deleted)")

    files = Files(str(tmp_path))
    read, refused = read_member(20, files=files), read_member(21, files=files)

    assert (read.python, read.rank, read.argv, read.command, read.started) == (True, 3, "python3 train.py", "pt", 5)
    assert read.inner == 7
    assert dict(read.env) == {"RANK": "3", "WORLD_SIZE": "4"}
    assert (refused.python, refused.rank, refused.argv, refused.inner) == (False, None, "", 21)
    assert read_member(22, files=files) is None


def test_a_shell_that_becomes_a_rank_is_seen_to_be_one():
    """Looked at between fork and exec, it is a shell: that must not be remembered of the program."""
    line = f"read go; exec env -i RANK=1 WORLD_SIZE=2 {sys.executable} -c 'print(1, flush=True); input()'"
    with subprocess.Popen(["bash", "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        ref = ProcessRef(child.pid, read_member(child.pid).started)

        class Handle:
            def processes(self):
                return (ref,)

        clock = FakeClock()
        census = Census(handle=Handle(), clock=clock, read=read_member)
        assert census.ranks() == {}
        child.stdin.write("go\n")
        child.stdin.flush()
        child.stdout.readline()
        clock.sleep(0.2)
        assert (census.ranks(), census.world()) == ({1: child.pid}, 2)
        child.stdin.write("\n")


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ({"command": "systemd"}, r"process 1 \(systemd\) is the machine's init"),
        ({"command": "init"}, r"process 1 \(init\) is the machine's init"),
        ({"command": "sshd"}, r"process 1 \(sshd\) is neither Python nor a shell"),
    ],
)
def test_process_one_that_is_no_job_is_refused_with_the_reason(first, why):
    with pytest.raises(NoJobError, match=why):
        find_job(1, tree=table(member(1, 0, python=False, **first), member(20, 1)))


@pytest.mark.parametrize("first", [{"command": "bash", "python": False}, {"command": "tini", "python": False}, {}])
def test_process_one_of_a_container_is_a_job_where_it_starts_python_or_is_it(first):
    job = find_job(1, tree=table(member(1, 0, **first), member(20, 1)))
    assert [worker.member.pid for worker in job.workers] == ([20] if first else [1, 20])


@pytest.fixture
def machine(tmp_path):
    """Lines ``PID PARENT COMMAND LINE`` as a /proc, in which all of them are Python."""

    def made(*lines):
        for line in lines:
            pid, parent, argv = line.split(maxsplit=2)
            folder = tmp_path / pid
            (folder / "task" / pid).mkdir(parents=True)
            (folder / "stat").write_text(f"{pid} (python) S {parent} " + "0 " * 17 + f"{pid} 0 0")
            (folder / "comm").write_text("python\n")
            (folder / "cmdline").write_bytes(b"\0".join(argv.encode().split()))
            (folder / "exe").symlink_to("/usr/bin/python3.11")
            below = " ".join(other.split()[0] for other in lines if other.split()[1] == pid)
            (folder / "task" / pid / "children").write_text(below)
        return Files(str(tmp_path))

    return made


def test_only_who_names_process_one_is_led_to_it(machine):
    files = machine("1 0 python train.py", "20 1 python -c from multiprocessing.spawn import spawn_main")
    assert [w.member.pid for w in find_job(1, tree=ProcTree(named=1, files=files, own=99)).workers] == [1, 20]
    assert [w.member.pid for w in find_job(20, tree=ProcTree(named=20, files=files, own=99)).workers] == [20]


def test_whoever_asks_is_no_part_of_the_job_nor_what_it_started_nor_the_guard_that_started_it(machine):
    files = machine(
        "9 2 python shell.py",
        "20 9 python train.py",
        "30 9 python /bin/nsa-harness guard 9",
        "31 30 python -P /x/nsa_harness/start.py watch 9",
        "32 31 python /bin/py-spy dump",
    )
    tree = ProcTree(named=9, files=files, own=31)
    assert [w.member.pid for w in find_job(9, tree=tree).workers] == [9, 20]
    assert [m.pid for m, _ in find_job(20, tree=tree).workers[0].helpers] == []
    assert (tree.get(31), tree.get(30)) == (None, None)
    with pytest.raises(NoJobError, match="no process 31"):
        find_job(31, tree=tree)


def test_of_a_run_of_ours_the_job_is_the_program_that_it_runs():
    """Its own processes were called the program, and judged."""
    rows = table(
        SHELL,
        member(10, 1, argv="python /bin/nsa-harness run -- python train.py"),
        member(11, 10, command="nsa-guard"),
        member(12, 11, command="nsa-supervisor"),
        member(13, 12, argv="python train.py"),
        member(14, 13, python=False, command="tee"),
    )
    for pid in (1, 10, 11, 12):
        job = find_job(pid, tree=rows)
        assert [worker.member.pid for worker in job.workers] == [13]
        assert [helper.pid for helper, _ in job.workers[0].helpers] == [14]
    with pytest.raises(NoJobError, match="process 10 is nsa-harness itself, and no Python program of its runs"):
        find_job(10, tree=table(SHELL, member(10, 1, argv="python /bin/nsa-harness run -- python train.py")))


@pytest.mark.parametrize(
    ("argv", "is_ours"),
    [
        ("/venv/bin/nsa-harness run -- python train.py", True),
        ("/venv/bin/python3 -P -X dev /venv/bin/nsa-harness guard 9", True),
        ("python -P /x/nsa_harness/start.py watch 9", True),
        ("python -P -m harness watch 9", True),
        ("python -m pytest tests/unit/harness", False),
        ("python train.py --out /data/nsa-harness", False),
        ("python train.py nsa-harness run", False),
    ],
)
def test_a_command_of_ours_is_known_by_what_runs_and_not_by_what_it_is_given(argv, is_ours):
    assert member(10, 1, argv=argv).is_harness is is_ours


def test_a_rank_that_our_run_was_started_as_is_the_rank_below_it():
    run = "python /bin/nsa-harness run -- python train.py"
    rows = table(TORCHRUN, member(20, 10, rank=0, world=1, argv=run), member(21, 20, rank=0, world=1))
    assert ranks(find_job(10, tree=rows)) == [(0, 21)]


def test_the_other_jobs_of_a_shell_are_those_that_no_program_of_it_has_started():
    rows = table(
        SHELL,
        member(20, 1),
        member(21, 20),
        member(22, 20, python=False, command="sh"),
        member(23, 22),
        member(30, 1),
        member(31, 1, python=False, command="sh"),
        member(32, 31),
    )
    assert [other.pid for other in find_job(1, tree=rows).beside_the_first] == [30, 32]
    assert find_job(10, tree=table(TORCHRUN, member(20, 10, rank=0), member(21, 10, rank=1))).beside_the_first == ()


def test_python_under_another_name_is_python(tmp_path, monkeypatch):
    """By its executable; that of a process which is not of the job is not read."""
    program = tmp_path / "trainer"
    shutil.copy(os.path.realpath(sys.executable), program)
    home = {"PYTHONHOME": sys.base_prefix, "LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR") or ""}
    command = [program, "-S", "-c", "print(1, flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=home) as child:
        assert child.stdout.readline() == "1\n"
        (worker,) = find_job(child.pid, tree=ProcTree()).workers
        assert (worker.member.pid, worker.member.command) == (child.pid, "trainer")
        assert read_member(child.pid).python is False
        monkeypatch.setattr(proc, "_linked_to", lambda *_: (True, True))
        assert Proc().look(child.pid, id="p", t_s=0.0).sends_signals is False
        child.communicate("\n")


@pytest.mark.parametrize(("command", "is_python"), [("sim", True), ("gdb", False), ("cat", False)])
def test_what_has_python_in_it_is_python_and_a_debugger_is_not(command, is_python, tmp_path):
    folder = tmp_path / "20"
    folder.mkdir()
    (folder / "stat").write_text(f"20 ({command}) S 1 " + "0 " * 17 + "5 0 0")
    (folder / "comm").write_text(f"{command}\n")
    library = "/usr/lib/libc.so.6" if command == "cat" else "/usr/lib/libpython3.12.so.1.0"
    (folder / "maps").write_text(f"7f00-7f01 r-xp 00000000 08:01 42    {library}\n7f02-7f03 rw-p 00000000 00:00 0\n")
    assert read_member(20, files=Files(str(tmp_path)), is_of_job=True).python is is_python


def test_a_process_of_which_only_the_exit_status_is_left_has_ended():
    with pytest.raises(NoJobError, match=r"process 20 \(python\) has ended"):
        find_job(20, tree=table(SHELL, member(10, 1), member(20, 10, state="Z")))
