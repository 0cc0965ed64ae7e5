"""The guard at work: takes pulses, has jobs looked into, writes the ledger, tells whoever wants to know."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import HarnessError, NotBegunError
from harness.guard import jobs
from harness.guard.jobs import Guarded
from harness.guard.policy import BLIND, Look, Vigil, What, may_end, routine
from harness.guard.receivers import Delivery, Message
from harness.observe.proc import Proc
from harness.observe.stacks.dumper import find_tool
from harness.report.clean import clean
from harness.store.files import write_failed
from harness.store.redact import redact_text

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence

    from harness.core.ports import Clock
    from harness.guard.receivers import Metrics, Receiver


LEDGER = "guard.jsonl"


class GuardedError(HarnessError):
    """Another guard writes into this folder."""

    help = "Give this one another folder with --runs, or end the other"


@dataclass(slots=True)
class Ledger:
    """Events, one JSON object a line; ``lost`` are lines that the disk did not take yet."""

    path: Path
    fd: int = -1
    lost: list[bytes] = field(default_factory=list[bytes])

    @classmethod
    def open(cls, folder: Path) -> Ledger:
        """The ledger in ``folder``, for one guard at a time.

        Raises:
            GuardedError: another guard has it.
            NotBegunError: it cannot be written.
        """
        path = folder / LEDGER
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NotBegunError(write_failed(path, error, safe="no job was touched")) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise GuardedError(f"another guard writes {path}") from None
        return cls(path, fd)

    def events(self) -> list[dict[str, Any]]:
        """Everything that was written; a line that was cut off by a power cut is left out."""
        events: list[dict[str, Any]] = []
        for line in self.path.read_bytes().splitlines():
            with suppress(ValueError):
                events.append(dict(json.loads(line)))
        return events

    def add(self, **event: object) -> bool:
        """Write one event, and those that the disk did not take before; False while it does not."""
        self.lost.append((json.dumps(event, ensure_ascii=True) + "\n").encode())
        return self.flush()

    def flush(self) -> bool:
        """Write what the disk has not taken yet."""
        while self.lost:
            try:
                size = os.fstat(self.fd).st_size
                line = self.lost[0]
                if os.write(self.fd, line) < len(line):
                    os.ftruncate(self.fd, size)  # half a line would spoil the next one
                    return False
                os.fsync(self.fd)
            except OSError:
                return False
            self.lost.pop(0)
        return True

    def close(self) -> None:
        """Let another guard write."""
        os.close(self.fd)


SUSPECT = "suspect"
"""The event of a first look that says HANG, or, without a cause, of what has taken that back."""

TICK_S = 10.0
"""Seconds between two pulses."""

SEARCH_S = 60.0
"""Seconds between two searches for jobs that match."""

UNMATCHED_S = 30.0
"""Seconds after which it is told that no job matches: one that is being started has time to come up."""

START = Path(__file__).resolve().parents[2] / "nsa_harness" / "start.py"
"""The command line, which finds our own packages wherever it is started."""

LOOK_LIMIT_S = 300.0
"""A look that takes longer is ended: it must not keep the guard from the other jobs."""

ROOM_BYTES = 16 << 20
"""What a look and its report need on the disk; where there is less, they go to the folder for temporary files."""


@dataclass(slots=True, kw_only=True)
class Guard:
    """Guards the job of ``pid``, or all that match ``pattern``, until they have ended or ``stop`` says so.

    ``look`` looks into a job, ``report`` writes up a look that is told. ``end`` says that a job is to be sent SIGTERM
    once its hang is certain. ``routine_s`` is how often a job that computes is looked into; None looks as often as
    may be had for a thousandth of a CPU, and not more than every quarter of an hour. ``host`` names this machine to
    whoever is told elsewhere.
    """

    ledger: Ledger
    receivers: Sequence[Receiver]
    metrics: Metrics
    clock: Clock
    look: Callable[[Guarded], Look | None]
    report: Callable[[Look], None]
    say: Callable[[str], None]
    pattern: re.Pattern[str] | None = None
    end: bool = False
    routine_s: float | None = None
    host: str = field(default_factory=socket.gethostname)
    proc: Proc = field(default_factory=Proc)
    vigils: dict[Guarded, Vigil] = field(default_factory=dict[Guarded, Vigil])
    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    unwritten: list[Look] = field(default_factory=list[Look])
    looks: int = 0
    looks_cpu_s: float = 0.0
    hangs: int = 0
    families: dict[Guarded, list[int]] = field(default_factory=dict[Guarded, list[int]])
    over: set[Guarded] = field(default_factory=set[Guarded])
    searched_s: float | None = None
    unmatched_since_s: float | None = None
    is_match_settled: bool = False

    def remember(self) -> None:
        """Take up what an earlier guard has left in the ledger: messages not yet delivered, and ends that it missed."""
        delivered: set[tuple[str, str]] = set()
        incidents: dict[str, dict[str, Any]] = {}
        hanging: dict[str, dict[str, Any]] = {}
        for event in self.ledger.events():
            if event.get("event") == "delivered":
                delivered.add((event["id"], event["receiver"]))
            elif event.get("event") in set(What):
                incidents[event["id"]] = event
                if event["event"] != What.BLIND:
                    hanging[event["job"]] = event
        for event in incidents.values():
            message = Message(id=event["id"], what=event["event"], title=event["title"], body=event["body"])
            for receiver in self.receivers:
                if (message.id, receiver.name) not in delivered:
                    self.deliveries.append(Delivery(message, receiver))
        for event in hanging.values():
            if event["event"] == What.HANG and not jobs.lives(job := Guarded.of(event["job"], event["body"])):
                self._tell(job, Vigil(began_s=self.clock.now(), hangs=event["number"]), What.ENDED, None)

    def guard(self, job: Guarded) -> None:
        """Guard this job, too; an incident that is already told is not told again."""
        if job in self.vigils:
            return
        vigil = Vigil(routine_s=self._routine_s(), began_s=self.clock.now())
        for event in self.ledger.events():
            if event.get("job") != job.key:
                continue
            if event["event"] == What.HANG:
                vigil.hang = vigil.hangs = event["number"]
            elif event["event"] == What.GOES_ON:
                vigil.hang = 0
            elif event["event"] == What.BLIND:
                vigil.is_blind_reported = True
            elif event["event"] == SUSPECT:
                vigil.suspect_again(event["cause"], age_s=self.clock.now() - event["at_s"])
        self.vigils[job] = vigil
        self.say(f"guarding {job.name}: {job.command[:100]}")

    def run(self, *, stop: Callable[[], bool]) -> None:
        """Guard until there is nothing left to guard, or for ever where jobs are searched for."""
        while not stop() and (self.vigils or self.pattern is not None or self.deliveries):
            self.tick()
            self.clock.sleep(TICK_S)

    def tick(self) -> None:
        """Search, take every pulse, look into what is due, deliver what is not delivered."""
        now_s = self.clock.now()
        if self.searched_s is None or now_s - self.searched_s >= SEARCH_S:
            self.searched_s = now_s
            self._search()
        self._tell_of_no_match(now_s)
        for job, vigil in list(self.vigils.items()):
            if job in self.over if job.slurm else not jobs.lives(job):
                self._ended(job, vigil)
                continue
            # Of a job on other nodes it is not known: it counts as one that computes.
            used = {0: now_s} if job.slurm else jobs.cpu_s(self.families.get(job, [job.pid]), proc=self.proc)
            vigil.pulse(now_s, used)
            if vigil.is_due(now_s) and not vigil.stands(now_s, self._turns(job, vigil)):
                self._look_into(job, vigil)
        self.ledger.flush()
        self._deliver()
        self.write_reports()  # after all have been told: a report takes three times as long as a look
        self.metrics.set(
            jobs=len(self.vigils),
            hanging=sum(vigil.hang > 0 for vigil in self.vigils.values()),
            unseen=sum(vigil.blind >= BLIND for vigil in self.vigils.values()),
            undelivered=len(self.deliveries),
            looks_total=self.looks,
            looks_cpu_seconds_total=self.looks_cpu_s,
            hangs_total=self.hangs,
        )

    def _search(self) -> None:
        """Find what is new: jobs that match, and processes of the jobs that are guarded."""
        if self.pattern is not None:
            for job in jobs.matching(self.pattern):
                self.is_match_settled = True
                self.guard(job)
        self.families, self.over = {}, set()
        for job in self.vigils:
            if not job.slurm:
                self.families[job] = jobs.pids(job, proc=self.proc)
            elif not jobs.lives(job):
                self.over.add(job)

    def _tell_of_no_match(self, now_s: float) -> None:
        """Say once that nothing has matched for a while: a mistyped pattern would be silent for weeks."""
        if self.pattern is None or self.is_match_settled:
            return
        if self.unmatched_since_s is None:
            self.unmatched_since_s = now_s
        elif now_s - self.unmatched_since_s >= UNMATCHED_S:
            self.is_match_settled = True
            self.say(
                f"no Python job of this user has a command line that fits {self.pattern.pattern!r} so far; it is "
                f"looked for every {SEARCH_S:.0f} s"
            )

    def _turns(self, job: Guarded, vigil: Vigil) -> int | None:
        """How often the job's threads have run, where that is of use: of other nodes it is not known."""
        if job.slurm or not vigil.alike:
            return None
        return jobs.turns(self.families.get(job, [job.pid]), proc=self.proc)

    def write_reports(self) -> None:
        """Write the reports of all hangs that have been told; one that is interrupted is written the next time."""
        while self.unwritten:
            self.report(self.unwritten[0])
            del self.unwritten[0]

    def _routine_s(self) -> float:
        if self.routine_s is not None:
            return self.routine_s
        return routine(cost_s=self.looks_cpu_s / max(self.looks, 1), jobs=len(self.vigils))

    def _look_into(self, job: Guarded, vigil: Vigil) -> None:
        before_s = _children_cpu_s()
        look = self.look(job)
        self.looks += 1
        self.looks_cpu_s += _children_cpu_s() - before_s
        vigil.routine_s = self._routine_s()
        if look is None:
            vigil.failed(self.clock.now())
            return
        suspected, what = vigil.suspect, vigil.looked(self.clock.now(), look)
        vigil.turns = self._turns(job, vigil)
        if vigil.suspect is not suspected:  # the look that has to agree may be another guard's
            suspect = vigil.suspect.cause if vigil.suspect is not None else ""
            self.ledger.add(event=SUSPECT, job=job.key, cause=suspect, at_s=self.clock.now())
        if what is not What.HANG:
            discard(look)
        else:
            self.unwritten.append(look)
        if what is not None:
            self._tell(job, vigil, what, look)
        if what is What.HANG and self.end and may_end(look):
            self._end(job, vigil)

    def _ended(self, job: Guarded, vigil: Vigil) -> None:
        del self.vigils[job]
        if vigil.hang:
            self._tell(job, vigil, What.ENDED, None)
        self.say(f"{job.name} has ended; it is no longer guarded")

    def _tell(self, job: Guarded, vigil: Vigil, what: What, look: Look | None) -> None:
        number = vigil.hangs
        name = job.name if job.slurm else f"{job.name} on {self.host}"
        titles = {
            What.HANG: f"HANG ({look.cause}): {name}{look.at_rank}" if look else "",
            What.GOES_ON: f"{name} goes on: hang {number} of it is over",
            What.ENDED: f"{name} has ended: hang {number} of it is over",
            What.BLIND: f"{name} cannot be looked into: a hang of it may not be told",
        }
        id = f"{job.key}-{number}-{what}"
        lines = [redact_text(clean(job.command))[:500]]
        if look is not None and what is What.HANG:
            self.hangs += 1
            lines += [f"confidence: {look.confidence}; two looks agree", look.because, f"report: {look.run}/report.md"]
        elif look is not None:
            lines.append(look.because)
        if look is not None and look.blind_reason:
            lines.append(f"no stack was seen: {look.blind_reason}")
        body = "\n".join([*lines, f"incident {id}"])
        written = self.ledger.add(
            event=what, id=id, job=job.key, number=number, at=self.clock.wall(), title=titles[what], body=body
        )
        self.say(titles[what] + ("" if written else " (the ledger could not be written: the disk does not take it)"))
        if what in (What.HANG, What.BLIND):
            self.say(body)
        message = Message(id=id, what=what, title=titles[what], body=body)
        self.deliveries += [Delivery(message, receiver) for receiver in self.receivers]

    def _deliver(self) -> None:
        for delivery in list(self.deliveries):
            if delivery.tried(self.clock.now()):
                self.deliveries.remove(delivery)
                self.ledger.add(event="delivered", id=delivery.message.id, receiver=delivery.receiver.name)

    def _end(self, job: Guarded, vigil: Vigil) -> None:
        """Send SIGTERM to the process that was named, and to nobody else; Slurm is asked to, for its job's."""
        if job.slurm:
            done = subprocess.run(["scancel", "--signal=TERM", job.slurm], capture_output=True, text=True, check=False)
            if done.returncode:
                self.say(f"Slurm did not send SIGTERM to {job.name}: {done.stderr.strip()}")
            else:
                self._has_sent(job, vigil)
            return
        try:
            fd = os.pidfd_open(job.pid)
        except ProcessLookupError:
            return
        try:
            # The PID may have been given to somebody else before it was opened.
            if jobs.pids(job, proc=self.proc):
                signal.pidfd_send_signal(fd, signal.SIGTERM)
                self._has_sent(job, vigil)
        except ProcessLookupError:
            return
        finally:
            os.close(fd)

    def _has_sent(self, job: Guarded, vigil: Vigil) -> None:
        self.ledger.add(event="sent SIGTERM", job=job.key, number=vigil.hangs)
        self.say(f"SIGTERM was sent to {job.name}, as --on-hang term asks")


def look_into(job: Guarded, *, looks: Path, runs: Path) -> Look | None:
    """A full look by ``nsa-harness watch``, in a process of its own: what it costs, it gives back.

    The run of a look that says HANG is moved from ``looks`` to ``runs``; on a full disk it is kept in the folder for
    temporary files. None where the look said nothing.
    """
    if not jobs.lives(job):
        return None
    looks, runs = _with_room(looks), _with_room(runs)
    what = ("--slurm", job.slurm) if job.slurm else (str(job.pid),)
    try:
        report = json.loads(_by_ourselves("watch", *what, "--json", "--no-report", "--runs", str(looks)))
        if not (report.get("run") and report.get("verdict")):  # an error, said as JSON
            return None
        run, verdict = Path(report["run"]), _verdict_of(report, job)
        if verdict["kind"] == "HANG" and runs != looks:  # on a full disk both are the same folder
            runs.mkdir(parents=True, exist_ok=True)
            run = Path(shutil.move(run, runs / run.name))
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return Look(
        kind=verdict["kind"],
        cause=verdict.get("cause") or "",
        confidence=verdict["confidence"],
        because=verdict["because"],
        rank=verdict.get("rank"),
        run=str(run),
        blind_reason="; ".join(report.get("unseen", ())),
    )


def _verdict_of(report: dict[str, Any], job: Guarded) -> dict[str, Any]:
    """What a look said of the job; of one that merely sleeps between looks at a child that hangs, that it hangs."""
    if report["verdict"]["kind"] == "HANG" or not report.get("stuck"):
        return report["verdict"]
    part = report["stuck"][0]
    who = f"{job.name}, or what it has started, may only see that and end it: it sleeps, and looks again"
    return {**part, "confidence": "medium", "because": f"{part['because']}; {who}"}


def cannot_see() -> str:
    """What looks from here will not show, and what to install; empty where a look sees stacks."""
    if any(map(find_tool, ("py-spy", "pystack"))):
        return ""
    return (
        "no stack can be seen from here, so a hang is told only where the kernel alone shows it, and most are not: "
        f"install py-spy beside this program: {sys.executable} -m pip install py-spy"
    )


def write_up(look: Look) -> None:
    """Write the report of a look that is told: it costs three times as much as the look."""
    with suppress(OSError, subprocess.TimeoutExpired):  # the evidence is there, and the report can be written later
        _by_ourselves("report", look.run)


def discard(look: Look) -> None:
    """Remove the run of a look that told nothing new: weeks of them would fill the disk."""
    if look.run:
        shutil.rmtree(look.run, ignore_errors=True)


def _by_ourselves(*argv: str) -> str:
    """What ``nsa-harness`` writes to standard output, started anew."""
    command = [sys.executable, "-P", str(START), *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=LOOK_LIMIT_S, check=False).stdout


def _with_room(folder: Path) -> Path:
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return folder if shutil.disk_usage(there).free >= ROOM_BYTES else Path(tempfile.gettempdir()) / "nsa-harness-guard"


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
