"""Waits that nothing ends: for an import, one's own pool, a file, a peer, a child, a flag, a pipe, a signal."""

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
