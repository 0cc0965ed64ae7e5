"""Programs that fail as people's do: does the verdict name the line at fault, and the exception that was raised there?

    python bench/crashes.py                 those without a GPU, two minutes
    python bench/crashes.py --gpu           those that need one, two minutes
    python bench/crashes.py --only pool --only rich

None of them imports this project. The line at fault carries the comment ``# here``; a program without one has no such
line, and must not be given any; an error of a kernel has the line that was told of it. ``says`` are words that the
verdict must hold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

TORCHRUN = ("{python}", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
MARK = "# here"


@dataclass(frozen=True, slots=True)
class Crash:
    """A program that fails, how it is started, and what its verdict must hold."""

    source: str
    cause: str
    _: KW_ONLY
    kind: str = "CRASH"
    says: str = ""
    start: tuple[str, ...] = ("{python}", "train.py")
    files: dict[str, str] = field(default_factory=dict)
    place: str = ""
    gpu: bool = False
    torch: bool = False

    @property
    def programs(self) -> dict[str, str]:
        """The text of each of its files."""
        return {"train.py": self.source.lstrip("\n"), **self.files}

    def line(self) -> str:
        """``train.py:3``, where it fails; empty where no line is at fault."""
        if self.place:
            return self.place
        for name, text in self.programs.items():
            for number, line in enumerate(text.splitlines(), 1):
                if MARK in line:
                    return f"{name}:{number}"
        return ""


INSTALLED_IN = "PYTHONPATH=$PYTHONPATH:env/lib/python3.11/site-packages"
PACKAGE = "env/lib/python3.11/site-packages/program"
INSTALLED = {
    "env/bin/start": "import sys\nfrom program.core import main\nsys.exit(main())\n",
    f"{PACKAGE}/__init__.py": "",
    f"{PACKAGE}/core.py": "import json\n\n\ndef main():\n    json.loads('oh')\n",
}
"""A program that was installed, with the script that an installer writes to start it."""

CRASHES: dict[str, Crash] = {
    "plain": Crash(
        """
def load():
    raise FileNotFoundError("tokens.bin")  # here
load()
""",
        "FileNotFoundError",
        says="tokens.bin",
    ),
    "left-while-handling": Crash(
        """
import sys
def load():
    return {}["tokens"]  # here
def main():
    try:
        load()
    except Exception:
        print("set FULL_ERROR=1 to see more", file=sys.stderr)
        sys.exit(1)
main()
""",
        "KeyError",
        says="tokens",
    ),
    "did-not-leave": Crash(
        """
import sys
def main():
    try:
        {}["tokens"]
    except Exception:
        sys.exit(1)
try:
    main()
except SystemExit:
    print("went on")
""",
        "",
        kind="PASS",
    ),
    "left-for-another-reason": Crash(
        """
import sys, threading
def in_a_thread():
    try:
        {}["tokens"]
    except KeyError:
        sys.exit(1)
thread = threading.Thread(target=in_a_thread)
thread.start()
thread.join()
try:
    try:
        {}["labels"]
    except KeyError:
        sys.exit(1)
except SystemExit:
    pass
sys.exit(3)
""",
        "exit-3",
    ),
    "spawned-rank": Crash(
        """
import os
import torch.distributed as dist
import torch.multiprocessing as mp
def step(rank):
    return {}["loss"] if rank == 1 else 0  # here
def run(rank):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29541")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    step(rank)
    dist.barrier()
if __name__ == "__main__":
    mp.spawn(run, nprocs=2)
""",
        "KeyError",
        says="rank 1",
        torch=True,
    ),
    "cause-of-another": Crash(
        """
def load():
    try:
        open("/nonexistent")
    except OSError as error:
        raise RuntimeError("no checkpoint") from error  # here
load()
""",
        "RuntimeError",
        says="no checkpoint",
    ),
    "hook-of-its-own": Crash(
        """
import sys
sys.excepthook = lambda *error: sys.stderr.write("sorry\\n")
def loss(batch):
    return batch["missing"]  # here
loss({})
""",
        "KeyError",
        says="missing",
    ),
    "rich": Crash(
        """
from rich.traceback import install
install()
def loss(batch):
    return batch["missing"]  # here
loss({})
""",
        "KeyError",
        says="missing",
    ),
    "typer": Crash(
        """
import typer
app = typer.Typer()
@app.command()
def main(n: int = 0):
    print(1 // n)  # here
app()
""",
        "ZeroDivisionError",
    ),
    "logged": Crash(
        """
import logging
def step():
    raise FloatingPointError("the loss is nan")  # here
try:
    step()
except FloatingPointError:
    logging.exception("training failed")
    raise SystemExit(1)
""",
        "exit-1",
        says="the loss is nan",
    ),
    "dealt-with-before": Crash(
        """
import sys, traceback
try:
    open("/nonexistent/cache")
except OSError:
    traceback.print_exc()
for step in range(3):
    print("step", step)
sys.exit("validation failed: the loss is not below 0.01")
""",
        "exit-1",
        says="validation failed",
    ),
    "message": Crash(
        """
import sys
sys.exit("config: no dataset named foo")
""",
        "exit-1",
        says="no dataset named foo",
    ),
    "thread": Crash(
        """
import sys, threading
def feed():
    raise ValueError("bad shard")  # here
feeder = threading.Thread(target=feed)
feeder.start()
feeder.join()
sys.exit(1)
""",
        "exit-1",
        says="bad shard",
    ),
    "pool": Crash(
        """
import multiprocessing
def work(x):
    return 1 // (x - 3)  # here
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        pool.map(work, range(8))
""",
        "ZeroDivisionError",
    ),
    "executor": Crash(
        """
from concurrent.futures import ProcessPoolExecutor
def work(x):
    return 1 // (x - 3)  # here
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(work, range(8)))
""",
        "ZeroDivisionError",
    ),
    "program-in-a-program": Crash(
        """
import subprocess, sys
subprocess.run([sys.executable, "prepare.py"], check=True)
""",
        "FileNotFoundError",
        files={"prepare.py": 'open("/nonexistent/tokens.bin")  # here\n'},
    ),
    "group": Crash(
        """
import asyncio
async def shard(number):
    await asyncio.sleep(0.01)
    if number == 2:
        raise LookupError("shard 2 is empty")  # here
async def main():
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(shard(number))
asyncio.run(main())
""",
        "LookupError",
        says="shard 2 is empty",
    ),
    "recursion": Crash(
        """
def depth(n):
    return depth(n + 1)  # here
depth(0)
""",
        "RecursionError",
    ),
    "syntax": Crash("import model\n", "SyntaxError", files={"model.py": "def forward(: pass  # here\n"}),
    "script": Crash(
        'raise RuntimeError("no checkpoint")  # here\n',
        "RuntimeError",
        start=("bash", "-c", "set -e; echo begin; {python} train.py; echo end"),
    ),
    "tolerated": Crash(
        'raise RuntimeError("no infiniband")  # here\n',
        "RuntimeError",
        says="exit status 0 all the same",
        start=("bash", "-c", "{python} train.py || echo go on"),
    ),
    "segfault": Crash(
        """
import ctypes, faulthandler
faulthandler.enable()
def inner():
    ctypes.string_at(0)  # here
def outer():
    inner()
outer()
""",
        "SIGSEGV",
    ),
    "segfault-beside-threads": Crash(
        """
import ctypes, faulthandler, threading, time
faulthandler.enable()
def prefetch():
    faulthandler.dump_traceback_later(0.1)
    time.sleep(60)
threading.Thread(target=prefetch, daemon=True).start()
time.sleep(0.5)
def step():
    ctypes.string_at(0)  # here
step()
""",
        "SIGSEGV",
    ),
    "no-file": Crash(
        """
from dataclasses import dataclass
@dataclass(frozen=True)
class Config:
    rate: float = 0.1
def warm_up(config):
    config.rate = 0.2  # here
warm_up(Config())
""",
        "FrozenInstanceError",
        says="cannot assign to field",
    ),
    "expression": Crash(
        """
def rate(text):
    return eval(text)  # here
rate("base * 2")
""",
        "NameError",
        says="'base' is not defined",
    ),
    "typed-in": Crash(
        "",
        "JSONDecodeError",
        start=("{python}", "-c", "import json\ndef load():\n    json.loads('oh')\nload()"),
        place="load (<string>:3",
    ),
    "message-with-a-file": Crash(
        """
def read():
    raise ValueError("the config is bad:\\n  File \\"conf.yaml\\", line 3\\nKeyError: 'rate'\\n")  # here
read()
""",
        "ValueError",
        says="the config is bad",
    ),
    "message-with-a-traceback": Crash(
        """
import traceback
def attempt():
    try:
        {}["old"]
    except KeyError:
        text = traceback.format_exc()
    raise RuntimeError("the third attempt failed; the first:\\n" + text)  # here
attempt()
""",
        "RuntimeError",
        says="the third attempt failed",
    ),
    "message-that-raises": Crash(
        """
import sys
sys.excepthook = lambda *error: sys.stderr.write("sorry\\n")
class Bad(Exception):
    def __str__(self):
        return "code %d" % self.missing
def step():
    raise Bad(3)  # here
step()
""",
        "Bad",
        says="<exception str() failed>",
    ),
    "installed": Crash(
        "",
        "JSONDecodeError",
        start=("sh", "-c", f"{INSTALLED_IN} {{python}} env/bin/start"),
        place="main (program/core.py:5",
        files=INSTALLED,
    ),
    "installed-module": Crash(
        "",
        "JSONDecodeError",
        start=("sh", "-c", f"{INSTALLED_IN} {{python}} -m program"),
        place="main (program/core.py:5",
        files={**INSTALLED, f"{PACKAGE}/__main__.py": "from program.core import main\nmain()\n"},
    ),
    "interrupted": Crash(
        """
def train():
    raise KeyboardInterrupt("a callback of its own")  # here
train()
""",
        "SIGINT",
        says="a callback of its own",
    ),
    "assertion": Crash(
        """
import ctypes, faulthandler
faulthandler.enable()
def attend():
    ctypes.CDLL(None).__assert_fail(b"heads < 3", b"attend.c", 2, b"attend")  # here
attend()
""",
        "SIGABRT",
        says="Assertion `heads < 3' failed",
    ),
    "ignored": Crash(
        """
import sys
class Writer:
    def __del__(self):
        self.file.close()
writer = Writer()
sys.exit("no dataset named foo")
""",
        "exit-1",
        says="stderr ends: no dataset named foo",
        start=("{python}", "-S", "-E", "train.py"),
    ),
    "killed": Crash(
        """
import os
os.kill(os.getpid(), 9)
""",
        "SIGKILL",
        says="nothing says who sent it",
    ),
    "loader": Crash(
        """
import torch
from torch.utils.data import DataLoader, Dataset
class Samples(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, at):
        if at == 5:
            raise ValueError("sample 5 is corrupt")  # here
        return torch.zeros(1)
if __name__ == "__main__":
    for batch in DataLoader(Samples(), num_workers=2):
        pass
""",
        "ValueError",
        says="sample 5 is corrupt",
        torch=True,
    ),
    "spawned": Crash(
        """
import time
import torch.multiprocessing
def worker(rank):
    if rank == 1:
        raise RuntimeError("rank 1 has no data")  # here
    time.sleep(1)
if __name__ == "__main__":
    torch.multiprocessing.spawn(worker, nprocs=2)
""",
        "RuntimeError",
        says="rank 1 has no data",
        torch=True,
    ),
    "collate": Crash(
        """
import torch
from torch.utils.data import DataLoader
def main():
    data = [torch.zeros(3), torch.zeros(4)]
    for batch in DataLoader(data, batch_size=2, num_workers=1):  # here
        pass
if __name__ == "__main__":
    main()
""",
        "RuntimeError",
        says="stack expects each tensor to be equal size",
        torch=True,
    ),
    "spawned-segfault": Crash(
        """
import ctypes, faulthandler
import torch.multiprocessing
def worker(rank):
    faulthandler.enable()
    ctypes.string_at(0)  # here
if __name__ == "__main__":
    torch.multiprocessing.spawn(worker, nprocs=1)
""",
        "ProcessExitedException",
        says="SIGSEGV",
        torch=True,
    ),
    "module": Crash(
        """
import torch
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 5)
    def forward(self, x):
        return self.linear(x)  # here
net = torch.nn.Sequential(Block(), Block())
def train():
    net(torch.ones(2, 4)).sum().backward()
train()
""",
        "RuntimeError",
        says="cannot be multiplied",
        torch=True,
    ),
    "hook-in-backward": Crash(
        """
import torch
def hook(gradient):
    raise FloatingPointError("a gradient is nan")  # here
x = torch.ones(3, requires_grad=True)
y = x * 2
y.register_hook(hook)
y.sum().backward()
""",
        "FloatingPointError",
        says="a gradient is nan",
        torch=True,
    ),
    "rank": Crash(
        """
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
def shard(step):
    if step == 3 and dist.get_rank() == 1:
        raise ValueError("shard 7 is empty")  # here
for step in range(6):
    shard(step)
    dist.all_reduce(torch.ones(1))
    time.sleep(0.2)
""",
        "ValueError",
        says="shard 7 is empty",
        start=TORCHRUN,
        torch=True,
    ),
    "late-rank": Crash(
        """
import datetime, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
for step in range(3):
    if step == 2 and dist.get_rank() == 1:
        time.sleep(20)  # here
    dist.all_reduce(torch.ones(1))
""",
        "collective-timeout",
        says="rank 1 is missing",
        start=TORCHRUN,
        torch=True,
    ),
    "index": Crash(
        """
import torch
table = torch.nn.Embedding(10, 4).cuda()
def train():
    out = table(torch.tensor([3, 12]).cuda())
    print(out.sum().item())  # here
train()
""",
        "device-assert",
        says="an earlier line may be at fault",
        gpu=True,
    ),
    "gpu-memory": Crash(
        """
import torch
def train():
    keep = [torch.empty(2**34, dtype=torch.uint8, device="cuda") for _ in range(64)]  # here
train()
""",
        "",
        kind="OOM",
        gpu=True,
    ),
    "gpu-memory-in-backward": Crash(
        """
import torch
class Big(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        return torch.empty(2**42, dtype=torch.uint8, device="cuda")  # here
def train():
    Big.apply(torch.ones(3, device="cuda", requires_grad=True)).sum().backward()
train()
""",
        "",
        kind="OOM",
        gpu=True,
    ),
    "smaller-batch": Crash(
        """
import torch
def step(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda").sum().item()
for size in (2**42, 2**30):
    try:
        step(size)
    except torch.OutOfMemoryError:
        print("a smaller batch")
print("done")
""",
        "",
        kind="PASS",
        gpu=True,
    ),
    "two-devices": Crash(
        """
import torch
def forward(x, w):
    return x @ w  # here
forward(torch.ones(2, 2), torch.ones(2, 2, device="cuda"))
""",
        "RuntimeError",
        says="same device",
        gpu=True,
    ),
    "no-gpu": Crash(
        """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import torch
def start():
    return torch.ones(1).cuda()  # here
start()
""",
        "RuntimeError",
        says="No CUDA GPUs are available",
        gpu=True,
    ),
    "forked-loader": Crash(
        """
import torch
from torch.utils.data import DataLoader, Dataset
class Samples(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, at):
        return torch.ones(1).cuda()  # here
if __name__ == "__main__":
    torch.ones(1).cuda()
    for batch in DataLoader(Samples(), num_workers=2):
        pass
""",
        "RuntimeError",
        says="Cannot re-initialize CUDA in forked subprocess",
        gpu=True,
    ),
    "bad-address": Crash(
        """
import torch, triton, triton.language as tl
@triton.jit
def write(x, n: tl.constexpr):
    tl.store(x + 2**40 + tl.arange(0, n), 1.0)
def train():
    x = torch.zeros(16, device="cuda")
    write[(1,)](x, 16)
    torch.cuda.synchronize()  # here
train()
""",
        "illegal-address",
        says="an earlier line may be at fault",
        gpu=True,
    ),
    "compiled": Crash(
        """
import torch
@torch.compile
def step(x):
    return torch.cat([x, x.new_zeros(3, 3)]).sum()  # here
step(torch.ones(2, 2, device="cuda"))
""",
        "TorchRuntimeError",
        gpu=True,
    ),
}
"""The programs by name."""


def run(crash: Crash, folder: Path) -> dict[str, str]:
    """What the instrument says of it: ``verdict``, ``because``, ``place``."""
    for name, text in crash.programs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    argv = [word.format(python=sys.executable) for word in crash.start]
    own = [sys.executable, "-m", "harness", "run", "--json", "--limit", "90s", "--runs", str(folder / "runs"), "--"]
    done = subprocess.run([*own, *argv], cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        return {"verdict": "no answer", "because": done.stderr[-300:], "place": ""}
    return {**said, "because": said["trials"][0]["verdict"]["because"]}


def wrong(crash: Crash, said: dict[str, str]) -> list[str]:
    """What of the answer is not as it must be; empty where all is."""
    cause = f" ({crash.cause})" if crash.cause else ""
    trouble: list[str] = []
    if said["verdict"] != f"{crash.kind}{cause}":
        trouble.append(f"{said['verdict']}, not {crash.kind}{cause}")
    if crash.says not in said["because"]:
        trouble.append(f"it does not say {crash.says!r}: {said['because']}")
    line = crash.line()
    is_right = said["place"].endswith(f"{line})") if line else not said["place"]
    if not is_right:
        trouble.append(f"the line is {said['place'] or 'none'}, not {line or 'none'}")
    return trouble


def main() -> int:
    """Run them, print a line for each, and say how many were right; 1 where one was not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="those that need a GPU, and no others")
    parser.add_argument("--only", action="append", help="this one alone; may be given again")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    names = args.only or [name for name, crash in CRASHES.items() if crash.gpu == args.gpu]
    began_s = time.monotonic()
    bad = 0
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(args.jobs) as pool:
        folders = [Path(work, name) for name in names]
        for folder in folders:
            folder.mkdir()
        answers = pool.map(lambda name, folder: run(CRASHES[name], folder), names, folders)
        for name, said in zip(names, answers, strict=True):
            trouble = wrong(CRASHES[name], said)
            bad += bool(trouble)
            print(f"{'wrong' if trouble else 'right'}  {name}: {said['verdict']} {said['place']}", flush=True)
            for one in trouble:
                print(f"       {one}", flush=True)
    print(f"{len(names) - bad} of {len(names)} right, {time.monotonic() - began_s:.0f} s")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
