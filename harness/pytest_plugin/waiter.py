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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.clock import WallClock
from harness.launch import procs
from harness.pytest_plugin.place import (
    EXIT,
    SIGNAL,
    HangNotice,
    Mention,
    RunningTest,
    StateFile,
    captured,
    python,
    read_owners,
    tell,
    waited_for,
    write_mentions,
)
from harness.reading.pace import WATCHED

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
"""How much longer than it watches one look may take on a machine that is very busy."""

LATE_S = 10.0
"""So long after pytest-timeout's limit Python is asked whether it answers at all, and has as long for it."""

KILL_ROUNDS = 50
"""How often what is below a process is looked for again: the table changes while it is read."""


class Waiter:
    """Waits beside one process that runs tests."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.settings: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
        self.file, self.clock = StateFile(folder / f"{name}.state"), WallClock()
        pid = int(self.settings["pid"])
        self.fd = os.pidfd_open(pid)
        process = procs.read(pid)
        if process is None or process.pid != os.getppid():
            raise ProcessLookupError(f"process {pid} is gone")
        self.process: Process = process
        self.seq, self.due_s, self.raises, self.late_seq = 0, 0.0, 0, 0
        self.leftovers: list[Process] = []
        self.looks: dict[tuple[str, str], Mention] = {}

    def run(self) -> None:
        """Until the process ends."""
        while not self.ended(POLL_S):
            state = self.file.read()
            if state.seq != self.seq:
                self.seq, self.due_s, self.raises = state.seq, state.after_s, 0
                for process in self.leftovers:  # of a test that hung and is over
                    procs.send(process, signal.SIGKILL)
                self.leftovers = []
            elapsed_s = self.clock.now() - state.began_s
            if self.is_overdue(state):
                self.enforce(state)
            if not state.seq or state.after_s <= 0.0:
                continue
            if elapsed_s >= self.due_s:
                self.examine(state)

    def ended(self, seconds: float) -> bool:
        """Whether the process ends within ``seconds``."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(seconds * 1000.0))

    def examine(self, state: RunningTest) -> None:
        """Have it looked at, and act on a hang that is certain; look again when it has taken twice as long.

        Sooner where it has started processes since, which that look did not watch.
        """
        state = waited_for(state, self.folder / f"{self.name}.left", pid=self.process.pid)
        looked_at = Mention(nodeid=state.nodeid, phase=state.phase, seconds=self.clock.now() - state.began_s)
        self.mention(looked_at)
        answer = self.look(state)
        now = self.file.read()
        seconds = self.clock.now() - state.began_s
        self.due_s = seconds + state.after_s if answer and answer.get("soon") else 2.0 * seconds
        if now.seq != state.seq:
            self.mention(replace(looked_at, is_over=True))
            return
        if answer is None or not answer["hang"]:
            why = answer["why"] if answer else "nobody could look at it"
            self.mention(replace(looked_at, seconds=seconds, why=why))
            return
        if answer["stopped"] and self.is_suspended():
            self.mention(replace(looked_at, seconds=seconds, why="the session is suspended"))
            return
        facts = {name: answer[name] for name in ("verdict", "report", "text")}
        notice = state.notice(seconds=seconds, **facts)
        tell(self.folder / f"{self.name}.told", notice)
        self.mention_no_more(looked_at)
        self.end(now, notice)

    def look(self, state: RunningTest) -> dict[str, Any] | None:
        """The answer of the rules, as soon as they have one or the test goes on; None when nobody could look."""
        command = python("look", self.folder, self.name, os.getpid(), state.seq)
        most_s = self.clock.now() + (WATCHED + 1.0) * state.stall_s + LOOK_S
        path = self.folder / f"{self.name}.answer"
        try:
            with path.open("w") as file:
                looking = subprocess.Popen(
                    ["nice", "-n", "5", *command] if shutil.which("nice") else command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                )
            try:
                while looking.poll() is None:
                    if self.ended(POLL_S) or self.clock.now() > most_s or self.is_overdue(state):
                        break
            finally:  # also when the session has ended us
                looking.kill()
                looking.wait()
                shutil.rmtree(path.with_suffix(".look"), ignore_errors=True)
            return json.loads(path.read_text())
        except (OSError, ValueError):
            return None

    def is_suspended(self) -> bool:
        """Whether somebody stopped all of the session, as Ctrl-Z does, and not one process of it."""
        if not (self.settings["worker"] or self.settings["kept"]):
            return True  # nobody can tell: above is the user's shell, which is never stopped
        above = procs.read(self.process.parent)
        return above is not None and above.state in "Tt"

    def mention(self, mention: Mention) -> None:
        """Keep for the summary the last word on a phase of a test; it comes last."""
        self.looks.pop((mention.nodeid, mention.phase), None)
        self.looks[mention.nodeid, mention.phase] = mention
        self.keep_mentions()

    def mention_no_more(self, mention: Mention) -> None:
        """Take back what the summary was to have: the test is failed, which says more."""
        self.looks.pop((mention.nodeid, mention.phase), None)
        self.keep_mentions()

    def mention_threads(self, notice: HangNotice) -> None:
        """Keep for the summary that earlier tests left threads, which nobody will see end or hang."""
        for nodeid in read_owners(self.folder / f"{self.name}.left", pid=self.process.pid):
            if nodeid != notice.nodeid:
                self.mention(Mention(nodeid=nodeid, phase="teardown", ended_for=notice.nodeid))

    def keep_mentions(self) -> None:
        """Write them where the session's end reads them."""
        if self.ended(0.0):
            return  # nobody is left to read it, and its folder is being taken away
        with suppress(OSError):  # the session has ended, and its folder with it
            write_mentions(self.folder / f"{self.name}.looks", self.looks.values())

    # -- ending

    def end(self, state: RunningTest, notice: HangNotice) -> None:
        """End the test: a worker of xdist with its process; else from inside, or with its process if none answers.

        Where the session is kept another process goes on; so too where the session is over and does not end.
        """
        from_inside = not self.settings["worker"] and not (self.settings["kept"] and state.phase == EXIT)
        if from_inside and self.raises < RAISES:
            self.raises += 1
            # Before it goes on: what is started later is another test's.
            leftovers = [p for p in self.below() if p.started >= state.began_ticks and not _serves(p)]
            if self.answers(state, ANSWER_S):
                self.leftovers = leftovers
                self.due_s = self.clock.now() - state.began_s + state.after_s
                return
            if self.ended(0.0):
                return
        self.give_up(notice)

    def answers(self, state: RunningTest, seconds: float) -> bool:
        """Whether Python answers our signal within ``seconds``."""
        procs.send(self.process, SIGNAL)
        until_s = self.clock.now() + seconds
        while self.clock.now() < until_s and not self.ended(0.02):
            now = self.file.read()
            if now.answered > state.answered or (now.seq and now.seq != state.seq):
                return True
        return False

    def give_up(self, notice: HangNotice) -> None:
        """End the process, and say what that means where no other goes on."""
        self.mention_threads(notice)
        pid = self.process.pid
        tell(self.folder / f"{self.name}.told", replace(notice, out=captured(pid, 1), err=captured(pid, 2)))
        self.kill()
        if not (self.settings["worker"] or self.settings["kept"]):
            sys.stdout.write(f"\n\n{notice.nodeid}\n{notice.text}\n\n{_LAST_WORDS}\n")
            sys.stdout.flush()

    def is_overdue(self, state: RunningTest) -> bool:
        """Whether pytest-timeout's limit has run out, and nobody has asked yet why the test goes on."""
        return state.seq != self.late_seq and 0.0 < state.alarm_s < self.clock.now() - LATE_S

    def enforce(self, state: RunningTest) -> None:
        """End a test that outran pytest-timeout's limit, where C code keeps Python from hearing of it."""
        self.late_seq = state.seq
        path = self.folder / f"{self.name}.told"
        path.unlink(missing_ok=True)  # the signal is a question
        if self.file.read().seq != state.seq or self.answers(state, LATE_S) or self.ended(0.0):
            return
        seconds = self.clock.now() - state.began_s
        lines = [mention.sentence for mention in self.looks.values() if mention.nodeid == state.nodeid]
        text = (
            f"Timeout: pytest-timeout's limit ran out, and Python did not answer: the main thread does not come back "
            f"from C code. Ended from outside after {seconds:.0f} s."
        )
        self.give_up(state.notice(seconds=seconds, text="\n".join([text, *lines])))

    def below(self) -> list[Process]:
        """The processes below the one that runs the tests, without ourselves."""
        return [process for process in procs.below(self.process.pid) if process.pid != os.getpid()]

    def kill(self) -> None:
        """End the process and all below it; nobody else. First what is below: an orphan is nobody's to be found.

        One that is left has the pipe by which xdist hears of its worker's end, and the session would wait for it.
        """
        procs.send(self.process, signal.SIGSTOP)  # it starts no other
        for _ in range(KILL_ROUNDS):
            processes = self.below()
            for process in processes:
                procs.send(process, signal.SIGKILL)
            if not processes:
                break
            self.clock.sleep(0.02)
        procs.send(self.process, signal.SIGKILL)


_LAST_WORDS = (
    "hang guard: Python did not answer, so the whole session was ended here; later tests were not run. "
    "With the option --hang-guard, or under pytest-xdist, they are."
)


def _serves(process: Process) -> bool:
    """Whether it works for all of the session, though a test made it start: multiprocessing's trackers and servers."""
    from harness.observe.job import read_member

    member = read_member(process.pid)
    return member is not None and member.helper in ("resource tracker", "fork server")


def main(arguments: Sequence[str]) -> None:
    """``waiter FOLDER NAME``. When the session ends, so does a look that is under way: it has the session's output."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    folder = Path(arguments[0])
    waiter = None
    with suppress(ProcessLookupError, FileNotFoundError):
        waiter = Waiter(folder, arguments[1])
        waiter.run()
    if waiter is not None and not (waiter.settings["worker"] or waiter.settings["kept"]):
        shutil.rmtree(folder, ignore_errors=True)  # pytest did not get to it
