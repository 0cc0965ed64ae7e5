"""The command as a user runs it: real trials, real signals, a real disk that fills up."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.settings import processes_with
from harness.store.run_store import read_run

pytestmark = pytest.mark.usefixtures("_without_figures")

SMALL = (
    "--set=model.dim=32", "--set=model.d_k=4", "--set=model.d_v=4", "--seq-len=64", "--steps=3", "--certify=3",
)  # fmt: skip
COMMAND = (sys.executable, "-P", "-m", "harness")

# What becomes of a run does not depend on the program: most of these take one that starts at once.
PROGRAM = """
import sys, threading, time
print("step 1", flush=True)
if "rests" in sys.argv:
    time.sleep(2)
if "hangs" in sys.argv and int(sys.argv[1]) >= 3:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def program(*words: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-S", "train.py", "{n}", *words)


def bisect(*argv: str, cwd: Path, check: int | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*COMMAND, "bisect", *argv], cwd=cwd, capture_output=True, text=True, check=False)
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done


def start(*argv: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "bisect", *argv], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def read_until(running: subprocess.Popen[str], words: str) -> str:
    assert running.stderr is not None
    seen = ""
    for line in running.stderr:
        seen += line
        if words in line:
            return seen
    raise AssertionError(f"{words!r} never came:\n{seen}")


def report(cwd: Path) -> dict:
    done = subprocess.run([*COMMAND, "report", "--json"], cwd=cwd, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["run"]


def journal(cwd: Path) -> Path:
    (path,) = cwd.glob("runs/*/journal.jsonl")
    return path


def events(cwd: Path, name: str) -> list[dict]:
    lines = journal(cwd).read_text().splitlines()
    return [row["data"] for row in map(json.loads, lines) if row["event"] == name]


def keys(cwd: Path) -> list[str]:
    return [row["record"]["trial"]["key"] for row in events(cwd, "record")]


def trial_processes(cwd: Path) -> list[int]:
    """The processes that belong to trials of a run below ``cwd``, by their working files."""
    found = []
    for pid, _ in processes_with("NSA_HARNESS_TRIAL"):
        with contextlib.suppress(OSError):
            links = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
            if any(link.startswith(str(cwd)) for link in links):
                found.append(pid)
    return found


def wait_until_gone(pids: list[int], *, within_s: float = 120.0) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            ready, _, _ = select.select([fd], [], [], within_s)
            os.close(fd)
            assert ready, f"PID {pid} is still there"


def test_a_planted_deadlock_is_found_and_the_waiting_function_named(tmp_path: Path):
    done = bisect("--axis=n_layers=1..4", "--fault=backward-deadlock@n_layers>=3", *SMALL, cwd=tmp_path, check=0)

    run = report(tmp_path)
    assert (run["answer"]["boundary"]["last_good"], run["answer"]["boundary"]["first_bad"]) == (2, 3)
    assert run["answer"]["boundary"]["claim"] == "isolated"
    hangs = [r for r in run["records"] if r["verdict"]["kind"] == "HANG"]
    assert 2 <= len(hangs) <= 3
    assert all("acquire_forever" in r["verdict"]["because"] for r in hangs)
    assert "n_layers=3 hangs (deadlock)" in done.stdout
    assert done.stdout.rstrip().splitlines()[-2:] != []
    assert "reproduce:" in done.stdout
    assert trial_processes(tmp_path) == []


@pytest.mark.long
def test_a_slow_model_is_slow_and_nothing_is_claimed_beyond(tmp_path: Path):
    # Sixty-four layers take sixty times what one takes, and have ten times what one took here just now.
    argv = ("--attention=legacy-sequential", *SMALL, "--seq-len=96")
    bisect("--axis=n_layers=1,2", "--max-trials=1", "--runs=first", *argv, cwd=tmp_path)
    (folder,) = (tmp_path / "first").iterdir()
    (first,) = read_run(folder).records
    total_s = 10 * first.outcome.duration_s
    done = bisect("--axis=n_layers=1,2,64", f"--total={total_s:.1f}s", *argv, cwd=tmp_path)

    run = report(tmp_path)
    kinds = {dict(r["trial"]["point"]["settings"])["n_layers"]: r["verdict"]["kind"] for r in run["records"]}
    assert kinds[64] == "SLOW", done.stderr
    assert kinds[1] == "PASS", done.stderr
    assert "HANG" not in kinds.values()
    assert run["answer"]["boundary"]["finding"] == "no threshold: the limit ran out"
    assert run["answer"]["boundary"]["first_bad"] is None
    assert "SLOW: no threshold" in done.stdout
    assert done.returncode == 1


def test_ctrl_c_keeps_everything_and_resume_goes_on(place: Path):
    running = start("--axis=n=1..4", "--certify=6", *program(), cwd=place)
    read_until(running, "  2  ")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate()

    assert running.returncode == 130, out + err
    assert "--resume" in out + err
    assert trial_processes(place) == []
    before = keys(place)
    assert len(before) >= 2

    bisect("--resume", cwd=place, check=0)

    after = keys(place)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after)
    assert report(place)["answer"]["boundary"]["finding"] == "no failing value"


@pytest.mark.long
def test_kill_9_of_the_controller_leaves_no_orphan_and_loses_one_trial_at_most(place: Path):
    running = start("--axis=n=1..4", "--certify=1", *program("hangs"), cwd=place)
    read_until(running, "silent for")
    alive = trial_processes(place)
    assert alive
    running.kill()
    running.communicate()
    wait_until_gone(alive)
    assert trial_processes(place) == []
    before = keys(place)

    bisect("--resume", cwd=place, check=0)

    after = keys(place)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after)
    run = report(place)
    assert (run["answer"]["boundary"]["last_good"], run["answer"]["boundary"]["first_bad"]) == (2, 3)


@pytest.mark.long
def test_a_torn_last_line_is_reported_kept_aside_and_not_in_the_way(place: Path):
    bisect("--axis=n=1..2", "--certify=4", "--max-trials=2", *program(), cwd=place)
    path = journal(place)
    path.write_bytes(path.read_bytes() + b'{"event":"record","sche')
    before = keys_of_whole_lines(path)

    done = bisect("--resume", cwd=place)

    assert keys(place)[: len(before)] == before
    assert (path.parent / "journal.corrupt-1").read_bytes() == b'{"event":"record","sche'
    notes = [row["text"] for row in events(place, "note")]
    assert any("incomplete" in text for text in notes), done.stderr


def keys_of_whole_lines(path: Path) -> list[str]:
    rows = [json.loads(line) for line in path.read_text().splitlines()[:-1]]
    return [row["data"]["record"]["trial"]["key"] for row in rows if row["event"] == "record"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_a_clear_error_and_resume_goes_on_once_there_is_room(place: Path):
    runs = place / "runs"
    runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(runs)], check=True)
    try:
        (runs / "filler").write_bytes(b"x" * 1_900_000)
        done = bisect("--axis=n=1..3", "--certify=20", *program(), cwd=place)
        assert done.returncode == 6, done.stdout + done.stderr
        assert "No space left on device" in done.stderr
        assert "--resume" in done.stderr
        assert "Traceback" not in done.stderr
        before = keys(place)
        (runs / "filler").unlink()

        bisect("--resume", cwd=place, check=0)

        assert keys(place)[: len(before)] == before
        assert trial_processes(place) == []
    finally:
        subprocess.run(["umount", "-l", str(runs)], check=True)


def test_a_question_file_with_a_mistake_is_refused_with_file_and_line(tmp_path: Path):
    (tmp_path / "layers.yaml").write_text("question: Where?\ntarget: nsa\naxis: n_layers=1..4\nfault: lock-deadlok\n")

    done = bisect("layers.yaml", cwd=tmp_path, check=2)

    assert "layers.yaml:4" in done.stderr
    assert "lock-deadlock" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_two_controllers_cannot_work_in_one_run(place: Path):
    # With so many passes to come it is still at work when the second one looks.
    running = start("--axis=n=1..4", "--certify=1000", *program("rests"), cwd=place)
    read_until(running, "  1  ")

    second = bisect("--resume", cwd=place)

    running.send_signal(signal.SIGINT)
    running.communicate()
    assert second.returncode == 6
    assert str(running.pid) in second.stderr
