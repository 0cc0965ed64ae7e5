"""A guard's life in two hours: hanging jobs and look-alikes come and go, and everything around the guard fails.

    python bench/guard_soak.py --minutes 125 --seed 1 --out /tmp/soak       run it
    python bench/guard_soak.py --read /tmp/soak                             what was seen so far, at any time

``nsa-harness guard --match`` watches programs that are started at random from a seed: hangs that have to be told once
each (one of them goes on and hangs again), and look-alikes, silent for one to three minutes, that must not be told.
Meanwhile the receiver of its messages is killed and comes back, the disk that holds its ledger and its reports is
full for a while (a small tmpfs, if this user may mount one), and the guard is killed by SIGKILL and started again.
A second guard watches two programs that nothing happens to: what it costs in an idle hour.

What holds at the end is said line by line; exit code 1 if one does not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

HANGS = {
    "lock-deadlock": 1,
    "blocked-pipe": 1,
    "import-deadlock": 1,
    "pool-deadlock": 1,
    "deadlocked-child": 1,
    "twice": 2,
    "gloo-pair": 1,
}
"""Programs that hang, and how often."""

LOOK_ALIKES = (
    "back-off", "slow-import", "slow-server", "slow-upload", "slow-first-eval", "lock-given-back", "slow-save",
    "idle-pool", "waits-for-child", "other-holds-file", "steps",
)  # fmt: skip
"""Programs that do not."""

TOLD_LIMIT_S = 900.0
"""A hang that nobody was told of after so long counts as lost; the time in which the guard was dead or deaf counts."""

SLOTS = 3
"""Programs at once."""


# ---- the programs -----------------------------------------------------------------------------------------------


class Scene:
    """What a specimen may use."""

    rank, world, device, step, state, random = 0, 1, "cpu", 3, None, staticmethod(random.random)

    def __init__(self) -> None:
        self.trial_dir = Path(tempfile.mkdtemp(prefix="guard-soak-"))


def steps(seconds: float) -> None:
    """A training loop: a little work, a line, a rest."""
    end_s = time.monotonic() + seconds
    n = 0
    while time.monotonic() < end_s:
        n += 1
        sum(i * i for i in range(20_000))
        print("step", n, flush=True)
        time.sleep(0.25)


def hang_until_released() -> None:
    """Wait for a lock that only SIGTERM gives back."""
    lock = threading.Lock()
    lock.acquire()
    signal.signal(signal.SIGTERM, lambda *_: lock.release())
    lock.acquire()


def idle_pool(silent_s: float) -> None:
    """Have a pool of processes with nothing to do."""
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2):
        time.sleep(silent_s)


def other_holds_file(silent_s: float) -> None:
    """Wait for a file lock that another process has."""
    import fcntl

    with tempfile.NamedTemporaryFile() as file:
        hold = f"import fcntl, time; f = open({file.name!r}); fcntl.flock(f, 2); print(1, flush=True)"
        code = f"{hold}; time.sleep({silent_s})"
        with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            fcntl.flock(file, fcntl.LOCK_EX)


def gloo_pair() -> None:
    """Two ranks of gloo, of which one leaves out a collective."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, one = dist.get_rank(), torch.ones(4)
    for step in range(40):
        dist.all_reduce(one)
        one /= 2
        print("rank", rank, "step", step, flush=True)
        time.sleep(0.25)
    if rank == 1:
        dist.broadcast(one, src=1)
        dist.barrier()
    else:
        dist.all_reduce(one)
        dist.barrier()
    time.sleep(3600)


def program(name: str, silent_s: float) -> None:
    """Train for a while, do what ``name`` says, train for a while."""
    from harness.specimens import look_alikes
    from harness.specimens.catalog import SPECIMENS

    if name == "gloo-pair":
        if "RANK" in os.environ:
            gloo_pair()
        with contextlib.closing(__import__("socket").create_server(("127.0.0.1", 0))) as server:
            port = str(server.getsockname()[1])
        base = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        both = [subprocess.Popen([sys.executable, *sys.argv], env={**base, "RANK": rank}) for rank in "01"]
        for one in both:
            one.wait()
        return
    look_alikes.SILENT_S = look_alikes.NEW_S = silent_s
    steps(random.uniform(5.0, 40.0))
    own = {
        "deadlocked-child": lambda: subprocess.run(
            [sys.executable, "-c", "import threading; l = threading.Lock(); l.acquire(); l.acquire()"], check=False
        ),
        "twice": lambda: (hang_until_released(), steps(150.0), hang_until_released()),
        "idle-pool": lambda: idle_pool(silent_s),
        "waits-for-child": lambda: subprocess.run(["sleep", f"{silent_s}"], check=False),
        "other-holds-file": lambda: other_holds_file(silent_s),
        "steps": lambda: steps(silent_s),
    }
    if name in own:
        own[name]()
    else:
        SPECIMENS.load(name).strike(Scene())
    steps(20.0)


# ---- the receiver -----------------------------------------------------------------------------------------------


def receiver(port: int, path: Path) -> None:
    """Keep every message that comes."""

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with path.open("a") as file:
                file.write(json.dumps({"at": time.time(), "title": body["title"], "body": body["message"]}) + "\n")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    HTTPServer.allow_reuse_address = True
    HTTPServer(("127.0.0.1", port), Keep).serve_forever()


# ---- the soak ---------------------------------------------------------------------------------------------------


@dataclass
class Program:
    """A program that runs or ran."""

    name: str
    process: subprocess.Popen[bytes]
    key: str
    began_s: float
    ends_s: float | None = None
    released: int = 0


@dataclass
class Soak:
    """Everything that runs, and the log of what was done to it."""

    out: Path
    random: random.Random
    token: str
    ports: tuple[int, int]
    guard: subprocess.Popen[bytes] | None = None
    receiver: subprocess.Popen[bytes] | None = None
    programs: list[Program] = field(default_factory=list)
    guard_cpu_s: float = 0.0
    cpu_before_s: float = 0.0
    full: Path | None = None

    def log(self, event: str, **facts: object) -> None:
        """Note what was done or seen."""
        with (self.out / "soak.jsonl").open("a") as file:
            file.write(json.dumps({"at": time.time(), "event": event, **facts}) + "\n")

    def messages(self) -> list[dict[str, str]]:
        """What the receiver was told."""
        path = self.out / "messages.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def told(self, key: str, what: str) -> int:
        """How many incidents of that job the receiver knows."""
        ids = {m["body"].rpartition("incident ")[2] for m in self.messages()}
        return sum(id.startswith(f"{key}-") and id.endswith(f"-{what}") for id in ids)

    def start_guard(self) -> None:
        """Start the guard, or start it again."""
        notify = f"json://127.0.0.1:{self.ports[0]}/"
        argv = ["guard", "--match", self.token, "--notify", notify, "--metrics", str(self.ports[1])]
        with (self.out / "guard.log").open("ab") as log:
            self.guard = subprocess.Popen(
                [*harness(), *argv, "--runs", str(self.out / "disk" / "runs")], stdout=log, stderr=log
            )
        self.log("guard started", pid=self.guard.pid)

    def start_receiver(self) -> None:
        """Start the receiver, or start it again."""
        argv = [sys.executable, __file__, "--receiver", str(self.ports[0]), str(self.out / "messages.jsonl")]
        self.receiver = subprocess.Popen(argv)
        self.log("receiver started")

    def start_program(self) -> None:
        """Start a program at random."""
        hangs = self.random.random() < 0.45
        name = self.random.choice(list(HANGS) if hangs else list(LOOK_ALIKES))
        silent_s = self.random.uniform(60.0, 180.0)
        argv = [sys.executable, __file__, "--program", name, f"{silent_s:.0f}", self.token]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        self.programs.append(Program(name, process, f"{process.pid}-{started}", time.monotonic()))
        self.log("program", name=name, key=f"{process.pid}-{started}", silent_s=silent_s)

    def look_after(self, one: Program) -> bool:
        """Release, end or bury a program; whether it is over."""
        now_s = time.monotonic()
        if one.process.poll() is not None:
            self.log("program ended", key=one.key, code=one.process.returncode)
            return True
        if one.name not in HANGS:
            return False
        told = self.told(one.key, "hang")
        if one.name == "twice" and told == 1 and not one.released:
            one.process.send_signal(signal.SIGTERM)
            one.released, one.began_s = 1, now_s
            self.log("released", key=one.key)
        elif told >= HANGS[one.name] and one.ends_s is None:
            one.ends_s = now_s + self.random.uniform(5.0, 240.0)
        if (one.ends_s is not None and now_s >= one.ends_s) or now_s - one.began_s > TOLD_LIMIT_S + 60.0:
            os.killpg(one.process.pid, signal.SIGKILL)
        return False

    def sample(self) -> None:
        """The guard's CPU time so far, its children's too, and its page of metrics."""
        if self.guard is not None and self.guard.poll() is None:
            self.guard_cpu_s = cpu_s(self.guard.pid)
        page = ""
        url = f"http://127.0.0.1:{self.ports[1]}/metrics"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            page = answer.read().decode()
        numbers = {
            line.split()[0].removeprefix("nsa_harness_guard_"): float(line.split()[1])
            for line in page.splitlines()
            if line.startswith("nsa_harness_guard_")
        }
        self.log("sample", cpu_s=self.cpu_before_s + self.guard_cpu_s, metrics=numbers)

    def kill_guard(self) -> None:
        """Kill the guard as the kernel does that has no memory left."""
        if self.guard is None:
            return
        self.sample()
        self.guard.kill()
        self.guard.wait()
        self.cpu_before_s += self.guard_cpu_s
        self.guard_cpu_s, self.guard = 0.0, None
        self.log("guard killed")


def harness() -> list[str]:
    """The command line of the checkout that this file is in."""
    return [sys.executable, "-P", str(Path(__file__).resolve().parents[1] / "nsa_harness" / "start.py")]


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(fields[i]) for i in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")


def idle_guard(out: Path) -> tuple[subprocess.Popen[bytes], list[subprocess.Popen[bytes]]]:
    """A guard over a program that trains and one that waits: nothing ever happens."""
    quiet = "import time, threading; e = threading.Event(); print(1, flush=True)\nwhile True: e.wait(86400)"
    jobs = [
        subprocess.Popen([sys.executable, __file__, "--program", "steps", "86400"], stdout=subprocess.DEVNULL),
        subprocess.Popen([sys.executable, "-c", quiet], stdout=subprocess.DEVNULL),
    ]
    with (out / "idle.log").open("wb") as log:
        argv = ["guard", *(str(job.pid) for job in jobs), "--metrics", str(free_port()), "--runs", str(out / "idle")]
        return subprocess.Popen([*harness(), *argv], stdout=log, stderr=log), jobs


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def small_disk(folder: Path) -> bool:
    """Mount a tmpfs of 48 MB there; False where this user may not."""
    folder.mkdir(parents=True)
    return subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "none", str(folder)], check=False).returncode == 0


def soak(out: Path, *, minutes: float, seed: int) -> None:
    """Two hours."""
    out.mkdir(parents=True)
    one = Soak(out, random.Random(seed), f"guard-soak-{seed}-{os.getpid()}", (free_port(), free_port()))
    mounted = small_disk(out / "disk")
    one.log("began", seed=seed, minutes=minutes, tmpfs=mounted)
    one.start_receiver()
    one.start_guard()
    idle, idle_jobs = idle_guard(out)
    began_s = time.monotonic()
    due = {"guard": 420.0, "receiver": 200.0, "disk": 900.0, "program": 10.0, "sample": 30.0}
    while (age_s := time.monotonic() - began_s) < 60.0 * minutes:
        time.sleep(1.0)
        one.programs = [each for each in one.programs if not one.look_after(each)]
        ending = age_s > 60.0 * minutes - TOLD_LIMIT_S - 300.0  # what hangs now may still be told
        if age_s >= due["program"] and not ending:
            if len(one.programs) < SLOTS:
                one.start_program()
            due["program"] = age_s + one.random.uniform(20.0, 60.0)
        if age_s >= due["receiver"]:
            if one.receiver is not None:
                one.receiver.kill()
                one.receiver.wait()
                one.receiver = None
                one.log("receiver killed")
                due["receiver"] = age_s + one.random.uniform(10.0, 120.0)
            else:
                one.start_receiver()
                due["receiver"] = age_s + one.random.uniform(200.0, 600.0)
        if one.guard is not None and one.guard.poll() is not None:
            one.log("guard ended by itself", code=one.guard.returncode)
            one.cpu_before_s += one.guard_cpu_s
            one.guard_cpu_s, one.guard = 0.0, None
        if age_s >= due["guard"]:
            if one.guard is not None:
                one.kill_guard()
                due["guard"] = age_s + one.random.uniform(1.0, 60.0)
            else:
                one.start_guard()
                due["guard"] = age_s + one.random.uniform(240.0, 900.0)
        if age_s >= due["disk"] and mounted:
            filler = out / "disk" / "filler"
            if one.full is None:
                with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                    while True:
                        file.write(bytes(1 << 14))
                one.full = filler
                one.log("disk full")
                due["disk"] = age_s + one.random.uniform(60.0, 300.0)
            else:
                filler.unlink()
                one.full = None
                one.log("disk free")
                due["disk"] = age_s + one.random.uniform(600.0, 1200.0)
        if age_s >= due["sample"]:
            one.sample()
            if idle.poll() is None:
                one.log("idle", cpu_s=cpu_s(idle.pid), age_s=age_s)
            due["sample"] = age_s + 60.0
    finish(one, idle, idle_jobs, mounted=mounted)


def finish(
    one: Soak, idle: subprocess.Popen[bytes], idle_jobs: list[subprocess.Popen[bytes]], *, mounted: bool
) -> None:
    """Let everything be told that is to be told, end everything."""
    if one.full is not None:
        one.full.unlink()
    if one.receiver is None:
        one.start_receiver()
    if one.guard is None:
        one.start_guard()
    for each in one.programs:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.process.pid, signal.SIGKILL)
        each.process.wait()
        one.log("program ended", key=each.key, code=each.process.returncode)
    time.sleep(75.0)
    one.sample()
    one.log("ended")
    for process in (one.guard, idle, one.receiver, *idle_jobs):
        if process is not None:
            process.terminate()
            process.wait()
    ledger = one.out / "disk" / "runs" / "guard.jsonl"
    (one.out / "guard.jsonl").write_bytes(ledger.read_bytes())
    if mounted:
        subprocess.run(["umount", str(one.out / "disk")], check=False)


# ---- what holds -------------------------------------------------------------------------------------------------


def lines(path: Path) -> list[dict[str, object]]:
    """A file of JSON lines; empty where there is none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read(out: Path) -> int:
    """Say what was seen; how many lines do not hold."""
    log, messages = lines(out / "soak.jsonl"), lines(out / "messages.jsonl")
    programs = {str(e["key"]): e for e in log if e["event"] == "program"}
    over = {str(e["key"]) for e in log if e["event"] == "program ended"}
    ids = Counter(str(m["body"]).rpartition("incident ")[2] for m in messages)
    hangs = Counter(id.rsplit("-", 2)[0] for id in ids if id.endswith("-hang"))
    killed = [float(str(e["at"])) for e in log if e["event"] in ("guard killed", "receiver killed")]
    wrong: list[str] = []
    for key, facts in programs.items():
        wanted = HANGS.get(str(facts["name"]), 0)
        if hangs[key] > wanted or (hangs[key] < wanted and key in over):
            wrong.append(f"{facts['name']} {key}: {hangs[key]} hangs told, {wanted} expected")
        ends = ids[f"{key}-{wanted}-ended"]
        if wanted and key in over and not ends:
            wrong.append(f"{facts['name']} {key}: its end was not told")
    wrong += [f"a message about nobody: {id}" for id in ids if "-".join(id.split("-")[:2]) not in programs]
    wrong += [f"the guard ended by itself, exit code {e['code']}" for e in log if e["event"] == "guard ended by itself"]
    doubled = [id for id, number in ids.items() if number > 1]
    for id in doubled:
        at = sorted(float(str(m["at"])) for m in messages if str(m["body"]).endswith(id))
        if not any(at[0] <= when <= at[-1] for when in killed):
            wrong.append(f"told twice without a kill in between: {id}")
    said = Counter(str(e["event"]) for e in log)
    names = Counter(str(facts["name"]) for facts in programs.values())
    began, last = float(str(log[0]["at"])), float(str(log[-1]["at"]))
    print(f"{(last - began) / 60:.0f} minutes, seed {log[0]['seed']}, {'ended' if said['ended'] else 'still running'}")
    hang = sum(number for name, number in names.items() if name in HANGS)
    print(f"programs: {len(programs)}, of which {hang} hang: {dict(names)}")
    print(f"hangs told: {sum(hangs.values())}; messages: {sum(ids.values())}, {len(doubled)} twice around a kill")
    print(
        f"killed: guard {said['guard killed']}, receiver {said['receiver killed']}; disk full {said['disk full']} times"
    )
    print(f"reports: {len(list((out / 'disk' / 'runs').glob('*-watch')))} on the disk")
    samples = [e for e in log if e["event"] == "sample"]
    if samples:
        share = float(str(samples[-1]["cpu_s"])) / (float(str(samples[-1]["at"])) - began)
        print(f"the guard of the programs used {100 * share:.2f} % of a core, its looks included")
    idle = [(float(str(e["age_s"])), float(str(e["cpu_s"]))) for e in log if e["event"] == "idle"]
    if idle:
        later = [row for row in idle if row[0] >= 600.0] or idle
        hour = [row for row in idle if row[0] >= idle[-1][0] - 3600.0]
        for text, rows in (
            ("since the start", [(0.0, 0.0), idle[-1]]),
            ("after ten minutes", later),
            ("last hour", hour),
        ):
            if rows[-1][0] > rows[0][0]:
                share = (rows[-1][1] - rows[0][1]) / (rows[-1][0] - rows[0][0])
                print(f"the guard of two idle jobs, {text}: {100 * share:.3f} % of a core")
    for text in wrong:
        print("DOES NOT HOLD:", text)
    print("each hang told exactly once, none false, nothing lost" if not wrong else f"{len(wrong)} do not hold")
    return len(wrong)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=125.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--receiver", nargs=2)
    parser.add_argument("--program", nargs="+")
    args = parser.parse_args()
    if args.receiver:
        receiver(int(args.receiver[0]), Path(args.receiver[1]))
    elif args.program:
        program(args.program[0], float(args.program[1]))
    elif args.read:
        return min(read(args.read), 1)
    else:
        soak(args.out, minutes=args.minutes, seed=args.seed)
        return min(read(args.out), 1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
