"""nsa-harness run on a stranger's real programs: verdict, exit code, report, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.main import main
from harness.clock import WallClock
from harness.core.outcome import Survivor
from harness.launch import handle, procs
from harness.settings import processes_with
from harness.store.run_store import read_run

COUNTS = """
import sys, time
for step in range(int(sys.argv[1])):
    print("step", step + 1, flush=True)
print(sys.argv[2:], flush=True)
"""

WAITS = """
import threading
print("step 1", flush=True)
def wait_for_news(lock):
    lock.acquire()
    lock.acquire()
wait_for_news(threading.Lock())
"""

FEEDS = """
import queue, threading
def feed(rows):
    for row in rows:
        print(row["label"], flush=True)
rows = queue.Queue()
threading.Thread(target=feed, args=([{"label": 1}, {}],), name="feeder").start()
rows.get()
"""


JOINS = """import threading

lock = threading.Lock()


def write(items):
    with lock:
        with lock:
            print(items)


def main():
    idle = threading.Event()
    threading.Thread(target=idle.wait, daemon=True).start()
    writer = threading.Thread(target=write, args=([],))
    writer.start(); writer.join()


print("starting", flush=True)
main()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counts.py").write_text(COUNTS)
    (tmp_path / "waits.py").write_text(WAITS)
    (tmp_path / "feeds.py").write_text(FEEDS)
    return tmp_path


def run(*argv: object, options: tuple[object, ...] = ()):
    words = ["run", *options, "--", sys.executable, *argv]
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="nsa-harness")


def folder(place: Path) -> Path:
    (found,) = (place / "runs").iterdir()
    return found


def test_a_program_that_comes_to_its_end_passes_and_has_a_report(place):
    done = run("counts.py", 3)

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "PASS"
    assert max(map(len, done.stdout.splitlines())) <= 80 or str(place) in done.stdout
    report = (folder(place) / "report.md").read_text()
    assert "PASS" in report
    assert "counts.py 3" in report


PROBE = "import subprocess, sys\nprobe = subprocess.run([sys.executable, '-c', 'import flash_attn_nope'])\nprint(7)\n"


@pytest.mark.parametrize(
    ("end", "verdict"), [("", "PASS"), ("probe.check_returncode()\n", "CRASH (ModuleNotFoundError)")]
)
def test_what_a_child_raised_counts_where_the_program_did_not_go_on_without_it(end, verdict, place):
    (place / "probes.py").write_text(PROBE + end)
    assert run("probes.py").stdout.startswith(verdict)


ATTEMPT = 'until {0} -c \'import os; os.mkdir("made") or 1 / 0 if not os.path.exists("made") else 0\'; do :; done'
PIPES = "{0} -c 'for i in range(100000): print(i)' | head -n 1"
LOGS = "{0} -c 1/0 | cat"


@pytest.mark.parametrize(
    ("script", "verdict"), [(ATTEMPT, "PASS"), (PIPES, "PASS"), (LOGS, "CRASH (ZeroDivisionError)")]
)
def test_an_exception_counts_where_a_shell_hides_it_and_not_where_the_shell_deals_with_it(script, verdict, place):
    argv = ["run", "--", "bash", "-c", script.format(sys.executable)]
    done = CliRunner().invoke(main, argv, prog_name="nsa-harness")
    assert done.stdout.startswith(verdict)


WORK = "{0} -c 'print(7)'"


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        (f"if {{0}} -c 1/0; then :; fi; {WORK}", "PASS"),
        (f"{{0}} -c 1/0 || echo no; {WORK}", "PASS"),
        (f"{{0}} -c 1/0 2>/dev/null; {WORK}", "PASS"),
        (f"{{0}} -c 1/0; {WORK}", "CRASH (ZeroDivisionError)"),
        ("{0} -c 1/0 || echo no", "CRASH (ZeroDivisionError)"),
    ],
)
def test_a_probe_whose_failure_the_shell_asked_for_is_named_beside_the_pass_of_the_work(script, verdict, place):
    argv = ["run", "--", "bash", "-c", script.format(sys.executable)]
    done = CliRunner().invoke(main, argv, prog_name="nsa-harness")
    assert done.stdout.startswith(verdict)
    assert "ZeroDivisionError: division by zero" in " ".join(done.stdout.split())


def test_a_program_that_goes_on_without_what_a_child_could_not_do_is_not_a_crash_when_its_time_is_up(place):
    """A probe that failed at import, and was expected to, at the beginning of a run that is merely long."""
    (place / "long.py").write_text(
        "import subprocess, sys, time\n"
        "subprocess.run([sys.executable, '-c', 'import no_such_tracker'], stderr=subprocess.DEVNULL)\n"
        "for step in range(1000):\n    time.sleep(0.1)\n    print('step', step, flush=True)\n"
    )
    done = run("long.py", options=("--limit", "3s"))
    assert "CRASH" not in done.output
    assert "SLOW" in done.output


def test_a_death_by_a_signal_that_python_ignores_is_one(place):
    argv = ["run", "--", "sh", "-c", "kill -XFSZ $$"]
    done = CliRunner().invoke(main, argv, prog_name="nsa-harness")
    assert done.stdout.startswith("CRASH (SIGXFSZ)")


def test_the_dashes_may_be_left_out(place):
    argv = ["run", "--steps", "2", "--progress", r"step (\d+)", sys.executable, "counts.py", "2", "--steps", "9"]
    done = CliRunner().invoke(main, argv, prog_name="nsa-harness")

    assert done.exit_code == 0, done.output


def test_a_pattern_of_progress_that_matched_nothing_is_named(place):
    done = run("counts.py", "1", options=("--progress", r"stp (\d+)"))
    text = " ".join(done.stdout.split())
    assert r"no sign of progress was seen (--progress 'stp (\d+)' matched no line)" in text, done.output


@pytest.mark.parametrize("progress", [(), ("--progress", "step")], ids=["no pattern", "a pattern without a number"])
def test_steps_that_nothing_counts_are_no_failure_of_the_program(place, progress):
    done = run("counts.py", "4", options=(*progress, "--steps", 3))

    assert done.exit_code == 3, done.output
    assert done.stdout.splitlines()[0].startswith("UNRESOLVED (steps-not-counted)")
    assert "--progress 'step" in done.stdout
    assert "may also be" not in done.stdout


def test_values_fill_the_command_and_steps_by_a_pattern_are_asked_for(place):
    options = ("--set", "n=4", "--set", "name=a b", "--progress", r"^step (\d+)", "--steps", 5)
    done = run("counts.py", "{n}", "--name={name}", options=options)

    assert done.exit_code == 1, done.output
    assert done.stdout.splitlines()[0].startswith("CRASH (exit-early)")
    assert "4 of 5 steps" in done.stdout
    assert "--name=a b" in (folder(place) / "report.md").read_text()


def test_a_pass_must_show_what_was_declared_as_success(place):
    done = run("counts.py", 1, options=("--success", "all is well"))

    assert done.exit_code == 1
    assert done.stdout.startswith("BELOW_TARGET")
    assert run("counts.py", 1, "all is well", options=("--success", "all is well")).exit_code == 0


def test_a_hang_is_told_within_seconds_and_ended_with_its_place(place):
    done = run("waits.py", options=("--startup", "5s"))

    assert done.exit_code == 1, done.output
    assert done.stdout.startswith("HANG (deadlock)")
    assert "wait_for_news (waits.py:6)" in done.stdout
    assert not [pid for pid, folder in processes_with("NSA_HARNESS_TRIAL_DIR") if folder.startswith(str(place))]
    page = (folder(place) / "report.md").read_text()
    assert ") of the program, " in page
    assert "rank 0" not in page
    again = CliRunner().invoke(main, ["classify", str(folder(place))])
    assert (again.exit_code, again.stdout.split()[-1]) == (0, "same"), again.output


def test_of_a_main_thread_that_joins_another_the_line_of_that_other_is_named(place):
    """What stands still is the thread whose end the main one waits for, and its line is the one to read."""
    (place / "joins.py").write_text(JOINS)
    done = run("joins.py")

    assert done.stdout.startswith("HANG (deadlock): write (joins.py:8)"), done.output
    assert re.search(r"the main thread waits for it to end, in main \(\S*joins.py:16\)", " ".join(done.stdout.split()))


def test_of_a_hang_it_is_said_that_a_thread_had_ended_by_an_exception(place):
    """Whoever waits for what a thread would have given wants to read why it is gone, and not only where it waits."""
    done = run("feeds.py", options=("--startup", "5s"))

    assert done.stdout.startswith("HANG (deadlock): <module> (feeds.py:8)"), done.output
    words = " ".join(done.stdout.split())
    ended = r"before that thread feeder had ended by an exception in feed \(\S*feeds.py:5\): KeyError: 'label'"
    assert re.search(ended, words), words
    assert re.search(ended, (folder(place) / "report.md").read_text())


def test_ranks_that_were_given_another_environment_are_found_all_the_same(place):
    (place / "start.sh").write_text(
        f"""
        for rank in 0 1; do
            env -i RANK=$rank WORLD_SIZE=2 {sys.executable} waits.py &
        done
        wait
        """
    )
    done = CliRunner().invoke(main, ["run", "--json", "--", "bash", "start.sh"], prog_name="nsa-harness")

    (trial,) = json.loads(done.stdout)["trials"]
    assert (trial["verdict"]["kind"], trial["verdict"]["cause"]) == ("HANG", "deadlock"), trial["verdict"]["because"]
    assert trial["verdict"]["because"].startswith("ranks 0 and 1 hang alike")
    assert done.exit_code == 1


def test_repeats_are_told_apart_and_learn_their_limits(place):
    done = run("counts.py", 2, options=("--repeat", 2, "--json"))

    assert done.exit_code == 0, done.output
    first, second = json.loads(done.stdout)["trials"]
    assert first["trial"]["budget"]["stall"]["source"].startswith("default")
    assert second["trial"]["budget"]["stall"]["source"].startswith("learned")
    assert second["trial"]["prediction"]["basis"] == "1 passed run of the same program"


def test_a_program_that_cannot_be_started_is_the_machines_matter(place):
    script = place / "go"
    script.write_bytes(b"\x7fELF and nothing else")  # which shows only when it is executed
    script.chmod(0o755)

    done = CliRunner().invoke(main, ["run", "--repeat", "9", "--", str(script)], prog_name="nsa-harness")

    assert done.exit_code == 6
    assert "INFRA (never-started): 3 runs (1..3)" in done.stdout  # and not nine
    assert "next: Put right what keeps it from starting" in done.stdout


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["run", "--", "python", "{layers}"], "--set layers=VALUE"),
        (["run", "--progress", "(", "--", "python"], "no regular expression"),
        (["run"], "Missing argument"),
    ],
)
def test_wrong_use_is_said_before_anything_runs(place, argv, said):
    done = CliRunner().invoke(main, argv, prog_name="nsa-harness")

    assert done.exit_code == 2
    assert said in done.output
    assert not (place / "runs").exists()


def test_the_programs_own_output_can_be_shown(place):
    done = run("counts.py", 2, options=("--echo",))

    assert done.stdout.splitlines()[:2] == ["step 1", "step 2"]


TREE = """
import os, subprocess, sys
say = "import os, threading; os.write(1, b'rank %d' % os.getpid() + bytes([10])); threading.Event().wait()"
for _ in range(2):
    subprocess.Popen([sys.executable, "-c", say], start_new_session=True)
subprocess.Popen([sys.executable, "-c", say], start_new_session=True, env={}).wait()
"""


def test_nothing_is_left_when_the_command_itself_is_killed(place):
    (place / "launcher.py").write_text(TREE)
    command = [sys.executable, "-P", "-m", "harness", "run", "--echo", "--", sys.executable, "launcher.py"]
    with subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as controller:
        pids = [int(controller.stdout.readline().split()[1]) for _ in range(3)]
        started = {pid: procs.read(pid).started for pid in pids}
        controller.kill()
    clock = WallClock()
    until_s = clock.now() + 30.0
    while any((p := procs.read(pid)) is not None and p.started == started[pid] and not p.dead for pid in pids):
        assert clock.now() < until_s, "the ranks outlive the command that started them"
        clock.sleep(0.01)


def test_the_environment_arrives_and_its_secrets_are_not_kept(place, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "s3cr3t-value")
    (place / "env.py").write_text("import os\nprint(len(os.environ['MY_API_KEY']), os.environ['EXTRA'])\n")
    done = run("env.py", options=("--env", "EXTRA=here", "--echo"))

    assert done.stdout.splitlines()[0] == "12 here"
    for file in folder(place).rglob("*"):
        assert not file.is_file() or b"s3cr3t-value" not in file.read_bytes()
    assert os.environ["MY_API_KEY"]


DELETES = """
import shutil, sys, time
if int(sys.argv[1]) == 2:
    shutil.rmtree("runs")
for step in range(3):
    print("step", step + 1, flush=True)
    time.sleep(0.4)
"""


def test_a_program_that_deletes_the_runs_costs_its_trial_and_not_the_run(place):
    (place / "deletes.py").write_text(DELETES)
    argv = [
        "bisect",
        "--axis",
        "x=1..2",
        "--certify",
        "2",
        "--progress",
        "step",
        "--",
        sys.executable,
        "deletes.py",
        "{x}",
    ]
    done = CliRunner().invoke(main, argv, prog_name="nsa-harness")

    assert "Traceback" not in done.output
    run = read_run(folder(place))
    assert run.ended == "answered", done.output
    kinds = {value: {str(r.verdict.kind) for r in run.records if r.trial.point.get("x") == value} for value in (1, 2)}
    assert kinds == {1: {"PASS"}, 2: {"INFRA"}}
    assert any("was deleted while the run went on" in note for note in run.notes)
    assert done.exit_code == 6, done.output


def test_a_program_that_deletes_its_own_folder_is_no_traceback(place):
    (place / "deletes.py").write_text(DELETES)
    done = run("deletes.py", 2)

    assert done.exit_code == 6, done.output
    assert "its folder was deleted while it ran" in " ".join(done.stdout.split())
    assert "INFRA" in (folder(place) / "report.md").read_text()


KEEPS = """
import threading
def load_batch(number, db_password):
    lock = threading.Lock()
    shards = ["a", "b"]
    lock.acquire()
    lock.acquire()
print("step 1", flush=True)
load_batch(7, "swordfish-of-the-test")
"""


@pytest.mark.parametrize("asked", [True, pytest.param(False, marks=pytest.mark.long)])
def test_locals_are_shown_where_they_were_asked_for_without_what_is_secret_by_its_name(place, asked):
    (place / "keeps.py").write_text(KEEPS)
    done = run("keeps.py", options=("--locals",) if asked else ())

    assert done.exit_code == 1, done.output
    report = (folder(place) / "report.md").read_text()
    for text in (done.stdout, report):
        assert ("number = 7" in text) == asked
        assert ('shards = ["a", "b"]' in text) == asked
        assert ("db_password = <hidden>" in text) == asked
    kept = [path for path in folder(place).rglob("*") if path.is_file()]
    assert not [path for path in kept if "swordfish" in path.read_text(errors="replace")]


def test_a_slow_program_is_given_the_time_that_its_steps_need_and_one_rate(place):
    (place / "steps.py").write_text(
        "import time\nfor i in range(1000):\n    print('step', i, flush=True)\n    time.sleep(0.2)\n"
    )
    done = run("steps.py", options=("--progress", r"step (\d+)", "--steps", 1000, "--limit", "3s"))

    screen = " ".join(done.stdout.split())
    rate, needed = re.search(r"at (\S+) s a step it would have needed about (\S+) s", screen).groups()
    assert re.findall(r"(\S+) s a step;", screen) == [rate]
    page = " ".join((folder(place) / "report.md").read_text().split())
    (allowed,) = re.findall(r"Give it time, .*? `nsa-harness run .*?--limit (\d+)s ", page)
    assert int(allowed) >= 2 * float(needed)


def test_a_slow_program_is_given_the_time_that_its_loop_needs(place):
    (place / "loop.py").write_text(
        "import hashlib\n"
        "def main():\n"
        "    for token in range(20_000):\n"
        "        hashlib.pbkdf2_hmac('sha256', b'', b'', 20_000)\n"
        "main()\n"
    )
    done = run("loop.py", options=("--limit", "12s"))

    screen = " ".join(done.stdout.split())
    (needed,) = re.findall(r"(\d+) s in all", screen)
    page = " ".join((folder(place) / "report.md").read_text().split())
    (allowed,) = re.findall(r"Give it time, .*? `nsa-harness run .*?--limit (\d+)s ", page)
    assert int(needed) > 100
    assert int(allowed) >= int(needed)


ORDERS = """
import subprocess, sys
CHILD = "import sys; print('ready'); sys.stdin.read()"
def first_line():
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return child.stdout.readline()
print(first_line())
"""
HELD_BACK = "import os; print('ready'); os._exit(0)"
"""What is not flushed before that is lost."""


def test_a_line_that_a_child_holds_back_in_its_pipe_is_waited_for_as_without_us(place, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    (place / "orders.py").write_text(ORDERS)
    done = run("orders.py")
    assert done.stdout.startswith("HANG"), done.output
    assert "first_line" in done.stdout


@pytest.mark.parametrize(
    ("script", "given", "is_seen"),
    [
        ('{0} -c "{1}"', None, True),
        ('{0} -c "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])" -c "{1}"', None, True),
        ('{0} -c "{1}"', "", False),
        ('{0} -c "{1}" | cat', None, False),
        ('{0} -c "{1}" | cat', "1", True),
    ],
    ids=["of the program", "of a child", "as the user says", "through a pipe of its own", "unbuffered by the user"],
)
def test_a_line_is_seen_at_once_where_it_comes_to_us_and_held_back_where_it_was(
    script, given, is_seen, place, monkeypatch
):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    env = [] if given is None else ["--env", f"PYTHONUNBUFFERED={given}"]
    argv = ["run", *env, "--success", "^ready", "--", "bash", "-c", script.format(sys.executable, HELD_BACK)]
    done = CliRunner().invoke(main, argv, prog_name="nsa-harness")
    assert done.stdout.startswith("PASS") is is_seen, done.output


POOL = """
import multiprocessing, os, signal, sys, time
from concurrent.futures import ProcessPoolExecutor
def work(x):
    if x == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
def gather():
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) if len(sys.argv) == 2 else ProcessPoolExecutor(2, mp_context=context) as pool:
        return list(pool.map(work, range(8)))
if __name__ == "__main__":
    gather()
"""
KILLED = re.compile(r"process \d+, which multiprocessing had begun for .*?, was ended by SIGKILL \(signal 9\)")


@pytest.mark.parametrize(
    ("argv", "verdict"),
    [
        (("fork",), "HANG"),
        (("spawn",), "HANG"),
        (("forkserver",), "HANG"),
        (("fork", "executor"), "CRASH (BrokenProcessPool): gather"),
    ],
)
def test_the_worker_of_a_pool_that_a_signal_ended_is_named(argv, verdict, place):
    (place / "pools.py").write_text(POOL)
    done = run("pools.py", *argv)
    assert done.stdout.startswith(verdict), done.output
    assert "gather (pools.py:" in done.stdout
    assert len(KILLED.findall(" ".join(done.stdout.split()))) == 1, done.stdout


def test_of_workers_that_the_program_ends_itself_nothing_is_said(place):
    (place / "ends.py").write_text(ENDS_ITS_OWN)
    done = run("ends.py")
    assert done.stdout.startswith("HANG"), done.output
    assert "multiprocessing had begun" not in " ".join(done.stdout.split())


ENDS_ITS_OWN = """
import multiprocessing, threading, time
if __name__ == "__main__":
    child = multiprocessing.Process(target=time.sleep, args=(60,))
    child.start()
    child.terminate()
    child.join()
    threading.Event().wait()
"""


def test_a_trial_that_cannot_be_ended_has_its_verdict_and_then_what_remains(place, monkeypatch):
    survivor = Survivor(pid=7, state="D", command="python", waits_in="io_schedule")
    end = handle.end_tree
    monkeypatch.setattr(handle, "end_tree", lambda **how: replace(end(**how), survivors=(survivor,)))
    done = run("-c", "raise SystemExit(3)", options=("--repeat", "3"))

    assert done.exit_code == 6, done.output
    before, _, after = done.output.partition("\nreport:")
    assert "CRASH" in before
    assert len(list((place / "runs").glob("*/trials/*"))) == 1
    assert "PID 7 in state D (io_schedule): python" in " ".join(after.split())
    assert "next: In state D" in after
    (written,) = (place / "runs").glob("*/report.md")
    assert "PID 7 in state D" in written.read_text()


HANDED = (
    "(exec ls /proc/$$/fd > descriptors); tr '\\n' ' ' < descriptors; readlink /proc/$$/fd/77; "
    "test $LISTEN_PID = $$ && echo they are its own"
)
"""Neither with a pipe nor with a redirection of the shell's own, of which it has a descriptor for a moment."""


@pytest.fixture
def _handed(place):
    with (place / "handed").open("w+") as file:
        os.dup2(file.fileno(), 77)
    yield
    os.close(77)


@pytest.mark.usefixtures("_handed")
def test_descriptors_that_it_was_handed_are_handed_on_and_no_others(place):
    def said(*words: object) -> str:
        argv = ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *map(str, words), "sh", "-c", HANDED]
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, pass_fds=[77], text=True).stdout

    bare = said()
    said(sys.executable, "-m", "harness", "run", "--")
    (ours,) = (place / "runs").glob("*/trials/*/stdout.txt")
    assert bare.split("\n") == [f"0 1 2 77 {place}/handed", "they are its own", ""]
    assert ours.read_text() == bare


@pytest.mark.usefixtures("_handed")
def test_trials_of_a_search_share_no_position_in_a_file_of_the_caller():
    argv = [sys.executable, "-m", "harness", "matrix", "run", "--axis", "n=1,2", "--"]
    argv += ["sh", "-c", "test ! -e /proc/self/fd/77", "{n}"]
    done = subprocess.run(argv, capture_output=True, pass_fds=[77], text=True)
    assert done.returncode == 0, done.stdout
