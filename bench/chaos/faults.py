"""Faults in our own processes, searches again and again; what must hold whatever happens is checked after each.

``python -m bench.chaos --minutes 3 --seed 1`` hits one system call of a search's controller, or of a trial's
supervisor, guard or fork server: the n-th of those that can fail. The process is killed or stopped there, or the call
gives EIO, ENOSPC, ECONNRESET or EMFILE. By strace, which must be there. With ``--kills`` nothing is traced, and one of
these processes is killed at a random moment.

Whatever happens: nothing is left running, no file beside the run is touched, the exit code is a documented one and
never says more than the run does, no traceback is shown, and after ``--resume`` the answer is that of an undisturbed
search, what was recorded is still recorded, no trial is counted twice, and fsck finds nothing.

Every search is forked from this process, which has imported all that a search imports, and draws no figures. So a fault
costs seconds, and meets our own work instead of the interpreter's start. What loses its parent becomes a child of this
process, so that nothing can be left unseen.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bench.chaos.gate import GATE
from harness import machine
from harness.cli.exit_codes import ExitCode
from harness.clock import WallClock
from harness.core.errors import HarnessError
from harness.launch import handle, local, prctl, procs
from harness.launch.table import EXECUTORS
from harness.report import apart
from harness.store import fsck
from harness.store.run_store import read_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS = (
    "read,write,pwrite64,fsync,fdatasync,openat,mkdir,mkdirat,rename,renameat,unlink,unlinkat,rmdir,ftruncate,flock,"
    "newfstatat,getdents64,sendmsg,sendto,recvmsg,recvfrom,socketpair,pidfd_open,pidfd_send_signal,kill,"
    "pipe2,poll,select,wait4,waitid,clone,clone3,fork,vfork,execve,setsid,prctl,chdir"
)
"""System calls that can fail, or be where a process is when it ends."""

ROOT = str(Path(__file__).parents[2])
"""Where ``bench`` lies: our own processes find it there also where the harness itself is installed elsewhere."""

FAULTS = ("signal=KILL", "signal=STOP", "error=EIO", "error=ENOSPC", "error=ECONNRESET", "error=EMFILE")

WAYS = {
    "local": {"nsa-guard": 0, "nsa-supervisor": 1},
    "forkserver": {"nsa-forkserver": 0, "nsa-guard": 1, "nsa-supervisor": 2},
}
"""How trials start, and how many forks below the process that starts them each of our processes is."""

WHO = ("controller", "nsa-supervisor", "nsa-guard", "nsa-forkserver")
LIMIT_S = 120.0
GONE_S = 10.0
START_LIMIT_S = 5.0
"""How long the controllers of a campaign wait for a supervisor: less than others, so that more faults are placed."""
WOKEN_AFTER_S = 0.3

PROGRAM = """
import os, sys
data = open("shared", "rb"), open("torchelastic_experiments/best.pt", "rb")
for step in range(2):
    print("step", step + 1, flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    os._exit(0)
os.wait()
if int(sys.argv[1]) >= 2:
    raise RuntimeError("no room")
"""
"""Uses files of the user's that look like leftovers, and leaves a process behind that has left its tree."""

SEARCH = ("bisect", "--axis", "x=1..2", "--certify", "1", "--progress", r"step (\d+)", "--control", "none")
COMMAND = (sys.executable, "-S", "train.py", "{x}")
ANSWER = (1, 2, True)
OWN = frozenset({"train.py", "shared", "best.pt"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to whom: at the ``number``-th ``call`` of the ``which``-th such process of the search.

    Without a ``number`` it is killed ``at_s`` seconds after the search has begun, or as soon as there is one then.
    """

    whom: str
    what: str
    way: str = "local"
    which: int = 1
    call: str = ""
    number: int = 0
    at_s: float = 0.0

    def __str__(self) -> str:
        """One line of the table."""
        where = f"{self.call} {self.number} of number {self.which}" if self.number else f"at {self.at_s:.3f} s"
        return f"{self.way:<10} {self.whom:<15} {self.what:<17} {where}"


def main(argv: list[str] | None = None) -> int:
    """Place faults for some minutes; 1 when anything did not hold, each with the seed's number of it."""
    options = argparse.ArgumentParser(prog="python -m bench.chaos")
    options.add_argument("--minutes", type=float, default=3.0)
    options.add_argument("--most", type=int, default=1_000_000, help="at most so many faults")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", type=int, help="only this fault of the seed")
    options.add_argument("--kills", action="store_true", help="kill at random moments; no strace")
    given = options.parse_args(argv)
    if shutil.which("strace") is None and not given.kills:
        sys.stderr.write("chaos needs strace, which is not on PATH\n")
        return ExitCode.INFRA
    clock, luck = WallClock(), random.Random(given.seed)
    ends_s = clock.now() + 60 * given.minutes
    hit: Counter[tuple[str, str]] = Counter()
    wrong = index = 0
    chaos = Chaos(clock=clock)
    calls = {} if given.kills else chaos.count_calls()
    lasts_s = chaos.time_search() if given.kills else {}
    while clock.now() < ends_s and hit.total() < given.most:
        index += 1
        fault = _kill(luck, lasts_s) if given.kills else _placed(luck, calls)
        if given.only in (None, index):
            sys.stdout.write(f"{index:>5}  {fault}  ")
            sys.stdout.flush()
            problems = chaos.strike(fault)
            wrong += bool(problems)
            hit[fault.whom, fault.what] += problems is not None
            held = "held" if problems is not None else "did not come to it"
            sys.stdout.write(f"{'; '.join(problems or ()) or held}\n")
        if given.only == index:
            break
    for (whom, what), count in sorted(hit.items()):
        sys.stdout.write(f"{whom:<15} {what:<17} {count:>5}\n")
    sys.stdout.write(f"{hit.total()} faults hit, {wrong} with something that did not hold (seed {given.seed})\n")
    return ExitCode.FINDINGS if wrong else ExitCode.OK


def _placed(luck: random.Random, calls: Calls) -> Fault:
    """Each process, then each kind of call, then each of its calls as likely as the other: writes are few."""
    way, whom = luck.choice(sorted(calls))
    which = 1 if whom in ("controller", "nsa-forkserver") else luck.randint(1, 2)
    call = luck.choice(sorted(calls[way, whom]))
    number = luck.randint(1, calls[way, whom][call])
    return Fault(whom=whom, what=luck.choice(FAULTS), way=way, which=which, call=call, number=number)


def _kill(luck: random.Random, lasts_s: dict[str, float]) -> Fault:
    way = luck.choice(sorted(WAYS))
    whom = luck.choice(["controller", "controller", *sorted(WAYS[way])])
    return Fault(whom=whom, what="killed", way=way, at_s=luck.uniform(0.0, 0.8 * lasts_s[way]))


Calls = dict[tuple[str, str], Counter[str]]
"""How often a process makes each call, by the way in which trials start and the process's name."""


class Chaos:
    """One campaign: the process that all its searches are forked from."""

    def __init__(self, *, clock: WallClock) -> None:
        self.clock = clock
        prctl.become_subreaper()
        machine.code_fingerprint = cache(machine.code_fingerprint)
        apart.figures_of = lambda *_: ()
        here = Path.cwd()
        with Place() as place, _written_to(place.root / "said"):
            os.chdir(place.folder)
            assert _entry([*SEARCH, "--", *COMMAND]) == ExitCode.OK, place.said()
            os.chdir(here)

    def count_calls(self) -> Calls:
        """How many of CALLS each process of an undisturbed search makes, by way and name."""
        calls: Calls = {}
        for way, below in WAYS.items():
            for whom in ("controller", *below):
                seen = self._undisturbed(Fault(whom=whom, what="", way=way, call=CALLS, number=1))
                calls[way, whom] = seen.calls
                sys.stdout.write(f"{way} {whom}: {seen.calls.total()} calls in a search of {seen.seconds:.2f} s\n")
        return calls

    def time_search(self) -> dict[str, float]:
        """How long an undisturbed search takes, by way."""
        lasts_s = {way: self._undisturbed(Fault(whom="nobody", what="killed", way=way)).seconds for way in WAYS}
        sys.stdout.writelines(f"{way}: a search of {seconds:.2f} s\n" for way, seconds in lasts_s.items())
        return lasts_s

    def _undisturbed(self, fault: Fault) -> Seen:
        with Place() as place:
            seen = self._search(place, fault)
            assert (seen.code, self._left()) == (0, []), seen.said
            return seen

    def strike(self, fault: Fault) -> list[str] | None:
        """One search with ``fault`` in it, resumed without one: what did not hold. None: no such call came."""
        with Place() as place:
            before = place.files()
            seen = self._search(place, fault)
            if not seen.was_hit:
                self._left()
                return None
            problems = self._left()
            if (ours := re.search(r"^Traceback", seen.said, re.MULTILINE)) is not None:  # not one that is quoted
                problems.append(f"a traceback: {seen.said[ours.start() :][-600:]!r}")
            is_killed = fault.whom == "controller" and fault.what in ("killed", "signal=KILL")
            known = {int(code) for code in ExitCode if code is not ExitCode.INTERNAL}
            if seen.code not in known and not (is_killed and seen.code == -signal.SIGKILL):
                problems.append(f"exit code {seen.code}: {seen.said[-300:]!r}")
            if seen.code == ExitCode.OK and (answer := _answer(place)) != ANSWER:
                problems.append(f"exit code 0, but the answer is {answer}")
            if place.runs():
                problems += self._resumed(place)
            if place.files() != before:
                problems.append("a file beside the run was touched")
            return problems

    def _resumed(self, place: Place) -> list[str]:
        """Resume the search; what did not hold then."""
        recorded = _recorded(place)
        seen = self._search(place, None)
        problems = self._left()
        if (answer := _answer(place)) != ANSWER:
            problems.append(f"after --resume (exit code {seen.code}) the answer is {answer}: {seen.said[-300:]!r}")
        if _recorded(place)[: len(recorded)] != recorded:
            problems.append("after --resume a recorded trial is not there any more, or changed")
        for run_dir in place.runs():
            problems += [f"fsck: {line}" for line in fsck.problems(run_dir)]
        return problems

    def _search(self, place: Place, fault: Fault | None) -> Seen:
        """A search with ``fault``, or its resumption without any."""
        search = [*SEARCH, "--", *COMMAND] if fault is not None else ["bisect", "--resume"]
        pid = _fork(place, lambda: _entry(search), fault=fault)
        began_s, code, gates, is_hit = self.clock.now(), None, None, False
        if fault is not None and fault.number:
            gates = _Gates(place, fault, controller=pid, clock=self.clock)
        while code is None and self.clock.now() < began_s + LIMIT_S:
            self.clock.sleep(0.003)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
            elif gates is not None:
                gates.serve()
            elif fault is not None and not is_hit and self.clock.now() >= began_s + fault.at_s:
                is_hit = _kill_one(pid, fault.whom)
        if code is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        seconds, calls = self.clock.now() - began_s, Counter[str]()
        if gates is not None and gates.tracer is not None:
            calls, is_hit = gates.calls(), gates.is_hit()
        late = f"\nit had not ended after {LIMIT_S:g} s"
        return Seen(
            code=-1 if code is None else code,
            said=place.said() + (late if code is None else ""),
            was_hit=is_hit,
            calls=calls,
            seconds=seconds,
        )

    def _left(self) -> list[str]:
        """Processes that are there long after the search, said and then killed."""
        left: list[procs.Process] = []
        ends_s = self.clock.now() + GONE_S
        while self.clock.now() < ends_s:
            for pid in procs.children(os.getpid()):
                os.waitpid(pid, os.WNOHANG)
            left = [process for process in procs.below(os.getpid()) if process.command != "strace"]
            if not left:
                break
            self.clock.sleep(0.01)
        for process in procs.below(os.getpid()):
            procs.send(process, signal.SIGKILL)
        return [f"left running: {', '.join(f'{p.pid} {p.command} ({p.state})' for p in left)}"] if left else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How a search ended, what it wrote, whether the fault happened, how many calls were counted, and its seconds."""

    code: int
    said: str
    was_hit: bool
    calls: Counter[str]
    seconds: float


class Place:
    """A folder with a program and files of the user's, one of them in shared memory, that look like leftovers."""

    def __enter__(self) -> Place:
        self._own = tempfile.TemporaryDirectory(prefix="nsa-chaos-")
        self.root = Path(self._own.name).resolve()
        self.folder = self.root / "work"
        for name in ("torchelastic_experiments", "tmp/torchelastic_a1b2c3d4", "tmp/pymp-a1b2c3d4"):
            (self.folder / name).mkdir(parents=True)
            (self.folder / name / "best.pt").write_text("precious")
        (self.folder / "train.py").write_text(PROGRAM)
        self.shared = Path(f"/dev/shm/torch_{os.getpid()}_chaos")
        self.shared.write_text("a data set")
        (self.folder / "shared").symlink_to(self.shared)
        return self

    def __exit__(self, *_: object) -> None:
        self.shared.unlink(missing_ok=True)
        self._own.cleanup()

    def said(self) -> str:
        """What the searches have written to standard output and error."""
        path = self.root / "said"
        return path.read_text(errors="replace") if path.exists() else ""

    def runs(self) -> list[Path]:
        """The folders of its runs that have a journal."""
        return sorted(path.parent for path in (self.folder / "runs").glob("*/journal.jsonl"))

    def files(self) -> list[tuple[str, int, str]]:
        """What is the user's: path, time of change, content. The temporary folder may be added to."""
        own = [path for path in self.folder.rglob("*") if "runs" not in path.parts and path.name in OWN]
        return [(str(path), path.stat().st_mtime_ns, path.read_text()) for path in sorted(own)]


class _Gates:
    """Lets the processes of a search pass the gates at which they stop, and attaches to the one that is wanted."""

    def __init__(self, place: Place, fault: Fault, *, controller: int, clock: WallClock) -> None:
        self._traced, self._fault, self._controller, self._clock = place.root / "calls", fault, controller, clock
        self._passed: set[tuple[int, int]] = set()
        self.tracer: subprocess.Popen[bytes] | None = None

    def serve(self) -> None:
        """Continue whoever has stopped at a gate since the last call, and a controller that was stopped."""
        own = procs.read(self._controller)
        everybody = [*procs.below(self._controller), *([own] if own is not None else [])]
        for process in everybody:
            if process.state not in "Tt":
                continue
            if (process.pid, process.started) not in self._passed:
                self._passed.add((process.pid, process.started))
                if len(self._passed) == self._fault.which:
                    self._attach(process.pid)
                procs.send(process, signal.SIGCONT)
            elif process.pid == self._controller and self._fault.what == "signal=STOP" and self.is_hit():
                self._clock.sleep(WOKEN_AFTER_S)  # a controller that somebody suspends is woken again, or is killed
                procs.send(process, signal.SIGCONT)

    def calls(self) -> Counter[str]:
        """How many calls were seen, by name."""
        return Counter(line.partition("(")[0] for line in self._lines() if line[:1].isalpha())

    def is_hit(self) -> bool:
        """Whether the fault has happened."""
        lines = self._lines()
        is_signal = self._fault.what.startswith("signal")
        return len(lines) >= self._fault.number if is_signal else any("INJECTED" in line for line in lines)

    def _lines(self) -> list[str]:
        return self._traced.read_text(errors="replace").splitlines() if self._traced.exists() else []

    def _attach(self, pid: int) -> None:
        fault = self._fault
        inject = ("-e", f"inject={fault.call}:{fault.what}:when={fault.number}") if fault.what else ()
        what = ("-qq", "-o", str(self._traced), "-e", f"trace={fault.call}", "-e", "signal=none")
        self.tracer = subprocess.Popen(["strace", *what, *inject, "-p", str(pid)], stderr=subprocess.DEVNULL)
        while self.tracer.poll() is None and "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
            self._clock.sleep(0.001)


def _fork(place: Place, work: Callable[[], int], *, fault: Fault | None) -> int:
    """A controller, which is this process forked; its PID."""
    sys.stdout.flush()
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        prctl.die_with_parent(signal.SIGKILL, parent=parent)
        os.chdir(place.folder)
        os.environ["TMPDIR"] = tempfile.tempdir = str(place.folder / "tmp")
        with _written_to(place.root / "said"):
            if fault is not None:
                _make_ready(fault)
            handle.START_LIMIT_S = START_LIMIT_S
            code = work()
    except BaseException:  # noqa: BLE001 - told as the interpreter would
        traceback.print_exc()
    finally:
        os._exit(code)


@contextmanager
def _written_to(path: Path) -> Iterator[None]:
    """What this process writes goes to the end of ``path`` meanwhile, and there is nothing for it to read."""
    sys.stdout.flush()
    kept = [os.dup(number) for number in (0, 1, 2)]
    said, nothing = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), os.open(os.devnull, os.O_RDONLY)
    for opened, number in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(opened, number)
    try:
        yield
    finally:
        sys.stdout.flush()
        for opened, number in zip(kept, (0, 1, 2), strict=True):
            os.dup2(opened, number)
        for opened in (*kept, said, nothing):
            os.close(opened)


def _make_ready(fault: Fault) -> None:
    """In the controller: have trials start in the way that is wanted, and the process that is wanted stop first."""
    if fault.way == "forkserver":
        EXECUTORS.put("local", "bench.chaos.forked:ForkedScripts")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
    if fault.number and fault.whom == "controller":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault.number:
        os.environ[GATE] = str(WAYS[fault.way][fault.whom])
        local.BOOT = local.BOOT.replace("from", f"sys.path.append({ROOT!r}); import bench.chaos.gate; from", 1)


def _entry(argv: list[str]) -> int:
    """The command line, as ``harness.__main__`` runs it."""
    from harness.cli.main import main as command

    try:
        command(argv, prog_name="nsa-harness")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _kill_one(controller: int, whom: str) -> bool:
    if whom == "controller":
        os.kill(controller, signal.SIGKILL)
        return True
    there = [process for process in procs.below(controller) if process.command == whom]
    return bool(there) and procs.send(there[0], signal.SIGKILL)


def _answer(place: Place) -> object:
    """The answer of the run, or why there is none."""
    try:
        run = read_run(place.runs()[-1])
    except (HarnessError, IndexError) as error:
        return str(error)
    keys = [record.trial.key for record in run.records]
    if len(set(keys)) != len(keys):
        return "a trial counted twice"
    boundary = run.answer.boundary if run.answer else None
    return (boundary.last_good, boundary.first_bad, boundary.certified) if boundary else run.ended


def _recorded(place: Place) -> list[tuple[str, str]]:
    """Every trial of the run so far with its verdict."""
    try:
        return [(record.trial.key, str(record.verdict)) for record in read_run(place.runs()[-1]).records]
    except (HarnessError, IndexError):
        return []
