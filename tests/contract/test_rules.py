"""Every rule fires on evidence of its own kind, stays silent on all other, and cites only what is there.

Most of it is about standstills: who can end a wait decides whether it is a hang, and when that may be said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from harness.classify.engine import RULES, classify
from harness.classify.facts import place
from harness.classify.rules.busy import healthy_silence_s
from harness.core.devices import GpuActivity, GpuProcess, GpuSample, MemoryMark
from harness.core.evidence import (
    Evidence,
    Frame,
    GradientTruth,
    Heartbeat,
    LogTail,
    LoopSample,
    Measurement,
    Pace,
    ProcessState,
    SourceFailure,
    StackSample,
    ThreadStack,
    ThreadState,
    WorkerResult,
)
from harness.core.outcome import Cleanup, Ending, Exit, Outcome, StopReason
from harness.core.point import Point
from harness.core.success import Success
from harness.core.trial import Budget, Limit, Prediction, Trial
from harness.core.verdict import Case, Confidence, Kind, Verdict, signature_names
from harness.reading.loops import Variables, loop_samples, with_variables
from harness.reading.waits import OWN_CONNECTION, ROWS
from harness.report.stacks import deciding_stack
from known_ids import known_ids

PID, WORKER, OTHER = 100, 120, 121
STALL_S, STARTUP_S, TOTAL_S = 4.0, 20.0, 60.0
LAST_MARK_S = 3.0

# --- Evidence, piece by piece --------------------------------------------------------------------------------------

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
LIBPYTHON = "/opt/python/lib/libpython3.11.so.1.0"
TORCH = "/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"
SITE = "/venv/lib/python3.11/site-packages"


def native(function: str, file: str = TORCH) -> Frame:
    return Frame(function=function, file=file, line=0, native=True)


def python(function: str, file: str, line: int) -> Frame:
    return Frame(function=function, file=file, line=line)


LOCK_LEAF = (
    native("0x7fa62c0a3e96", LIBC),
    native("PyThread_acquire_lock_timed", LIBPYTHON),
    native("lock_PyThread_acquire_lock", LIBPYTHON),
)
HOOK = (
    python("acquire_forever", "/src/harness/specimens/backward_deadlock.py", 21),
    python("FaultProbe._strike", "/src/harness/worker/fault.py", 60),
)
ENGINE_NATIVE = (native("torch::autograd::Engine::evaluate_function"), native("THPEngine_run_backward"))
BACKWARD = (
    python("_engine_run_backward", f"{SITE}/torch/autograd/graph.py", 979),
    python("Tensor.backward", f"{SITE}/torch/_tensor.py", 623),
    python("train", "/src/nsa/train/trainer.py", 88),
)
IN_LOCK = (*LOCK_LEAF, *HOOK, *ENGINE_NATIVE, *BACKWARD)
IN_BACKWARD_PYTHON = BACKWARD


def in_operator(number: int) -> tuple[Frame, ...]:
    """A healthy, slow backward: the Python frames stay, the native ones do not."""
    node = ("MmBackward0::apply", "mkl_blas_sgemm", "at::native::add_kernel", "SoftmaxBackward0::apply")[number % 4]
    return (native(node), *ENGINE_NATIVE, *BACKWARD)


ASKING_THE_LOADER = (
    native("poll", LIBC),
    python("_PollLikeSelector.select", "/opt/lib/python3.11/selectors.py", 415),
    python("Queue.get", "/opt/lib/python3.11/multiprocessing/queues.py", 113),
    python("_MultiProcessingDataLoaderIter._try_get_data", f"{SITE}/torch/utils/data/dataloader.py", 1291),
    python("_BaseDataLoaderIter.__next__", f"{SITE}/torch/utils/data/dataloader.py", 732),
    python("fetch", "/src/nsa/train/data.py", 80),
)

IN_GPU_WAIT = (
    native("0x7fe3c6ccc5c4", "/usr/lib/libcuda.so.580"),
    native("cuStreamSynchronize", "/usr/lib/libcuda.so.580"),
    native("at::native::_local_scalar_dense_cuda", f"{SITE}/torch/lib/libtorch_cuda.so"),
    python("Run._micro_batch", "/src/nsa/train/run.py", 150),
    python("train", "/src/nsa/train/trainer.py", 88),
)
"""The host asks for a number that its GPU has not computed."""

START = native("_start", "/usr/bin/python3.11")


def spinning(line: int, *, inside: tuple[Frame, ...] = ()) -> tuple[Frame, ...]:
    loop = python("spin_forever", "/src/harness/specimens/infinite_loop.py", line)
    return (*inside, loop, HOOK[1], *ENGINE_NATIVE, *BACKWARD)


def stacks(
    frames: Iterable[tuple[Frame, ...]],
    *,
    is_native: bool = True,
    source: str = "py-spy",
    owns_gil: bool | None = False,
    start_s: float = LAST_MARK_S + STALL_S,
    pid: int = PID,
) -> tuple[StackSample, ...]:
    held = (*LOCK_LEAF, python("hold", "/src/x.py", 3))
    return tuple(
        StackSample(
            id=f"stack-{i}" if pid == PID else f"stack-{pid}-{i}",
            source=source,
            native=is_native,
            t_s=start_s + 1.2 * i,
            rank=0,
            pid=pid,
            threads=(
                ThreadStack(tid=pid, name="MainThread", frames=stack, owns_gil=owns_gil),
                ThreadStack(tid=pid + 1000, name="holder", frames=held, owns_gil=None if owns_gil is None else False),
            ),
        )
        for i, stack in enumerate(frames, start=1)
    )


def looks(
    *,
    cpu_share: float = 0.0,
    faults_per_s: float = 0.0,
    switches_per_s: float = 0.0,
    rss_per_s: int = 0,
    io_per_s: int = 0,
    pid: int = PID,
    parent: int = 1,
    command: str = "python",
    children: int = 0,
    dead_children: int = 0,
    handles: tuple[str, ...] = (),
    side: ThreadState | None = None,
    side_wakes: bool = False,
    pairs: int = 3,
    start_s: float = LAST_MARK_S + 2.0,
    **main: Any,
) -> tuple[ProcessState, ...]:
    """``pairs`` undisturbed windows of one second, a stack dump (0.2 s) between them; ``main`` is the main thread."""
    found = []
    waits = {"state": "S", "wchan": "futex_do_wait", "timed": False, **main}
    name = "proc" if pid == PID else f"proc-{pid}"
    for i in range(2 * pairs):
        t_s = start_s + (i // 2) * 1.2 + (i % 2)
        past_s = t_s - start_s
        thread = ThreadState(
            tid=pid,
            name="python",
            cpu_s=2.0 + cpu_share * past_s,
            voluntary_switches=80 + int(switches_per_s * past_s),
            involuntary_switches=7,
            **waits,
        )
        second = side or thread_waiting(state=waits["state"] if waits["state"] in "Tt" else "S")
        second = replace(
            second, tid=pid + 1000, voluntary_switches=second.voluntary_switches + (i if side_wakes else 0)
        )
        found.append(
            ProcessState(
                id=f"{name}-{i + 1}",
                t_s=t_s,
                rank=0,
                pid=pid,
                state=waits["state"],
                threads=(thread, second),
                rss_bytes=300_000_000 + int(rss_per_s * past_s),
                minor_faults=int(1000 + faults_per_s * past_s),
                read_bytes=50 + int(io_per_s * past_s),
                written_bytes=60,
                children=children,
                dead_children=dead_children,
                handles=handles,
                parent=parent,
                command=command,
                undisturbed_since=f"{name}-{i}" if i % 2 else None,
            )
        )
    return tuple(found)


def thread_waiting(**how: Any) -> ThreadState:
    """A second thread, which waits in a lock unless told otherwise."""
    still = {"cpu_s": 0.1, "voluntary_switches": 3, "involuntary_switches": 0, "timed": False}
    return ThreadState(**{"tid": 0, "name": "holder", "state": "S", "wchan": "futex_do_wait", **still, **how})


SLEEPS = {"wchan": "hrtimer_nanosleep", "timed": True}
"""What sleeps on a timer, and wakes by itself."""

MIB = 1 << 20


def gpus(
    *,
    utilisation: int = 100,
    traffic: int = 0,
    watts: float | None = 123.0,
    foreign_mib: int = 0,
    xids: tuple[int, ...] = (),
    samples: int = 3,
    every_s: float = 1.2,
    start_s: float = LAST_MARK_S + STALL_S,
) -> tuple[GpuSample, ...]:
    """An H200 that reads what a wait inside NCCL or an endless kernel reads, unless told otherwise."""
    ours = GpuProcess(pid=PID, ours=True, memory_bytes=1660 * MIB)
    other = GpuProcess(pid=77, ours=False, memory_bytes=foreign_mib * MIB)
    return tuple(
        GpuSample(
            id=f"gpu-{i}",
            t_s=start_s + every_s * i,
            index=0,
            name="NVIDIA H200",
            utilisation=utilisation,
            memory_utilisation=traffic,
            memory_used_bytes=(1669 + foreign_mib) * MIB,
            memory_total_bytes=143771 * MIB,
            power_w=watts,
            power_limit_w=700.0,
            sm_clock_mhz=1980,
            processes=(ours, other) if foreign_mib else (ours,),
            xids=xids,
        )
        for i in range(1, samples + 1)
    )


def memory(*, step_mib: float = 0.0, retries: int = 0, steps: int = 8) -> tuple[MemoryMark, ...]:
    """Memory after every step: growing by ``step_mib``, the allocator starting over ``retries`` times a step."""
    return tuple(
        MemoryMark(
            step=i,
            t_s=1.0 + i,
            rank=0,
            rss_bytes=(300 + step_mib * i) * MIB,
            gpu_reserved_bytes=1900.0 * MIB,
            gpu_alloc_retries=float(retries * i),
        )
        for i in range(steps)
    )


PHASES = ("data", "forward", "backward", "optim")


def marks(*, steps: int = 2, phase: str = "backward", step_s: float = 1.0, last_s: float = LAST_MARK_S) -> tuple:
    """Marks of whole steps, then of a last one that stops at the beginning of ``phase``; the last at ``last_s``."""
    names = [(s, p, e) for s in range(steps) for p in PHASES for e in ("begin", "end")]
    stop = names.index((steps - 1, phase, "begin"))
    names = names[: stop + 1]
    gap_s = step_s / (2 * len(PHASES))
    first_s = last_s - gap_s * (len(names) - 1)
    return tuple(
        Heartbeat(seq=i + 1, t_s=first_s + i * gap_s, rank=0, pid=PID, phase=p, edge=e, step=s)
        for i, (s, p, e) in enumerate(names)
    )


PREDICTED = Prediction(total_s=5.0, total_high_s=6.0, silence_s=0.1, silence_high_s=0.4, basis="n_layers=1,2,3")
PREDICTED_LONG = Prediction(total_s=400.0, total_high_s=450.0, silence_s=200.0, silence_high_s=230.0, basis="5x512")
LEAVING = Heartbeat(seq=1, t_s=LAST_MARK_S, rank=0, pid=PID, phase="exit", edge="begin", step=None)
ENDED_BY_US = Cleanup(signals=((9.0, "SIGTERM", 1),), ended=1)


def case(
    *,
    ending: Ending = Ending.STOPPED_BY_US,
    stopped_by: StopReason | None = None,
    exit: Exit | None = None,
    prediction: Prediction | None = None,
    cleanup: Cleanup = ENDED_BY_US,
    duration_s: float = 12.0,
    why: str = "",
    **evidence: Any,
) -> Case:
    limits = Budget(
        startup=Limit(seconds=STARTUP_S, source="default"),
        stall=Limit(seconds=STALL_S, source="default"),
        total=Limit(seconds=TOTAL_S, source="default"),
    )
    trial = Trial(
        target="nsa",
        point=Point.of({"n_layers": 5}),
        repeat=0,
        role="search",
        config={"train": {"steps": 5}},
        seed=1,
        code="c",
        machine="m",
        budget=limits,
        prediction=prediction,
    )
    outcome = Outcome(ending=ending, exit=exit, stopped_by=stopped_by, duration_s=duration_s, cleanup=cleanup, why=why)
    seen = {"steps_wanted": 5, "steps_done": 1, "config_seen": True, "heartbeats": marks(), "heartbeats_total": 13}
    return Case(trial=trial, outcome=outcome, evidence=Evidence(**{**seen, **evidence}))


def silent(*, times: float = 1.5, prediction: Prediction | None = None, **evidence: Any) -> Case:
    """A trial that we ended by its stall limit after ``times`` that limit without a mark."""
    return case(
        stopped_by=StopReason.STALL,
        exit=Exit(signal=15),
        prediction=prediction,
        duration_s=LAST_MARK_S + times * STALL_S,
        silence_s=times * STALL_S,
        **evidence,
    )


def certain(**evidence: Any) -> Case:
    """A trial that we ended before its limit because it stood still, soon after a mark."""
    before = {"stopped_by": StopReason.CERTAIN, "exit": Exit(signal=15), "silence_s": 3.5}
    return case(**before, heartbeats=marks(step_s=16.0, steps=1), heartbeats_total=5, **evidence)


def exited(code: int, **changes: Any) -> Case:
    return case(ending=Ending.EXITED, exit=Exit(code=code), cleanup=Cleanup(), **changes)


def signalled(number: int, **changes: Any) -> Case:
    return case(ending=Ending.SIGNALLED, exit=Exit(signal=number), cleanup=Cleanup(), **changes)


def result(status: str = "raised", steps_done: int = 1, **said: Any) -> WorkerResult:
    return WorkerResult(id="result", status=status, steps_done=steps_done, phase="forward", **said)


def log(text: str, stream: str = "stderr") -> tuple[LogTail, ...]:
    return (LogTail(id=f"log-{stream}", stream=stream, text=text, size_bytes=len(text)),)


TRACEBACK = """Traceback (most recent call last):
  File "/src/nsa/train/trainer.py", line 70, in train
    loss = self.forward(batch)
  File "/src/nsa/model/transformer.py", line 31, in forward
    raise ValueError(why)
ValueError: shapes (3, 4) and (5, 6) cannot be multiplied
"""
TERMINATED = "terminate called without an active exception\n"
NOT_PYTHONS = """Fatal Python error: Aborted

Current thread 0x00007f0a (most recent call first):
  <no Python frame>
"""
FATAL = """Fatal Python error: Segmentation fault

Current thread 0x00007f0a (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/src/harness/specimens/segfault.py", line 13 in read_address_zero
"""
OOM_TEXT = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried 1 GB"

BUSY = {"cpu_share": 0.97, "state": "R", "wchan": "0"}
LOOP = {"processes": looks(**BUSY), "stacks": stacks([spinning(19), spinning(20), spinning(19)])}


def asking(success: Success, *, facts: dict[str, float] | None = None, step_s: tuple = (), **changes: Any) -> Case:
    """A trial that passes, of which ``success`` was asked as well."""
    measurement = Measurement(
        facts=tuple((facts or {}).items()), step_s=step_s, peak_rss_bytes=changes.pop("peak_rss_bytes", 0)
    )
    done = exited(0, steps_done=5, result=result("finished", 5), measurement=measurement, **changes)
    return replace(done, trial=replace(done.trial, success=success))


def too_slow(**evidence: Any) -> Case:
    """A trial that the total limit cut off while its marks still came."""
    seen = {
        "silence_s": 0.3,
        "steps_done": 2,
        "heartbeats": marks(steps=3, step_s=20.0, last_s=TOTAL_S - 0.3),
        "heartbeats_total": 21,
        "measurement": Measurement(startup_s=2.0, step_s=(20.0, 22.0)),
    }
    return case(stopped_by=StopReason.TOTAL, duration_s=TOTAL_S, **{**seen, **evidence})


def still_running(**evidence: Any) -> Case:
    """A job that somebody else started, watched for a while."""
    unseen = {"heartbeats": (), "heartbeats_total": 0, "steps_wanted": 0, "steps_done": 0, "config_seen": False}
    seen = {"stopped_by": StopReason.CERTAIN, "silence_s": 9.0, **evidence}
    return case(ending=Ending.STILL_RUNNING, cleanup=Cleanup(), why="it may go on", **{**unseen, **seen})


TIMEOUT = looks(cpu_share=1.0)[-1]
"""A process with some CPU time, to be that of another program or with a limit."""

CANNED: dict[str, list[Case]] = {
    "interrupted": [
        case(stopped_by=StopReason.INTERRUPT, exit=Exit(signal=15), silence_s=0.4),
        # However sure a hang looks: the user ended it, so nothing is claimed.
        case(stopped_by=StopReason.INTERRUPT, silence_s=9.0, processes=looks(), stacks=stacks([IN_LOCK] * 3)),
    ],
    "infra": [
        signalled(60),
        case(ending=Ending.NEVER_STARTED, why="no such file: /nowhere/python", heartbeats=(), heartbeats_total=0),
        case(ending=Ending.EXITED, exit=None, why="the supervisor was killed by signal 9"),
        exited(1, result=result(exception="OSError", message="[Errno 28] No space left on device: 'x'")),
        exited(1, logs=log("OSError: [Errno 28] No space left on device\n")),
        exited(74, steps_done=5),
        exited(1, heartbeats=(), logs=log("harness.core.errors.LaunchError: no readable trial at x\n")),
        silent(
            processes=looks(),
            stacks=stacks([IN_LOCK] * 3),
            logs=log("nsa-harness: heartbeats cannot be written: No space left on device; training goes on unseen\n"),
        ),
    ],
    "xid": [exited(1, gpus=gpus(xids=(79,))), silent(gpus=gpus(xids=(13, 74)), processes=looks(**BUSY))],
    "misconfigured": [
        exited(
            0,
            steps_done=5,
            result=result("finished", 5),
            config_differences=("model.n_layers: requested 5, ran 12",),
        )
    ],
    "nonfinite_loss": [asking(Success(loss="finite"), facts={"loss": float("nan"), "first_nonfinite_loss_step": 3.0})],
    "below_target": [
        asking(Success(steps=9)),
        asking(Success(max_memory_gb=0.5), peak_rss_bytes=10**9),
        asking(Success(min_tokens_per_s=300.0), facts={"tokens": 128.0}, step_s=(9.0, 0.5, 0.5)),
        asking(Success(min_tokens_per_s=1.0)),
        asking(Success(loss="decreasing"), facts={"loss": 2.0, "first_loss": 2.0}),
        asking(Success(require=("done",))),
        asking(Success(forbid=("marked as .* twice",)), logs=log("a parameter was marked as ready twice")),
    ],
    "gradients_wrong": [
        asking(Success(gradients="true")),
        asking(Success(gradients="true"), gradients=GradientTruth(id="gradients", compared=3, missing=("embed",))),
    ],
    "passed": [
        exited(0, steps_done=5, result=result("finished", 5)),
        case(
            ending=Ending.EXITED,
            exit=Exit(code=0),
            cleanup=Cleanup(signals=((5.0, "SIGKILL", 1),), ended=1),
            steps_done=5,
            result=result("finished", 5),
        ),
        exited(0, steps_wanted=0, steps_done=0, heartbeats=(), heartbeats_total=0),
    ],
    "early_exit": [exited(0), exited(0, result=result("finished", 2))],
    "nonfinite": [
        exited(1, result=result(exception="nsa.errors.NonFiniteLoss", message="step 1: loss is nan")),
        # It raised, and then a thread that nobody joins kept the process: the exception came first.
        silent(result=result(exception="nsa.errors.NonFiniteLoss", message="step 1: loss is nan")),
    ],
    "foreign_device": [
        exited(1, result=result(exception="torch.OutOfMemoryError", message="x"), gpus=gpus(foreign_mib=73000)),
        too_slow(gpus=gpus(foreign_mib=73000, utilisation=99, traffic=40, watts=600)),
    ],
    "memory_leak": [
        exited(
            1, result=result(exception="MemoryError", message=""), measurement=Measurement(memory=memory(step_mib=48))
        ),
    ],
    "oom": [
        # Large from the start, and not growing: no leak.
        exited(1, result=result(exception="MemoryError", message=""), measurement=Measurement(memory=memory())),
        exited(1, result=result(exception="RuntimeError", message=OOM_TEXT)),
        exited(1, result=result(exception="MemoryError", message="")),
        exited(1, result=result(exception="torch.OutOfMemoryError", message="CUDA out of memory. Tried 2 GiB")),
        signalled(9, memory_limit_hits=1),
        # A shell hands it on, and so does whoever waited for a child.
        exited(137, memory_limit_hits=1),
        exited(
            1,
            memory_limit_hits=1,
            result=result(
                exception="subprocess.CalledProcessError", message="Command 'x' died with <Signals.SIGKILL: 9>."
            ),
        ),
        signalled(6, logs=log("terminate called after throwing an instance of 'std::bad_alloc'\n")),
    ],
    "exit_abort": [
        # Its three steps are done; the thread that aborted runs no Python, says faulthandler.
        signalled(
            6, steps_done=3, steps_wanted=3, result=result("finished", 3), logs=log(f"{TERMINATED}{NOT_PYTHONS}")
        ),
        # A stranger's program: how many steps it was to make is not known, that it was leaving is.
        signalled(6, steps_wanted=0, heartbeats=(LEAVING,), heartbeats_total=1, logs=log(TERMINATED)),
    ],
    "own_limit": [
        exited(124, processes=(replace(TIMEOUT, command="timeout"),)),
        signalled(24, processes=(replace(TIMEOUT, cpu_limit_s=2.0),)),
        signalled(9, processes=(replace(TIMEOUT, cpu_limit_s=2.0),)),
        exited(137, processes=(replace(TIMEOUT, cpu_limit_s=2.0),)),
    ],
    "crashed": [
        exited(1, result=result(exception="ValueError", message="shapes", traceback=TRACEBACK)),
        signalled(11, logs=log(FATAL)),
        signalled(6, logs=log("Fatal Python error: Aborted\n")),
        signalled(9),
        exited(3, logs=log(TRACEBACK)),
        # C++'s words for a thread that ended badly, but in the middle of training: no interpreter was shutting down.
        signalled(6, logs=log(TERMINATED)),
        exited(124),
        # Far from its limit of CPU time.
        signalled(9, processes=(replace(TIMEOUT, cpu_limit_s=2000.0),)),
    ],
    "stalled": [
        silent(processes=looks(), stacks=stacks([IN_LOCK] * 3)),
        # So complete a standstill that nobody waited for the limit.
        certain(processes=looks(), stacks=stacks([IN_LOCK] * 3)),
        # A healthy trial may be silent for longer, but not asleep.
        silent(processes=looks(), stacks=stacks([IN_LOCK] * 3), prediction=PREDICTED_LONG),
        silent(times=2.0, processes=looks(state="T", wchan="do_signal_stop", pairs=6), stacks=stacks([IN_LOCK] * 3)),
        silent(processes=looks(**BUSY), stacks=stacks([IN_GPU_WAIT] * 3), gpus=gpus(samples=4, every_s=15.0)),
    ],
    "busy": [
        silent(times=4.1, prediction=PREDICTED, **LOOP),
        # Without a prediction, earlier steps are the yardstick: 0.125 s.
        silent(times=4.1, **LOOP),
        silent(
            times=4.1,
            prediction=PREDICTED,
            processes=looks(**BUSY),
            stacks=stacks([spinning(19, inside=(native("sre_ucs1_match", LIBPYTHON),))] * 3, owns_gil=True),
        ),
    ],
    "slow_why": [
        too_slow(measurement=Measurement(startup_s=2.0, step_s=(20.0, 22.0), memory=memory(retries=12))),
        too_slow(processes=looks(**BUSY), gpus=gpus(utilisation=12, watts=140)),
    ],
    "slow": [
        case(
            stopped_by=StopReason.TOTAL,
            duration_s=TOTAL_S,
            silence_s=0.3,
            steps_done=2,
            heartbeats=marks(steps=3, step_s=20.0, last_s=TOTAL_S - 0.3),
            heartbeats_total=21,
            measurement=Measurement(startup_s=2.0, step_s=(20.0, 22.0)),
            prediction=PREDICTED,
        ),
        # A prediction that exceeds the limit does not turn progress into "limit too short".
        case(
            stopped_by=StopReason.TOTAL,
            duration_s=TOTAL_S,
            silence_s=1.5,
            steps_done=0,
            heartbeats=marks(steps=1, step_s=8.0, last_s=TOTAL_S - 1.5),
            heartbeats_total=5,
            prediction=PREDICTED_LONG,
        ),
        # Busy, and with work to show for it.
        too_slow(processes=looks(**BUSY), gpus=gpus(utilisation=97, traffic=35, watts=610)),
        # The allocator started over once, while it warmed up.
        too_slow(measurement=Measurement(startup_s=2.0, step_s=(20.0, 22.0), memory=memory())),
    ],
    "unresolved": [
        silent(times=4.1, processes=looks(**BUSY), stacks=stacks(in_operator(i) for i in range(5))),
        still_running(**LOOP),
        still_running(),
        silent(
            times=4.1,
            prediction=PREDICTED_LONG,
            processes=looks(**BUSY),
            stacks=stacks([IN_BACKWARD_PYTHON] * 3, is_native=False),
        ),
        case(
            stopped_by=StopReason.TOTAL,
            duration_s=TOTAL_S,
            silence_s=TOTAL_S - LAST_MARK_S,
            prediction=PREDICTED_LONG,
            processes=looks(**BUSY),
        ),
        silent(failures=(SourceFailure(id="failure-1-py-spy", source="py-spy", reason="it is not installed"),)),
    ],
}

EVERY = [(rule, i, c) for rule, cases in CANNED.items() for i, c in enumerate(cases)]
IDS = [f"{rule}-{i}" for rule, i, _ in EVERY]


# --- The contract --------------------------------------------------------------------------------------------------


def told(verdict: Verdict) -> str:
    """``HANG deadlock high``."""
    return f"{verdict.kind} {verdict.cause or '-'} {verdict.confidence}"


def test_every_rule_has_canned_evidence_of_its_own():
    assert tuple(CANNED) == RULES.names()


AGREE = {
    "misconfigured": {"passed"},
    "nonfinite_loss": {"passed"},
    "below_target": {"passed"},
    "gradients_wrong": {"passed"},
    "infra": {"crashed", "stalled"},
    "xid": {"crashed"},
    "foreign_device": {"oom", "slow"},
    "memory_leak": {"oom"},
    "slow_why": {"slow"},
}
"""Rules that a rule precedes on purpose: they may fire on its evidence, and agree with it."""


@pytest.mark.parametrize(("rule", "_i", "canned"), EVERY, ids=IDS)
def test_a_rule_gives_the_verdict_on_its_own_evidence_and_the_others_stay_silent(rule, _i, canned):
    verdict = classify(canned)
    assert verdict.rule == rule, verdict.because
    assert verdict.because
    assert verdict.cites
    assert set(verdict.cites) <= known_ids(canned)
    assert set(verdict.also) <= AGREE.get(rule, set())
    earlier = RULES.names()[: RULES.names().index(rule)]
    assert not [name for name in earlier if RULES.load(name)(canned) is not None]


@pytest.mark.parametrize(("rule", "_i", "canned"), EVERY, ids=IDS)
def test_nothing_is_a_hang_while_it_moves(rule, _i, canned):
    """The same evidence with a mark that was just made is never a HANG."""
    lively = replace(canned, evidence=replace(canned.evidence, silence_s=0.0))
    assert classify(lively).kind is not Kind.HANG


ENDED_S = 12.0


def failed_after_a_stop(
    before_s: float, *, stopped_s: float = 0.2, ending: Ending = Ending.EXITED, code: int = 1, prints: str = "",
    **said: Any,
) -> Case:  # fmt: skip
    (taken,) = stacks([IN_LOCK], start_s=ENDED_S - before_s - stopped_s - 1.2)
    raised = {"result": result(**said)} if said else {}
    return case(
        ending=ending, exit=Exit(code=code), cleanup=Cleanup(), duration_s=ENDED_S, logs=log(prints),
        stacks=(replace(taken, stopped_s=stopped_s),), **raised,
    )  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        {"prints": "read: Interrupted system call"},
        {"exception": "InterruptedError", "message": "[Errno 4]"},
        {"exception": "_queue.Empty", "message": ""},
        {"exception": "RuntimeError", "message": "Timed out waiting 1000ms for recv operation to complete"},
    ],
)
def test_a_failure_just_after_our_own_stop_is_no_proof_and_says_so(said):
    verdict = classify(failed_after_a_stop(0.8, **said))
    assert (verdict.kind, verdict.confidence) == (Kind.CRASH, Confidence.MEDIUM)
    assert f"process {PID} had been stopped by us for 200 ms, 0.8 s before" in verdict.because
    assert "a run without nsa-harness tells" in verdict.because
    assert "stack-1" in verdict.cites


@pytest.mark.parametrize(
    "failed",
    [
        failed_after_a_stop(5.0),
        failed_after_a_stop(0.8, stopped_s=0.0),
        failed_after_a_stop(0.8, exception="NameError", message="name 'x' is not defined"),
        failed_after_a_stop(0.8, exception="ValueError", message="bad shard 7"),
        failed_after_a_stop(0.8, exception="subprocess.TimeoutExpired", message="'x' timed out after 44.99 seconds"),
        failed_after_a_stop(0.8),
        failed_after_a_stop(0.8, code=124),
        # It raised some time ago, and did not end: the stop was while it was looked why.
        failed_after_a_stop(0.8, ending=Ending.STOPPED_BY_US, exception="ValueError", message="shapes"),
    ],
    ids=[
        "long before",
        "not stopped",
        "by what the program says",
        "its own exception",
        "a longer limit",
        "a status",
        "its own time limit",
        "before the stop",
    ],
)
def test_a_failure_that_no_stop_may_have_brought_about_is_proof(failed):
    verdict = classify(failed)
    assert (verdict.kind, verdict.confidence) == (Kind.CRASH, Confidence.PROOF)
    assert "stopped by us" not in verdict.because


# --- Who can end a wait decides whether it is a hang -----------------------------------------------------------------

PROCESS, OUTSIDE, NOBODY_KNOWS = "process", "outside", "nobody knows"

WAITS = {
    "another machine's file system": ("nfs_wait_bit_killable", OUTSIDE),
    "a file system that a program serves": ("request_wait_answer", OUTSIDE),
    "a child": ("do_wait", NOBODY_KNOWS),
    "a child to begin its program": ("", NOBODY_KNOWS),
    "a lock on a file": ("flock_lock_inode_wait", OUTSIDE),
    "a lock that processes share": ("", NOBODY_KNOWS),
    "room in a pipe": ("anon_pipe_write", OUTSIDE),
    "something in a pipe": ("anon_pipe_read", OUTSIDE),
    "the other end of a named pipe": ("wait_for_partner", OUTSIDE),
    "another machine": ("sk_wait_data", OUTSIDE),
    "a socket, a terminal or a change of files": ("wait_woken", OUTSIDE),
    "a socket of this machine": ("unix_stream_read_generic", OUTSIDE),
    "a connection to the program's own service": ("", OUTSIDE),
    "an event": ("eventfd_read", OUTSIDE),
    "one of several descriptors": ("do_sys_poll", OUTSIDE),
    "a signal": ("sys_pause", OUTSIDE),
    "a semaphore or message between programs": ("do_semtimedop", OUTSIDE),
    "somebody at a terminal": ("n_tty_read", OUTSIDE),
    "the kernel's own queue": ("io_cqring_wait", OUTSIDE),
    "a lock of the process": ("futex_do_wait", PROCESS),
}
"""Of each row of the table of waits a kernel function of it, and who can end it when nothing more is known."""

SHOWN = [
    (row, seen)
    for row in ROWS
    for seen in (
        *([{"wchan": WAITS[row.what][0]}] if WAITS[row.what][0] else []),
        *({"wchan": "", "call": call} for call in sorted(row.calls)),
    )
]
"""Each kind of wait as the kernel shows it: by the function that the thread sleeps in, and by each of its calls."""

SHOWN_IDS = [f"{row.what}-{seen['wchan'] or seen['call']}" for row, seen in SHOWN]

BLOCKED = (native("syscall", LIBC), native("my_queue::take"), *HOOK, *BACKWARD)
BRIEF, BEYOND, LONG = 0.9, 1.5, 4.1
"""Times the limit: not yet, beyond it, and watched out."""


def under_run(waits: dict, times: float, *others: ProcessState) -> Case:
    """The process that trains is in this wait."""
    return silent(times=times, processes=(*looks(**waits), *others), stacks=stacks([BLOCKED] * 3))


def under_watch(waits: dict, times: float, *others: ProcessState) -> Case:
    """The only process of a job that somebody else started is: its marks are not known."""
    seen = {"processes": (*looks(**waits), *others), "stacks": stacks([BLOCKED] * 3)}
    return still_running(silence_s=times * STARTUP_S, main=PID, **seen)


def in_a_loaders_worker(waits: dict, times: float, *others: ProcessState) -> Case:
    """A worker of the DataLoader is, and the process that trains asks it for a batch again and again."""
    asks = looks(wchan="do_sys_poll", timed=True, call="poll", switches_per_s=0.4, cpu_share=0.0005, children=1)
    worker = looks(**waits, pid=WORKER, parent=PID, command="pt_data_worker")
    taken = (*stacks([ASKING_THE_LOADER] * 3), *stacks([BLOCKED] * 3, pid=WORKER))
    return silent(times=times, processes=(*asks, *worker, *others), stacks=taken)


def in_a_child(waits: dict, times: float, *others: ProcessState) -> Case:
    """A child is, and the process that trains waits for it to end."""
    parent = looks(wchan="do_wait", call="wait4", holders=(WORKER,), outside=False, children=1)
    child = looks(**waits, pid=WORKER, parent=PID)
    taken = (*stacks([BLOCKED] * 3), *stacks([BLOCKED] * 3, pid=WORKER))
    return silent(times=times, processes=(*parent, *child, *others), stacks=taken)


@pytest.mark.parametrize("waits", [
    {"wchan": "do_wait", "call": "wait4"}, {"wchan": "anon_pipe_read", "call": "pipe-read"},
], ids=["for its end", "for another pipe"])  # fmt: skip
def test_a_child_of_no_file_that_a_full_pipe_stops_is_told_at_the_line_of_its_parent(waits):
    """``Popen([python, "-c", ..], stdout=PIPE).wait()``: the parent's line can be mended, and both are told."""
    parent = looks(**waits, holders=(WORKER,), outside=False, children=1)
    pipe = {"wchan": "anon_pipe_write", "call": "pipe-write", "holders": (PID,), "outside": False}
    child = looks(**pipe, pid=WORKER, parent=PID)
    typed = (python("<module>", "<string>", 1),)
    taken = (*stacks([BLOCKED] * 3), *stacks([typed] * 3, pid=WORKER))
    verdict = classify(silent(processes=(*parent, *child), stacks=taken))
    assert told(verdict) == "HANG blocked-pipe high"
    assert verdict.cites[0] == "stack-1"
    assert f"stack-{WORKER}-1" in verdict.cites
    in_turn = "waits for it in turn in <module> (<string>:1) (waits for room in a pipe), and neither comes first"
    assert in_turn in verdict.because


def test_an_idle_worker_of_the_loader_is_not_who_a_stuck_program_waits_for():
    """torch handles SIGCHLD for its workers, and each asks for work: neither is what the program waits in."""
    stuck = looks(wchan="futex_do_wait", call="futex", handles=("SIGCHLD",), children=1)
    asks = {"wchan": "do_sys_poll", "timed": True, "call": "poll", "switches_per_s": 0.4, "cpu_share": 0.0005}
    worker = looks(**asks, pid=WORKER, parent=PID, command="pt_data_worker")
    taken = (*stacks([BLOCKED] * 3), *stacks([ASKING_THE_LOADER] * 3, pid=WORKER))
    verdict = classify(silent(times=BRIEF, processes=(*stuck, *worker), stacks=taken))
    assert (verdict.kind, verdict.confidence) == (Kind.HANG, Confidence.HIGH)
    assert "pt_data_worker" not in verdict.because


REACHED = [under_run, under_watch, in_a_loaders_worker, in_a_child]


def who_waits(reached: Any) -> int:
    return PID if reached in (under_run, under_watch) else WORKER


def is_hang(case: Case) -> bool:
    verdict = classify(case)
    assert verdict.kind in (Kind.HANG, Kind.UNRESOLVED), verdict.because
    return verdict.kind is Kind.HANG


def test_every_kind_of_wait_is_tried():
    assert list(WAITS) == [row.what for row in ROWS]


@pytest.mark.parametrize("reached", REACHED)
@pytest.mark.parametrize(("row", "seen"), SHOWN, ids=SHOWN_IDS)
def test_who_can_end_a_wait_decides_when_it_is_a_hang(row, seen, reached):
    """Nobody: at once. Somebody outside, or not to be told: after four limits."""
    first = {PROCESS: BRIEF, NOBODY_KNOWS: LONG, OUTSIDE: LONG}[WAITS[row.what][1]]
    for times in (BRIEF, BEYOND, LONG):
        verdict = classify(reached(seen, times))
        assert (verdict.kind is Kind.HANG) == (times >= first), (times, verdict.because)
    sure = WAITS[row.what][1] is PROCESS and reached is not in_a_loaders_worker
    assert verdict.confidence is (Confidence.HIGH if sure else Confidence.MEDIUM)
    if reached is under_run:
        assert verdict.cause == row.cause


@pytest.mark.parametrize("reached", REACHED)
@pytest.mark.parametrize(("row", "seen"), SHOWN, ids=SHOWN_IDS)
def test_a_wait_with_a_time_limit_is_never_a_hang(row, seen, reached):
    if row.cause == "waiting-for-child":
        return  # its calls know no limit; what asks a child again and again is the loader of these tests
    assert not is_hang(reached({**seen, "timed": True}, 9 * LONG))


@pytest.mark.parametrize(("child", "hangs"), [("wait_for_partner", False), ("sys_pause", True)])
def test_who_begins_a_program_goes_on_if_the_process_that_shall_run_it_may(child, hangs):
    """That opens the files first: a named pipe of another program, which no lock of Python has to do with."""
    waits = {
        "wchan": "kernel_clone",
        "call": "clone",
        "state": "D",
        "holders": (WORKER,),
        "outside": False,
        "children": 1,
    }
    begins = looks(wchan=child, outside=not hangs, call="pause" if hangs else "openat", pid=WORKER, parent=PID)
    taken = (*stacks([BLOCKED] * 3), *stacks([BLOCKED] * 3, pid=WORKER))
    assert is_hang(silent(times=BRIEF, processes=(*looks(**waits), *begins), stacks=taken)) is hangs


@pytest.mark.parametrize("reached", REACHED)
@pytest.mark.parametrize(("row", "seen"), SHOWN, ids=SHOWN_IDS)
def test_a_wait_for_a_device_is_given_four_limits(row, seen, reached):
    assert not is_hang(reached({**seen, "state": "D"}, BEYOND))
    assert is_hang(reached({**seen, "state": "D"}, LONG))


@pytest.mark.parametrize(("switched", "hangs"), [(0, True), (1, False)])
def test_a_wait_that_ended_and_was_begun_anew_is_given_its_four_limits_again(switched, hangs):
    """As a read of one answer after the other: each round of looks finds it in the same place, at rest."""
    first, *others = looks(wchan="wait_woken", start_s=LAST_MARK_S + 3 * STALL_S)
    main, side = first.threads
    before = replace(main, voluntary_switches=main.voluntary_switches - switched)
    early = replace(first, id="early", t_s=LAST_MARK_S + STALL_S, threads=(before, side))
    seen = (early, replace(first, undisturbed_since="early"), *others)
    taken = stacks([BLOCKED] * 3)
    assert is_hang(silent(times=LONG, processes=seen, stacks=taken)) == hangs


OWN = "a connection to the program's own service"
"""Of which an outsider may have been given the address: it is waited for him for a while."""

SHARED = [(row, seen) for row, seen in SHOWN if row.shared]
SHARED_IDS = [name for name, (row, _) in zip(SHOWN_IDS, SHOWN, strict=True) if row.shared]

MOVES = looks(pid=OTHER, parent=PID, **BUSY)
WAKES = looks(pid=OTHER, parent=PID, **SLEEPS)
LOCKED = looks(pid=OTHER, parent=PID)


@pytest.mark.parametrize("reached", REACHED)
@pytest.mark.parametrize(("row", "seen"), SHARED, ids=SHARED_IDS)
def test_whoever_of_the_trial_holds_the_other_end_decides(row, seen, reached):
    me = who_waits(reached)

    def held(by: int, *others: ProcessState, outside: bool = False) -> list[bool]:
        waits = {**seen, "holders": (by,), "outside": outside}
        return [is_hang(reached(waits, times, *others)) for times in (BRIEF, BEYOND, LONG)]

    assert held(OTHER, *MOVES) == [False, False, False]
    assert held(OTHER, *WAKES) == [False, False, False]
    # Whoever has it can never go on: neither can this one, nor can it if both wait for each other, or it has both ends.
    soon = [row.what != OWN] * 2
    assert held(OTHER, *LOCKED)[:2] == soon
    back = {"wchan": "anon_pipe_read", "call": "pipe-read", "holders": (me,), "outside": False}
    assert held(OTHER, *looks(pid=OTHER, parent=PID, **back))[:2] == soon
    assert held(me)[:2] == soon
    # Somebody outside may have it as well.
    assert held(OTHER, *LOCKED, outside=True)[0] is False


@pytest.mark.parametrize("moves", [False, True])
def test_an_undecided_program_is_told_which_of_its_helpers_can_never_go_on(moves):
    helper = looks(pid=OTHER, parent=PID, **(BUSY if moves else {}))
    taken = (*stacks([BLOCKED] * 3), *stacks([BLOCKED] * 3, pid=OTHER))
    verdict = classify(silent(times=BEYOND, processes=(*looks(**SLEEPS), *helper), stacks=taken))
    assert verdict.kind is Kind.UNRESOLVED
    assert (f"process {OTHER} can never go on, in " in verdict.because) is not moves
    assert any(look.id in verdict.cites for look in helper) is not moves


@pytest.mark.parametrize(
    ("main", "helper", "seconds", "expected"),
    [
        (SLEEPS | {"switches_per_s": 10.0}, {}, 121.0, "HANG native-wait medium"),
        (SLEEPS | {"switches_per_s": 10.0}, {}, 119.0, "UNRESOLVED"),
        (SLEEPS, {}, 121.0, "UNRESOLVED"),
        (SLEEPS | {"switches_per_s": 10.0}, BUSY, 121.0, "UNRESOLVED"),
        (BUSY, {}, 121.0, "UNRESOLVED"),
    ],
    ids=["looks again and again", "for less than two minutes", "sleeps once", "nobody is stuck", "computes"],
)
def test_a_helper_that_can_never_go_on_is_a_hang_once_its_parent_has_long_only_looked_at_it(
    main, helper, seconds, expected
):
    """A pool's worker in a lock that was forked with it, below a parent that asks its queue twenty times a second."""
    taken = (*stacks([BLOCKED] * 3), *stacks([BLOCKED] * 3, pid=OTHER))
    processes = (*looks(**main), *looks(pid=OTHER, parent=PID, **helper))
    verdict = classify(silent(times=seconds / STALL_S, processes=processes, stacks=taken))
    assert told(verdict).startswith(expected)


POLLS_A_FILE = ThreadStack(
    tid=PID + 1000, name="observer", frames=(python("run", f"{SITE}/watchdog/observers/api.py", 215),)
)


@pytest.mark.parametrize(
    ("stall_s", "seconds", "expected"),
    [
        (120.0, 130.0, "UNRESOLVED"),
        (120.0, 479.0, "UNRESOLVED"),
        (120.0, 481.0, "HANG deadlock medium"),
        (10.0, 119.0, "UNRESOLVED"),
    ],
)
def test_a_packages_thread_that_asks_again_and_again_is_waited_for_like_anybody_outside(stall_s, seconds, expected):
    """It may ask for a file, or a lock of another program's, and call what it was given however late that comes."""
    taken = [replace(sample, threads=(sample.threads[0], POLLS_A_FILE)) for sample in stacks([IN_LOCK] * 3)]
    side = thread_waiting(wchan="hrtimer_nanosleep", call="clock_nanosleep", timed=True)
    seen = silent(times=1.1, processes=looks(side=side, side_wakes=True, pairs=6), stacks=tuple(taken))
    patient_one = patient(seen, silence_s=seconds)
    limit = replace(patient_one.trial.budget.stall, seconds=stall_s)
    budget = replace(patient_one.trial.budget, stall=limit)
    assert told(classify(replace(patient_one, trial=replace(patient_one.trial, budget=budget)))).startswith(expected)


@pytest.mark.parametrize("where", [{"call": "accept-own"}, {"call": "socket-unix", "on": OWN_CONNECTION}], ids=str)
@pytest.mark.parametrize(("seconds", "expected"), [(119.0, "UNRESOLVED"), (121.0, "HANG blocked-io medium")])
def test_an_outsider_who_was_given_the_address_of_a_service_has_a_while_to_connect(seconds, expected, where):
    """Of a path that multiprocessing made up the program's own code knows, too, which waits there."""
    waits = {"wchan": "", "holders": (PID,), "outside": False, **where}
    assert told(classify(under_run(waits, seconds / STALL_S))).startswith(expected)


@pytest.mark.parametrize("holder", [MOVES, WAKES], ids=["works", "sleeps on a timer"])
@pytest.mark.parametrize("reached", [under_run, under_watch, in_a_child])
def test_a_lock_that_processes_share_is_told_by_its_call_where_the_kernel_says_futex(reached, holder):
    """As everywhere: the kernel names the same function for both kinds of locks."""
    shared = {"wchan": "futex_do_wait", "call": "futex-shared", "holders": (OTHER,), "outside": False}
    assert not is_hang(reached(shared, BEYOND, *holder))


@pytest.mark.parametrize(("reached", "confidence"), [(under_run, "high"), (under_watch, "medium")])
def test_of_a_job_that_was_attached_to_somebody_outside_of_its_tree_may_have_a_shared_lock(reached, confidence):
    """A daemon that it has started and that process 1 has taken over saves a checkpoint, and gives the lock back."""
    shared = {"wchan": "futex_do_wait", "call": "futex-shared", "holders": (PID,), "outside": False}
    verdict = classify(reached(shared, BEYOND))
    assert told(verdict) == f"HANG deadlock {confidence}"
    assert ("has left its tree" in verdict.because) is (confidence == "medium")


def test_a_lock_of_which_nobody_knows_whether_it_has_a_time_limit_is_not_a_certain_hang():
    """``queue.get(timeout=600)``, where another user's processes, or a strict kernel, hide the calls."""
    assert told(classify(under_watch({"timed": None}, BRIEF))) != "HANG native-wait high"


@pytest.mark.parametrize(("share", "does"), [(0.001, "wakes now and then"), (0.2, "works")])
def test_what_hardly_wakes_does_not_work(share, does):
    """A program that asks ten times a second for a lock, and one that computes, both in a job of somebody else's."""
    asks = {**SLEEPS, "switches_per_s": 10.0, "cpu_share": share}
    assert f"it {does}" in classify(under_watch(asks, BRIEF)).because


@pytest.mark.parametrize("holder", [(), MOVES], ids=["no look", "a slow round of looks"])
@pytest.mark.parametrize("reached", [under_run, under_watch, in_a_child])
def test_a_holder_that_was_not_looked_at_may_be_at_work(reached, holder):
    """It was just started; or a thousand threads took longer than a second to look at."""
    early = tuple(replace(look, t_s=look.t_s - 1.3) for look in holder)
    pipe = {"wchan": "anon_pipe_read", "call": "pipe-read", "holders": (OTHER,), "outside": False}
    assert not is_hang(reached(pipe, BEYOND, *early))


def with_a_librarys_thread(frames: tuple[Frame, ...], **thread: Any) -> Case:
    """The main thread waits in a lock beside a thread without Python, which wakes by the clock."""
    own = thread_waiting(name="io", tid=PID + 1000, wchan="ep_poll", call="epoll_wait", **thread)
    wakes = 10 if own.timed and own.limit_s is None else 0
    seen = [
        replace(look, threads=(look.threads[0], replace(own, voluntary_switches=int(wakes * look.t_s))))
        for look in looks()
    ]
    bare = ThreadStack(tid=own.tid, name="io", frames=(native("epoll_wait", LIBC),))
    taken = tuple(replace(sample, threads=(sample.threads[0], bare)) for sample in stacks([frames] * 3))
    return silent(processes=tuple(seen), stacks=taken)


def test_a_worker_that_is_stuck_at_a_lock_is_named_beside_the_main_thread_that_waits_for_its_work():
    """Its line is the one to look at; a main thread at a lock of its own line is as much at fault."""
    lib = "/usr/lib/python3.11"
    joins = (*LOCK_LEAF, python("wait", f"{lib}/threading.py", 327), python("join", f"{lib}/queue.py", 90), *BACKWARD)
    for frames, is_victim in ((joins, True), (IN_LOCK, False)):
        seen = silent(processes=looks(), stacks=stacks([frames] * 3))
        verdict = classify(seen)
        assert told(verdict) == "HANG deadlock high"
        assert ("thread holder, which could let it go on, waits in hold (src/x.py:3)" in verdict.because) is is_victim
        decides = deciding_stack(seen.evidence, verdict)
        assert (decides[1].name == "holder") is is_victim


@pytest.mark.parametrize(("library", "hangs"), [("libpmix.so.2", True), ("librecord.so", False)])
def test_a_librarys_threads_beside_the_only_one_that_runs_python(library, hangs):
    """Open MPI's look after its own connections by the clock, in every program that imports mpi4py, and call nobody."""
    seen = with_a_librarys_thread(IN_LOCK, timed=True, limit_s=3600.0, library=library)
    taken = tuple(replace(sample, threads=sample.threads[:1]) for sample in seen.evidence.stacks)
    assert is_hang(replace(seen, evidence=replace(seen.evidence, stacks=taken))) is hangs


def test_a_librarys_thread_that_is_met_awake_may_call_back_as_it_may_asleep():
    """Then nothing tells whose code it runs: one of five runs of a healthy program was called HANG."""
    seen = with_a_librarys_thread(IN_LOCK, timed=True, library="librecord.so")
    *before, last = seen.evidence.processes
    awake = replace(last.threads[1], state="R", wchan="", call="", timed=None, library="")
    looks = (*before, replace(last, threads=(last.threads[0], awake)))
    taken = tuple(replace(sample, threads=sample.threads[:1]) for sample in seen.evidence.stacks)
    assert not is_hang(replace(seen, evidence=replace(seen.evidence, processes=looks, stacks=taken)))


def test_a_librarys_thread_that_waits_for_another_machine_may_give_its_lock_back():
    assert not is_hang(with_a_librarys_thread(BLOCKED, outside=True))


@pytest.mark.parametrize(
    ("frames", "thread"),
    [(BLOCKED, {"timed": True}), (IN_LOCK, {"outside": True})],
    ids=["it polls for the answer of another machine", "it is to call back into Python"],
)
def test_a_librarys_thread_that_waits_for_an_answer_may_end_the_wait(frames, thread):
    """A client in C++ or Rust asks for it ten times a second; or calls the Python function that gives the lock back."""
    assert not is_hang(with_a_librarys_thread(frames, **thread))


@pytest.mark.parametrize("times", [BEYOND, LONG])
def test_a_wait_of_which_the_kernel_shows_nothing_may_be_a_sleep(times):
    """As in a sandbox that has neither wait channels nor system calls to show."""
    assert not is_hang(under_run({"wchan": "", "timed": None}, times))


def test_a_signal_of_its_own_timer_may_wake_it():
    """But no timer that counts CPU time: nothing of it computes. ``sort`` handles all of them, to tidy up."""
    assert not is_hang(under_run({"handles": ("SIGALRM",)}, LONG))
    assert is_hang(under_run({"handles": ("SIGVTALRM", "SIGPROF")}, BRIEF))


@pytest.mark.parametrize("name", ["SIGIO", "SIGRTMIN", "SIGRTMIN+3", "SIGRTMAX", "timer_create"])
def test_a_signal_that_it_handles_may_let_it_go_on(name):
    assert not is_hang(under_run({"handles": (name,)}, BRIEF))


@pytest.mark.parametrize(("own", "hangs"), [((), True), (("SIGUSR1",), False)], ids=["a library's", "its own"])
def test_a_handler_of_a_library_gives_back_no_lock_of_the_programs(own, hangs):
    """``faulthandler.register(SIGUSR1)``, a scheduler's: each deadlock beside one was told after four limits."""
    seen = under_run({"handles": ("SIGUSR1",)}, BRIEF)
    handled = tuple(replace(look, own_handles=own) for look in seen.evidence.processes)
    assert is_hang(replace(seen, evidence=replace(seen.evidence, processes=handled))) is hangs


def test_a_second_thread_that_may_go_on_may_give_a_lock_back():
    for second in (thread_waiting(wchan="do_sys_poll"), thread_waiting(state="D", wchan="io_schedule")):
        assert not is_hang(under_run({"side": second}, BEYOND))
        assert is_hang(under_run({"side": second}, LONG))
    assert not is_hang(under_run({"side": thread_waiting(**SLEEPS)}, LONG))
    ticks = {"side": thread_waiting(**SLEEPS), "side_wakes": True}  # it may look for a file, and then give it back
    assert not is_hang(under_run(ticks, BEYOND))
    assert told(classify(under_run(ticks, LONG))) == "HANG native-wait medium"
    works = {"side": thread_waiting(holders=(OTHER,), outside=False, wchan="do_wait")}
    assert not is_hang(under_run(works, LONG, *MOVES))
    assert is_hang(under_run(works, BRIEF, *LOCKED))


@pytest.mark.parametrize(
    ("leaf", "owns_gil", "expected"),
    [
        (LOCK_LEAF, False, "HANG deadlock high"),
        ((native("pthread_mutex_lock", LIBC), native("ffi_call", "/lib/libffi.so.8")), True, "HANG gil-held high"),
        ((native("pthread_mutex_lock", LIBC), native("my_queue::take")), False, "HANG native-lock high"),
        ((native("sem_wait", LIBC), native("my_queue::take")), False, "HANG native-wait high"),
    ],
)
def test_the_cause_of_a_lock_is_read_from_the_stack_and_the_gil(leaf, owns_gil, expected):
    seen = stacks([(*leaf, *HOOK, *BACKWARD)] * 3, owns_gil=owns_gil)
    assert told(classify(silent(processes=looks(), stacks=seen))) == expected


@pytest.mark.parametrize(("library", "hangs"), [("", True), ("libscan.so", False)], ids=["the clock", "an extension"])
def test_a_thread_of_an_extension_that_wakes_may_be_at_work_for_whoever_keeps_the_gil(library, hangs):
    seen = stacks(
        [(native("pthread_mutex_lock", LIBC), native("ffi_call", "/lib/libffi.so.8"), *HOOK)] * 3, owns_gil=True
    )
    side = thread_waiting(**SLEEPS, library=library)
    assert is_hang(silent(times=3.8, processes=looks(side=side, side_wakes=True), stacks=seen)) is hangs


@pytest.mark.parametrize("outside", [True, False], ids=["a semaphore with a name", "a lock of multiprocessing"])
def test_another_program_may_post_what_the_one_that_keeps_the_gil_waits_for(outside):
    seen = stacks([(native("sem_wait", LIBC), native("ffi_call", "/lib/libffi.so.8"), *HOOK)] * 3, owns_gil=True)
    shared = {"wchan": "futex_wait_queue", "call": "futex-shared", "holders": (PID,), "outside": outside}
    assert is_hang(patient(silent(times=LONG, processes=looks(**shared), stacks=seen), silence_s=20.0)) is not outside


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ((python("Condition.wait", "/opt/lib/python3.11/threading.py", 327), *HOOK, *BACKWARD), "deadlock"),
        ((*HOOK, *BACKWARD), "unseen-wait"),
    ],
)
def test_without_native_frames_the_kernel_carries_it_and_the_reason_says_so(frames, expected):
    taken = stacks([frames] * 3, is_native=False, source="faulthandler (SIGUSR1 was sent)")
    verdict = classify(silent(processes=looks(), stacks=taken))
    assert (verdict.kind, verdict.cause) == (Kind.HANG, expected)
    assert "as faulthandler (SIGUSR1 was sent) says without native frames" in verdict.because


@pytest.mark.parametrize(
    ("times", "plain", "verdict"),
    [
        (1.5, (PID + 1000,), None),
        (4.0, (PID + 1000,), "HANG (deadlock) medium"),
        (4.0, (), None),
        (12.0, (), None),
        (30.1, (), "HANG (deadlock) medium"),
    ],
)
def test_beside_a_thread_that_merely_looks_on_a_hang_is_told_after_many_of_its_turns(times, plain, verdict):
    """What its calls come to may be the program's own: by then it has let nobody on so many times."""
    side = thread_waiting(wchan="hrtimer_nanosleep", call="clock_nanosleep", timed=True)
    beside = [replace(sample, onlookers=(PID + 1000,)) for sample in stacks([IN_LOCK] * 3)]
    taken = tuple(replace(sample, plain_onlookers=plain) for sample in beside)
    now = classify(silent(times=times, processes=looks(side=side, side_wakes=True), stacks=taken))
    assert (f"{now} {now.confidence}" if now.kind is Kind.HANG else None) == verdict


def test_a_deadlock_names_the_function_that_waits_and_the_numbers():
    verdict = classify(silent(processes=looks(), stacks=stacks([IN_LOCK] * 3)))
    assert (verdict.kind, verdict.cause, verdict.confidence) == (Kind.HANG, "deadlock", Confidence.HIGH)
    assert verdict.because == (
        "silent for 6.0 s in backward of step 1 (stall limit 4.0 s); at 6 of 6 looks all 2 threads sleep, and "
        "in 3 of 3 samples the main thread waits in acquire_forever (harness/specimens/backward_deadlock.py:21) "
        "(kernel: futex_do_wait); 0.00 s CPU in 3.0 s"
    )
    assert verdict.signature == (
        "HANG deadlock: backward_deadlock.acquire_forever < fault._strike < graph._engine_run_backward < "
        "_tensor.backward < trainer.train"
    )
    assert (verdict.phase, verdict.step, verdict.rank) == ("backward", 1, 0)
    assert set(verdict.cites) >= {"stack-1", "stack-3", "proc-1", "proc-6", "progress"}


def test_a_child_that_holds_the_trial_up_is_named_with_where_the_trial_waits():
    verdict = classify(in_a_child({}, BEYOND))
    assert told(verdict) == "HANG native-wait high"
    assert "process 120 (python)" in verdict.because
    assert "process 100 (python) waits for it in acquire_forever" in verdict.because
    assert {"stack-120-1", "proc-120-6", "stack-1", "proc-1"} <= set(verdict.cites)


def test_two_processes_that_wait_for_each_other_are_both_named_and_neither_as_the_cause():
    pipe = {"wchan": "anon_pipe_read", "call": "pipe-read", "outside": False}
    processes = (*looks(**pipe, holders=(WORKER,)), *looks(**pipe, holders=(PID,), pid=WORKER, parent=PID))
    taken = (*stacks([BLOCKED] * 3), *stacks([BLOCKED] * 3, pid=WORKER))
    verdict = classify(silent(times=BEYOND, processes=processes, stacks=taken))
    assert told(verdict) == "HANG blocked-io high"
    assert verdict.because.endswith(
        "process 100 (python) waits for it in acquire_forever (harness/specimens/backward_deadlock.py:21); "
        "as process 120 (python) waits for process 100 (python) in turn, neither comes first"
    )


@pytest.mark.parametrize(
    ("dead", "holders", "expected"),
    [
        (0, (WORKER,), "it alone could let process 100 (python) go on, which waits in acquire_forever"),
        (
            1,
            (WORKER,),
            "a child of process 100 (python) ended before, and what is waited for may have been its",
        ),
        (0, (WORKER, OTHER), "only it and others that stand still could let process 100 (python) go on"),
    ],
    ids=["two", "a killed worker", "three"],
)
def test_of_a_lock_that_processes_share_it_is_not_said_who_waits_for_whom(dead, holders, expected):
    """Whoever has it is not to be seen, and a process that was killed may have had it."""
    shared = {"wchan": "futex_do_wait", "call": "futex-shared", "outside": False}
    main = looks(**shared, holders=holders, dead_children=dead)
    child = looks(**shared, holders=(PID,), pid=WORKER, parent=PID)
    other = looks(**shared, holders=(PID,), pid=OTHER, parent=PID)
    taken = (*stacks([BLOCKED] * 3), *stacks([BLOCKED] * 3, pid=WORKER), *stacks([BLOCKED] * 3, pid=OTHER))
    verdict = classify(silent(times=BEYOND, processes=(*main, *child, *other[: 9 * (OTHER in holders)]), stacks=taken))
    assert told(verdict) == "HANG deadlock high"
    assert expected in verdict.because
    assert "so neither comes first" in verdict.because
    assert "waits for it" not in verdict.because


def test_a_process_without_a_line_of_the_program_that_waits_for_the_one_in_turn_is_named_too():
    pipe = {"wchan": "anon_pipe_read", "call": "pipe-read", "outside": False}
    processes = (*looks(**pipe, holders=(WORKER,)), *looks(**pipe, holders=(PID,), pid=WORKER, parent=PID))
    at_its_end = (python("_exit_function", "/usr/lib/python3.11/multiprocessing/util.py", 360),)
    taken = (*stacks([BLOCKED] * 3), *stacks([at_its_end] * 3, pid=WORKER))
    verdict = classify(silent(times=BEYOND, processes=processes, stacks=taken))
    assert told(verdict) == "HANG blocked-io high"
    assert verdict.because.endswith(
        "; process 120 (python) waits for it in turn (waits for something in a pipe), and neither comes first"
    )


@pytest.mark.parametrize(
    ("later_s", "asks", "says"),
    [(9.5, "get", True), (9.5, "next", True), (0.1, "get", False), (9.5, "close", False)],
    ids=["a call", "an iterator", "begun with the others", "it waits for none"],
)
def test_a_worker_that_a_pool_has_begun_in_the_place_of_another_is_named(later_s, asks, says):
    pool = "/usr/lib/python3.11/multiprocessing/pool.py"
    pipe = {"wchan": "anon_pipe_read", "call": "pipe-read", "outside": False}
    begun = [looks(**pipe, holders=(WORKER,)), looks(**pipe, holders=(PID,), pid=WORKER, parent=PID)]
    begun += [looks(**pipe, holders=(PID,), pid=WORKER + 1, parent=PID)]
    ages_s = (40.0, 30.0, 30.0 - later_s)
    processes = [
        replace(look, age_s=age_s + look.t_s) for age_s, own in zip(ages_s, begun, strict=True) for look in own
    ]
    works = (
        python("recv_bytes", "/usr/lib/python3.11/multiprocessing/connection.py", 216),
        python("worker", pool, 114),
    )
    main = (python(asks, pool, 768), python("main", "/home/me/train.py", 9))
    taken = [*stacks([main] * 3), *stacks([works] * 3, pid=WORKER), *stacks([works] * 3, pid=WORKER + 1)]
    verdict = classify(silent(times=BEYOND, processes=tuple(processes), stacks=tuple(taken)))
    assert verdict.kind is Kind.HANG
    assert ("process 121 of its pool began 9.5 s after the others" in verdict.because) is says


def test_a_child_that_is_no_python_program_has_no_stacks_and_is_told_by_the_kernel():
    seen = in_a_child({"wchan": "anon_pipe_read", "holders": (WORKER,), "outside": False}, BEYOND)
    bare = tuple(sample for sample in seen.evidence.stacks if sample.pid == PID)
    verdict = classify(replace(seen, evidence=replace(seen.evidence, stacks=bare)))
    assert verdict.kind is Kind.HANG
    assert "the process waits for something in a pipe (kernel: anon_pipe_read)" in verdict.because


@pytest.mark.parametrize(
    ("child", "cause"),
    [
        ({**BUSY}, "waits-for-child"),
        ({**BUSY, "command": "cc1plus"}, "compile-stall"),
        (SLEEPS, "waits-for-child"),
        ({"switches_per_s": 200.0}, "waits-for-child"),
    ],
    ids=["computes", "compiles", "sleeps on a timer", "wakes"],
)
def test_a_wait_for_a_child_that_may_go_on_is_not_a_hang(child, cause):
    verdict = classify(in_a_child(child, 9 * LONG))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, cause)


def test_an_undecided_trial_says_which_thread_an_exception_had_ended():
    text = (
        "Exception in thread feeder:\nTraceback (most recent call last):\n"
        '  File "/home/me/feeds.py", line 5, in feed\n    row["label"]\nKeyError: \'label\'\n'
    )
    seen = in_a_child({**BUSY}, 9 * LONG)
    verdict = classify(replace(seen, evidence=replace(seen.evidence, logs=log(text))))
    assert verdict.kind is Kind.UNRESOLVED
    assert "before that thread feeder had ended by an exception in feed (home/me/feeds.py:5)" in verdict.because
    assert "log-stderr" in verdict.cites


JOINS_AT_EXIT = python("_exit_function", "/usr/lib/python3.11/multiprocessing/util.py", 360)
OF_A_PACKAGE = python("<module>", "/venv/lib/python3.11/site-packages/evals/__main__.py", 3)


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ((JOINS_AT_EXIT,), True),
        ((python("main", "/venv/lib/python3.11/site-packages/evals/cli.py", 9), OF_A_PACKAGE), False),
        ((), False),
    ],
    ids=["at its exit", "in a package that is the program", "in a function of its own"],
)
def test_a_main_thread_that_an_exception_ended_may_wait_at_its_exit_for_what_it_started(frames, named):
    text = (
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 7, in step\n    raise MemoryError\nMemoryError: 4 TiB\n'
    )
    seen = in_a_child({**BUSY}, 9 * LONG)
    stacks_: list[StackSample] = []
    for sample in seen.evidence.stacks:
        threads = tuple(replace(thread, frames=frames or thread.frames) for thread in sample.threads)
        stacks_.append(replace(sample, threads=threads))
    shown = replace(seen.evidence, logs=log(text), stacks=tuple(stacks_))
    sentence = (
        "its main thread, which is at its exit, had ended by an exception in step (home/me/train.py:7): MemoryError"
    )
    assert (sentence in classify(replace(seen, evidence=shown)).because) is named


def test_a_wait_for_a_child_that_nobody_looked_at_is_not_a_hang():
    unseen = {"wchan": "do_wait", "call": "wait4", "children": 1}
    assert not is_hang(under_run(unseen, LONG))


@pytest.mark.parametrize(
    "worker",
    [SLEEPS, BUSY, {"io_per_s": 4096}, {"cpu_share": 0.4}, {"switches_per_s": 90.0}],
    ids=["sleeps on a timer", "computes", "reads", "decodes", "wakes"],
)
def test_a_loader_that_may_still_deliver_is_not_a_hang(worker):
    assert not is_hang(in_a_loaders_worker(worker, 9 * LONG))


IN_WORKER = python("_worker_loop", f"{SITE}/torch/utils/data/_utils/worker.py", 349)
HAS_NO_WORK = (
    python("wait", "/opt/lib/python3.11/multiprocessing/connection.py", 948),
    python("Queue.get", "/opt/lib/python3.11/multiprocessing/queues.py", 113),
    IN_WORKER,
)


def test_a_worker_without_work_does_not_hide_one_that_is_stuck():
    """It asks the process that trains again and again, and that waits for the other."""
    idle = looks(pid=OTHER, parent=PID, wchan="do_sys_poll", timed=True, call="poll", switches_per_s=0.2)
    seen = in_a_loaders_worker({}, BRIEF, *idle)
    more = (*seen.evidence.stacks, *stacks([HAS_NO_WORK] * 3, pid=OTHER, is_native=False))
    verdict = classify(replace(seen, evidence=replace(seen.evidence, stacks=more)))
    assert told(verdict) == "HANG native-wait medium"
    assert "process 120 (pt_data_worker): at 6 of 6 looks" in verdict.because


def renumbered(case: Case, old: int, new: int) -> Case:
    """The same with another PID for one process."""

    def own(threads: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(thread, tid=new) if thread.tid == old else thread for thread in threads)

    def other(one: Any) -> Any:
        return replace(one, pid=new, threads=own(one.threads)) if one.pid == old else one

    seen = case.evidence
    looked, taken = tuple(map(other, seen.processes)), tuple(map(other, seen.stacks))
    return replace(case, evidence=replace(seen, processes=looked, stacks=taken))


@pytest.mark.parametrize(("stuck", "idle"), [(3863, 3865), (3865, 3863), (3864, 3871), (3871, 3864)])
def test_a_worker_without_work_does_not_hide_one_that_somebody_outside_could_let_go_on(stuck, idle):
    """Whatever the numbers of the two are: a set of them has no order of its own."""
    asks = looks(pid=idle, parent=PID, wchan="do_sys_poll", timed=True, call="poll", switches_per_s=0.2)
    seen = renumbered(in_a_loaders_worker({"wchan": "wait_for_partner", "call": "openat"}, LONG), WORKER, stuck)
    taken = (*seen.evidence.stacks, *stacks([HAS_NO_WORK] * 3, pid=idle, is_native=False))
    both = replace(seen.evidence, processes=(*seen.evidence.processes, *asks), stacks=taken)
    assert told(classify(replace(seen, evidence=both))) == "HANG data-starvation medium"


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (
            ((7, -9),),
            "process 7, which multiprocessing had begun for process 100 (python), was ended by SIGKILL (signal 9)"
            " before it was first looked at, and what is waited for may have been its to give",
        ),
        ((), "was ended by SIGKILL (signal 9), and what is waited for may have been its to give"),
    ],
)
def test_a_worker_of_a_pool_that_a_signal_ended_is_named(first, words):
    seen = under_run({}, LONG)
    opening, *later = seen.evidence.processes
    looked = (replace(opening, ended_children=first), *(replace(look, ended_children=((7, -9),)) for look in later))
    verdict = classify(replace(seen, evidence=replace(seen.evidence, processes=looked)))
    assert words in verdict.because


def test_a_pools_worker_that_was_ended_is_named_where_the_program_raised_that_it_is_gone():
    gone = "A process in the process pool was terminated abruptly while the future was running or pending."
    raised = result("raised", 2, exception="concurrent.futures.process.BrokenProcessPool", message=gone)
    verdict = classify(exited(1, result=replace(raised, ended_children=((7, -9), (8, 3)))))
    assert verdict.because.endswith(
        "running or pending; process 7, which multiprocessing had begun for it, was ended by SIGKILL (signal 9); "
        "process 8, which multiprocessing had begun for it, ended with exit status 3"
    )


def test_a_pipe_that_a_dead_child_was_to_fill_says_so():
    orphaned = {"wchan": "anon_pipe_read", "dead_children": 1}
    verdict = classify(under_run(orphaned, LONG))
    assert verdict.cause == "child-dead"
    assert "a child of" in verdict.because
    assert "ended before, and what is waited for may have been its to give" in verdict.because
    seen = under_run(orphaned, LONG)
    loading = replace(seen.evidence, heartbeats=marks(phase="data"), heartbeats_total=9)
    assert classify(replace(seen, evidence=loading)).cause == "loader-worker-dead"


def test_a_process_that_is_done_and_does_not_end_says_which_threads_are_left():
    done = {"heartbeats": (*marks(), replace(marks()[-1], seq=14, edge="end")), "steps_done": 5}
    verdict = classify(silent(times=8.0, processes=looks(), stacks=stacks([IN_LOCK] * 3), **done))
    assert (verdict.kind, verdict.cause, verdict.phase) == (Kind.HANG, "late-exit", "exit")
    assert "all steps are done, and these threads are left: holder in hold (src/x.py:3)" in verdict.because


@pytest.mark.parametrize(
    ("seen", "times"),
    [
        ({"processes": looks(pairs=1)}, LONG),
        ({"processes": tuple(replace(look, undisturbed_since=None) for look in looks())}, BEYOND),
        ({"processes": looks(start_s=1.0)}, BEYOND),
        ({"processes": looks(pid=7)}, BEYOND),
        ({"processes": looks(switches_per_s=800.0, cpu_share=0.03)}, LONG),
        ({"processes": looks(io_per_s=100)}, LONG),
        ({"processes": looks(wchan="hrtimer_nanosleep", timed=True, switches_per_s=800.0, cpu_share=0.03)}, LONG),
        ({"stacks": stacks([IN_LOCK] * 2)}, LONG),
        ({"stacks": stacks([IN_LOCK, (native("my_wait"), *HOOK, *BACKWARD), IN_LOCK])}, LONG),
        ({"stacks": (*stacks([BACKWARD], is_native=False), *stacks([IN_LOCK] * 3)[1:])}, LONG),
        ({"stacks": stacks([IN_LOCK] * 3, start_s=-9.0)}, LONG),
        ({"stacks": stacks([IN_LOCK] * 3, pid=7)}, LONG),
        ({"processes": looks(state="T", pairs=4)}, BEYOND),
        ({"processes": looks(state="t", pairs=9)}, LONG),
        ({"processes": (*looks(state="T", pairs=6)[:6], *looks(pairs=6)[6:]), "stacks": ()}, LONG),
    ],
    ids=[
        "one window", "disturbed looks", "looks before the last mark", "looks at another process",
        "it is woken again and again", "it reads", "it polls", "two stacks", "native stacks that differ",
        "Python stacks that differ", "stacks before the last mark", "stacks of another process",
        "stopped for a moment", "held by a debugger", "continued",
    ],
)  # fmt: skip
def test_a_standstill_takes_two_windows_and_three_stacks_that_agree_in_its_own_silence(seen, times):
    assert not is_hang(silent(times=times, **{"processes": looks(), "stacks": stacks([IN_LOCK] * 3), **seen}))


def test_a_stopped_process_is_a_hang_once_its_limit_is_over():
    stopped = {"processes": looks(state="T", wchan="do_signal_stop", pairs=6), "stacks": stacks([IN_LOCK] * 3)}
    verdict = classify(silent(times=BEYOND, **stopped))
    assert told(verdict) == "HANG stopped high"
    assert f"process {PID} (python): state T" in verdict.because  # whom to continue
    assert classify(silent(times=BRIEF, **stopped)).kind is Kind.UNRESOLVED


def patient(seen: Case, *, silence_s: float) -> Case:
    """The same with a limit of two hundred seconds, after so long a silence."""
    limit = Limit(seconds=200.0, source="default", by_user=False)
    budget = replace(seen.trial.budget, stall=limit, startup=limit)
    evidence = replace(seen.evidence, silence_s=silence_s)
    return replace(seen, trial=replace(seen.trial, budget=budget), evidence=evidence)


def test_a_stopped_child_may_be_continued_by_who_stopped_it():
    """A person, or a batch system, that has no process in the job; two minutes are due to them."""
    parent = looks(wchan="do_wait", call="wait4", holders=(OTHER,), outside=False, pairs=6)
    child = looks(pid=OTHER, parent=PID, state="T", wchan="do_signal_stop", pairs=6)
    seen = silent(times=LONG, processes=(*parent, *child), stacks=stacks([IN_LOCK] * 3))
    assert not is_hang(patient(seen, silence_s=110.0))
    assert told(classify(patient(seen, silence_s=130.0))) == "HANG stopped medium"


@pytest.mark.parametrize(("side", "hangs"), [(None, True), (thread_waiting(**SLEEPS), False)])
def test_a_stopped_child_may_be_continued_by_a_thread_of_who_waits_for_it(side, hangs):
    """A timer of the parent may send the signal; it is given the patience that is due to somebody outside."""
    parent = looks(wchan="pipe_read", holders=(OTHER,), outside=False, side=side, pairs=6)
    seen = {
        "processes": (*parent, *looks(pid=OTHER, parent=PID, state="T", wchan="do_signal_stop", pairs=6)),
        "stacks": stacks([IN_LOCK] * 3),
    }
    assert is_hang(patient(silent(times=LONG, **seen), silence_s=130.0)) == hangs
    assert is_hang(silent(times=LONG, **seen))


@pytest.mark.parametrize(
    ("parent", "waits", "hangs"),
    [
        (OTHER, SLEEPS, False),
        (PID, SLEEPS, False),
        (OTHER, {"wchan": "pipe_read", "holders": (PID,), "outside": False}, True),
    ],
    ids=["a helper of its own", "a helper of its parent", "one that waits for the job"],
)  # fmt: skip
def test_a_stopped_child_may_be_continued_by_a_helper_that_sleeps_until_then(parent, waits, hangs):
    """``sh -c "kill -STOP $P; sleep 20; kill -CONT $P"``, as batch systems suspend a job for another."""
    seen = {
        "processes": (
            *looks(wchan="pipe_read", holders=(OTHER,), outside=False, pairs=6),
            *looks(pid=OTHER, parent=PID, state="T", wchan="do_signal_stop", pairs=6),
            *looks(pid=OTHER + 1, parent=parent, pairs=6, **waits),
        ),
        "stacks": stacks([IN_LOCK] * 3),
    }
    assert is_hang(patient(silent(times=LONG, **seen), silence_s=130.0)) == hangs
    assert is_hang(silent(times=LONG, **seen))


@pytest.mark.parametrize(("side_wakes", "hangs"), [(False, False), (True, True)])
def test_a_stuck_child_may_be_ended_by_a_thread_of_its_parent_that_sleeps_until_then(side_wakes, hangs):
    """``Timer(30, child.kill)`` beside ``child.communicate()``."""
    parent = {"wchan": "pipe_read", "holders": (OTHER,), "outside": False, "side": thread_waiting(**SLEEPS)}
    seen = {
        "processes": (
            *looks(side_wakes=side_wakes, **parent),
            *looks(pid=OTHER, parent=PID, command="solve"),
        ),
        "stacks": stacks([IN_LOCK] * 3),
    }
    assert is_hang(silent(times=BEYOND, **seen)) == hangs
    assert is_hang(silent(times=LONG, **seen))


# --- Slow or endless -------------------------------------------------------------------------------------------------


STOP = "class Queue:\n    def stop(self):\n        self.done = True"
MADE = "class Queue:\n    def __init__(self):\n        self.event = threading.Event()"


def looping(source: str, *turns: Mapping[str, Any], line: int = 2, times: float = BEYOND, **process: Any) -> Case:
    """A process that computes in a loop of ``source``, seen at three moments with these locals (one: always these)."""
    locals_of = [{name: str(value) for name, value in one.items()} for one in (turns * 3)[:3]]
    frame = python("evaluate", "/src/train.py", line)
    seen = []
    for sample, values in zip(stacks([(frame, *BACKWARD)] * 3, is_native=False), locals_of, strict=True):
        found = loop_samples(sample, {(PID, 0): values}, {"/src/train.py": source})
        seen.append(replace(sample, loops=found))
    return silent(times=times, processes=looks(**{**BUSY, **process}), stacks=tuple(seen))


@pytest.mark.parametrize(
    ("more", "hangs"),
    [
        ({}, True),
        ({"side": thread_waiting(**SLEEPS)}, False),
        ({"side": thread_waiting(wchan="sk_wait_data")}, False),
        ({"side": thread_waiting(**SLEEPS, library="librecord.so")}, False),
        ({"children": 1}, False),
        ({"handles": ("SIGUSR1",)}, False),
    ],
    ids=["alone", "a thread sleeps", "a thread waits for a connection", "one that calls back", "a child", "a handler"],
)
def test_who_only_sleeps_by_its_source_never_goes_on_unless_somebody_may_end_that(more, hangs):
    how = {**{name: 0 for name in BUSY if name != "state"}, "state": "S", **SLEEPS, **more}
    assert is_hang(looping("while True:\n    time.sleep(1)\nimport time", {}, times=BRIEF, **how)) == hangs
    assert not is_hang(looping("while True:\n    time.sleep(1)\n    look()\nimport time", {}, times=LONG, **how))


def test_a_server_whose_main_thread_only_sleeps_is_no_hang():
    """A thread of its library, which has not run Python, waits for a request that it would hand on."""
    how = {"cpu_share": 0.0, "state": "S", **SLEEPS, "side": thread_waiting(wchan="sk_wait_data")}
    seen = looping("while True:\n    time.sleep(1)\nimport time", {}, times=LONG, **how)
    taken = tuple(replace(sample, threads=sample.threads[:1]) for sample in seen.evidence.stacks)
    assert not is_hang(replace(seen, evidence=replace(seen.evidence, stacks=taken)))


@pytest.mark.parametrize(
    ("side", "hangs"),
    [
        ({"side": thread_waiting(**SLEEPS)}, False),
        ({"side": thread_waiting(**SLEEPS), "side_wakes": True}, False),
        ({"side": thread_waiting(wchan="inet_csk_accept", timed=None)}, False),
        ({"side": thread_waiting(wchan="do_wait", call="wait4", holders=(OTHER,), outside=False)}, False),
        ({"side": thread_waiting()}, True),
        ({}, True),
    ],
    ids=["a timer", "one that wakes again and again", "a server", "one that waits for a child", "a lock", "alone"],
)
@pytest.mark.parametrize("loop", ["while True:\n    pass", "while n >= 0:\n    n = (n + 1) % 7"])
def test_a_loop_without_an_end_may_be_ended_by_a_thread_that_can_still_run(loop, side, hangs):
    """``Timer(30, interrupt_main)``, a server that is asked to end: ``os._exit`` ends any loop."""
    seen = looping(loop, STAYS, times=BRIEF, **side)
    child = looks(pid=OTHER, parent=PID, **BUSY) if "holders" in str(side) and side["side"].holders else ()
    beside = replace(seen.evidence, processes=(*seen.evidence.processes, *child))
    assert is_hang(replace(seen, evidence=beside)) == hangs


def test_a_loop_is_not_told_where_a_thread_has_ended_since_it_was_watched():
    """It has called ``interrupt_main``, and on a busy machine the main thread has not had its turn yet."""
    seen = looping("while True:\n    pass", STAYS, times=BRIEF, side=thread_waiting())
    assert is_hang(seen)
    last = seen.evidence.processes[-1]
    after = replace(last, id="proc-99", t_s=last.t_s + 0.5, threads=last.threads[:1], undisturbed_since=None)
    assert not is_hang(replace(seen, evidence=replace(seen.evidence, processes=(*seen.evidence.processes, after))))


COUNTS = [{"t": n, "S": 4096, "n": n} for n in (10, 25, 41)]
STAYS = {"n": 3, "flag": False, "self": "<Queue at 0x7f>", "queue": "<Queue at 0x7f>", "x": 0.5, "items": "[1, 2]"}
CHANGES = [{"x": value, "n": n} for value, n in ((0.5, 9), (0.25, 4), (0.125, 7))]
NEVER, GETS_ON, UNDECIDED = "HANG infinite-loop high", "SLOW - high", "UNRESOLVED {} low"


@pytest.mark.parametrize(
    ("source", "turns", "expected"),
    [
        # It counts.
        ("for t in range(S):\n    step(t)", COUNTS, GETS_ON),
        ("for t in tqdm(range(0, S)):\n    step(t)", COUNTS, GETS_ON),
        ("while t < S:\n    t = step(t)", COUNTS, GETS_ON),
        # Nothing can change what it asks.
        ("while n < 10:\n    pass", [STAYS], NEVER),
        ("while not flag:\n    continue", [STAYS], NEVER),
        ("while len(items) < n:\n    pass", [STAYS], NEVER),
        ("while True:\n    pass", [STAYS], NEVER),
        ("while True:\n    n += 1", [{"n": 5}, {"n": 90}, {"n": 200}], NEVER),
        ("while True:\n    n = n * 5 % 97", [{"n": 5}, {"n": 25}, {"n": 28}], NEVER),
        # A division may raise, and what is around the loop goes on from there.
        ("while True:\n    n -= 1\n    1 / n", [{"n": 900}, {"n": 500}, {"n": 200}], UNDECIDED.format("computes")),
        ("while True:\n    n += 1\n    n ** 9.5", [{"n": 5}, {"n": 90}, {"n": 91}], UNDECIDED.format("computes")),
        # All other threads sleep for good.
        (f"while not self.done:\n    pass\n{STOP}", [STAYS], NEVER),
        ("while not self.done:\n    pass\n@property\ndef done(self): pass", [STAYS], UNDECIDED.format("busy")),
        ("while not self.event.is_set():\n    pass\ndef is_set(self): pass", [STAYS], UNDECIDED.format("busy")),
        ("while not self.done:\n    pass", [STAYS], UNDECIDED.format("busy")),
        ("while not self.event.is_set():\n    pass", [STAYS], UNDECIDED.format("busy")),
        (f"while not self.event.is_set():\n    pass\n{MADE}", [STAYS], NEVER),
        # What it computes changes.
        ("while x > n:\n    x = x / 2", CHANGES, UNDECIDED.format("computes")),
        ("while error(x) > n:\n    x = step(x)", CHANGES, UNDECIDED.format("computes")),
        ("while True:\n    n = collatz(n)", CHANGES, UNDECIDED.format("computes")),
        # It calls what may be at work.
        ("while not queue.empty():\n    pass", [STAYS], UNDECIDED.format("busy")),
        ("while n < 10:\n    work(n)", [STAYS], UNDECIDED.format("busy")),
        ("while True:\n    if ready():\n        break", [STAYS], UNDECIDED.format("busy")),
        ("for item in items:\n    work(item)", [STAYS], UNDECIDED.format("busy")),
        ("for item in items:\n    pass", [STAYS], UNDECIDED.format("busy")),
        # What has operators of its own may compute for hours in one line.
        ("while x > 1:\n    pass", [{"x": "<Tensor at 0x7f>"}], UNDECIDED.format("busy")),
    ],
)  # fmt: skip
def test_a_loop_is_slow_endless_or_undecided_by_its_source_and_its_locals(source, turns, expected):
    assert told(classify(looping(source, *turns))) == expected


def test_a_loop_that_counts_says_how_long_it_still_needs():
    verdict = classify(looping("for t in range(S):\n    step(t)", *COUNTS))
    assert "t is 41 of 4096 in evaluate (train.py:1), 13 a second; this loop needs 314 s more" in verdict.because
    assert {"stack-1", "stack-2", "stack-3"} <= set(verdict.cites)


def test_of_a_watched_job_that_progresses_nobody_says_that_it_was_ended_or_counts_its_steps():
    seen = looping("for t in range(S):\n    step(t)", *COUNTS).evidence
    verdict = classify(still_running(processes=seen.processes, stacks=seen.stacks, main=seen.main))
    assert told(verdict).startswith("SLOW")
    assert verdict.because.startswith("it progressed in the ")
    assert " s that it was watched: t is 41 of 4096 in evaluate" in verdict.because
    assert "ended" not in verdict.because
    assert "steps" not in verdict.because


def test_a_forecast_of_one_pass_says_in_which_loop_that_pass_is():
    seen = looping("for t in range(S):\n    step(t)", *COUNTS).evidence
    samples: list[StackSample] = []
    for sample in seen.stacks:
        inner = replace(sample.loops[0], outer=2)
        epochs = LoopSample(
            tid=inner.tid, depth=1, outer=1, function="<module>", file=inner.file, line=9, header_line=8,
            header="for epoch in range(100):", speaks=True,
        )  # fmt: skip
        samples.append(replace(sample, loops=(inner, epochs)))
    because = classify(still_running(processes=seen.processes, stacks=tuple(samples), main=seen.main)).because
    assert "this loop needs 314 s more; that is for one pass of `for epoch in range(100):` in <module> (" in because
    assert "how many more come is not known" in because
    assert because.count("314 s") == 1
    assert "in all" not in because
    ended = looping("for t in range(S):\n    step(t)", *COUNTS)
    ended = replace(ended, evidence=replace(ended.evidence, stacks=tuple(samples)))
    assert "s in all; that is for one pass of `for epoch" in classify(ended).because


def test_of_a_watched_loop_that_never_ends_it_is_not_said_that_nothing_moved():
    seen = looping("while not flag:\n    continue", STAYS).evidence
    spins = classify(still_running(processes=seen.processes, stacks=seen.stacks, main=seen.main))
    assert told(spins) == NEVER
    assert " got no further in " in spins.because
    assert "did not move" not in spins.because


def test_of_a_watched_parent_that_waits_for_its_children_each_of_them_is_shown_where_it_is():
    """As of mp.spawn: one child computes, one sleeps on a timer, and a helper that nobody waits for only idles."""
    job = looks(call="poll", holders=(WORKER, OTHER), outside=False, wchan="poll_schedule_timeout")
    idle = looks(pid=OTHER + 1, parent=PID, wchan="anon_pipe_read", call="pipe-read", holders=(PID,), outside=False)
    sleeper, worker = looks(pid=OTHER, parent=PID, **SLEEPS), looks(pid=WORKER, parent=PID, **BUSY)
    in_step = (python("step", "/src/work.py", 9),)
    samples = [
        stacks([frames] * 3, pid=pid)
        for pid, frames in (
            (PID, (python("fetch", "/src/nsa/train/data.py", 80),)),
            (WORKER, in_step),
            (OTHER, in_step),
        )
    ]
    seen = {"stacks": tuple(chain.from_iterable([*samples, stacks([in_step] * 3, pid=OTHER + 1)])), "main": PID}
    moves = classify(still_running(processes=(*job, *idle, *sleeper, *worker), **seen))
    assert told(moves) == "UNRESOLVED moving low"
    assert f"process {PID} (python) stands still in fetch (nsa/train/data.py:80)" in moves.because
    assert f"process {WORKER} (python) works in step (src/work.py:9)" in moves.because
    assert f"process {OTHER} (python) stands still in step" in moves.because
    assert moves.cites[0] == f"stack-{WORKER}-1"  # its stack is the one that is shown
    assert not any(str(OTHER + 1) in text for text in (moves.because, *moves.cites))
    rests = classify(still_running(processes=(*job, *idle, *sleeper, *looks(pid=WORKER, parent=PID, **SLEEPS)), **seen))
    assert told(rests) == "UNRESOLVED may-go-on low"
    assert "a timer may end" in rests.because


@pytest.mark.parametrize("idle", [WORKER - 1, WORKER + 1])
def test_a_worker_without_work_does_not_hide_one_whose_loop_never_ends(idle):
    seen = in_a_loaders_worker({}, BRIEF)
    circles = renumbered(looping("while n < 10:\n    pass", STAYS), PID, WORKER).evidence
    looked = [replace(look, command="pt_data_worker", parent=PID) for look in circles.processes]
    asks = looks(pid=idle, parent=PID, wchan="do_sys_poll", timed=True, call="poll", switches_per_s=0.2)
    mains = [one for one in seen.evidence.processes if one.pid == PID]
    taken = [one for one in seen.evidence.stacks if one.pid == PID]
    loops = [replace(one, loops=tuple(replace(loop, tid=WORKER) for loop in one.loops)) for one in circles.stacks]
    waits = stacks([HAS_NO_WORK] * 3, pid=idle, is_native=False)
    evidence = replace(seen.evidence, processes=(*mains, *looked, *asks), stacks=(*taken, *loops, *waits))
    verdict = classify(replace(seen, evidence=evidence))
    assert (verdict.kind, verdict.cause) == (Kind.HANG, "infinite-loop")


@pytest.mark.parametrize("times", [BRIEF, BEYOND, LONG, 9 * LONG])
@pytest.mark.parametrize(
    ("source", "turns"),
    [("for t in range(S):\n    step(t)", COUNTS), ("while x > n:\n    x = x / 2", CHANGES)],
    ids=["counts", "changes"],
)
def test_no_patience_makes_a_hang_of_a_loop_that_gets_on(source, turns, times):
    assert classify(looping(source, *turns, times=times)).kind is not Kind.HANG


@pytest.mark.parametrize("side", [SLEEPS, {"wchan": "sk_wait_data", "timed": None}, {"state": "R", "wchan": ""}])
def test_a_loop_that_asks_what_another_thread_may_change_is_not_hung_while_one_may(side):
    seen = looping(f"while not self.done:\n    pass\n{STOP}", STAYS, side=thread_waiting(**side))
    assert classify(seen).kind is Kind.UNRESOLVED


@pytest.mark.parametrize(
    ("command", "hangs"), [("python", False), ("pt_data_worker", True)], ids=["a program", "a loader's worker"]
)
def test_a_handler_of_sigterm_may_end_a_loop_but_not_torchs_in_a_loaders_worker(command, hangs):
    seen = looping("while True:\n    pass", STAYS)
    looks_at = tuple(replace(look, command=command, handles=("SIGTERM",)) for look in seen.evidence.processes)
    verdict = classify(replace(seen, evidence=replace(seen.evidence, processes=looks_at)))
    assert (verdict.kind is Kind.HANG) is hangs


def test_of_a_process_with_one_thread_nothing_is_said_of_others_that_sleep():
    both = looping(f"while not self.done:\n    pass\n{STOP}", STAYS)
    alone = tuple(replace(look, threads=look.threads[:1]) for look in both.evidence.processes)
    one = replace(both, evidence=replace(both.evidence, processes=alone))
    assert "and all other threads sleep" in classify(both).because
    assert "there is no other thread" in classify(one).because


def test_of_a_loop_whose_variables_stay_it_is_not_said_that_nothing_in_it_can_change_them():
    """Its own body may: that it has not, and that it calls nothing, is all that was seen."""
    said = classify(looping("while n < 10:\n    n = n * 5 % 97", STAYS)).because
    assert "its variables are the same in 3 of 3 samples" in said
    assert "it calls nothing that may be at work" in said
    assert "can change" not in said


@pytest.mark.parametrize("moves", [{"rss_per_s": 9_000_000}, {"faults_per_s": 900.0}, {"io_per_s": 4096}])
def test_a_loop_beside_counters_that_move_is_not_told_to_be_endless(moves):
    assert classify(looping("while n < 10:\n    pass", STAYS, **moves)).kind is Kind.UNRESOLVED


def test_a_loop_of_numbers_that_change_is_not_hung_after_any_patience():
    seen = looping("while x > n:\n    x = x / 2", *CHANGES, times=LONG)
    native_ones = tuple(
        replace(sample, id=f"native-{sample.id}", t_s=sample.t_s + 0.1) for sample in stacks([spinning(2)] * 3)
    )
    taken = sorted((*seen.evidence.stacks, *native_ones), key=lambda sample: sample.t_s)
    assert classify(replace(seen, evidence=replace(seen.evidence, stacks=tuple(taken)))).kind is not Kind.HANG


@pytest.mark.parametrize(
    ("source", "more", "others"),
    [
        ("while not self.value:\n    pass", {}, MOVES),
        ("while not flag:\n    pass", {"flag": "<Tensor at 0x7f>"}, MOVES),
        (f"while not self.done:\n    pass\n{STOP}", {"handles": ("SIGALRM",)}, ()),
    ],
    ids=["a value in shared memory", "a tensor in shared memory", "a signal of its own timer"],
)
def test_a_loop_whose_end_another_process_or_a_signal_may_bring_is_not_hung(source, more, others):
    handles = {"handles": more["handles"]} if "handles" in more else {}
    seen = looping(source, {**STAYS, **more}, **handles)
    beside = replace(seen.evidence, processes=(*seen.evidence.processes, *others))
    assert classify(replace(seen, evidence=beside)).kind is not Kind.HANG


def at_its_own_level(source: str, values: Mapping[str, Any], times: float = BEYOND, **process: Any) -> Case:
    """The same for a script's own level: py-spy has read nothing, the process itself has said its globals."""
    seen = looping(source, {}, times=times, **process)
    said = [Variables(1 + len(BACKWARD), {}, {name: str(value) for name, value in values.items()})]
    taken = tuple(with_variables(s, said, {"/src/train.py": source}) for s in seen.evidence.stacks)
    return replace(seen, evidence=replace(seen.evidence, stacks=taken))


def test_a_loop_at_a_scripts_own_level_is_told_once_the_process_has_said_its_variables():
    assert told(classify(at_its_own_level("while n < 10:\n    pass", STAYS))) == NEVER
    assert classify(at_its_own_level("while n < 10:\n    pass", {})).kind is Kind.UNRESOLVED


@pytest.mark.parametrize(
    ("side", "of_a_library"),
    [
        ({"wchan": "sk_wait_data", "timed": None}, NEVER),
        ({"wchan": "sk_wait_data", "timed": None, "library": "libcuda.so.1"}, NEVER),
        ({"wchan": "hrtimer_nanosleep", "timed": True, "library": "libaudio.so.2"}, UNDECIDED.format("busy")),
        ({"state": "R", "wchan": ""}, UNDECIDED.format("busy")),
    ],
)
def test_only_threads_that_run_python_or_may_call_it_can_change_a_scripts_variables(side, of_a_library):
    seen = at_its_own_level("while n < 10:\n    pass", STAYS, side=thread_waiting(**side))
    assert classify(seen).kind is Kind.UNRESOLVED
    alone = tuple(replace(s, threads=s.threads[:1]) for s in seen.evidence.stacks)
    assert told(classify(replace(seen, evidence=replace(seen.evidence, stacks=alone)))) == of_a_library


def test_a_loop_whose_variable_a_signal_from_outside_may_change_is_not_hung():
    assert classify(at_its_own_level("while n < 10:\n    pass", STAYS, handles=("SIGUSR1",))).kind is Kind.UNRESOLVED


def test_an_infinite_loop_needs_words_about_what_does_not_move():
    verdict = classify(silent(times=4.1, prediction=PREDICTED, **LOOP))
    assert (verdict.kind, verdict.cause, verdict.confidence) == (Kind.HANG, "infinite-loop", Confidence.MEDIUM)
    assert "spin_forever (harness/specimens/infinite_loop.py:19)" in verdict.because
    assert "41 times the longest healthy silence (0.40 s, predicted from n_layers=1,2,3)" in verdict.because
    assert "prediction" in verdict.cites


def test_a_slow_backward_with_one_python_stack_and_many_native_ones_is_never_a_hang():
    moving = stacks(in_operator(i) for i in range(6))
    for prediction in (None, PREDICTED):
        verdict = classify(silent(times=40.0, prediction=prediction, processes=looks(**BUSY), stacks=moving))
        assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "busy")
        assert "3 different native stacks in 3 samples" in verdict.because


def test_a_slow_backward_seen_by_python_frames_only_is_never_a_hang():
    still = stacks([IN_BACKWARD_PYTHON] * 6, is_native=False)
    verdict = classify(silent(times=40.0, prediction=PREDICTED, processes=looks(**BUSY), stacks=still))
    assert verdict.kind is Kind.UNRESOLVED
    assert "Python frames only, which proves nothing" in verdict.because


def test_a_slow_operator_with_one_native_stack_is_never_a_hang():
    """One long matrix product looks the same in every sample."""
    product = stacks([(native("mkl_blas_sgemm"), *HOOK, *BACKWARD)] * 6)
    verdict = classify(silent(times=40.0, prediction=PREDICTED, processes=looks(**BUSY), stacks=product))
    assert verdict.kind is Kind.UNRESOLVED


ZLIB = "/lib/x86_64-linux-gnu/libz.so.1"
ELSEWHERE = (python("parse", "/src/nsa/train/data.py", 5), *spinning(19)[1:])
IN_TORCH = (python("_single_tensor_adamw", f"{SITE}/torch/optim/adamw.py", 400), *BACKWARD, START)


@pytest.mark.parametrize(
    "seen",
    [
        stacks([spinning(19), spinning(20)]),
        stacks([spinning(19)] * 4, is_native=False),
        stacks([spinning(19), ELSEWHERE, spinning(19)]),
        stacks([IN_TORCH] * 3),
        stacks([tuple(frame for frame in spinning(19) if not frame.native)] * 3),
        stacks([spinning(19, inside=(native("inflate_fast", ZLIB),))] * 4),
        stacks([spinning(19, inside=(native("0x7fa62c0a3e96", f"{SITE}/mine/_core.so"),))] * 4),
    ],
    ids=[
        "two samples",
        "no native frames",
        "another function",
        "torch's own Python",
        "not unwound",
        "a library",
        "an extension without names",
    ],
)
def test_a_busy_loop_takes_three_native_stacks_in_one_place_of_the_program(seen):
    verdict = classify(silent(times=4.1, prediction=PREDICTED, processes=looks(**BUSY), stacks=seen))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "busy")


def test_pages_that_come_and_go_are_named():
    thrash = looks(**BUSY, faults_per_s=120_000.0)
    verdict = classify(silent(times=4.1, processes=thrash, stacks=stacks([spinning(19), spinning(20), spinning(19)])))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "page-thrash")


def test_silence_with_cpu_burning_and_no_yardstick_is_unresolved():
    first_step = {"heartbeats": marks(steps=1), "heartbeats_total": 5, "steps_done": 0}
    verdict = classify(silent(times=4.1, **LOOP, **first_step))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "busy")
    assert "missing: a prediction, or an earlier step, to hold the silence against" in verdict.because
    assert "for slow: 2.9 s CPU in 3.0 s" in verdict.because


def test_the_yardstick_of_a_trial_without_prediction_is_the_longest_silence_of_earlier_steps():
    times = {"data": 0.0, "forward": 5.0, "backward": 7.0, "optim": 9.0}
    first = [(0, p, e, t + (0.5 if e == "end" else 0.0)) for p, t in times.items() for e in ("begin", "end")]
    second = [(1, "backward", "begin", 10.0), (1, "backward", "progress", 16.0)]
    beats = tuple(
        Heartbeat(seq=i + 1, t_s=t, rank=0, pid=PID, phase=p, edge=e, step=s)
        for i, (s, p, e, t) in enumerate([*first, *second])
    )
    yardstick = healthy_silence_s(silent(heartbeats=beats))
    # 4.5 s from the end of data to forward; the present step does not count.
    assert yardstick == (4.5, "of earlier steps", "progress")


@pytest.mark.parametrize(
    "change",
    [{"faults_per_s": 5000.0}, {"rss_per_s": 2_000_000}, {"io_per_s": 100}],
)
def test_a_busy_loop_beside_a_counter_that_moves_is_unresolved(change):
    evidence = LOOP | {"processes": looks(**BUSY, **change)}
    assert classify(silent(times=4.1, prediction=PREDICTED, **evidence)).kind is Kind.UNRESOLVED


def test_a_busy_loop_a_hundred_times_slower_than_predicted_is_only_slow():
    """0.1 s are predicted; the limit is 4 s, and without a prediction four of them are waited for."""
    assert classify(silent(times=2.4, prediction=PREDICTED, **LOOP)).kind is Kind.UNRESOLVED
    assert classify(silent(times=2.6, prediction=PREDICTED, **LOOP)).cause == "infinite-loop"
    assert classify(silent(times=3.9, **LOOP)).kind is Kind.UNRESOLVED
    assert classify(silent(times=4.1, **LOOP)).cause == "infinite-loop"


def test_a_busy_loop_that_a_timer_of_its_own_may_interrupt_is_waited_out():
    """Healthy trials are quicker by far, but the handler of its alarm may raise in the loop."""
    evidence = LOOP | {"processes": looks(**BUSY, handles=("SIGALRM",))}
    assert classify(silent(times=2.6, prediction=PREDICTED, **evidence)).kind is Kind.UNRESOLVED
    assert classify(silent(times=4.1, prediction=PREDICTED, **evidence)).cause == "infinite-loop"


def test_the_time_in_which_our_own_dumper_stopped_a_busy_loop_does_not_count_against_it():
    """Three dumps of native frames that took 4 s each leave 4.8 of 16.4 s."""
    taken = stacks([spinning(19), spinning(20), spinning(19)])
    slow = tuple(replace(look, t_s=LAST_MARK_S + 1.5 + 4.0 * i) for i, look in enumerate(looks(**BUSY)))
    dumped = tuple(replace(s, t_s=LAST_MARK_S + 1.51 + 4.0 * i) for i, s in enumerate(taken))
    held = {"processes": slow, "stacks": dumped, "prediction": PREDICTED}
    assert classify(silent(times=4.1, **held)).kind is Kind.UNRESOLVED
    assert classify(silent(times=4.3, **held)).cause == "infinite-loop"


def test_a_busy_loop_of_less_than_eight_seconds_is_not_judged_however_quick_healthy_trials_are():
    quick = replace(PREDICTED, silence_s=0.001, silence_high_s=0.003)
    assert classify(silent(times=1.9, prediction=quick, **LOOP)).kind is Kind.UNRESOLVED
    assert classify(silent(times=2.1, prediction=quick, **LOOP)).cause == "infinite-loop"


def test_a_busy_loop_no_longer_than_ten_healthy_silences_is_not_judged():
    healthy = replace(PREDICTED, silence_s=1.6, silence_high_s=1.7)
    assert classify(silent(times=4.1, prediction=healthy, **LOOP)).kind is Kind.UNRESOLVED


def test_a_c_function_without_a_name_that_keeps_the_gil_is_one_line_of_the_standard_library():
    """As on an interpreter that is linked statically and stripped."""
    fullmatch = python("fullmatch", "/usr/lib/python3.12/re/__init__.py", 172)
    matching = (native("0x7f4debda16ce", LIBC), fullmatch, HOOK[0], *ENGINE_NATIVE, *BACKWARD)
    for owns_gil, cause in ((True, "gil-held"), (False, "infinite-loop")):
        held = {"processes": looks(**BUSY), "stacks": stacks([matching[1:], matching, matching], owns_gil=owns_gil)}
        assert classify(silent(times=4.1, prediction=PREDICTED, **held)).cause == cause


QUICK = Pace(steps=3, longest_s=0.05, gaps=(("backward", "begin", 0.05), ("step", "begin", 0.05)))


def beyond_pace(*, phase: str = "backward", pace: Pace = QUICK, by_user: bool = False, **process: Any) -> Case:
    """A trial of quick steps that burned CPU in one place for a minute, half of its limit."""
    beats = tuple(replace(mark, phase=phase) for mark in marks(steps=4, step_s=0.4))
    seen = silent(**LOOP, heartbeats=beats, heartbeats_total=len(beats), steps_done=3, pace=pace)
    budget = replace(seen.trial.budget, stall=Limit(seconds=120.0, source="default", by_user=by_user))
    evidence = replace(seen.evidence, **{"silence_s": 62.5, **process})
    return replace(seen, trial=replace(seen.trial, budget=budget), evidence=evidence)


def test_a_loop_out_of_proportion_to_the_own_pace_needs_a_hundred_gaps_of_its_phase():
    """And a minute: after 25 steps of 80 ms one item was made for longer than a thousand of them."""
    assert told(classify(beyond_pace())) == "HANG infinite-loop medium"


@pytest.mark.parametrize(
    "weaker",
    [
        {"silence_s": 59.9},
        {"processes": looks(**{**BUSY, "cpu_share": 0.5})},
        {"pace": Pace()},
        {"pace": replace(QUICK, steps=2)},
        {"pace": replace(QUICK, gaps=(("backward", "begin", 0.7),))},
        {"pace": replace(QUICK, gaps=())},
        {"phase": "step"},
        {"by_user": True},
        {"steps_done": 5},
    ],
    ids=[
        "early",
        "on a core that others use, too",
        "no pace",
        "two steps",
        "a longer phase",
        "a new place",
        "untold",
        "the user's limit",
        "after the last step",
    ],
)
def test_a_loop_is_given_its_limits_where_the_pace_says_nothing_about_it(weaker):
    assert classify(beyond_pace(**weaker)).kind is Kind.UNRESOLVED


# --- A GPU -----------------------------------------------------------------------------------------------------------


def on_gpu(times: float = BEYOND, **seen: Any) -> Case:
    """The host waits for its GPU, which is occupied all the time and works on nothing."""
    usual = {"processes": looks(**BUSY), "stacks": stacks([IN_GPU_WAIT] * 3), "gpus": gpus(samples=4, every_s=15.0)}
    return silent(times=times, **{**usual, **seen})


def test_an_endless_kernel_is_told_by_what_the_gpu_does_not_do():
    verdict = classify(on_gpu())
    assert told(verdict) == "HANG gpu-spin medium"
    assert "in 3 of 3 samples the host waits for its GPU in _micro_batch (nsa/train/run.py:150)" in verdict.because
    assert "GPU 0, utilisation 100 %, memory traffic 0 %, 123 of 700 W" in verdict.because
    assert {"gpu-1", "gpu-3", "stack-3", "progress"} <= set(verdict.cites)


@pytest.mark.parametrize(("every_s", "kind"), [(14.0, Kind.HANG), (13.0, Kind.UNRESOLVED)])
def test_a_kernel_that_computes_in_registers_for_half_a_minute_is_no_hang(every_s, kind):
    assert classify(on_gpu(gpus=gpus(samples=4, every_s=every_s))).kind is kind


def test_after_four_limits_of_the_users_a_kernel_that_works_on_nothing_is_one():
    assert told(classify(on_gpu(LONG, gpus=gpus(samples=4)))) == "HANG gpu-spin medium"
    assert classify(on_gpu(LONG, gpus=gpus(samples=4, traffic=31))).kind is not Kind.HANG


def beside(*others: GpuProcess, utilisation: int = 100) -> tuple[GpuSample, ...]:
    """The same GPU with processes of other jobs on it."""
    alone = gpus(samples=4, every_s=15.0, utilisation=utilisation)
    return tuple(replace(g, processes=(*g.processes, *others)) for g in alone)


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        (GpuProcess(pid=77, ours=False, memory_bytes=9000 * MIB, sm_percent=31), Kind.UNRESOLVED),
        (GpuProcess(pid=77, ours=True, memory_bytes=9 * MIB, sm_percent=31), Kind.UNRESOLVED),  # a child's kernels
        (GpuProcess(pid=77, ours=False, memory_bytes=9000 * MIB), Kind.UNRESOLVED),  # nobody's share is told
        (GpuProcess(pid=77, ours=False, memory_bytes=9000 * MIB, sm_percent=0), Kind.HANG),  # a notebook at rest
    ],
)
def test_the_numbers_of_a_gpu_that_others_compute_on_prove_nothing_of_one_process(other, kind):
    assert classify(on_gpu(gpus=beside(other))).kind is kind


NOTHING = GpuActivity(floating=0.0, integer=0.0, memory=0.0004)


def idle_card(*, every_s: float = 5.0, activity: GpuActivity | None = NOTHING, **card: Any) -> tuple[GpuSample, ...]:
    """A card on which nothing is, seen five times."""
    samples = gpus(**{"samples": 5, "every_s": every_s, "utilisation": 0, **card})
    return tuple(replace(sample, activity=activity) for sample in samples)


def test_what_is_queued_on_a_gpu_that_has_nothing_to_do_waits_for_who_never_comes():
    verdict = classify(on_gpu(gpus=idle_card()))
    assert told(verdict) == "HANG native-wait medium"
    assert "no kernel was there for 15 s, and all other threads sleep" in verdict.because


def test_who_was_on_an_idle_card_before_does_not_matter():
    others = gpus(samples=1, foreign_mib=9000)
    idle = idle_card(start_s=LAST_MARK_S + STALL_S + 1.2)
    assert told(classify(on_gpu(gpus=(*others, *idle)))) == "HANG native-wait medium"


@pytest.mark.parametrize(
    "seen",
    [
        {"gpus": idle_card(every_s=3.9)},
        {"gpus": idle_card(activity=None)},
        {"gpus": idle_card(activity=replace(NOTHING, memory=0.004))},
        {"gpus": idle_card(activity=replace(NOTHING, floating=0.1))},
        {"gpus": idle_card(utilisation=3)},
        {"gpus": idle_card(foreign_mib=9000)},
        {"gpus": idle_card(), "processes": looks(**BUSY, side=thread_waiting(**SLEEPS))},
        {"gpus": idle_card(), "processes": looks(**BUSY, side=thread_waiting(state="R"))},
        {"gpus": idle_card(), "processes": looks(**BUSY, side=thread_waiting(wchan="do_sys_poll", call="poll"))},
        {"gpus": idle_card(), "processes": (*looks(**BUSY), *looks(pid=4242, parent=PID))},
    ],
    ids=[
        "early", "no units", "moves", "computes", "a kernel now and then", "shared", "a thread on a timer",
        "a thread that runs", "a thread that waits for outside", "another process",
    ],
)  # fmt: skip
def test_a_gpu_with_nothing_to_do_may_yet_be_given_something(seen):
    assert classify(on_gpu(**seen)).kind is Kind.UNRESOLVED


@pytest.mark.parametrize("asked", range(3))
def test_a_host_that_ran_python_between_two_waits_for_its_gpu_goes_on(asked):
    seen = list(stacks([IN_GPU_WAIT] * 3))
    seen[asked] = replace(seen[asked], ran=True)
    assert classify(on_gpu(9 * LONG, stacks=tuple(seen))).kind is not Kind.HANG


AT_WORK = {
    "traffic": {"gpus": gpus(samples=4, traffic=31)},
    "power": {"gpus": gpus(samples=4, watts=480.0)},
    "pauses": {"gpus": gpus(samples=4, utilisation=60)},
}


@pytest.mark.parametrize(
    "weaker",
    [
        *AT_WORK.values(),
        {"gpus": gpus(samples=4, watts=None)},
        {"gpus": gpus(samples=1)},
        {"gpus": ()},
        {"stacks": stacks(in_operator(i) for i in range(3))},
    ],
    ids=[*AT_WORK, "power-unknown", "one-look", "no-nvml", "moving-stacks"],
)
def test_no_endless_kernel_without_every_sign_of_one(weaker):
    assert classify(on_gpu(**weaker)).kind is Kind.UNRESOLVED


@pytest.mark.parametrize("seen", AT_WORK.values(), ids=AT_WORK)
def test_a_gpu_that_is_at_work_is_never_a_hang(seen):
    assert classify(on_gpu(9 * LONG, **seen)).kind is not Kind.HANG


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        ({"pairs": 1, "wchan": "wait_for_partner"}, "may-go-on"),
        ({"pairs": 1, "wchan": "wait_for_partner", "switches_per_s": 9.0, "cpu_share": 0.3}, "moving"),
        ({"pairs": 3, "wchan": "wait_for_partner", "switches_per_s": 9.0, "cpu_share": 0.3}, "moving"),
    ],
    ids=["nothing moved in one window", "something moved in one window", "something moved in three"],
)
def test_of_what_was_seen_too_briefly_nobody_says_that_it_works(seen, cause):
    verdict = classify(still_running(processes=looks(**seen), stacks=stacks([IN_LOCK] * 2)))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, cause)
    assert ("no hang was seen" in verdict.because) is (cause == "moving")


@pytest.mark.parametrize("evidence", [LOOP, {"processes": looks(), "stacks": stacks([IN_LOCK] * 3)}])
def test_full_utilisation_is_never_taken_for_progress(evidence):
    """A hang stays the hang that it is, whatever the GPU reads meanwhile."""
    without = classify(silent(times=4.1, prediction=PREDICTED, **evidence))
    for utilisation in (0, 100):
        verdict = classify(silent(times=4.1, prediction=PREDICTED, gpus=gpus(utilisation=utilisation), **evidence))
        assert (verdict.kind, verdict.cause, verdict.because) == (without.kind, without.cause, without.because)
    assert without.kind is Kind.HANG


def test_a_deadlock_beside_somebody_elses_process_is_the_programs_own():
    seen = silent(processes=looks(), stacks=stacks([IN_LOCK] * 3), gpus=gpus(foreign_mib=73000, utilisation=0))
    assert told(classify(seen)) == "HANG deadlock high"


def test_a_program_fault_of_the_gpu_is_not_held_against_the_hardware():
    assert classify(exited(1, gpus=gpus(xids=(13, 31, 43)))).kind is Kind.CRASH
    assert classify(exited(1, gpus=gpus(xids=(79,)))).cause == "xid-79"


# --- A limit that cut it off ---------------------------------------------------------------------------------------


def cut_off(silence_s: float, beats: tuple, **evidence: Any) -> Case:
    total = {"stopped_by": StopReason.TOTAL, "duration_s": TOTAL_S, "silence_s": silence_s}
    return case(**total, heartbeats=beats, heartbeats_total=len(beats), **evidence)


def test_a_silence_beyond_its_limit_is_not_slow_even_if_there_were_long_ones_before():
    assert classify(cut_off(4.5, marks(step_s=16.0, last_s=TOTAL_S - 4.5))).kind is Kind.UNRESOLVED


def test_marks_of_start_up_are_no_progress():
    build = tuple(
        Heartbeat(seq=i, t_s=TOTAL_S - 3 + i, rank=0, pid=PID, phase="build", edge=e, step=None)
        for i, e in ((1, "begin"), (2, "end"))
    )
    assert classify(cut_off(0.9, build)).kind is Kind.UNRESOLVED


@pytest.mark.parametrize("who", ["the user asked to stop", "SIGTERM (a scheduler, or kill) asked to stop"])
def test_who_asked_to_stop_a_trial_is_named(who):
    verdict = classify(case(stopped_by=StopReason.INTERRUPT, why=who, duration_s=3.0))
    assert verdict.because == f"{who} after 3.0 s, before anything was decided"


def test_a_long_start_up_is_no_measure_for_silence_between_steps():
    build = Heartbeat(seq=0, t_s=0.1, rank=0, pid=PID, phase="build", edge="end", step=None)
    beats = (build, *marks(steps=1, step_s=1.0, last_s=TOTAL_S - 3.5))
    assert classify(cut_off(3.5, beats)).kind is Kind.UNRESOLVED


def test_a_total_limit_in_a_silence_longer_than_any_before_is_not_slow():
    cut = case(stopped_by=StopReason.TOTAL, duration_s=TOTAL_S, silence_s=3.5, heartbeats=marks(last_s=TOTAL_S - 3.5))
    busy = looks(**BUSY, start_s=TOTAL_S - 3.4)
    verdict = classify(replace(cut, evidence=replace(cut.evidence, processes=busy)))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "cut-off-in-silence")


@pytest.mark.parametrize("is_native", [False, True])
def test_a_limit_shorter_than_the_prediction_decides_nothing(is_native):
    still = stacks([IN_BACKWARD_PYTHON] * 3, is_native=is_native)
    verdict = classify(silent(times=4.1, prediction=PREDICTED_LONG, processes=looks(**BUSY), stacks=still))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "limit-too-short")
    assert "a healthy trial may be silent for 230.0 s (upper limit from 5x512)" in verdict.because


def test_a_sigkill_that_we_sent_is_not_the_kernels():
    ours = case(stopped_by=StopReason.STALL, exit=Exit(signal=9), silence_s=6.0, memory_limit_hits=1)
    assert classify(ours).kind is Kind.UNRESOLVED


def test_slow_says_what_it_would_have_needed():
    verdict = classify(CANNED["slow"][0])
    assert "2 of 5 steps done" in verdict.because
    assert "at 21.00 s a step it would have needed about 107.0 s" in verdict.because
    assert "predicted for a healthy trial: 5.0 s)" in verdict.because


def test_slow_that_the_user_ended_says_who_asked():
    seen = CANNED["slow"][0]
    outcome = replace(seen.outcome, stopped_by=StopReason.EXAMINED, why="SIGHUP (a closed terminal) asked to stop")
    because = classify(replace(seen, outcome=outcome)).because
    assert re.match(
        r"SIGHUP \(a closed terminal\) asked to stop: after [\d.]+ s a last look found that it pro", because
    )


def test_what_a_first_step_lacks_that_was_seen_from_its_backward_pass_on_is_no_part_of_the_rate():
    """Of steps of 3 s the first seemed to take 4 ms: "at 2.00 s a step" of a program that needed 3 s for each."""
    seen = CANNED["slow"][0].evidence
    first = Heartbeat(seq=1, t_s=1.0, rank=0, pid=PID, phase="backward", edge="begin", step=0)
    seen = replace(seen, heartbeats=(first, *seen.heartbeats), steps_done=3)
    three = replace(seen, measurement=replace(seen.measurement, step_s=(0.004, 3.0, 3.0)))
    assert "at 3.00 s a step" in classify(replace(CANNED["slow"][0], evidence=three)).because
    only = replace(seen, measurement=replace(seen.measurement, step_s=(0.004,)), steps_done=1)
    assert "how long a whole step takes is not known" in classify(replace(CANNED["slow"][0], evidence=only)).because


def test_the_rate_of_steps_that_vary_is_not_that_of_the_last_three():
    seen = CANNED["slow"][0].evidence
    measured = replace(seen.measurement, step_s=(0.3,) * 9 + (0.4, 0.4, 0.2, 0.2, 0.2))
    case = replace(CANNED["slow"][0], evidence=replace(seen, measurement=measured, steps_done=14, steps_wanted=1000))
    assert "at 0.29 s a step it would have needed about 287.8 s" in classify(case).because


def test_slow_says_that_a_prediction_far_beyond_its_trials_is_a_lower_bound():
    seen = CANNED["slow"][0]
    far = classify(replace(seen, trial=replace(seen.trial, prediction=replace(PREDICTED, beyond=9.0)))).because
    said = "at least about 5.0 s, from n_layers=1,2,3; this is 9 times beyond, where time may grow faster)"
    assert f"predicted for a healthy trial: {said}" in far


def test_slow_without_a_whole_step_gives_a_lower_bound():
    assert "no step was done in" in classify(CANNED["slow"][1]).because
    assert "more than" in classify(CANNED["slow"][1]).because


def test_a_total_limit_during_a_standstill_is_no_slowness():
    """Marks had come at this distance before, but nobody can end what it waits for now."""
    last_s = TOTAL_S - 3.9
    usual = {"heartbeats": marks(step_s=20.0, last_s=last_s), "heartbeats_total": 13}
    seen = {"processes": looks(start_s=last_s + 0.1), "stacks": stacks([IN_LOCK] * 3, start_s=last_s)}
    cut = {"stopped_by": StopReason.TOTAL, "duration_s": TOTAL_S, "silence_s": 3.9}
    assert told(classify(case(**cut, **usual, **seen))) == "HANG deadlock high"
    assert classify(case(**cut, **usual, processes=seen["processes"])).kind is Kind.UNRESOLVED


def test_a_silence_before_the_first_step_is_held_against_the_start_up_limit():
    build = (Heartbeat(seq=1, t_s=LAST_MARK_S, rank=0, pid=PID, phase="build", edge="begin", step=None),)
    reads = {"processes": looks(wchan="sk_wait_data"), "stacks": stacks([IN_LOCK] * 3)}
    unlike: tuple[dict[str, Any], ...] = ({"heartbeats": build}, {"steps_done": 5})
    for evidence in unlike:
        assert not is_hang(silent(times=4.1, **reads, **evidence))
        assert is_hang(silent(times=4.1 * STARTUP_S / STALL_S, **reads, **evidence))


@pytest.mark.parametrize(
    ("by_user", "step", "tells"), [((), None, False), (("stall",), None, True), (("stall",), 1, False),
                                   (("stall", "startup"), None, False)]
)  # fmt: skip
def test_a_stall_limit_of_the_users_that_does_not_count_yet_is_named_with_the_reason(by_user, step, tells):
    mark = Heartbeat(seq=1, t_s=LAST_MARK_S, rank=0, pid=PID, phase="output", edge="begin", step=step)
    seen = silent(times=1.5, heartbeats=(mark,), heartbeats_total=1, processes=looks(wchan="hrtimer_nanosleep"))
    limits = {name: Limit(seconds=5.0, source="set by the user", by_user=True) for name in by_user}
    seen = replace(seen, trial=replace(seen.trial, budget=replace(seen.trial.budget, **limits)))

    because = classify(seen).because
    assert ("the stall limit of 5.0 s counts from the first step on, and none was seen" in because) is tells


# --- What ended by itself, in words ----------------------------------------------------------------------------------


def test_a_leak_is_an_oom_that_grew_by_the_same_with_every_step():
    verdict = classify(CANNED["memory_leak"][0])
    assert (verdict.kind, verdict.cause) == (Kind.OOM, "memory-leak")
    assert "memory of the process grew by 48.0 MiB with every step, from 348 MiB after step 1 to 636 MiB" in (
        verdict.because
    )


def test_memory_that_swings_is_no_leak():
    """It ends as high as a leak would, but did not come with every step."""
    swings = tuple(
        replace(mark, rss_bytes=mark.rss_bytes + (200 * MIB if mark.step % 3 else 0)) for mark in memory(step_mib=30)
    )
    seen = exited(1, result=result(exception="MemoryError", message=""), measurement=Measurement(memory=swings))
    assert (classify(seen).kind, classify(seen).cause) == (Kind.OOM, None)


def test_a_crash_names_exception_and_place():
    verdict = classify(CANNED["crashed"][0])
    assert verdict.cause == "ValueError"
    assert verdict.because == "raised ValueError in transformer.forward, in backward of step 1: shapes"
    assert verdict.signature == "CRASH ValueError: transformer.forward < trainer.train"


def test_an_abort_at_the_very_end_says_that_the_work_is_done_and_what_to_change():
    seen, unseen = (classify(found) for found in CANNED["exit_abort"])
    assert (seen.kind, seen.cause, seen.phase) == (unseen.kind, unseen.cause, unseen.phase)
    assert (seen.kind, seen.cause, seen.phase) == (Kind.CRASH, "exit-abort", "exit")
    assert seen.because.startswith("all 3 steps were done; while the interpreter shut down it was ended by SIGABRT")
    assert "import torch.distributed.nn before init_process_group" in seen.because
    # That it was not one of Python's own threads is what faulthandler adds; the other cause stays named.
    assert (seen.confidence, unseen.confidence) == (Confidence.HIGH, Confidence.MEDIUM)
    assert [rival.cause for rival in seen.alternatives] == ["thread-destroyed"]
    assert seen.alternatives[0].against
    assert not unseen.alternatives[0].against


def test_a_signal_is_named_with_the_function_that_faulthandler_saw():
    verdict = classify(CANNED["crashed"][1])
    assert verdict.cause == "SIGSEGV"
    assert verdict.signature == "CRASH SIGSEGV: __init__.string_at < segfault.read_address_zero"
    assert verdict.cites == ("exit", "progress", "log-stderr")


def test_a_pass_that_left_a_process_behind_says_so():
    verdict = classify(CANNED["passed"][1])
    assert verdict.kind is Kind.PASS
    assert "left 1 process(es) behind" in verdict.because
    assert "cleanup" in verdict.cites


def test_a_pass_that_left_processes_behind_says_that_the_work_may_have_been_in_them():
    left = case(ending=Ending.EXITED, exit=Exit(code=0), cleanup=Cleanup(ended=1), steps_wanted=0, heartbeats=())
    advice = "which were ended: if the work was in them, the program must wait for it (run it in the foreground)"
    assert advice not in classify(left).because
    assert advice in classify(replace(left, trial=replace(left.trial, target="command"))).because
    clean = replace(left, outcome=replace(left.outcome, cleanup=Cleanup()))
    assert "behind" not in classify(replace(clean, trial=replace(left.trial, target="command"))).because


def test_an_exception_is_a_crash_whatever_the_exit_status_says():
    for done in (1, 5):
        swallowed = exited(0, result=result("raised", done, exception="ValueError", message="x"))
        assert classify(swallowed).rule == "crashed"


def test_a_trial_that_we_ended_did_not_pass():
    """All steps done, but then it did not exit; at our TERM it did, with status 0."""
    done = silent(result=result("finished", 5), steps_done=5)
    ended = replace(done, outcome=replace(done.outcome, exit=Exit(code=0)))
    assert classify(ended).kind is Kind.UNRESOLVED


def test_lost_marks_do_not_matter_to_a_trial_that_finished():
    text = "nsa-harness: heartbeats cannot be written: No space left on device; training goes on unseen\n"
    assert classify(exited(0, steps_done=5, result=result("finished", 5), logs=log(text))).kind is Kind.PASS


def test_a_host_bound_trial_says_so_with_its_graph_and_when_a_forward_would_end():
    facts = {"forward_blocks": 3.0, "forward_nodes": 3 * 2048 * 150.0, "forward_s": 21.0}
    seen = too_slow(
        processes=looks(**BUSY),
        gpus=gpus(utilisation=12, watts=140),
        measurement=Measurement(facts=tuple(facts.items())),
    )
    asked = {"train": {"batch_size": 1, "seq_len": 2048}, "model": {"n_layers": 12}}
    verdict = classify(replace(seen, trial=replace(seen.trial, config=asked)))
    assert (verdict.kind, verdict.cause) == (Kind.SLOW, "host-bound")
    idle = "host-bound: GPU hardly used, 1800 autograd nodes per token (150 in each of 12 layers); "
    assert verdict.because.startswith(idle)
    assert "3 of 12 layers took 21.0 s, at that pace one forward takes about 84 s; " in verdict.because
    assert "GPU 0, utilisation 12 %, " in verdict.because


def test_a_host_bound_trial_says_first_how_long_its_step_was_to_take():
    seen = too_slow(processes=looks(**BUSY), gpus=gpus(utilisation=12, watts=140), steps_wanted=1)
    law = replace(PREDICTED, total_s=98.3, total_high_s=295.0, silence_high_s=295.0, basis="5 sizes")
    for steps, said in ((1, "a step should take 98 s"), (4, "4 healthy steps should take 98 s")):
        evidence = replace(seen.evidence, steps_wanted=steps)
        because = classify(replace(seen, trial=replace(seen.trial, prediction=law), evidence=evidence)).because
        limit = f"the limit was {seen.trial.budget.total.seconds:.0f} s; "
        assert because.startswith(f"host-bound: GPU hardly used; {said} (predicted from 5 sizes), {limit}")
        assert because.count("98") == 1


def host_bound(*, prediction: Prediction, forward_s: float, nodes: float = 0.0) -> str:
    """What is said of one step, host-bound, of which 3 of 12 layers of the forward were seen."""
    facts = {"forward_blocks": 3.0, "forward_s": forward_s / 4, **({"forward_nodes": nodes / 4} if nodes else {})}
    seen = too_slow(
        processes=looks(**BUSY),
        gpus=gpus(utilisation=12, watts=140),
        steps_wanted=1,
        measurement=Measurement(facts=tuple(facts.items())),
    )
    return classify(
        replace(seen, trial=replace(seen.trial, prediction=prediction, config={"model": {"n_layers": 12}}))
    ).because


LINE = replace(PREDICTED, total_s=98.0, basis="5 sizes up to 1536 layers x tokens", beyond=16.0)


def test_far_beyond_its_sizes_a_line_is_only_a_lower_bound():
    assert (
        "a step should take at least about 98 s (predicted from 5 sizes up to 1536 layers x tokens; this is 16 times "
        "beyond, where time may grow faster), the limit was"
    ) in host_bound(prediction=LINE, forward_s=60.0)
    near = host_bound(prediction=replace(LINE, beyond=4.0), forward_s=60.0)
    assert "a step should take 98 s (predicted from 5 sizes up to 1536 layers x tokens), the limit was" in near


def test_the_autograd_nodes_that_were_built_say_more_than_the_line():
    counted = replace(LINE, node_s=35e-6)
    assert (
        "a step should take about 198 s (about 5653141 autograd nodes at 35.0 us each, as in 5 sizes up to 1536 layers "
        "x tokens; this is 16 times beyond, where time may grow faster), the limit was"
    ) in host_bound(prediction=counted, forward_s=60.0, nodes=5653141.0)
    fewer = host_bound(prediction=counted, forward_s=60.0, nodes=2e6)
    assert "a step should take at least about 98 s" in fewer


def test_a_forward_pass_that_alone_takes_longer_refutes_the_prediction():
    """Recorded on an H200: 26 s, predicted from a trial with another attention."""
    other = replace(PREDICTED, total_s=26.0, basis="1 passed trial that differs in attention")
    assert (
        "26 s were predicted for a step (from 1 passed trial that differs in attention), which its forward exceeds; "
        "the limit was"
    ) in host_bound(prediction=other, forward_s=74.0)


def test_a_process_that_raised_is_no_proof_of_a_failure_where_the_whole_ended_well():
    went_on, failed = (classify(exited(code, result=result(exception="ValueError", message="x"))) for code in (0, 1))
    assert (told(went_on), told(failed)) == ("CRASH ValueError medium", "CRASH ValueError proof")
    assert "exit status 0 all the same" in went_on.because
    assert "exit status 0" not in failed.because


@pytest.mark.parametrize(
    ("exception", "message", "kind"),
    [
        ("torch.OutOfMemoryError", "x", Kind.INFRA),
        ("RuntimeError", "CUDA error: out of memory", Kind.INFRA),
        ("MemoryError", "cannot allocate 4 TiB", Kind.OOM),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:116] . DefaultCPUAllocator: can't allocate memory", Kind.OOM),
    ],
)
def test_whoever_shares_a_gpu_has_no_part_in_the_machines_own_memory_running_out(exception, message, kind):
    raised = result(exception=exception, message=message)
    assert classify(exited(1, result=raised, gpus=gpus(foreign_mib=73000))).kind is kind
    killed = classify(signalled(9, memory_limit_hits=1, gpus=gpus(foreign_mib=73000)))
    assert (killed.kind, killed.cause) == (Kind.OOM, "killed-by-kernel")


def test_a_loaders_killed_worker_and_a_hit_of_the_memory_limit_are_one_and_other_ends_name_the_hit():
    raised = result(exception="RuntimeError", message="DataLoader worker (pid 7) is killed by signal: Killed. ")
    killed = exited(1, result=raised, memory_limit_hits=2)
    assert str(classify(killed)) == "OOM (killed-by-kernel)"
    assert "after 2 hit(s) of the memory limit" in classify(killed).because
    assert str(classify(exited(1, result=raised))) == "CRASH (loader-worker-dead)"
    other = classify(exited(1, result=result(exception="ValueError", message="bad"), memory_limit_hits=2))
    assert "the memory limit was hit 2 time(s)" in other.because
    waits = replace(CANNED["stalled"][0], evidence=replace(CANNED["stalled"][0].evidence, memory_limit_hits=1))
    assert "the memory limit was hit 1 time(s)" in classify(waits).because


def commanded(text: str, ended: Case) -> Case:
    """The same trial of a stranger's command line."""
    return replace(ended, trial=replace(ended.trial, target="command", config={"command": text}))


IN_STUCK = (python("wait", "/usr/lib/python3.11/threading.py", 629), python("stuck", "/home/me/stuck.py", 4))


@pytest.mark.parametrize(
    ("text", "stands", "words"),
    [
        ("timeout 60 python stuck.py", True, "its own `timeout 60` (exit status 124) after 12 s; process"),
        ("bash -c 'timeout -k 5 -s TERM 1m python stuck.py'", True, "its own `timeout 1m`"),
        (
            "timeout --preserve-status 60 python stuck.py",
            False,
            "it still got on: its last mark, in backward of step 1, came 0.0 s before",
        ),
    ],
)
def test_a_programs_own_timeout_is_named_with_where_the_program_stood(text, stands, words):
    seen = {"stacks": stacks([IN_STUCK, IN_STUCK], start_s=0.5)} if stands else {}
    verdict = classify(
        commanded(text, exited(124, heartbeats=(), heartbeats_total=0, **seen) if stands else exited(124))
    )
    assert (str(verdict), verdict.confidence) == ("CRASH (time-limit)", Confidence.PROOF)
    assert words in verdict.because
    assert ("stood still in stuck (home/me/stuck.py:4)" in verdict.because) is stands


@pytest.mark.parametrize("text", ["python p.py --timeout 60 x", "python timeout.py 60 x", "python p.py timeout=60"])
def test_a_word_that_only_looks_like_timeout_is_none(text):
    verdict = classify(commanded(text, exited(124)))
    assert str(verdict) == "CRASH (exit-124)"
    assert "that is what `timeout` answers when time is up" in verdict.because


def test_whoever_waited_for_a_child_until_time_was_up_says_where_the_child_stood():
    raised = result(exception="subprocess.TimeoutExpired", message="Command 'x' timed out after 45 seconds")
    seen = exited(1, result=raised, heartbeats=(), heartbeats_total=0, stacks=stacks([IN_STUCK, IN_STUCK], start_s=0.5))
    assert "stood still in stuck (home/me/stuck.py:4)" in classify(seen).because


@pytest.mark.parametrize(
    ("text", "says"), [("python p.py", False), ("bash run.sh", True), ("A=1 /usr/bin/python3", False)]
)
def test_only_a_shell_speaks_of_signals_by_its_status(text, says):
    assert ("as a shell says" in classify(commanded(text, exited(139))).because) is says


IN_A_THREAD = """Exception in thread Thread-1 (feed):
Traceback (most recent call last):
  File "/home/me/p.py", line 4, in feed
    raise ValueError("bad shard 7")
ValueError: bad shard 7
"""


@pytest.mark.parametrize(("message", "is_news"), [("no batch for 1 s", True), ("bad shard 7", False)])
def test_what_ended_a_thread_before_the_program_is_named_beside_what_ended_it(message, is_news):
    raised = result(exception="RuntimeError", message=message)
    because = classify(exited(1, result=raised, logs=log(IN_A_THREAD))).because
    words = (
        "before that thread Thread-1 (feed) had ended by an exception in feed (home/me/p.py:4): ValueError: bad shard 7"
    )
    assert (words in because) is is_news


def test_what_ends_a_thread_after_the_program_had_failed_is_not_named_as_what_came_before():
    raised = result(exception="ValueError", message="shapes")
    assert "before that" not in classify(exited(1, result=raised, logs=log(f"{TRACEBACK}{IN_A_THREAD}"))).because


TORCHRUNS_TABLE = """*****************************************
Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid
*****************************************
E1129 11:13:37.856000 84 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) local_rank: 1
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 9707)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 9709)
"""


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("", 77, "; torch's launcher says that rank 1 failed first, by exit code 77"),
        ("", -9, "rank 1 failed first, by SIGKILL"),
        ("--redirects 3 --log-dir logs", 77, "by exit code 77; its output is in logs/*/attempt_*/1/stderr.log"),
    ],
)
def test_of_ranks_that_say_nothing_the_one_is_named_that_torchs_launcher_calls_first(options, code, words):
    text = TORCHRUNS_TABLE.format(code=code)
    because = classify(commanded(f"torchrun {options} p.py", exited(1, logs=log(text)))).because
    assert because.endswith(words)
    assert "OMP_NUM_THREADS" not in because


@pytest.mark.parametrize(
    ("exception", "message", "verdict"),
    [
        ("OSError", "[Errno 28] No space left on device: 'm.pt'", "INFRA (disk-full)"),
        ("RuntimeError", "write failed: No space left on device", "INFRA (disk-full)"),
        ("ValueError", "unknown answer of the pump: no reason but No space left on device x", "CRASH (ValueError)"),
        ("RuntimeError", "[enforce fail at inline_container.cc:672] . unexpected pos 7 vs 6", "CRASH (write-failed)"),
    ],
)
def test_a_full_disk_is_one_where_the_system_says_so_and_may_be_one_where_torch_could_not_write(
    exception, message, verdict
):
    judged = classify(exited(1, result=result(exception=exception, message=message)))
    assert str(judged) == verdict
    assert ("most often its disk is full" in judged.because) is ("write-failed" in verdict)


def test_standard_output_is_quoted_where_standard_error_says_nothing():
    silent_error = (*log("== 1 failed in 0.1 s ==\n", stream="stdout"), *log("\n"))
    verdict = classify(exited(1, logs=silent_error))
    assert "; stdout ends: == 1 failed in 0.1 s ==" in verdict.because
    assert "log-stdout" in verdict.cites


def test_a_message_that_only_speaks_of_memory_is_of_no_allocator():
    raised = result(exception="RuntimeError", message="parser ran out of memory slots: raise max_slots in config")
    assert str(classify(exited(1, result=raised))) == "CRASH (RuntimeError)"


def test_the_allocator_s_exception_of_a_child_counts_in_whoever_quotes_it():
    quoted = f"-- Process 1 terminated with the following error:\n{TRACEBACK.rpartition('ValueError')[0]}MemoryError"
    raised = result(exception="torch.multiprocessing.spawn.ProcessRaisedException", message=quoted)
    assert classify(exited(1, result=raised)).kind is Kind.OOM


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            137,
            "; that is 128 + 9, as a shell says that SIGKILL ended its command; nothing says who sent it",
        ),
        (143, "; that is 128 + 15, as a shell says that SIGTERM ended its command"),
    ],
)
def test_the_exit_status_of_a_shell_says_which_signal_ended_its_command(code, words):
    verdict = classify(exited(code))

    assert words in verdict.because
    assert verdict.cause == f"exit-{code}"


@pytest.mark.parametrize("code", [1, 2, 127, 128, 200, 255])
def test_an_exit_status_that_no_signal_has_is_told_as_it_is(code):
    assert "shell" not in classify(exited(code)).because


USAGE = "usage: train.py [-h] [--zero] [--shard SHARD]\n                [--fused]\n"


@pytest.mark.parametrize(
    ("code", "text", "cause", "signature"),
    [
        (2, USAGE + "train.py: error: --zero requires --shard N\n", "usage-error", '"--zero requires --shard N"'),
        (2, USAGE + "train.py: error: --fused excludes --offload\n", "usage-error", '"--fused excludes --offload"'),
        (2, "Usage: t.py [OPTIONS]\n\nError: Missing option '--n'.\n", "usage-error", "\"Missing option '--n'.\""),
        (2, USAGE + "train.py: error: argument --n: 12 is above 8.5\n", "usage-error", '"argument --n: # is above #"'),
        (2, "make: *** [Makefile:3: all] Error 1\nretry\n", "exit-2", ""),
        (1, USAGE + "train.py: error: --zero requires --shard N\n", "exit-1", '"--zero requires --shard N"'),
        (1, "loading\nfatal: not a git repository: /home/a/b\n", "exit-1", '"not a git repository: #"'),
        (1, "no data in /data/3\n", "exit-1", '"no data in #"'),
        (1, "error: gpu-17a3f: request 7f3e-aa12 refused at 0x7f3e2a\n", "exit-1", '"# request # refused at #"'),
        (3, "step 4: loss 0.3\nstep 5: loss 0.2\n", "exit-3", ""),
        (3, "", "exit-3", ""),
    ],
)
def test_a_program_that_ends_with_a_status_is_known_by_what_it_says_of_its_end(code, text, cause, signature):
    verdict = classify(exited(code, logs=log(text)))

    assert (verdict.cause, verdict.signature) == (cause, f"CRASH {cause}" + (f": {signature}" if signature else ""))
    assert signature_names(verdict.signature) == ()
    last = text.strip().rpartition("\n")[2].rpartition("rror: ")[2]
    assert last in verdict.because
    assert ("its command line was refused" in verdict.because) == (cause == "usage-error")


@pytest.mark.parametrize(("number", "quoted"), [(6, True), (15, False)])
def test_whoever_aborts_is_quoted_with_what_it_said_last(number, quoted):
    said = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  shard 3 has no header\n"
    verdict = classify(signalled(number, logs=log(said)))
    assert ("stderr ends: what():  shard 3 has no header" in verdict.because) is quoted


CAUGHT = 'Traceback (most recent call last):\n  File "/r/cache.py", line 3, in load\nFileNotFoundError: no cache\n'


@pytest.mark.parametrize(
    ("below", "signature", "says"),
    [
        ("", "CRASH exit-1: cache.load", "stderr ends: FileNotFoundError: no cache"),
        (
            "step 4\ndiverged\n",
            "CRASH exit-1: cache.load",
            "ends: diverged (it stands below a traceback of load (r/cache.py:3)",
        ),
        ("step 4\nerror: no data\n", 'CRASH exit-1: "no data"', "which may be of something else"),
    ],
)
def test_a_traceback_that_a_program_went_on_after_is_not_called_its_end(below, signature, says):
    verdict = classify(exited(1, logs=log(CAUGHT + below)))

    assert verdict.signature == signature
    assert says in verdict.because
    assert ("which may be of something else" in verdict.because) == bool(below)


NO_PYTHON = SourceFailure(id="failure-1", source="py-spy", reason="exit 1", no_python=True)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [(NO_PYTHON, Kind.HANG), (replace(NO_PYTHON, no_python=False), Kind.UNRESOLVED)],
    ids=["no Python", "not seen"],
)
def test_of_a_program_without_python_the_kernel_alone_tells_that_all_its_threads_wait_for_each_other(failure, kind):
    """A Python program of which no stack could be seen is another matter: who keeps its lock is not known."""
    waits = {"wchan": "futex_do_wait", "call": "futex", "timed": False}
    assert classify(certain(processes=looks(**waits), failures=(failure,))).kind is kind


def test_of_one_that_uses_a_gpu_it_does_not():
    """Whoever waits for a GPU by an event that blocks sleeps in a lock, and no stack tells the one from the other."""
    asleep: list[ProcessState] = []
    for look in looks(wchan="futex_do_wait", call="futex", timed=False):
        handler = replace(look.threads[0], tid=PID + 9, name="cuda-EvtHandlr", wchan="do_poll", call="poll", timed=True)
        asleep.append(replace(look, threads=(*look.threads, handler)))
    assert classify(certain(processes=tuple(asleep), failures=(NO_PYTHON,))).kind is Kind.UNRESOLVED


@pytest.mark.parametrize(
    ("phase", "edge", "step", "steps_done", "where"),
    [
        ("backward", "begin", 3, 3, "in backward of step 3"),
        ("backward", "end", 3, 3, "after backward of step 3"),
        ("backward", "end", 3, 4, "after step 3"),
        ("step", "begin", 30, 30, "after step 29"),  # marks are thinned out: nothing says that another step began
        ("build", "end", None, 0, "after build"),
    ],
)
def test_of_a_step_that_has_not_begun_nothing_is_said(phase, edge, step, steps_done, where):
    last = Heartbeat(seq=9, t_s=4.0, rank=0, pid=PID, phase=phase, edge=edge, step=step)
    assert place(silent(heartbeats=(last,), steps_done=steps_done)) == where
