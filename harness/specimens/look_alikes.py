"""Look-alikes: programs that are silent for a multiple of their limit, each for another reason, and then go on.

None of them may ever be called a hang, however busy the machine is.
"""

from __future__ import annotations

import gc
import importlib.util
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from harness.core.verdict import Kind
from harness.specimens.catalog import LATER, Scene, specimen
from harness.specimens.family import compute_until, helper

if TYPE_CHECKING:
    from pathlib import Path

SILENT_S = 7.0
"""Longer than the least limit that is learned, shorter than what is out of all proportion to steps of milliseconds."""

RATE_S = 2.4
"""More than half of the least limit that is learned."""

SUSPENDED_S = 5.0

NEW_S = 12.0
"""Longer than the pace of the steps before would allow, shorter than four of the least limits."""

_COMPILER = """
import ctypes, time
ctypes.CDLL(None).prctl(15, b"cc1plus", 0, 0, 0)
end_s = time.monotonic() + {seconds}
while time.monotonic() < end_s:
    sum(range(100_000))
print("compiled")
"""

PTRACE_INTERRUPT, PTRACE_DETACH, PTRACE_SEIZE = 0x4207, 17, 0x4206

look_alike = partial(specimen, expect=Kind.PASS, look_alike=True, step=LATER)


@look_alike(imitates="torch.compile: the trainer waits for a C++ compiler that works")
def run_compiler(scene: Scene) -> None:
    """Wait for a compiler that works."""
    _compile(SILENT_S)


def _compile(seconds: float) -> None:
    program = [sys.executable, "-S", "-c", _COMPILER.format(seconds=seconds)]
    subprocess.run(program, check=True, stdout=subprocess.PIPE)


@specimen(
    expect=Kind.UNRESOLVED,
    cause="compile-stall",
    look_alike=True,
    step=LATER,
    stall_s=1.5,
    imitates="a compilation or an autotune storm that is longer than anybody waits",
)
def compile_for_ever(scene: Scene) -> None:
    """Wait for a compiler that works longer than anybody watches."""
    _compile(3600.0)


@look_alike(
    step=1,
    every_step=True,
    settings=(("train.steps", 6),),
    imitates="sequences of very different lengths",
)
def step_with_a_heavy_tail(scene: Scene) -> None:
    """Compute for a time that is short mostly and long sometimes: 0.05 s, and 6 s in one step of eight."""
    end_s = time.monotonic() + (6.0 if scene.step % 8 == 3 else 0.05)
    compute_until(end_s)


@look_alike(
    step=0,
    imitates="warm-up, lazy initialisation and autotuning in the first step",
)
def start_slowly(scene: Scene) -> None:
    """Compute and sleep in turn before the first step is done: warm-up, caches, autotuning."""
    end_s = time.monotonic() + SILENT_S
    while time.monotonic() < end_s:
        compute_until(time.monotonic() + 0.5)
        time.sleep(0.2)


@look_alike(
    phase="optim",
    imitates="a checkpoint of minutes",
)
def save_slowly(scene: Scene) -> None:
    """Write a file that has to reach the disk, piece by piece, to a device that takes its time."""
    end_s = time.monotonic() + SILENT_S
    with (scene.trial_dir / "checkpoint.bin").open("wb") as file:
        while time.monotonic() < end_s:
            file.write(bytes(1 << 18))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.05)


@look_alike(imitates="a Python loop over tokens, a hundred times slower than expected")
def count_in_python(scene: Scene) -> None:
    """Do in a Python loop what should take a hundredth of the time: nothing moves but the loop itself."""
    end_s, turn = time.monotonic() + SILENT_S, 0
    while time.monotonic() < end_s:
        turn = (turn + 1) % 1000


@look_alike(imitates="a client that waits before it tries again")
def back_off(scene: Scene) -> None:
    """Sleep before another attempt."""
    time.sleep(SILENT_S)


@look_alike(
    step=1,
    every_step=True,
    imitates="a rate limit, or a data service that serves a batch every few seconds",
)
def sleep_between_marks(scene: Scene) -> None:
    """Take much of the limit for each step, and say nothing in between."""
    time.sleep(RATE_S)


@look_alike(imitates="garbage collection over a heap of millions of objects")
def collect_garbage(scene: Scene) -> None:
    """Have the collector walk over a large heap again and again."""
    heap = [[i] for i in range(400_000)]
    end_s = time.monotonic() + SILENT_S
    while time.monotonic() < end_s:
        gc.collect()
    heap.clear()


@look_alike(imitates="an import of minutes from a network file system")
def import_from_afar(scene: Scene) -> None:
    """Import a module from a file that arrives late."""
    pipe = scene.trial_dir / "arrives_late.py"
    os.mkfifo(pipe)
    helper(lambda: _deliver(pipe))
    spec = importlib.util.spec_from_file_location("arrives_late", pipe)
    if spec is None or spec.loader is None:
        raise AssertionError(f"Python cannot import {pipe}")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _deliver(pipe: Path) -> None:
    time.sleep(SILENT_S)
    pipe.write_text("HERE = True\n")


@look_alike(imitates="a metadata service that answers late")
def ask_slow_server(scene: Scene) -> None:
    """Wait for the answer of a server that thinks about it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        helper(lambda: _answer(server))
        with socket.create_connection(server.getsockname()) as peer:
            peer.recv(1)


def _answer(server: socket.socket) -> None:
    peer, _ = server.accept()
    time.sleep(SILENT_S)
    peer.send(b"!")


@look_alike(
    phase="eval",
    settings=(("train.steps", 6), ("train.eval_every", 4)),
    imitates="a first evaluation by a service that answers late, after steps of milliseconds",
)
def wait_for_late_answer(scene: Scene) -> None:
    """Wait for a service that takes its time, while nothing of the trial will wake by itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        helper(lambda: _confirm(server))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        with socket.create_connection(server.getsockname()) as peer:
            peer.recv(1)


def _confirm(server: socket.socket) -> None:
    """Answer when an alarm rings: from outside, this cannot be told from a wait that never ends."""
    peer, _ = server.accept()
    signal.setitimer(signal.ITIMER_REAL, NEW_S)
    signal.sigwait({signal.SIGALRM})
    peer.send(b"!")


@look_alike(
    phase="optim",
    imitates="a first checkpoint that goes to a storage service, after steps of milliseconds",
)
def upload_checkpoint(scene: Scene) -> None:
    """Wait in the same way, in a function that says what it does."""
    wait_for_late_answer.strike(scene)


@look_alike(imitates="a lock that is held during a long flush")
def wait_for_working_thread(scene: Scene) -> None:
    """Wait for a lock whose holder waits for a timer, and gives it back."""
    lock, held = threading.Lock(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            time.sleep(SILENT_S)

    threading.Thread(target=hold, name="flusher", daemon=True).start()
    held.wait()
    lock.acquire()


@look_alike(imitates="an evaluation in another thread")
def wait_for_computing_thread(scene: Scene) -> None:
    """Wait for a thread that computes."""
    thread = threading.Thread(target=compute_until, args=(time.monotonic() + SILENT_S,), name="evaluator")
    thread.start()
    thread.join()


@look_alike(imitates="one large matrix product after another, without a word")
def multiply_for_long(scene: Scene) -> None:
    """Multiply matrices in one long call after another, each with one native stack from its beginning to its end."""
    import torch

    end_s = time.monotonic() + SILENT_S
    square = torch.randn(1536, 1536)
    while time.monotonic() < end_s:
        torch.mm(square, square)


@look_alike(imitates="a breakpoint: stopped by a debugger, then continued")
def be_debugged(scene: Scene) -> None:
    """Be stopped by a debugger for a while, and continued."""
    me = os.getpid()
    tracer = helper(lambda: _trace(me))
    os.waitpid(tracer, 0)


def _trace(pid: int) -> None:
    import ctypes

    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    ptrace(PTRACE_SEIZE, pid, None, None)
    ptrace(PTRACE_INTERRUPT, pid, None, None)
    os.waitpid(pid, 0x40000000)
    time.sleep(SILENT_S)
    ptrace(PTRACE_DETACH, pid, None, None)


@look_alike(imitates="Ctrl-Z and fg, or a scheduler that makes room for a while")
def be_suspended(scene: Scene) -> None:
    """Be stopped by Ctrl-Z or a scheduler for a while, and continued."""
    me = os.getpid()
    helper(lambda: _continue_later(me))
    os.kill(me, signal.SIGSTOP)


def _continue_later(pid: int) -> None:
    time.sleep(SUSPENDED_S)
    os.kill(pid, signal.SIGCONT)


@specimen(
    expect=Kind.UNRESOLVED,
    cause="page-thrash",
    look_alike=True,
    step=LATER,
    stall_s=1.5,
    imitates="a machine that swaps: all time goes into page faults",
)
def touch_memory(scene: Scene) -> None:
    """Touch memory that has been given back, again and again, as a program does that swaps."""
    import mmap

    pages = mmap.mmap(-1, 1 << 24)
    for _ in itertools.count():
        pages.madvise(mmap.MADV_DONTNEED)
        for offset in range(0, 1 << 24, mmap.PAGESIZE):
            pages[offset] = 1
