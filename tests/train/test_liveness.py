"""Lines that come whatever the trainer does: also while a thread holds the interpreter lock, or it is stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TRAINER = """
import ctypes, os, signal, sys
from pathlib import Path
from nsa.train.liveness import liveness

with liveness(Path(sys.argv[1]), rank=3, every_s=0.05, speaks=True) as page:
    page.mark("backward", "begin", 7)
    if sys.argv[2] == "holds the lock":
        # A call through PyDLL keeps the lock: no Python code runs until a byte comes.
        ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)
    else:
        sys.stdin.read(1)
    page.mark("backward", "end", 7)
"""


@pytest.fixture
def trainer(tmp_path):
    """Starts the program and gives its lines as they come; it ends when a byte is written to it."""
    started = []

    def start(how):
        command = [sys.executable, "-c", TRAINER, str(tmp_path), how]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, cwd=Path(__file__).parents[2]))
        return started[0], lines(tmp_path / "liveness_rank3.jsonl", started[0])

    yield start
    for process in started:
        process.kill()
        process.communicate()


def lines(path, process):
    """The file's lines as they come, the last of them ``ended`` or ``gone``."""
    read, rest, patience = 0, b"", time.monotonic() + 60
    while True:
        if path.exists():
            data = path.read_bytes()
            *whole, rest = (rest + data[read:]).split(b"\n")
            read = len(data)
            patience = time.monotonic() + 60 if whole else patience
            for line in whole:
                record = json.loads(line)
                yield record
                if record["msg"] != "alive":
                    return
        assert path.exists() or process.poll() is None, "the program ended without a line"
        assert time.monotonic() < patience, "no line has come for a minute"
        time.sleep(0.02)


def until(stream, is_so):
    seen, patience = [], time.monotonic() + 60
    for record in stream:
        seen.append(record)
        if is_so(record):
            return record
        assert time.monotonic() < patience, f"not so for a minute: {seen[-1]}"
    raise AssertionError(f"it ended before: {seen[-1:]}")


def test_a_thread_that_holds_the_lock_stops_python_and_not_the_lines(trainer):
    process, stream = trainer("holds the lock")
    # Python last ticked before the phase began, and the call began after that: all three come, in no order.
    held = until(
        stream,
        lambda r: r["phase"] == "backward" and min(r["in_phase_s"], r["python_ran_s_ago"]) > 1.0 and r["state"] == "S",
    )
    assert (held["rank"], held["step"], held["edge"], held["pid"]) == (3, 7, "begin", process.pid)
    process.communicate(b".")
    last = list(stream)[-1]
    assert (last["msg"], last["phase"], last["edge"]) == ("ended", "backward", "end")


def test_a_process_that_waits_in_python_ticks(trainer):
    process, stream = trainer("waits")
    waiting = until(stream, lambda r: r["in_phase_s"] > 1.5 and r["python_ran_s_ago"] < r["in_phase_s"] / 2)
    assert waiting["n_threads"] >= 2
    process.communicate(b".")


def test_what_ends_the_trainer_ends_the_lines_only_with_it(trainer):
    process, stream = trainer("waits")
    until(stream, lambda r: r["phase"] == "backward")
    (watcher,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(watcher), signal.SIGINT)
    os.kill(int(watcher), signal.SIGTERM)
    after = next(stream)["ts"]
    assert until(stream, lambda r: r["ts"] > after + 0.2)["msg"] == "alive"
    process.communicate(b".")
    assert list(stream)[-1]["msg"] == "ended"


def test_a_stopped_process_is_seen_stopped_and_a_killed_one_gone(trainer):
    process, stream = trainer("waits")
    until(stream, lambda r: r["phase"] == "backward")
    process.send_signal(signal.SIGSTOP)
    assert until(stream, lambda r: r["state"] in "Tt")["msg"] == "alive"
    process.kill()
    process.wait()
    *_, last = stream
    assert (last["msg"], last["step"], last["phase"]) == ("gone", 7, "backward")
