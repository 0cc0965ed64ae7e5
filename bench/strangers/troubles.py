"""What happens to a program in the middle of its training: faults, and healthy pauses that look like them.

Each is the source of ``strike()``, run once at some phase of some step. ``expect`` is what is true of it: ``HANG`` (it
can never go on), ``CRASH`` or ``PASS`` (it goes on and ends well). A hang that only somebody outside of the job could
end (``outside``) is told by patience alone, as the instrument says of itself. ``may_crash``: the library may notice.
``wordless``: nothing is written of
the end, so that of a rank whose launcher merely waits for each, only that it is gone can be known.
``alone``: only in programs of one process, because of several ranks one that is stopped for five seconds is a hang.
``gpu``: only in programs that train on a GPU. What uses a tensor takes the host's own ``device``, and its value, because
an operation over NCCL returns before it is done.
"""

# ruff: noqa: E501 - programs, some of them in one line

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SAME_PLACE = ("data", "backward", "end")
"""Phases that all ranks of every host come to without one another's help: in a pipeline's forward one waits already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One fault or healthy pause. ``ranks`` is how many ranks it needs at least; ``where`` the phases it fits into.

    ``at`` says which ranks it comes to: ``one``, drawn; the ``first``; or ``all``, which then must be at the same place.
    """

    name: str
    strike: str
    expect: str
    ranks: int = 1
    outside: bool = False
    may_crash: bool = False
    wordless: bool = False
    alone: bool = False
    gpu: bool = False
    at: Literal["one", "first", "all"] = "one"
    where: tuple[str, ...] = ("data", "forward", "backward", "end")


def _hang(name: str, strike: str, **more: object) -> Trouble:
    return Trouble(name=name, strike=strike, expect="HANG", **more)


def _crash(name: str, strike: str, **more: object) -> Trouble:
    return Trouble(name=name, strike=strike, expect="CRASH", **more)


def _fine(name: str, strike: str, **more: object) -> Trouble:
    return Trouble(name=name, strike=strike, expect="PASS", **more)


STUCK = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"
"""A program that never ends by itself."""

BESIDE = """
def beside():
    while True:
        with open(os.path.join(HERE, f"metrics{RANK}"), "a") as file:
            file.write(f"{time.time()}\\n")
        time.sleep(1)
threading.Thread(target=beside, daemon=True).start()
"""
"""A thread as beside nearly every training: it only writes that it lives."""

# After two ranks parted, ``dist`` is the host's own.
_HANGS = (
    _hang("lock-beside-metrics", f"{BESIDE}lock = threading.Lock()\nlock.acquire()\nlock.acquire()"),
    _hang("queue-beside-metrics", f"{BESIDE}import queue\nqueue.Queue().get()"),
    _hang("pipe-beside-metrics", f"{BESIDE}reads, writes = os.pipe()\nos.read(reads, 1)"),
    _hang("lock-twice", "lock = threading.Lock()\nlock.acquire()\nlock.acquire()"),
    _hang(
        "lock-order",
        """
a, b = threading.Lock(), threading.Lock()
def other():
    with b:
        time.sleep(0.5)
        with a:
            pass
thread = threading.Thread(target=other)
with a:
    thread.start()
    time.sleep(0.3)
    with b:
        pass
""",
    ),
    _hang("empty-queue", "import queue\nqueue.Queue().get()"),
    _hang("full-queue", "import queue\nq = queue.Queue(1)\nq.put(1)\nq.put(2)"),
    _hang("event", "threading.Event().wait()"),
    _hang("semaphore", "threading.Semaphore(0).acquire()"),
    _hang("condition", "c = threading.Condition()\nwith c:\n    c.wait()"),
    _hang("barrier-thread", "threading.Barrier(2).wait()"),
    _hang("join-stuck", "t = threading.Thread(target=threading.Event().wait, daemon=True)\nt.start()\nt.join()"),
    _hang(
        "pool-nested",
        """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
pool.submit(lambda: pool.submit(int).result()).result()
""",
    ),
    _hang(
        "asyncio",
        "import asyncio\nasync def never():\n    await asyncio.get_running_loop().create_future()\nasyncio.run(never())",
    ),
    _hang(
        "asyncio-beside",
        """
import asyncio, logging
async def beat():
    while True:
        await asyncio.sleep(1)
        logging.debug("alive")
async def take(queue):
    while await queue.get() is not None:
        pass
async def main():
    task = asyncio.create_task(beat())
    await take(asyncio.Queue())
asyncio.run(main())
""",
    ),
    _hang("own-pipe", "r, w = os.pipe()\nos.read(r, 1)"),
    _hang("pipe-full", "r, w = os.pipe()\nos.write(w, bytes(1 << 20))"),
    _hang("own-socket", "import socket\na, b = socket.socketpair()\na.recv(1)"),
    _hang("self-select", "import select\nr, w = os.pipe()\nselect.select([r], [], [])"),
    _hang(
        "child-deadlock",
        """
child = os.fork()
if child == 0:
    lock = threading.Lock(); lock.acquire(); lock.acquire()
os.waitpid(child, 0)
""",
    ),
    _hang(
        "second-python",
        "import subprocess\nsubprocess.run([sys.executable, '-c', 'import threading; e = threading.Event(); e.wait()'])",
    ),
    _hang(
        "child-pipe",
        """
import subprocess
p = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdout.write('x' * 1000000)"], stdout=subprocess.PIPE)
p.wait()
""",
    ),
    _hang(
        "fork-with-lock",
        """
lock = threading.Lock()
def hold():
    with lock:
        time.sleep(1.0)
t = threading.Thread(target=hold)
t.start()
time.sleep(0.2)
child = os.fork()
if child == 0:
    lock.acquire()
    os._exit(0)
t.join()
os.waitpid(child, 0)
""",
    ),
    _hang(
        "mp-queue",
        "import multiprocessing\nq = multiprocessing.get_context('fork').Queue()\nq.get()",
    ),
    _hang(
        "mp-lock", "import multiprocessing\nl = multiprocessing.get_context('fork').Lock()\nl.acquire()\nl.acquire()"
    ),
    _hang("spin", "while True:\n    pass"),
    _hang("spin-counting", "n = 0\nwhile True:\n    n += 1"),
    _hang("spin-flag", "done = False\nwhile not done:\n    pass"),
    _hang("spin-event", "e = threading.Event()\nwhile not e.is_set():\n    pass"),
    _hang("gil-asleep", "import ctypes\nctypes.PyDLL(None).pause()"),
    _hang(
        "flock-self",
        "import fcntl\np = os.path.join(HERE, 'l' + str(os.getpid()))\na = open(p, 'w'); b = open(p, 'w')\nfcntl.flock(a, 2)\nfcntl.flock(b, 2)",
    ),
    _hang("pause", "import signal\nsignal.pause()"),
    _hang("fifo", "p = os.path.join(HERE, 'f' + str(os.getpid()))\nos.mkfifo(p)\nopen(p).read()", outside=True),
    _hang(
        "mute-server",
        "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\nc = socket.create_connection(s.getsockname())\nc.recv(1)",
        outside=True,
    ),
    # ranks
    _hang(
        "rank-left-out",
        "t = torch.ones(1, device=device)\ndist.all_reduce(t)\nt.item()",
        ranks=2,
        may_crash=True,
    ),
    _hang("rank-barrier", "dist.barrier()", ranks=2, may_crash=True),
    _hang(
        "rank-recv",
        "t = torch.empty(4, device=device)\ndist.recv(t, src=1 - dist.get_rank())\nt.sum().item()",
        ranks=2,
        may_crash=True,
    ),
    _hang(
        "rank-send",
        "t = torch.ones(1 << 22, device=device)\ndist.send(t, dst=1 - dist.get_rank())\nt.sum().item()",
        ranks=2,
        may_crash=True,
    ),
    _hang(
        "rank-other-size",
        "t = torch.ones(1 if dist.get_rank() else 1 << 22, device=device)\ndist.all_reduce(t)\nt.sum().item()",
        ranks=2,
        at="all",
        where=SAME_PLACE,
        may_crash=True,
    ),
    _hang(
        "rank-other-collective",
        """
if dist.get_rank() == 0:
    gradients = torch.ones(1 << 22, device=device)
    dist.all_reduce(gradients)
    gradients.sum().item()
else:
    score = torch.ones(1, device=device)
    scores = [torch.empty_like(score) for _ in range(dist.get_world_size())]
    dist.all_gather(scores, score)
    scores[0].item()
""",
        ranks=2,
        at="all",
        where=SAME_PLACE,
        may_crash=True,
    ),
    _hang(
        "rank-groups-crossed",
        """
one, other = dist.new_group(), dist.new_group()
groups = (one, other) if dist.get_rank() == 0 else (other, one)
for group in groups:
    t = torch.ones(8, device=device)
    dist.all_reduce(t, group=group)
    t.sum().item()
""",
        ranks=2,
        at="all",
        where=SAME_PLACE,
    ),
    _hang("rank-stopped", "import signal\nos.kill(os.getpid(), signal.SIGSTOP)", ranks=2),
    _hang(
        "rank-lock", "threading.Lock().__enter__() and None\nl = threading.Lock(); l.acquire(); l.acquire()", ranks=2
    ),
    _hang("rank-leaves", "sys.stdout.flush()\nos._exit(0)", ranks=2, may_crash=True),
    _hang("rank-returns", "sys.exit(0)", ranks=2, may_crash=True),
    _hang("rank-spin", "x = 1\nwhile x > 0:\n    x = x", ranks=2),
    _hang(
        "rank-store",
        "import datetime\ndist.distributed_c10d._get_default_store().wait(['never'], datetime.timedelta(hours=9))",
        ranks=2,
    ),
    # a GPU
    _hang("kernel-without-end", "torch.cuda._sleep(1 << 60)\ntorch.cuda.synchronize()", gpu=True),
)

_CRASHES = (
    _crash("raises", "raise RuntimeError('something broke')"),
    _crash("exit-3", "sys.stdout.flush()\nos._exit(3)", wordless=True),
    _crash("segfault", "import ctypes\nctypes.string_at(0)", wordless=True),
    _crash("killed", "import signal\nos.kill(os.getpid(), signal.SIGKILL)", wordless=True),
    _crash("abort", "os.abort()", wordless=True),
    _crash("assert", "assert 1 + 1 == 3, 'arithmetic'"),
    _crash("memory", "raise MemoryError('cannot allocate 4 TiB')"),
)

_PAUSES = (
    _fine("nothing", "pass"),
    _fine("sleep-25", "time.sleep(25)"),
    _fine("back-off", "for i in range(6):\n    time.sleep(2 ** i * 0.5)"),
    _fine(
        "evaluation",
        "t = time.time()\nhits = 0\nwhile time.time() - t < 25:\n    hits += sum(i * i for i in range(1000))",
    ),
    _fine(
        "counted",
        "t = time.time()\nn = 0\nfor i in range(25):\n    while time.time() < t + i + 1:\n        n += len(str(n))",
    ),
    _fine(
        "numpy",
        "import numpy\nt = time.time()\na = numpy.random.rand(400, 400)\nwhile time.time() - t < 20:\n    a = a @ a\n    a /= a.max()",
    ),
    _fine("c-call", "s = [str(i % 1000003 * 7919 % 1000003) for i in range(6000000)]\ns.sort()"),
    _fine("regex", "import re\nre.match(r'(a+)+$', 'a' * 26 + 'b')"),
    _fine("child-20", "import subprocess\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(20)'])"),
    _fine(
        "child-works",
        "import subprocess\nsubprocess.run([sys.executable, '-c', 'import time\\nt = time.time()\\nwhile time.time() - t < 20: pass'])",
    ),
    _fine("shell-pipe", "import subprocess\nsubprocess.run('sleep 18 | cat > /dev/null', shell=True)"),
    _fine(
        "flock-other",
        """
import fcntl, subprocess
p = os.path.join(HERE, "lock" + str(os.getpid()))
code = "import fcntl, time, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('x', flush=True); time.sleep(25)"
# Somebody else's program: it is not of this job, and does not carry its variables.
other = subprocess.Popen(["setsid", "env", "-i", sys.executable, "-c", code, p], stdout=subprocess.PIPE)
other.stdout.readline()
with open(p, "w") as f:
    fcntl.flock(f, 2)
other.wait()
""",
    ),
    _fine(
        "slow-server",
        """
import socket
server = socket.socket(); server.bind(("127.0.0.1", 0)); server.listen()
def answer():
    c, _ = server.accept()
    time.sleep(22)
    c.send(b"x")
threading.Thread(target=answer, daemon=True).start()
client = socket.create_connection(server.getsockname())
client.recv(1)
""",
    ),
    _fine("waits-for-thread", "t = threading.Thread(target=time.sleep, args=(20,))\nt.start()\nt.join()"),
    _fine(
        "future",
        "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(1).submit(time.sleep, 20).result()",
    ),
    _fine("timer", "e = threading.Event()\nthreading.Timer(20, e.set).start()\ne.wait()"),
    _fine(
        "alarm",
        "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\nsignal.alarm(20)\nsignal.pause()",
        where=("end",),
    ),
    _fine(
        "polls-file",
        "t = time.time()\nwhile not os.path.exists('/nowhere') and time.time() - t < 20:\n    time.sleep(0.25)",
    ),
    _fine("queue-timeout", "import queue\ntry:\n    queue.Queue().get(timeout=20)\nexcept queue.Empty:\n    pass"),
    _fine(
        "pool-map",
        "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(2) as pool:\n    pool.map(time.sleep, [9, 18])",
    ),
    _fine(
        "mp-process",
        "import multiprocessing\np = multiprocessing.get_context('fork').Process(target=time.sleep, args=(20,))\np.start()\np.join()",
    ),
    _fine("asyncio-20", "import asyncio\nasyncio.run(asyncio.sleep(20))"),
    _fine(
        "asyncio-beats",
        """
import asyncio
async def beat(queue):
    beats = 0
    while True:
        await asyncio.sleep(1)
        beats += 1
        if beats == 20:
            queue.put_nowait(beats)
async def main():
    queue = asyncio.Queue()
    task = asyncio.create_task(beat(queue))
    await queue.get()
asyncio.run(main())
""",
    ),
    _fine(
        "slow-disk",
        "with open(os.path.join(HERE, 'slow' + str(os.getpid())), 'wb') as f:\n    for i in range(20):\n        f.write(bytes(1 << 20)); f.flush(); os.fsync(f.fileno()); time.sleep(1)",
    ),
    _fine("gc", "import gc\nx = [[i] for i in range(2000000)]\nfor _ in range(12):\n    gc.collect()"),
    _fine(
        "stopped-15",
        "import signal, subprocess\nsubprocess.Popen(['sh', '-c', f'sleep 15; kill -CONT {os.getpid()}'])\nos.kill(os.getpid(), signal.SIGSTOP)",
        where=("end",),
    ),
    # something is stuck for good, and somebody of the job means to end it
    _fine(
        "join-then-kill",
        f"import multiprocessing\np = multiprocessing.get_context('fork').Process(target=exec, args=({STUCK!r},))\np.start()\np.join(20)\np.kill()\np.join()",
    ),
    _fine(
        "join-by-seconds",
        f"import multiprocessing\np = multiprocessing.get_context('fork').Process(target=exec, args=({STUCK!r},))\np.start()\nfor _ in range(20):\n    p.join(1)\np.kill()\np.join()",
    ),
    _fine(
        "sibling-kills-by-seconds",
        """
import subprocess
stuck = subprocess.Popen([sys.executable, "-c", STUCK])
code = "import os, sys, time\\nfor _ in range(20): time.sleep(1)\\nos.kill(int(sys.argv[1]), 9)"
other = subprocess.Popen([sys.executable, "-c", code, str(stuck.pid)])
stuck.wait()
other.wait()
""".replace("STUCK", repr(STUCK)),
    ),
    _fine(
        "sibling-kills-by-perl",
        """
import subprocess
stuck = subprocess.Popen([sys.executable, "-c", STUCK])
other = subprocess.Popen(["perl", "-e", "for (1 .. 20) { sleep 1 } kill 9, $ARGV[0]", str(stuck.pid)])
stuck.wait()
other.wait()
""".replace("STUCK", repr(STUCK)),
    ),
    _fine(
        "joins-by-seconds-or-else",
        """
import subprocess
stuck = subprocess.Popen([sys.executable, "-c", STUCK])
for _ in range(5):
    try:
        stuck.wait(4)
        break
    except subprocess.TimeoutExpired:
        print("still waiting", file=sys.stderr)
else:
    stuck.kill()
stuck.wait()
""".replace("STUCK", repr(STUCK)),
    ),
    _fine(
        "watchdog-gives-the-lock-back",
        """
lock = threading.Lock()
lock.acquire()
def watch():
    for _ in range(20):
        time.sleep(1)
    lock.release()
threading.Thread(target=watch, daemon=True).start()
lock.acquire()
""",
    ),
    _fine(
        "run-with-a-limit",
        f"import subprocess\ntry:\n    subprocess.run([sys.executable, '-c', {STUCK!r}], timeout=20)\nexcept subprocess.TimeoutExpired:\n    pass",
    ),
    _fine(
        "timer-kills",
        f"import subprocess\np = subprocess.Popen([sys.executable, '-c', {STUCK!r}])\nthreading.Timer(20, p.kill).start()\np.wait()",
    ),
    _fine("timeout-command", f"import subprocess\nsubprocess.run(['timeout', '20', sys.executable, '-c', {STUCK!r}])"),
    _fine(
        "shell-kills",
        "import subprocess\nsubprocess.run(['sh', '-c', '\"$0\" -c \"while True: pass\" & sleep 20; kill $!', sys.executable])",
    ),
    _fine(
        "loop-is-interrupted",
        """
import _thread, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what it starts with & ignore it
threading.Timer(20, _thread.interrupt_main).start()
try:
    while True:
        n = 1
except KeyboardInterrupt:
    pass
""",
    ),
    _fine(
        "store-with-a-limit",
        """
import datetime
try:
    dist.distributed_c10d._get_default_store().wait(["never"], datetime.timedelta(seconds=20))
except dist.DistStoreError:
    pass
""",
        ranks=2,
    ),
    _fine("lognormal", "import random\nfor _ in range(12):\n    time.sleep(min(random.lognormvariate(0, 1.2), 9))"),
    _fine(
        "tokenize",
        "text = 'lorem ipsum ' * 4000\nt = time.time()\ncounts = {}\nwhile time.time() - t < 20:\n    for w in text.split():\n        counts[w] = counts.get(w, 0) + 1",
    ),
    _fine(
        "import",
        "import importlib\nt = time.time()\nwhile time.time() - t < 15:\n    importlib.invalidate_caches(); importlib.reload(importlib.import_module('json'))",
    ),
    # a GPU
    _fine(
        "products",
        "x = torch.randn(4096, 4096, device=device)\nt = time.time()\nwhile time.time() - t < 20:\n    for _ in range(50): x = x @ x / 64\n    torch.cuda.synchronize()",
        gpu=True,
    ),
    _fine(
        "one-long-wait",
        "x = torch.randn(8192, 8192, device=device)\nfor _ in range(800): x = x @ x / 90\ntorch.cuda.synchronize()",
        gpu=True,
    ),
    _fine(
        "many-small-kernels",
        "x = torch.ones(8, device=device)\nt = time.time()\nwhile time.time() - t < 20:\n    x = x * 1.0001 - 0.0001",
        gpu=True,
    ),
    _fine(
        "copies", "x = torch.randn(1 << 26, device=device)\nfor _ in range(60): y = x.cpu(); x = y.to(device)", gpu=True
    ),
    _fine("waits-for-data-beside-a-gpu", "torch.ones(4, device=device).sum().item()\ntime.sleep(20)", gpu=True),
    # ranks: one is late, the others wait for it
    _fine("checkpoint-by-rank-0", "time.sleep(30)", ranks=2),
    _fine("straggler", "t = time.time()\nn = 0\nwhile time.time() - t < 25:\n    n += sum(range(500))", ranks=2),
    _fine(
        "late-rank-io",
        "for i in range(20):\n    open(os.path.join(HERE, f'o{i}'), 'w').write('x' * 1000); time.sleep(1)",
        ranks=2,
    ),
    _fine(
        "checkpoint-of-tensors",
        """
shards = [torch.randn(1 << 20, device=device) for _ in range(20)]
for number, shard in enumerate(shards):
    torch.save({"shard": shard}, os.path.join(HERE, f"shard{number}.pt"))
    time.sleep(2)
""",
        ranks=2,
        at="first",
        where=("end",),
    ),
    _fine(
        "evaluation-by-rank-0",
        """
judge = torch.nn.Linear(512, 512).to(device)
t, right = time.time(), 0.0
with torch.no_grad():
    while time.time() - t < 30:
        right += judge(torch.randn(64, 512, device=device)).argmax(-1).eq(0).float().mean().item()
""",
        ranks=2,
        at="first",
        where=("end",),
    ),
    _fine(
        "first-compile",
        """
import torch._inductor.config
torch._inductor.config.force_disable_caches = True
backend = "inductor" if cuda else "aot_eager"  # inductor would have a C++ compiler started for every width
t, width = time.time(), 32
while time.time() - t < 20:
    block = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width)).to(device)
    torch.compile(block, dynamic=False, backend=backend)(torch.randn(4, width, device=device)).sum().item()
    torch.compiler.reset()
    width += 8
""",
        ranks=2,
        where=("data", "end"),
    ),
)

TROUBLES = {one.name: one for one in (*_HANGS, *_CRASHES, *_PAUSES)}
