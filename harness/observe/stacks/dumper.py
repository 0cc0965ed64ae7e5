"""Runs a stack dumper against a process, so that neither can hang the other.

Each dumper has its own process group, so that Ctrl-C in the terminal does not reach it halfway, and ten seconds: a
dumper that stops its target waits without end for a process in disk sleep (state D). One that gets on, slowly, because
others want the cores too, is given more: its CPU time tells the two apart.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import harness
from harness.core.evidence import SourceFailure, StackSample
from harness.observe.ends import TRANSFERS, Ends, has_a_limit
from harness.observe.handlers import by_python as handled_by_python
from harness.observe.proc import BLOCKS_DUMPERS, Proc
from harness.observe.stacks.tids import with_tids
from harness.reading.waits import (
    CUT_SHORT_BY_A_STOP,
    ENDED_BY_A_STOP,
    EVENTS,
    LETS_NOBODY_ON,
    OF_PROGRAMS,
    OF_TIMERS,
    SIGNAL_CALLS,
    begins_again,
    is_cut_short_by_a_stop,
)

if TYPE_CHECKING:
    from harness.core.evidence import ThreadStack

DUMP_LIMIT_S = 10.0
EXTENSIONS = 2
"""Times that a dumper gets its limit once more, by halves, while it uses CPU: one that is stuck uses none.

None that has used the limit in CPU time: pystack has been seen to compute for ever on a process that was importing, and
nobody looks at the trial meanwhile.
"""

NICE = -10
"""A dumper's priority where this user may set it: what it looks at may be stopped for as long as it computes."""

PACKED = Path(harness.__file__).parents[1] / "bin"
"""Where a zipapp, once unpacked, has the programs of the distributions in it."""

_END_LIMIT_S = 2.0

_NO_PYTHON = re.compile(r"(Failed to find|Could not determine) python version")
"""What py-spy and pystack say of a process in which there is no interpreter."""

_PYTHON_ENDED = "interpreter is shutting itself down"
"""What pystack says where there is none any more: destructors and exit handlers of C run then, and no Python again."""

_FLAGS = {"recvfrom": 3, "recvmsg": 2}
"""Index of the argument with the flags of a call that receives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """What a dumper printed; ``failure`` says why there is nothing to be read from it, None when there is.

    ``stopped_s`` is how long its target was seen held by it (state t), seconds; ``has_locals`` says that it printed
    the frames' locals, too, ``not_allowed`` that the kernel did not let it look.
    """

    text: str = ""
    failure: str | None = None
    not_allowed: bool = False
    stopped_s: float = 0.0
    has_locals: bool = False


class Dumper:
    """A stack source that is a program of its own: its ``name``, how to :meth:`ask` it, how to :meth:`read` it."""

    name: str

    def __init__(self, *, tool: str | None = None, proc: Proc | None = None, limit_s: float = DUMP_LIMIT_S) -> None:
        self.tool, self.proc, self.limit_s = tool, proc or Proc(), limit_s

    def ask(self, tool: str, pid: int, *, native: bool) -> Dump:
        """What the program at ``tool`` prints about ``pid``."""
        raise NotImplementedError

    def read(self, text: str) -> tuple[ThreadStack, ...]:
        """The threads in what it printed; ValueError where that is something else."""
        raise NotImplementedError

    def beside(self, sample: StackSample, dump: Dump) -> StackSample:
        """``sample`` with what it printed beside stacks."""
        return sample

    def sample(
        self, *, pid: int, rank: int, t_s: float, native: bool, number: int, trial_dir: Path
    ) -> StackSample | SourceFailure:
        """The stacks of the threads that it shows."""

        def failure(reason: str, *, stopped_s: float = 0.0, not_allowed: bool = False) -> SourceFailure:
            return SourceFailure(
                id=f"failure-{number}-{self.name}",
                source=self.name,
                reason=reason,
                stopped_s=stopped_s,
                no_python=_PYTHON_ENDED in reason or _NO_PYTHON.search(reason) is not None,
                python_ended=_PYTHON_ENDED in reason,
                not_allowed=not_allowed,
            )

        tool = self.tool or find_tool(self.name)
        if tool is None:
            return failure(f"{self.name} is not installed; install it with: pip install {self.name}")
        handled = handled_by_python(pid, trial_dir)
        why_not = unstoppable(pid, proc=self.proc, by_python=handled) if native else gone(pid, proc=self.proc)
        if why_not:
            return failure(why_not)
        dump = self.ask(tool, pid, native=native)
        if dump.failure is not None:
            return failure(dump.failure, stopped_s=dump.stopped_s, not_allowed=dump.not_allowed)
        try:
            threads = with_tids(self.read(dump.text), pid)
            sample = StackSample(
                id=f"stack-{number}",
                source=self.name,
                native=any(frame.native for thread in threads for frame in thread.frames),
                t_s=t_s,
                rank=rank,
                pid=pid,
                threads=threads,
                stopped_s=dump.stopped_s,
            )
            return self.beside(sample, dump)
        except ValueError as error:
            return failure(f"unreadable output: {error}", stopped_s=dump.stopped_s)


def find_tool(name: str) -> str | None:
    """The tool that was installed with this interpreter, the one that is packed with us, or the first on PATH."""
    for place in (Path(sys.executable).parent, PACKED):
        if os.access(place / name, os.X_OK):
            return str(place / name)
    return shutil.which(name)


def run_by(tool: str) -> list[str]:
    """How ``env`` starts ``tool``: a script that is packed with us names the interpreter that packed it."""
    return [f"PYTHONPATH={PACKED.parent}", sys.executable, tool] if Path(tool).parent == PACKED else [tool]


def gone(pid: int, *, proc: Proc) -> str:
    """Why ``pid`` cannot be looked at; empty when it can."""
    states = proc.states(pid)
    return "" if states and states[0] not in "ZX" else f"process {pid} is gone"


def unstoppable(pid: int, *, proc: Proc, by_python: frozenset[int] | None = None) -> str:
    """Why ``pid`` must not be stopped by a dumper; empty when it may be.

    A dumper hangs on a process in state D, and is refused by one that is stopped or traced already. A write that is
    half done would end short (``harness.reading.waits``). While a thread is stopped the kernel gives the process's
    signals to its other threads: one that waits for a signal would never hear of it, and the program would hang by our
    hand.
    """
    if why := gone(pid, proc=proc):
        return why
    if blocked := BLOCKS_DUMPERS.intersection(proc.states(pid)):
        return f"no native frames: a thread is in state {min(blocked)}, and stopping it would fail or hang"
    if half_done := in_a_write(pid, proc=proc):
        return f"no native frames: {half_done}"
    if cut_off := cut_off_by_a_stop(pid, proc=proc):
        return f"no native frames: {cut_off}"
    if loses_a_signal(pid, proc=proc, by_python=by_python):
        return "no native frames: a thread waits for a signal, which another would get while this one is stopped"
    tracer = proc.tracer(pid)
    return f"no native frames: process {tracer} traces it already" if tracer else ""


def loses_a_signal(pid: int, *, proc: Proc, by_python: frozenset[int] | None = None) -> bool:
    """Whether ``pid`` may be waiting for a signal that it handles, and has other threads that would get it.

    In a call for signals, or in any other for a timer of its own: Python runs a handler in the main thread alone, which
    hears nothing of a signal that another thread was given (an alarm was lost in one of four dumps around it). The same
    of the end of a child, and of a signal by which programs tell each other something, where the main thread waits
    without a limit for what the handler may give back. ``by_python`` are the signals of which that handler is Python's,
    where it is known: no other gives back what Python waits for.
    """
    if len(proc.states(pid)) < 2:
        return False
    handled = proc.signals(f"{pid}", "SigCgt")
    of_a_child = signal.SIGCHLD in handled
    if SIGNAL_CALLS.intersection(proc.calls(pid)) and (of_a_child or handled - LETS_NOBODY_ON):
        return True
    messages = handled & OF_PROGRAMS & (handled if by_python is None else by_python)
    told = bool(messages) or (of_a_child and bool(proc.children(pid)))
    return bool(handled & OF_TIMERS) or (told and proc.waits_for_a_lock(pid))


def cut_off_by_a_stop(pid: int, *, proc: Proc) -> str:
    """That a stop would end the call of a thread of ``pid``, or begin the time limit of one anew; else empty."""
    ends = Ends({})
    for call in proc.blocked(pid):
        if call.name in ENDED_BY_A_STOP or (call.name in EVENTS and not begins_again(ends.caller(pid, call))):
            return f"a thread is in {call.name}, which a stop would end"
        if call.name in _FLAGS and call.arguments[_FLAGS[call.name]] & socket.MSG_WAITALL:
            return f"a thread is in {call.name} until all has come, which a stop would end before"
        if call.name in TRANSFERS and (proc.is_terminal(pid, call.arguments[0]) or has_a_limit(pid, call.arguments[0])):
            return f"a thread is in {call.name} with a time limit, which a stop would begin anew"
    return ""


def in_a_write(pid: int, *, proc: Proc) -> str:
    """That a thread of ``pid`` is in the middle of a write, which a stop or a signal would end short; else empty."""
    if any(map(is_cut_short_by_a_stop, proc.kernel_functions(pid))) or CUT_SHORT_BY_A_STOP.intersection(
        proc.calls(pid)
    ):
        return "a thread is in the middle of a write, which would be ended short"
    return ""


def run_dumper(argv: list[str], *, pid: int, proc: Proc, limit_s: float = DUMP_LIMIT_S) -> Dump:
    """What ``argv`` prints about ``pid``. Never raises, and takes three times ``limit_s`` and a little at most.

    ``limit_s`` is what a dumper gets that does not get on; see EXTENSIONS.
    """
    before = proc.states(pid)
    if not before:
        return Dump(failure=f"process {pid} is gone")
    try:
        dumper = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
        )
    except OSError as error:
        return Dump(failure=f"{argv[0]} cannot be started: {error.strerror}")
    with suppress(PermissionError, ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, dumper.pid, NICE)
    with _Stopwatch(pid, proc) as stopwatch:
        answer, waited_s = _answer(dumper, proc=proc, limit_s=limit_s)
    stopped_s = stopwatch.seconds if before[0] != "t" else 0.0  # whose tracer had it before, had it all the time
    if answer is None:
        failure = _end(dumper, pid=pid, before=before, proc=proc, waited_s=waited_s)
        return Dump(failure=failure, stopped_s=stopped_s)
    out, err = answer
    if dumper.returncode == 0:
        return Dump(text=out.decode(errors="replace"), stopped_s=stopped_s)
    _let_on(pid, before=before, proc=proc)
    if not proc.states(pid):
        return Dump(failure=f"process {pid} ended while it was looked at", stopped_s=stopped_s)
    failure, not_allowed = why_refused(err.decode(errors="replace"), code=dumper.returncode, proc=proc)
    return Dump(failure=failure, not_allowed=not_allowed, stopped_s=stopped_s)


class _Stopwatch:
    """How long a process is held by a dumper, by looking at its state five hundred times a second meanwhile.

    Each look that finds it held counts the time since the look before: what is too much at a stop's beginning is too
    little at its end, also where the machine is busy and the looks come late.
    """

    EVERY_S = 0.002

    def __init__(self, pid: int, proc: Proc) -> None:
        self._pid, self._proc = pid, proc
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="dumper-stopwatch", daemon=True)
        self.seconds = 0.0

    def __enter__(self) -> _Stopwatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        with suppress(PermissionError):  # of this thread: it must have its turn while dumpers compute
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        before_s = time.monotonic()
        while not self._over.wait(self.EVERY_S):
            now_s = time.monotonic()
            if self._proc.state(self._pid) == "t":
                self.seconds += now_s - before_s
            before_s = now_s


def _answer(dumper: subprocess.Popen[bytes], *, proc: Proc, limit_s: float) -> tuple[tuple[bytes, bytes] | None, float]:
    """What the dumper said, None when it was given up; and how long it was waited for at most."""
    used_s = 0.0
    for half in range(1, 2 * EXTENSIONS + 3):
        try:
            return dumper.communicate(timeout=limit_s / 2), half * limit_s / 2
        except subprocess.TimeoutExpired:
            before_s, used_s = used_s, proc.cpu_s(dumper.pid)
            if (half > 1 and used_s <= before_s) or used_s >= limit_s:
                return None, half * limit_s / 2
    return None, (EXTENSIONS + 1) * limit_s


def _end(dumper: subprocess.Popen[bytes], *, pid: int, before: str, proc: Proc, waited_s: float) -> str:
    used_s = proc.cpu_s(dumper.pid)
    os.killpg(dumper.pid, signal.SIGKILL)
    sentence = (
        f"no answer within {waited_s:g} s (process state {before[0]}; the dumper used {used_s:.1f} s of CPU); "
        "the dumper was killed"
    )
    continued = threading.Event()

    def collect() -> None:
        dumper.communicate()
        if _let_on(pid, before=before, proc=proc):
            continued.set()

    # On a very busy machine it takes its time to die, holding our pipes: collected whenever that is.
    end = threading.Thread(target=collect, name="dumper-end", daemon=True)
    end.start()
    end.join(_END_LIMIT_S)
    if end.is_alive():
        return f"{sentence} but did not end"
    return f"{sentence} and had left the process stopped; it was continued" if continued.is_set() else sentence


def _let_on(pid: int, *, before: str, proc: Proc) -> bool:
    """Continue ``pid`` if a dumper that failed has left it stopped, or on the way to it; whether it had.

    One that dies between its stop signal and the wait for it does. To a process in disk sleep the signal is still on
    its way then, and would stop it for good as soon as the disk answers.
    """
    is_to_stop = signal.SIGSTOP in proc.pending_signals(pid)
    if "T" in before or not (is_to_stop or "T" in proc.states(pid)):
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    return True


def why_refused(message: str, *, code: int, proc: Proc) -> tuple[str, bool]:
    """A dumper's error message in one line; the kernel's setting when it was not allowed to look, and whether so."""
    lines = list(map(str.strip, message.partition("Stack backtrace:")[0].splitlines()))
    text = " / ".join(line for line in lines if line not in ("", "Caused by:")) or "no message"
    if any(word in text.lower() for word in ("permission", "not permitted", "ptrace")):
        scope = proc.ptrace_scope()
        setting = "no Yama on this kernel" if scope is None else f"kernel.yama.ptrace_scope = {scope}"
        return f"ptrace refused ({setting})", True
    return f"exit {code}: {text[:400]}", False
