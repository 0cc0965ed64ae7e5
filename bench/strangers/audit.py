"""Whether the instrument ever looks at a process that is not the trial's, by what the kernel saw it do.

    python -m bench.strangers.audit --md audit.md

Every system call by which one process can look at another, or signal it, is written down by strace: opening or reading
anything below ``/proc/PID``, ``ptrace``, ``process_vm_readv``, ``kill`` and its kin, ``pidfd_open``. A PID in them that
none of the traced processes ever had is a look at a stranger. Dumpers that stop a process cannot work below strace, so
each situation is also run without it, where the verdict, and the stacks that it shows, must be of the trial's own code.

The situations force what goes wrong with bare numbers: PIDs inside a PID namespace that innocent processes outside have
too (``ns_last_pid``), as root and as a user; a PID that is given to a stranger once its process of the trial has ended;
strangers by the hundred that come and go beside the trial. The last is a trial on two nodes, each in a PID namespace
of its own, on one disk: a thousand processes of the one have the numbers of a thousand of the other, and there strace
itself is process 1. Needs root, strace and unshare.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cluster.engines import LocalEngine
from harness.testing.engines import staged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CALLS = (
    "open,openat,openat2,readlink,readlinkat,kill,tgkill,tkill,rt_sigqueueinfo,rt_tgsigqueueinfo,ptrace,"
    "process_vm_readv,process_vm_writev,pidfd_open,pidfd_send_signal,execve"
)
"""What strace writes down; ``execve`` says which PID a dumper is given."""

LOOKS = re.compile(
    r"/proc/(\d+)(?=[/\"])|^(?:kill|tgkill|tkill|rt_sigqueueinfo|rt_tgsigqueueinfo|pidfd_open|process_vm_\w+)\((-?\d+)"
    r"|^ptrace\(\w+, (\d+)|^execve\(.*(?:py-spy|pystack).*\"(\d+)\""
)
"""Where a system call names a process."""

INNOCENT = """
import threading
def innocent():
    lock = threading.Lock(); lock.acquire(); lock.acquire()
innocent()
"""
"""A process with nothing to do with the trial: it stands in a deadlock of its own, for anybody who mistakes it."""

STEPS = """
import os, threading, time
open("number", "w").write(str(os.getpid()))
for i in range(10):
    time.sleep(0.05)
    print("step", i, flush=True)
"""
HANGS = STEPS + "def own():\n    lock = threading.Lock(); lock.acquire(); lock.acquire()\nown()\n"
WAITS = STEPS + "time.sleep(14)\nprint('done', flush=True)\n"
LOSES_A_CHILD = STEPS + (
    "import subprocess\n"
    "child = subprocess.Popen(['sleep', '100'])\n"
    "time.sleep(7)\n"
    "child.kill(); child.wait()\n"
    "open('gone', 'w').write(str(child.pid))\n"
    "time.sleep(10)\nprint('done', flush=True)\n"
)
FIND_ITS_NUMBER = "echo $(({pid} - 1)) > /proc/sys/kernel/ns_last_pid; exec {python} train.py & wait $!"
"""Run in a PID namespace of its own: the program gets the PID that an innocent process has outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One program and what is beside it. ``space`` is the command that makes its PID namespace, empty: none."""

    name: str
    text: str
    verdicts: tuple[str, ...]
    space: str = ""
    crowd: bool = False
    reuses: bool = False


ROOT = "unshare -p -f --mount-proc"
USER = "setpriv --reuid 65534 --regid 65534 --clear-groups unshare -U -r -p -f --mount-proc"
SYSTEM_PYTHON = "/usr/bin/python3"
"""What a user without rights can run wherever this one's interpreter lies."""

SITUATIONS = (
    Situation(name="equal PIDs, waits", text=WAITS, verdicts=("PASS",), space=ROOT),
    Situation(name="equal PIDs, hangs", text=HANGS, verdicts=("HANG",), space=ROOT),
    Situation(name="equal PIDs, waits, as a user", text=WAITS, verdicts=("PASS",), space=USER),
    Situation(name="equal PIDs, hangs, as a user", text=HANGS, verdicts=("HANG",), space=USER),
    Situation(name="a PID given to a stranger", text=LOSES_A_CHILD, verdicts=("PASS",), reuses=True),
    Situation(name="strangers that come and go", text=HANGS, verdicts=("HANG",), crowd=True),
)


FORKS = 1000
ON_TWO_NODES = f"""
import os, socket, threading
rank, where = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    peer = socket.create_server(("", where[1])).accept()[0]
else:
    import time
    for _ in range(600):
        try:
            peer = socket.create_connection(where)
            break
        except OSError:
            time.sleep(0.1)
with open(f"numbers{{rank}}", "w") as numbers:
    for step in range({FORKS}):
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        print(child, file=numbers)
        if step % 20 == 0:
            print("step", step // 20, flush=True)
def own():
    lock = threading.Lock(); lock.acquire(); lock.acquire()
def waits():
    peer.recv(1)
own() if rank == 1 else waits()
"""
"""Both ranks have a thousand children; then rank 1 takes a lock twice, and rank 0 waits for it."""


class Apart(LocalEngine):
    """Agents of this machine, each in a PID namespace of its own; below strace, which writes ``calls0``, ``calls1``."""

    traced = False

    def wrapped(self, argv: Sequence[str], number: int) -> Sequence[str]:
        """How the agent of a node is started."""
        return [*shlex.split(ROOT), *(strace(f"calls{number}") if self.traced else []), *argv]


def strace(path: str) -> list[str]:
    """The command that writes down every system call by which one process can look at another."""
    return ["strace", "-f", "-q", "-s", "200", "-o", path, "-e", f"trace={CALLS}"]


def apart(folder: Path, *, traced: bool) -> tuple[str, str, list[str], int]:
    """A trial on two nodes of one disk: verdict, reason, looks at strangers, numbers that both nodes had."""
    folder.mkdir()
    engine = Apart()
    engine.traced = traced
    with contextlib.chdir(folder), staged(engine, folder, nodes=2) as stage:
        done = stage.run(ON_TWO_NODES, spans=2)
    shown = {frame.function for stack in done.evidence.stacks for thread in stack.threads for frame in thread.frames}
    if not traced and not {"own", "waits"} <= shown:
        raise RuntimeError(f"the ranks' own functions were not seen, but {sorted(shown)}")
    numbers = [set((folder / f"numbers{rank}").read_text().split()) for rank in range(2)]
    calls = [(folder / f"calls{number}").read_text() for number in range(2)] if traced else []
    looks = [look for each in calls for look in strangers_seen(each)]
    said = f"{done.verdict.kind}, rank {done.verdict.rank}"
    return said, done.verdict.because, looks, len(numbers[0] & numbers[1])


@contextlib.contextmanager
def innocent() -> Iterator[int]:
    """The PID of a process that is not the trial's."""
    with subprocess.Popen([sys.executable, "-c", INNOCENT], start_new_session=True) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def crowd(*, wanted: bool) -> Iterator[None]:
    """Strangers that are born and die beside the trial, two hundred a second, in eight lines of descent."""
    if not wanted:
        yield
        return
    line = "while :; do sleep 0.04 & wait $!; done"
    ones = [subprocess.Popen(["sh", "-c", line], start_new_session=True) for _ in range(8)]
    try:
        yield
    finally:
        for one in ones:
            one.kill()
            one.wait()


def take_its_number(folder: Path, until_s: float) -> None:
    """Give the PID of the trial's child that has ended to a stranger, for as long as the trial lasts."""
    gone = folder / "gone"
    while not (gone.exists() and gone.read_text()) and time.monotonic() < until_s:
        time.sleep(0.02)
    number = int(gone.read_text())
    for _ in range(100):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1))
        process = subprocess.Popen([sys.executable, "-c", INNOCENT], start_new_session=True)
        if process.pid == number:
            time.sleep(12)
        process.kill()
        process.wait()
        if process.pid == number:
            return
    raise RuntimeError(f"PID {number} was never free")


def tried(one: Situation, folder: Path, *, traced: bool) -> tuple[str, str, list[str]]:
    """The verdict, the reason for it, and every look at a stranger."""
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "train.py").write_text(one.text)
    with innocent() as pid, crowd(wanted=one.crowd):
        program = [sys.executable, "train.py"]
        if one.space:
            python = SYSTEM_PYTHON if one.space == USER else sys.executable
            inside = FIND_ITS_NUMBER.format(pid=pid, python=shlex.quote(python))
            program = [*shlex.split(one.space), "sh", "-c", inside]
        harness = [str(Path(sys.executable).with_name("nsa-harness")), "run", "--json", "--runs", "runs"]
        below = strace("calls") if traced else []
        with (folder / "said").open("w") as said, (folder / "errors").open("w") as errors:
            process = subprocess.Popen(
                [*below, *harness, "--limit", "60s", "--", *program], cwd=folder, stdout=said, stderr=errors
            )
            if one.reuses:
                take_its_number(folder, time.monotonic() + 60.0)
            process.wait(timeout=200)
    if one.space and (folder / "number").read_text() != str(pid):
        raise RuntimeError(f"{one.name}: the program did not get the number {pid}: try again")
    (trial,) = json.loads((folder / "said").read_text())["trials"]
    verdict = trial["verdict"]
    looks = strangers_seen((folder / "calls").read_text()) if traced else []
    return verdict["kind"], verdict["because"], looks


def strangers_seen(calls: str) -> list[str]:
    """The system calls of the instrument that name a process which is none of those that were traced."""
    lines = [(pid, text.strip()) for pid, _, text in (line.partition(" ") for line in calls.splitlines())]
    traced = {pid for pid, _ in lines}
    found = []
    for pid, text in lines:
        named = {number.lstrip("-") for groups in LOOKS.findall(text) for number in groups if number}
        if named - traced - {"0"}:
            found.append(f"{pid} {text}")
    return found


def main() -> int:
    """Try every situation twice, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.strangers.audit", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--md", type=Path, help="write the table here, too")
    asked = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("this needs root: ns_last_pid and PID namespaces")
    lines = ["| situation | verdict | below strace | calls that name a stranger |", "|---|---|---|---|"]
    wrong = 0
    for number, one in enumerate(one for one in SITUATIONS if asked.only in one.name):
        with tempfile.TemporaryDirectory() as top:
            Path(top).chmod(0o777)
            kind, because, _ = tried(one, Path(top) / "plain", traced=False)
            below, _, looks = tried(one, Path(top) / "traced", traced=True)
        right = kind in one.verdicts and "innocent" not in because and not looks
        wrong += not right
        lines.append(f"| {one.name} | {kind} | {below} | {len(looks)}{'' if right else ' **WRONG**'} |")
        print("\n".join(lines if number == 0 else lines[-1:]), *looks[:5], sep="\n", flush=True)
    if asked.only in (name := "two namespaces, one disk"):
        with tempfile.TemporaryDirectory() as top:
            said, _, _, equal = apart(Path(top) / "plain", traced=False)
            below, _, looks, _ = apart(Path(top) / "traced", traced=True)
        right = said == "HANG, rank 1" and not looks
        wrong += not right
        lines.append(f"| {name}, {equal} equal PIDs | {said} | {below} | {len(looks)}{'' if right else ' **WRONG**'} |")
        print(lines[-1], *looks[:5], sep="\n", flush=True)
    if asked.md:
        asked.md.write_text("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
