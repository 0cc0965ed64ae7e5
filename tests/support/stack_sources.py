"""A stack source by script, and the contract that every real one passes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.clock import WallClock
from harness.core.evidence import Frame, SourceFailure, StackSample, ThreadStack
from harness.observe.proc import Proc
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from harness.core.ports import StackSource


class ScriptedSource:
    """Gives one thread with these functions, innermost first; sample k gets ``stacks[k]``, later ones the last.

    ``fail`` gives that reason instead; ``on_sample`` runs at every sample, so that things can happen meanwhile.
    """

    def __init__(
        self,
        *stacks: Sequence[str],
        native: bool = True,
        fail: str = "",
        name: str = "scripted",
        on_sample: Callable[[int], None] | None = None,
    ) -> None:
        self.name, self.native, self.fail, self.on_sample = name, native, fail, on_sample
        self.stacks = stacks or (("acquire", "forward", "<module>"),)
        self.samples: list[tuple[int, bool]] = []

    def sample(
        self, *, pid: int, rank: int, t_s: float, native: bool, number: int, trial_dir: Path
    ) -> StackSample | SourceFailure:
        """The scripted answer."""
        self.samples.append((number, native))
        if self.on_sample is not None:
            self.on_sample(number)
        if self.fail:
            return SourceFailure(id=f"failure-{number}", source=self.name, reason=self.fail)
        functions = self.stacks[min(number, len(self.stacks)) - 1]
        frames = [Frame(function=name, file="train.py", line=1) for name in functions]
        shows_native = native and self.native
        if shows_native:
            frames.insert(0, Frame(function=f"c_{functions[0]}", file="libtorch.so", line=0, native=True))
        return StackSample(
            id=f"stack-{number}",
            source=self.name,
            native=shows_native,
            t_s=t_s,
            rank=rank,
            pid=pid,
            threads=(ThreadStack(tid=pid, name="MainThread", frames=tuple(frames)),),
        )


_PROGRAM = """
import ctypes, os, signal, sys, threading
from harness.shim.nsa_harness_shim import show_stacks

def allow_any_tracer():
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)

def waits_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    print("ready", flush=True)
    lock.acquire()

def holds_the_gil():
    libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    print("ready", flush=True)
    libc.pthread_mutex_lock(mutex)

def loops():
    print("ready", flush=True)
    while True:
        pass

def waits_for_a_signal():
    print("ready", flush=True)
    signal.pause()
    while True:
        pass

def fills_a_pipe():
    reader, writer = os.pipe()
    print("ready", flush=True)
    os.write(writer, bytes(1 << 20))

allow_any_tracer()
show_stacks(open(sys.argv[2], "a"))
globals()[sys.argv[1]]()
"""

_EXCUSES = ("not installed", "ptrace refused", "Python frames only")
"""Reasons for which a source may fail on a process that waits quietly."""


def _sees_a_lock(source: StackSource, *, trial_dir: Path, native: bool) -> None:
    with _program("waits_for_a_lock", trial_dir=trial_dir) as pid:
        _shows(_sample(source, pid=pid, trial_dir=trial_dir, native=native), "waits_for_a_lock")


def _sees_c_code_that_holds_the_gil(source: StackSource, *, trial_dir: Path, native: bool) -> None:
    with _program("holds_the_gil", trial_dir=trial_dir) as pid:
        _shows(_sample(source, pid=pid, trial_dir=trial_dir, native=native), "holds_the_gil")


def _sees_a_loop_that_goes_on(source: StackSource, *, trial_dir: Path, native: bool) -> None:
    with _program("loops", trial_dir=trial_dir) as pid:
        _shows(_sample(source, pid=pid, trial_dir=trial_dir, native=native), "loops")
        _require(Proc().states(pid) == "R", f"{source.name} ended the loop")


def _leaves_a_stopped_process_stopped(source: StackSource, *, trial_dir: Path, native: bool) -> None:
    with _program("waits_for_a_lock", trial_dir=trial_dir) as pid:
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        answer = _sample(source, pid=pid, trial_dir=trial_dir, native=native)
        _require(Proc().states(pid) == "T", f"{source.name} did not leave the stopped process as it was")
        _shows(answer, "waits_for_a_lock", excuses=(*_EXCUSES, "state T"))


def _leaves_a_write_that_is_half_done(source: StackSource, *, trial_dir: Path, native: bool) -> None:
    with _program("fills_a_pipe", trial_dir=trial_dir) as pid:
        answer = _sample(source, pid=pid, trial_dir=trial_dir, native=native)
        _require(_goes_on_waiting(pid), f"{source.name} ended a write that waited for room")
        _shows(answer, "fills_a_pipe", excuses=(*_EXCUSES, "in the middle of a write"))


def _leaves_a_wait_for_a_signal(source: StackSource, *, trial_dir: Path, native: bool) -> None:
    with _program("waits_for_a_signal", trial_dir=trial_dir) as pid:
        answer = _sample(source, pid=pid, trial_dir=trial_dir, native=native)
        _require(_goes_on_waiting(pid), f"{source.name} ended a wait for a signal")
        _shows(answer, "waits_for_a_signal", excuses=(*_EXCUSES, "waits for a signal"))


def _says_that_a_process_is_gone(source: StackSource, *, trial_dir: Path, native: bool) -> None:
    with _program("waits_for_a_lock", trial_dir=trial_dir) as pid:
        pass
    answer = _sample(source, pid=pid, trial_dir=trial_dir, native=native)
    _require(isinstance(answer, SourceFailure), f"{source.name} sees a process that is gone")
    _shows(answer, "", excuses=("gone", *_EXCUSES))


STACK_SOURCE_CASES: tuple[Callable[..., None], ...] = (
    _sees_a_lock,
    _sees_c_code_that_holds_the_gil,
    _sees_a_loop_that_goes_on,
    _leaves_a_stopped_process_stopped,
    _leaves_a_write_that_is_half_done,
    _leaves_a_wait_for_a_signal,
    _says_that_a_process_is_gone,
)
"""What a source is held to, each with and without native frames."""


def check_stack_source(source: StackSource, *, trial_dir: Path) -> None:
    """Try ``source`` on real processes; AssertionError says what it does not hold to."""
    for case in STACK_SOURCE_CASES:
        for native in (False, True):
            case(source, trial_dir=trial_dir, native=native)


@contextmanager
def _program(function: str, *, trial_dir: Path) -> Iterator[int]:
    """The PID of an interpreter that is inside ``function``; ended and reaped afterwards."""
    argv = [sys.executable, "-c", _PROGRAM, function, str(layout.faulthandler(trial_dir))]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        try:
            _require(child.stdout is not None and child.stdout.readline() == b"ready\n", "the program did not start")
            while function != "loops" and not _is_at_rest(child.pid):
                pass
            yield child.pid
        finally:
            child.kill()


def _is_at_rest(pid: int) -> bool:
    """Whether the process sleeps and used no CPU for 50 ms: where other work keeps it waiting, it looks asleep too."""
    proc = Proc()
    before_s = proc.cpu_s(pid)
    WallClock().sleep(0.05)
    return proc.states(pid) == "S" and proc.cpu_s(pid) == before_s


def _goes_on_waiting(pid: int) -> bool:
    """Whether the process sleeps again within seconds of a look; one whose call was ended runs on, or is gone."""
    return any(_is_at_rest(pid) for _ in range(100))


def _sample(source: StackSource, *, pid: int, trial_dir: Path, native: bool) -> StackSample | SourceFailure:
    answer = source.sample(pid=pid, rank=0, t_s=1.5, native=native, number=7, trial_dir=trial_dir)
    if isinstance(answer, StackSample):
        _require((answer.pid, answer.t_s) == (pid, 1.5), f"{source.name} does not say what it was asked about")
        has_native = any(frame.native for thread in answer.threads for frame in thread.frames)
        _require(answer.native == has_native, f"{source.name} is wrong about having native frames")
    return answer


def _shows(answer: StackSample | SourceFailure, function: str, *, excuses: Sequence[str] = _EXCUSES) -> None:
    if isinstance(answer, SourceFailure):
        _require(any(excuse in answer.reason for excuse in excuses), f"{answer.source} failed: {answer.reason}")
        return
    main = next((thread for thread in answer.threads if thread.tid == answer.pid), None)
    _require(main is not None, f"{answer.source} does not list the main thread")
    functions = [frame.function for frame in main.frames] if main else []
    _require(function in functions, f"{answer.source} does not see {function} in {functions}")
    _require(functions.index(function) < functions.index("<module>"), f"{answer.source}: innermost is not first")


def _require(truth: bool, otherwise: str) -> None:
    if not truth:
        raise AssertionError(otherwise)
