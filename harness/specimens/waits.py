"""Waits and loops that nothing ends: for a lock taken twice, an import, one's own pool, a peer, a child, a number."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from harness.core.verdict import Kind
from harness.specimens.catalog import LATER, Scene, hang, specimen
from harness.specimens.family import compute_until, detach_grandchild


@hang(
    cause="deadlock",
    expect_frame="acquire_twice",
    imitates="a callback that takes the lock its caller already holds",
)
def acquire_twice(scene: Scene) -> None:
    """Take a plain lock, then take it again."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@hang(
    cause="deadlock",
    leaves_processes=True,
    expect_frame="acquire_twice_deaf_to_sigterm",
    imitates="a trainer whose SIGTERM handler only prints stacks, with data-loader workers in another session",
)
def acquire_twice_deaf_to_sigterm(scene: Scene) -> None:
    """Block in a way that only SIGKILL ends, with company that only SIGKILL ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    detach_grandchild(scene.trial_dir)
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


RATE = 0.3


@hang(
    cause="deadlock",
    flaky=True,
    or_else=(Kind.PASS,),
    expect_frame="acquire_twice_sometimes",
    imitates="a race",
)
def acquire_twice_sometimes(scene: Scene) -> None:
    """With probability ``RATE``, take a lock twice."""
    lock = threading.Lock()
    lock.acquire()
    if scene.random() < RATE:
        lock.acquire()


TOTAL_S = 120.0
"""A busy machine may take long over its stacks, and without them a loop is not told from work."""


@hang(
    cause="infinite-loop",
    phase="backward",
    inside_backward=True,
    step=LATER,
    total_s=TOTAL_S,
    expect_frame="spin_forever",
    imitates="a search for something that is not there, without a bound",
)
def spin_forever(scene: Scene) -> None:
    """Wait in a loop for a number that does not come."""
    turn = 0
    while turn >= 0:
        turn = (turn + 1) % 1000


STEP_S = 6.0
ENDED_S = 7.0
"""Enough for start-up and one slow step of many: a busy machine needs seconds to look at it before it is ended."""


@specimen(
    expect=Kind.SLOW,
    look_alike=True,
    every_step=True,
    settings=(("train.steps", 20),),
    stall_s=20.0,
    total_s=ENDED_S,
    imitates="a Python loop over tokens where one tensor operation would do",
)
def crawl(scene: Scene) -> None:
    """Compute for ``STEP_S`` seconds what the step does not need."""
    compute_until(time.monotonic() + STEP_S)


STALL_S = 2.0
"""A poll may end at any moment: it is watched for four times this, and never called a hang."""

_IMPORTS_ITSELF = """
import threading
thread = threading.Thread(target=lambda: __import__("imports_itself").thread, daemon=True)
thread.start()
thread.join()
"""


@hang(
    cause="deadlock",
    expect_frame="<module>",
    imitates="a plug-in that starts a thread and joins it while it is being imported",
)
def import_what_imports_itself(scene: Scene) -> None:
    """Import a module that waits for a thread which imports that module."""
    (scene.trial_dir / "imports_itself.py").write_text(_IMPORTS_ITSELF)
    sys.path.insert(0, str(scene.trial_dir))
    importlib.import_module("imports_itself")


@hang(
    cause="deadlock",
    expect_frame="wait_for_own_pool",
    imitates="a task that waits for another task of the same full pool",
)
def wait_for_own_pool(scene: Scene) -> None:
    """Have the only worker of a pool wait for that pool."""
    pool = ThreadPoolExecutor(1)
    pool.submit(lambda: pool.submit(int).result()).result()


@hang(
    cause="blocked-io",
    step=LATER,
    expect_frame="open_unanswered",
    imitates="a shard on a file system that does not answer, interruptibly",
)
def open_unanswered(scene: Scene) -> None:
    """Open a FIFO that nobody opens at the other end."""
    pipe = scene.trial_dir / "shard.fifo"
    os.mkfifo(pipe)
    pipe.read_bytes()


@hang(
    cause="blocked-io",
    step=LATER,
    expect_frame="read_from_mute_peer",
    imitates="an experiment tracker that accepts a connection and never answers",
)
def read_from_mute_peer(scene: Scene) -> None:
    """Wait for the answer of a server that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as peer:
        peer.recv(1)


@hang(
    cause="waiting-for-child",
    step=LATER,
    expect_frame="wait_for_idle_child",
    imitates="a helper program that waits for input which never comes",
)
def wait_for_idle_child(scene: Scene) -> None:
    """Run a program that waits for a signal."""
    program = f"import signal; signal.sigwait([{signal.SIGUSR2.value}])"
    subprocess.run([sys.executable, "-S", "-c", program], check=False)


@specimen(
    expect=Kind.UNRESOLVED,
    cause="polling",
    stall_s=STALL_S,
    imitates="waiting for another job's file: whether it will come, nobody can see from here",
)
def poll_for_a_file(scene: Scene) -> None:
    """Look for a file that does not come, a thousand times a second."""
    while not (scene.trial_dir / "ready").exists():
        time.sleep(0.001)


@hang(
    cause="late-exit",
    phase="optim",
    step=LATER,
    expect_phase="exit",
    imitates="a background uploader that is never told to stop, so that a finished job holds its machine",
)
def leave_a_waiting_thread(scene: Scene) -> None:
    """Start a thread that waits for ever and that the interpreter will join at its end."""
    threading.Thread(target=threading.Event().wait, name="uploader").start()


@hang(
    cause="blocked-pipe",
    expect_frame="write_into_full_pipe",
    imitates="logging into a pipe whose reader is stuck",
)
def write_into_full_pipe(scene: Scene) -> None:
    """Write until the pipe is full, and wait for a reader that does not come."""
    _reader, writer = os.pipe()
    while True:
        os.write(writer, bytes(65536))


@hang(
    cause="stopped",
    step=LATER,
    imitates="a scheduler that suspends a job, a debugger that was left attached, or Ctrl-Z",
)
def stop_myself(scene: Scene) -> None:
    """Send SIGSTOP to this process."""
    os.kill(os.getpid(), signal.SIGSTOP)
