"""The process beside a guarded one: ``beside.py PID FOLDER RUNS AFTER``, started with the guard's pipe as its input.

A line on the pipe, ``[name, seconds]``, says that nobody is to look for so long; its end, that the block is over.
Standard library only, and no import of ours: until it looks it costs nothing.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

START = Path(__file__).with_name("start.py")


def main(pid: int, folder: Path, runs: str, after_s: float) -> None:
    """Leave the tree of the process that started us, then look at it when a look is due, until its block is over."""
    if os.fork():
        os._exit(0)
    os.setsid()
    began_s = time.monotonic()
    due_s, number, text, told = began_s + after_s, 0, b"", set[str]()
    while True:
        ready, _, _ = select.select([0], [], [], max(0.0, min(due_s - time.monotonic(), 3600.0)))
        if ready:
            read = os.read(0, 65536)
            if not read:
                return
            *lines, text = (text + read).split(b"\n")
            for line in lines:
                seconds = float(json.loads(line)[1])
                due_s = time.monotonic() + max(seconds, after_s)
        elif time.monotonic() >= due_s:
            number += 1
            _look(pid, folder / f"look-{number:04}.json", runs, told)
            due_s = time.monotonic() + max(after_s, time.monotonic() - began_s)


def _watch(pid: int, runs: str) -> subprocess.CompletedProcess[str]:
    where = ["--runs", runs] if runs else []
    command = [sys.executable, "-P", str(START), "watch", "--json", *where, str(pid)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@cache
def _spare_folder() -> str:
    return tempfile.mkdtemp(prefix="nsa-harness-")


def _elsewhere(pid: int, why: str, told: set[str]) -> subprocess.CompletedProcess[str]:
    """The same look with its report in a temporary folder, where it could not be written to the folder of runs."""
    runs = _spare_folder()
    done = _watch(pid, runs)
    follows = f"reports are kept in {runs}" if done.stdout else "nobody can look at this block"
    if why not in told and not select.select([0], [], [], 0.0)[0]:  # the block is not over
        told.add(why)
        sys.stderr.write(f"{why}\n{follows}\n")
        sys.stderr.flush()
    return done


def _look(pid: int, file: Path, runs: str, told: set[str]) -> None:
    done = _watch(pid, runs)
    if not done.stdout:
        done = _elsewhere(pid, done.stderr.strip().partition("\n")[0].partition(". Safe: ")[0], told)
    try:
        found = json.loads(done.stdout)
        fresh = file.with_suffix(".tmp")
        fresh.write_text(json.dumps({"status": done.returncode, "said": done.stdout}))
        fresh.replace(file)
    except (OSError, ValueError):  # the block is over, and so is its folder; or nobody could look
        return
    if found["verdict"]["kind"] == "HANG" and found["verdict"]["signature"] not in told:
        told.add(found["verdict"]["signature"])
        report = Path(found["run"]) / "report.md"
        sys.stderr.write(f"nsa-harness: this hangs: {found['verdict']['because']}\nreport: {report}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
