"""Programs that misbehave, each under ``nsa-harness run``: is the verdict right, is anything left, is anything touched?

    python -m bench.misbehaving                       # all of them, two at a time; as root, on a machine of one's own
    python -m bench.misbehaving "a chain of forks"    # those whose name holds these words

Each is asked with ``--limit 60s``. Right is: one of the verdicts before its name, a documented exit code, no traceback,
nothing left running, and older files of the user's, which look like leftovers and which every program has open, as
they were. A program may harm only what it was started by and its own folder. Exit status 1 where anything is not right.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.cli.exit_codes import ExitCode
from harness.launch import prctl, procs

HEAD = """
import atexit, ctypes, os, resource, signal, socket, subprocess, sys, threading, time
USERS = [open(name, "rb") for name in ("shared", "torchelastic_experiments/best.pt")]
PLACE = os.environ["NSA_HARNESS_TRIAL_DIR"]
libc = ctypes.CDLL(None)
def deadlock(*_):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def sleep_on(*_):
    os.execve("/bin/sleep", ["sleep", "1000"], {})
def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid
def daemon(work):
    def leave():
        os.setsid()
        child(work)
    os.waitpid(child(leave), 0)
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
def above(name):
    pid = os.getpid()
    while open(f"/proc/{pid}/comm").read().strip() != name:
        pid = parent(pid)
    return pid
def sparse(name, size):
    os.truncate(os.open(os.path.join(PLACE, name), os.O_CREAT | os.O_RDWR), size)
def steps(seconds=2):
    for number in range(int(seconds * 5)):
        print("step", number, flush=True)
        time.sleep(0.2)
steps(0.4)
"""

TEXTS = """
## PASS: leaves a daemon
daemon(sleep_on)
## PASS: leaves a daemon that ignores every signal it may
def deaf():
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN)
    sleep_on()
daemon(deaf)
## PASS: leaves 200 children, each in a session of its own
for _ in range(200):
    child(lambda: (os.setsid(), sleep_on()))
## PASS: leaves a chain of forks that goes on for ever
def run_away():
    while True:
        time.sleep(0.01)
        if os.fork():
            os._exit(0)
daemon(run_away)
## PASS: leaves a child in a PID namespace of its own
subprocess.Popen(["unshare", "--pid", "--fork", "sleep", "1000"])
time.sleep(0.5)
## PASS: leaves a child in a user namespace of its own
subprocess.Popen(["unshare", "--user", "sleep", "1000"], env={})
time.sleep(0.5)
## PASS: leaves a child that has no /proc
subprocess.Popen(["unshare", "--mount", "sh", "-c", "umount -l /proc; exec sleep 1000"])
time.sleep(0.5)
## PASS: leaves a child of another user
daemon(lambda: (os.setgid(65534), os.setuid(65534), sleep_on()))
## PASS: leaves a daemon without a parent-death signal and environment
libc.prctl(1, 0, 0, 0, 0)
daemon(lambda: (libc.prctl(1, 0, 0, 0, 0), sleep_on()))
## PASS: leaves a daemon with no file open
daemon(lambda: (os.closerange(0, 256), sleep_on()))
## PASS: leaves a daemon that is called like a supervisor
daemon(lambda: (libc.prctl(15, b"nsa-supervisor", 0, 0, 0), time.sleep(1000)))
## PASS: leaves a stopped child
os.kill(child(lambda: time.sleep(1000)), signal.SIGSTOP)
## PASS: leaves a child that is traced
child(lambda: (libc.ptrace(0, 0, 0, 0), time.sleep(1000)))
## PASS: leaves 100 children that nobody reaped
for _ in range(100):
    child(lambda: None)
steps()
## PASS: starts 500 children one after the other
for _ in range(500):
    os.waitpid(child(lambda: None), 0)
## PASS: closes its standard output and error
os.close(1), os.close(2)
time.sleep(2)
## PASS: closes every file that it was given
os.closerange(0, 256)
time.sleep(2)
## PASS: uses up its file descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
kept = []
try:
    while True:
        kept.append(os.dup(0))
except OSError:
    time.sleep(2)
## PASS: becomes another program
os.execv("/bin/sh", ["sh", "-c", "for i in 1 2 3 4 5; do echo step $i; sleep 0.3; done"])
## PASS: reads its standard input to the end
sys.stdin.read()
## PASS: leaves a file in shared memory
open("/dev/shm/torch_misbehaving_" + str(os.getpid()), "w").write("x")
## HANG: hangs in a daemon
read, write = os.pipe()
daemon(lambda: (os.close(read), deadlock()))
os.close(write)
os.read(read, 1)
## HANG: hangs behind exec
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, __file__, "again"])
deadlock()
## HANG: hangs in a chain of forks
for _ in range(5):
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        os._exit(0)
deadlock()
## HANG: hangs beside 1,000 threads
threading.stack_size(1 << 16)
over = threading.Event()
for _ in range(1000):
    threading.Thread(target=over.wait, daemon=True).start()
deadlock()
## HANG: hangs beside a thread that only sleeps
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
deadlock()
## HANG: hangs beside a child that only sleeps
subprocess.Popen(["sleep", "1000"])
deadlock()
## HANG: hangs beside a daemon that only sleeps
daemon(sleep_on)
deadlock()
## HANG: hangs while it ends
atexit.register(deadlock)
## HANG: hangs in the handler of a signal
signal.signal(signal.SIGUSR1, deadlock)
os.kill(os.getpid(), signal.SIGUSR1)
## HANG: hangs in an import
open("stuck_module.py", "w").write("import threading\\nlock = threading.Lock()\\nlock.acquire()\\nlock.acquire()\\n")
import stuck_module
## HANG: hangs at a pipe that it alone could write
read, write = os.pipe()
os.read(read, 1)
## HANG: hangs in an event loop
import asyncio
asyncio.run(asyncio.wait_for(asyncio.Event().wait(), None))
## HANG: hangs in two children that wait for each other
(one, two), (three, four) = os.pipe(), os.pipe()
first, second = child(lambda: os.read(one, 1)), child(lambda: os.read(three, 1))
os.waitpid(first, 0)
## HANG: hangs and ignores every signal it may
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_IGN)
deadlock()
## HANG: hangs with no file open
os.closerange(0, 256)
deadlock()
## HANG: computes for ever in one loop
while True:
    pass
## HANG: hangs and may not be looked at
libc.prctl(4, 0, 0, 0, 0)
deadlock()
## HANG: hangs while its own child traces it
me = os.getpid()
child(lambda: (libc.ptrace(0x4206, me, 0, 0), time.sleep(1000)))
time.sleep(0.5)
deadlock()
## HANG|UNRESOLVED: stops itself
os.kill(os.getpid(), signal.SIGSTOP)
## CRASH: ends itself by a signal
os.kill(os.getpid(), signal.SIGKILL)
## CRASH: kills its whole process group
daemon(sleep_on)
os.kill(0, signal.SIGKILL)
## CRASH: reads where nothing is
ctypes.string_at(0)
## CRASH: aborts beside 50 threads
for _ in range(50):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
os.abort()
## CRASH: ends with 255
os._exit(255)
## CRASH: raises an error of ten million characters
raise RuntimeError("x" * 10_000_000)
## CRASH: calls itself without end
def again():
    again()
again()
## INFRA: kills its supervisor
os.kill(above("nsa-supervisor"), signal.SIGKILL)
steps(20)
## INFRA: terminates its supervisor
os.kill(above("nsa-supervisor"), signal.SIGTERM)
steps(20)
## INFRA: stops its supervisor
os.kill(above("nsa-supervisor"), signal.SIGSTOP)
steps(20)
## INFRA: kills its supervisor and leaves a daemon that nothing ties to it
libc.prctl(1, 0, 0, 0, 0)
daemon(lambda: (libc.prctl(1, 0, 0, 0, 0), sleep_on()))
os.kill(above("nsa-supervisor"), signal.SIGKILL)
## PASS|INFRA: kills its guard
os.kill(above("nsa-guard"), signal.SIGKILL)
steps(5)
## PASS|INFRA: stops its guard
os.kill(above("nsa-guard"), signal.SIGSTOP)
steps(5)
## killed: kills the controller
daemon(sleep_on)
os.kill(parent(above("nsa-guard")), signal.SIGKILL)
steps(20)
## INFRA: puts a pipe where its marks belong
os.mkfifo(PLACE + "/heartbeat_rank0.jsonl")
os.mkfifo(PLACE + "/ranks.jsonl")
steps()
## INFRA: puts a result of 20 GB into its folder
sparse("result_rank0.json", 20 << 30)
steps()
## INFRA: puts marks of 8 GB into its folder
sparse("heartbeat_rank0.jsonl", 8 << 30)
steps()
## INFRA: puts folders where files belong
for name in ("evidence.json", "result_rank0.json", "ranks.jsonl", "effective.json"):
    os.mkdir(os.path.join(PLACE, name))
steps()
## PASS|INFRA: points its result at a file of the user's
os.symlink(os.path.abspath("torchelastic_experiments/best.pt"), PLACE + "/result_rank0.json")
os.symlink(os.path.abspath("torchelastic_experiments/best.pt"), PLACE + "/evidence.json")
steps()
## PASS|INFRA: writes marks, ranks and a result that are no JSON
for name in ("heartbeat_rank0.jsonl", "ranks.jsonl", "result_rank0.json"):
    open(os.path.join(PLACE, name), "wb").write(os.urandom(100_000) + b"\\n{\\"" + b"[" * 100_000)
steps()
## PASS: puts 10,000 files into its folder
for number in range(10_000):
    open(f"{PLACE}/{number}", "w").close()
steps()
## PASS|INFRA: deletes its folder
import shutil
shutil.rmtree(PLACE)
steps()
## PASS|INFRA: deletes all runs
import shutil
shutil.rmtree("runs")
steps()
## PASS: says 500 MB
for _ in range(5000):
    sys.stdout.write("step and so on " * 7000)
## PASS: says a line of 200 MB and bytes that are no text
sys.stdout.buffer.write(b"\\x00\\xff\\xfe\\x1b]0;title\\x07\\x9b2J" * 100)
for _ in range(200):
    sys.stdout.buffer.write(b"x" * 1_000_000)
"""
PROGRAMS = {
    name: (tuple(verdicts.split("|")), text)
    for part in TEXTS.split("## ")[1:]
    for heading, text in [part.split("\n", 1)]
    for verdicts, name in [heading.split(": ", 1)]
}
"""What each program does: the verdicts that are right of it, and its text."""

CONTROLLER_LIMIT_S = 240.0
GONE_S = 10.0


def ask(name: str, place: Path) -> dict[str, object]:
    """Run one program in ``place`` under the harness; what was said, and what was not right."""
    verdicts, text = PROGRAMS[name]
    prctl.become_subreaper()
    precious = [place / "torchelastic_experiments" / "best.pt", Path(f"/dev/shm/torch_{os.getpid()}_precious")]
    precious[0].parent.mkdir()
    (place / "tmp").mkdir()
    for path in precious:
        path.write_text("precious")
    (place / "shared").symlink_to(precious[1])
    (place / "program.py").write_text(HEAD + text)
    began = time.monotonic()
    command = [sys.executable, "-P", "-m", "harness", "run", "--json", "--limit", "60s", "--progress", "step"]
    command += ["--", sys.executable, "program.py"]
    with (place / "said").open("w") as said, (place / "errors").open("w") as errors:
        process = subprocess.Popen(
            command,
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=errors,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(place / "tmp")},
        )
        try:
            code = process.wait(CONTROLLER_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = None
    seconds = time.monotonic() - began
    wrong = left()
    told = spoken((place / "said").read_text(errors="replace"), code)
    if told["kind"] not in verdicts:
        wrong.append(f"{told['kind']} instead of {' or '.join(verdicts)}")
    if code not in {int(one) for one in ExitCode if one is not ExitCode.INTERNAL} and told["kind"] != "killed":
        wrong.append(f"it ended with {code}")
    if "Traceback" in (errors_said := (place / "errors").read_text(errors="replace")) and "harness" in errors_said:
        wrong.append(f"a traceback: {errors_said[-400:]}")
    wrong += [f"{path.name} was touched" for path in precious if not path.exists() or path.read_text() != "precious"]
    precious[1].unlink(missing_ok=True)
    return {**told, "name": name, "code": code, "seconds": round(seconds, 1), "wrong": wrong}


def left() -> list[str]:
    """Processes that are there ten seconds after the end, said and then killed."""
    ends = time.monotonic() + GONE_S
    there = procs.below(os.getpid())
    while there and time.monotonic() < ends:
        time.sleep(0.05)
        for pid in procs.children(os.getpid()):
            os.waitpid(pid, os.WNOHANG)
        there = procs.below(os.getpid())
    for one in there:
        procs.send(one, signal.SIGKILL)
    return [f"left running: {one.pid} {one.command} ({one.state})" for one in there]


def spoken(text: str, code: int | None) -> dict[str, str]:
    """The verdict of the only trial, its cause and its reason; what became of the controller where there is none."""
    if not text:
        return {"kind": "killed" if code == -signal.SIGKILL else "nothing", "cause": "", "because": ""}
    trial = json.loads(text)["trials"][-1]["verdict"]
    return {"kind": trial["kind"], "cause": trial["cause"] or "", "because": trial["because"]}


def one_of_them(name: str) -> dict[str, object]:
    """The same in a process of its own, to which everything comes that loses its parent."""
    with tempfile.TemporaryDirectory(prefix="misbehaving-") as place:
        command = [sys.executable, "-m", "bench.misbehaving", "--in", place, name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    gone = {
        "name": name,
        "kind": "",
        "cause": "",
        "code": done.returncode,
        "seconds": 0.0,
        "wrong": [done.stderr[-400:]],
    }
    return json.loads(lines[-1]) if done.returncode == 0 and lines else gone


def main() -> int:
    """Ask all of them, a line each; 1 where anything was not right."""
    parser = argparse.ArgumentParser(prog="python -m bench.misbehaving", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only programs whose name holds one of these")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--in", dest="place", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.place:
        print(json.dumps(ask(asked.words[0], asked.place)))
        return 0
    names = [name for name in PROGRAMS if not asked.words or any(word in name for word in asked.words)]
    right = 0
    with ThreadPoolExecutor(asked.jobs) as pool:
        for row in pool.map(one_of_them, names):
            right += not row["wrong"]
            said = f"{row['kind']} {row['cause']}".strip()
            print(f"{row['name']}: {said}, code {row['code']}, {row['seconds']} s", *row["wrong"], sep="; ", flush=True)
    print(f"{right} of {len(names)} right")
    return 0 if right == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
