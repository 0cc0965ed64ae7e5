"""The small process beside pytest: it waits, has a test looked at that takes long, and ends the one that hangs.

Standard library only and quick to start. It looks at nothing but the process that it was started for and what is below
that; the looking itself is done by a process of its own (``look``), so that waiting costs nothing.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.clock import WallClock
from harness.launch import procs
from harness.pytest_plugin.place import EXIT, SIGNAL, State, StateFile, Told, tell
from harness.pytest_plugin.start import python

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.launch.procs import Process

POLL_S = 0.5
"""How often the state is read."""

ANSWER_S = 2.0
"""How long Python has to answer a signal: it does so between two instructions, or never."""

RAISES = 3
"""How often a test is failed from inside before its process is ended: what it does on its way out may hang too."""

LOOK_S = 180.0
"""How long one look may take on a machine that is very busy."""


class Waiter:
    """Waits beside one process that runs tests."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.settings: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
        self.file, self.clock = StateFile(folder / f"{name}.state"), WallClock()
        pid = int(self.settings["pid"])
        self.fd = os.pidfd_open(pid)
        found = procs.read(pid)
        if found is None or found.pid != os.getppid():
            raise ProcessLookupError(f"process {pid} is gone")
        self.process: Process = found
        self.seq, self.due_s, self.raises = 0, 0.0, 0
        self.left: list[Process] = []
        self.looks: list[str] = []

    def run(self) -> None:
        """Until the process ends."""
        while not self.ended(POLL_S):
            state = self.file.read()
            if state.seq != self.seq:
                self.seq, self.due_s, self.raises = state.seq, state.after_s, 0
                for process in self.left:  # of a test that hung and is over
                    procs.send(process, signal.SIGKILL)
                self.left = []
            elapsed_s = self.clock.now() - state.began_s
            if state.seq and elapsed_s >= self.due_s:
                self.examine(state)

    def ended(self, seconds: float) -> bool:
        """Whether the process ends within ``seconds``."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(seconds * 1000.0))

    def examine(self, state: State) -> None:
        """Have it looked at, and act on a hang that is certain; look again when it has taken twice as long."""
        answer = self.look(state)
        now = self.file.read()
        seconds = self.clock.now() - state.began_s
        self.due_s = 2.0 * seconds
        if now.seq != state.seq:
            if answer and not answer["hang"]:
                self.mention(state, seconds, "it went on")
            return
        if answer is None or not answer["hang"]:
            self.mention(state, seconds, answer["why"] if answer else "nobody could look at it")
            return
        told = Told(
            seq=state.seq,
            nodeid=state.nodeid,
            phase=state.phase,
            seconds=seconds,
            verdict=answer["verdict"],
            report=answer["report"],
            text=answer["text"],
        )
        tell(self.folder / f"{self.name}.told", told)
        self.end(now, told)

    def look(self, state: State) -> dict[str, Any] | None:
        """The answer of the rules; None when nobody could look."""
        command = python("look", self.folder, self.name, os.getpid(), state.seq)
        try:
            done = subprocess.run(
                ["nice", "-n", "5", *command] if shutil.which("nice") else command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=LOOK_S,
                check=False,
            )
            return json.loads(done.stdout)
        except (subprocess.TimeoutExpired, ValueError):
            return None

    def mention(self, state: State, seconds: float, why: str) -> None:
        """Keep for the summary that a test took long: the last word on each."""
        start = f"{state.nodeid} ({state.phase}): "
        self.looks = [line for line in self.looks if not line.startswith(start)]
        self.looks.append(f"{start}after {seconds:.0f} s: {' '.join(why.split())}")
        with suppress(OSError):  # the session has ended, and its folder with it
            (self.folder / f"{self.name}.looks").write_text("\n".join(self.looks) + "\n")

    # -- ending

    def end(self, state: State, told: Told) -> None:
        """End the test: a worker of xdist with its process; else from inside, or with its process if none answers."""
        if not self.settings["worker"] and self.raises < RAISES:
            self.raises += 1
            # Before it goes on: what is started later is another test's.
            left = [p for p in self.below() if p.started >= state.began_ticks and not _serves(p)]
            procs.send(self.process, SIGNAL)
            until_s = self.clock.now() + ANSWER_S
            while self.clock.now() < until_s and not self.ended(0.02):
                now = self.file.read()
                if now.answered > state.answered or (now.seq and now.seq != state.seq):
                    self.left = left
                    self.due_s = self.clock.now() - state.began_s + state.after_s
                    return
            if self.ended(0.0):
                return
        self.kill()
        if not self.settings["worker"] and state.phase != EXIT:
            self.write_junit(state, told)
        if not self.settings["worker"]:
            sys.stdout.write(f"\n\n{told.nodeid}\n{told.text}\n\n{_LAST_WORDS}\n")
            sys.stdout.flush()

    def below(self) -> list[Process]:
        """The processes below the one that runs the tests, without ourselves."""
        return [process for process in procs.below(self.process.pid) if process.pid != os.getpid()]

    def kill(self) -> None:
        """End the process and all below it; nobody else."""
        all_of_it = self.below()
        procs.send(self.process, signal.SIGKILL)
        for process in all_of_it:
            for one in (process, *procs.below(process.pid)):
                procs.send(one, signal.SIGKILL)

    def write_junit(self, state: State, told: Told) -> None:
        """The JUnit file that pytest can no longer write."""
        if self.settings["junit"] is not None:
            subprocess.run(python("junit", self.folder, self.name), stdin=subprocess.DEVNULL, check=False)


_LAST_WORDS = (
    "hang guard: Python did not answer, so the whole session was ended here; later tests were not run. "
    "Under pytest-xdist (-n 1) they are."
)


def _serves(process: Process) -> bool:
    """Whether it works for all of the session, though a test made it start: multiprocessing's trackers and servers."""
    from harness.observe.job import read_member

    member = read_member(process.pid)
    return member is not None and member.helper in ("resource tracker", "fork server")


def main(arguments: Sequence[str]) -> None:
    """``waiter FOLDER NAME``."""
    folder = Path(arguments[0])
    waiter = None
    with suppress(ProcessLookupError, FileNotFoundError):
        waiter = Waiter(folder, arguments[1])
        waiter.run()
    if waiter is not None and not waiter.settings["worker"]:
        shutil.rmtree(folder, ignore_errors=True)  # pytest did not get to it
