"""The process beside a guarded one: ``beside.py PID FOLDER``, started with the guarded process' socket as its input.

Each message is a JSON array: ``["begin", block, after_s, runs, place]``, ``["wait", block, until_s]``, ``["end",
block]``, in seconds of the monotonic clock. It serves all blocks of a process, and ends when that does, with FOLDER.
Standard library only, and no import of ours: until it looks it sleeps.
"""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

START = Path(__file__).with_name("start.py")

TICK_S = 0.2
"""How often it is seen whether a look is over, or is still wanted."""


class Block:
    """A block that is on: when somebody is to look at it, and which hangs of it were made known."""

    def __init__(self, number: int, after_s: float, runs: str, place: str) -> None:
        self.number, self.after_s, self.runs, self.place = number, after_s, runs, place
        self.began_s = time.monotonic()
        self.due_s = self.began_s + after_s
        self.looks = 0
        self.hangs: set[str] = set()


class Look:
    """A look at process ``pid`` for ``blocks``, which have one folder of runs; once none is left it is dropped."""

    def __init__(self, pid: int, blocks: set[Block], folder: Path) -> None:
        self.pid, self.blocks, self.folder = pid, blocks, folder
        self.runs, self.place = next((block.runs, block.place) for block in blocks)
        self.thread = threading.Thread(target=self._look)
        self.thread.start()

    def _look(self) -> None:
        status, said, errors = self._watch(self.runs, self.place)
        if self.blocks and not said:
            status, said = self._elsewhere(errors.strip().partition("\n")[0].partition(". Safe: ")[0])
        try:
            found = json.loads(said)
        except ValueError:  # nobody could look, or nobody wants to know
            return
        blocks = self.blocks.copy()
        if not blocks:
            _remove(Path(found["run"]))
            return
        for block in blocks:
            self._write(block, json.dumps({"status": status, "said": said}))
        verdict = found["verdict"]
        if verdict["kind"] == "HANG" and any(verdict["signature"] not in block.hangs for block in blocks):
            report = Path(found["run"]) / "report.md"
            _say(f"nsa-harness: this hangs: {verdict['because']}\nreport: {report}")
            for block in blocks:
                block.hangs.add(verdict["signature"])

    def _elsewhere(self, why: str) -> tuple[int, str]:
        """The same look with its report in a temporary folder, where it could not be written to the folder of runs."""
        runs = _spare_folder()
        status, said, _ = self._watch(runs, runs)
        if self.blocks:
            _say_once(f"{why}\n{f'reports are kept in {runs}' if said else 'nobody can look at this block'}")
        return status, said

    def _watch(self, runs: str, place: str) -> tuple[int, str, str]:
        """Exit status, output and errors of ``nsa-harness watch``, ended in order once nobody wants to know."""
        where = ["--runs", runs] if runs else []
        command = [sys.executable, "-P", str(START), "watch", "--json", *where, str(self.pid)]
        nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
        try:
            watch = subprocess.Popen(command, cwd=place, stdin=nothing, stdout=pipe, stderr=pipe, text=True)
        except OSError as error:
            return 1, "", f"nsa-harness: {error}"
        run: Path | None = None
        is_dropped, since = False, time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        while True:
            try:
                said, errors = watch.communicate(timeout=TICK_S)
                break
            except subprocess.TimeoutExpired:
                if not self.blocks and not is_dropped:
                    is_dropped, run = True, _run_of(watch.pid, since=since)
                    watch.terminate()  # once: it lets go of the threads that it has stopped
        if run is not None:
            _remove(run)
        return watch.returncode, "" if is_dropped else said, errors

    def _write(self, block: Block, look: str) -> None:
        block.looks += 1
        file = self.folder / f"look-{block.number}-{block.looks:04}.json"
        try:
            fresh = file.with_suffix(".tmp")
            fresh.write_text(look)
            fresh.replace(file)
        except OSError:  # the hang is made known all the same
            return


class Beside:
    """Looks at process ``pid`` whenever one of its blocks is due."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid, self.folder = pid, folder
        self.blocks: dict[int, Block] = {}
        self.look: Look | None = None

    def serve(self) -> None:
        """Until the process has ended: nobody else has the other end of the socket."""
        messages = {"begin": self.begin, "wait": self.wait, "end": self.end}
        while True:
            now_s = time.monotonic()
            if self.look is not None and not self.look.thread.is_alive():
                for block in self.look.blocks:
                    block.due_s = now_s + max(block.after_s, now_s - block.began_s)
                self.look = None
            due_s = min((block.due_s for block in self.blocks.values()), default=math.inf)
            if self.look is None and due_s <= now_s:
                self.look = self._look(now_s)
            rest_s = TICK_S if self.look is not None else min(due_s - now_s, 3600.0)
            if select.select([0], [], [], rest_s)[0]:
                message = os.read(0, 65536)
                if not message:
                    break
                what, *more = json.loads(message)
                messages[what](*more)
        if self.look is not None:
            self.look.blocks.clear()
            self.look.thread.join()

    def begin(self, number: int, after_s: float, runs: str, place: str) -> None:
        """A block has begun; without ``runs``, they are kept where they are by default in the folder ``place``."""
        self.blocks[number] = Block(number, after_s, runs, place)

    def wait(self, number: int, until_s: float) -> None:
        """Nobody is to look for this block until then, 0 for as soon as its own patience is over."""
        block, now_s = self.blocks[number], time.monotonic()
        block.due_s = max(now_s + block.after_s, until_s)
        if self.look is not None and until_s > now_s:
            self.look.blocks.discard(block)

    def end(self, number: int) -> None:
        """A block is over: what a look would say now is not about it."""
        block = self.blocks.pop(number)
        if self.look is not None:
            self.look.blocks.discard(block)

    def _look(self, now_s: float) -> Look:
        due = [block for block in self.blocks.values() if block.due_s <= now_s]
        alike = {block for block in due if (block.runs, block.place) == (due[0].runs, due[0].place)}
        return Look(self.pid, alike, self.folder)


def main(pid: int, folder: Path) -> None:
    """Leave the tree of the process that started us, and look at it whenever that is due, until it has ended."""
    if os.fork():
        os._exit(0)
    os.setsid()
    try:
        Beside(pid, folder).serve()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_of(pid: int, *, since: str) -> Path | None:
    """The run that a look keeps, by the lock that it has open; never one that was begun before it (``since``)."""
    for file in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):  # one is closed, or the look is over
            path = file.readlink()
            run = path.parent
            if path.name == "lock" and "-watch" in run.name and run.name >= since:
                return run
    return None


def _remove(run: Path) -> None:
    if (run / "journal.jsonl").exists():
        shutil.rmtree(run, ignore_errors=True)


@cache
def _spare_folder() -> str:
    return tempfile.mkdtemp(prefix="nsa-harness-")


@cache
def _say_once(text: str) -> None:
    _say(text)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
