"""Every rule fires on evidence of its own kind, stays silent on all other, and cites only what is there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from harness.classify.engine import RULES, classify
from harness.classify.facts import known_ids
from harness.classify.rules.hung_busy import healthy_silence_s
from harness.core.devices import Collective, CollectiveState, GpuProcess, GpuSample, MemoryMark
from harness.core.evidence import (
    Evidence,
    Frame,
    GradientTruth,
    Heartbeat,
    LogTail,
    Measurement,
    ProcessState,
    SourceFailure,
    StackSample,
    ThreadStack,
    ThreadState,
    WorkerResult,
)
from harness.core.outcome import Cleanup, Ending, Exit, Outcome, StopReason, Survivor
from harness.core.pace import Pace
from harness.core.point import Point
from harness.core.success import Success
from harness.core.trial import Budget, Limit, Prediction, Trial
from harness.core.verdict import Case, Confidence, Kind

PID, WORKER, IDLE_WORKER = 100, 120, 121
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
    return tuple(
        StackSample(
            id=f"stack-{i}",
            source=source,
            native=is_native,
            t_s=start_s + 1.2 * i,
            rank=0,
            pid=pid,
            threads=(
                ThreadStack(tid=pid, name="MainThread", frames=stack, owns_gil=owns_gil),
                ThreadStack(tid=pid + 1, name="holder", frames=(*LOCK_LEAF, python("hold", "/src/x.py", 3))),
            ),
        )
        for i, stack in enumerate(frames, start=1)
    )


def looks(
    *,
    state: str = "S",
    wchan: str = "futex_do_wait",
    cpu_share: float = 0.0,
    faults_per_s: float = 0.0,
    switches_per_s: float = 0.0,
    rss_per_s: int = 0,
    io_per_s: int = 0,
    others_may_move: str = "",
    pid: int = PID,
    children: int = 0,
    others_share: float | None = 0.0,
    timed: bool | None = False,
    side_timed: bool | None = False,
    pairs: int = 3,
    start_s: float = LAST_MARK_S + 2.0,
) -> tuple[ProcessState, ...]:
    """``pairs`` undisturbed windows of one second, a stack dump (0.2 s) between them."""
    found = []
    for i in range(2 * pairs):
        t_s = start_s + (i // 2) * 1.2 + (i % 2)
        past_s = t_s - start_s
        main = ThreadState(
            tid=pid,
            name="python",
            state=state,
            wchan=wchan,
            cpu_s=2.0 + cpu_share * past_s,
            voluntary_switches=80 + int(switches_per_s * past_s),
            involuntary_switches=7,
            timed=timed,
        )
        side = ThreadState(
            tid=pid + 1,
            name="holder",
            state="T" if state == "T" else "S",
            wchan="futex_do_wait",
            cpu_s=0.1,
            voluntary_switches=3,
            involuntary_switches=0,
            timed=side_timed,
        )
        found.append(
            ProcessState(
                id=f"proc-{i + 1}",
                t_s=t_s,
                rank=0,
                pid=pid,
                state=state,
                threads=(main, side),
                rss_bytes=300_000_000 + int(rss_per_s * past_s),
                minor_faults=int(1000 + faults_per_s * past_s),
                read_bytes=50 + int(io_per_s * past_s),
                written_bytes=60,
                children=children,
                others_cpu_s=None if others_share is None else 9.0 + others_share * past_s,
                others_may_move=others_may_move,
                movers=(WORKER,) if others_may_move else (),
                undisturbed_since=f"proc-{i}" if i % 2 else None,
            )
        )
    return tuple(found)


MIB = 1 << 20


def gpus(
    *,
    utilisation: int = 100,
    traffic: int = 0,
    watts: float | None = 123.0,
    foreign_mib: int = 0,
    xids: tuple[int, ...] = (),
    samples: int = 3,
    start_s: float = LAST_MARK_S + STALL_S,
) -> tuple[GpuSample, ...]:
    """An H200 that reads what a wait inside NCCL or an endless kernel reads, unless told otherwise."""
    ours = GpuProcess(pid=PID, ours=True, memory_bytes=1660 * MIB)
    other = GpuProcess(pid=77, ours=False, memory_bytes=foreign_mib * MIB)
    return tuple(
        GpuSample(
            id=f"gpu-{i}",
            t_s=start_s + 1.2 * i,
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
    **evidence: object,
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


def silent(*, times: float = 1.5, prediction: Prediction | None = None, **evidence: object) -> Case:
    """A trial that we ended by its stall limit after ``times`` that limit without a mark."""
    return case(
        stopped_by=StopReason.STALL,
        exit=Exit(signal=15),
        prediction=prediction,
        duration_s=LAST_MARK_S + times * STALL_S,
        silence_s=times * STALL_S,
        **evidence,
    )


def certain(**evidence: object) -> Case:
    """A trial that we ended before its limit because it stood still, soon after a mark."""
    before = {"stopped_by": StopReason.CERTAIN, "exit": Exit(signal=15), "silence_s": 3.5}
    return case(**before, heartbeats=marks(step_s=16.0, steps=1), heartbeats_total=5, **evidence)


def exited(code: int, **changes: object) -> Case:
    return case(ending=Ending.EXITED, exit=Exit(code=code), cleanup=Cleanup(), **changes)


def signalled(number: int, **changes: object) -> Case:
    return case(ending=Ending.SIGNALLED, exit=Exit(signal=number), cleanup=Cleanup(), **changes)


def result(status: str = "raised", steps_done: int = 1, **said: str) -> WorkerResult:
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


def asking(success: Success, *, facts: dict[str, float] | None = None, step_s: tuple = (), **changes: object) -> Case:
    """A trial that passes, of which ``success`` was asked as well."""
    measurement = Measurement(
        facts=tuple((facts or {}).items()), step_s=step_s, peak_rss_bytes=changes.pop("peak_rss_bytes", 0)
    )
    done = exited(0, steps_done=5, result=result("finished", 5), measurement=measurement, **changes)
    return replace(done, trial=replace(done.trial, success=success))


def too_slow(**evidence: object) -> Case:
    """A trial that the total limit cut off while its marks still came."""
    seen = {
        "silence_s": 0.3,
        "steps_done": 2,
        "heartbeats": marks(steps=3, step_s=20.0, last_s=TOTAL_S - 0.3),
        "heartbeats_total": 21,
        "measurement": Measurement(startup_s=2.0, step_s=(20.0, 22.0)),
    }
    return case(stopped_by=StopReason.TOTAL, duration_s=TOTAL_S, **{**seen, **evidence})


def still_running(**evidence: object) -> Case:
    """A job that somebody else started, watched for a while; nothing certain was seen."""
    unseen = {"heartbeats": (), "heartbeats_total": 0, "steps_wanted": 0, "steps_done": 0, "config_seen": False}
    return case(ending=Ending.STILL_RUNNING, cleanup=Cleanup(), why="it may go on", **{**unseen, **evidence})


CANNED: dict[str, list[Case]] = {
    "interrupted": [
        case(stopped_by=StopReason.INTERRUPT, exit=Exit(signal=15), silence_s=0.4),
        # However sure a hang looks: the user ended it, so nothing is claimed.
        case(stopped_by=StopReason.INTERRUPT, silence_s=9.0, processes=looks(), stacks=stacks([IN_LOCK] * 3)),
    ],
    "infra": [
        case(ending=Ending.NEVER_STARTED, why="no such file: /nowhere/python", heartbeats=(), heartbeats_total=0),
        case(ending=Ending.EXITED, exit=None, why="the supervisor was killed by signal 9"),
        case(
            ending=Ending.EXITED,
            exit=Exit(code=1),
            cleanup=Cleanup(survivors=(Survivor(pid=7, state="D", command="python"),)),
        ),
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
    "running": [
        still_running(**LOOP),
        still_running(processes=looks(wchan="do_sys_poll"), stacks=stacks([IN_LOCK] * 3)),
        still_running(),
        still_running(
            silence_s=9.0,
            processes=(*looks(pid=PID + 1), *looks(timed=True)),
            stacks=(
                *stacks([ASKING_THE_LOADER] * 3),
                *stacks([(python("read_shard", "/src/data.py", 3),)], is_native=False, pid=PID + 1),
            ),
        ),
    ],
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
    "crashed": [
        exited(1, result=result(exception="ValueError", message="shapes", traceback=TRACEBACK)),
        signalled(11, logs=log(FATAL)),
        signalled(6, logs=log("Fatal Python error: Aborted\n")),
        signalled(9),
        exited(3, logs=log(TRACEBACK)),
        # C++'s words for a thread that ended badly, but in the middle of training: no interpreter was shutting down.
        signalled(6, logs=log(TERMINATED)),
    ],
    "stopped": [
        silent(processes=looks(state="T", wchan="do_signal_stop", pairs=5), stacks=stacks([IN_LOCK] * 3)),
        certain(processes=looks(state="T", wchan="do_signal_stop", pairs=5)),
    ],
    "hung_waiting": [
        silent(processes=looks(), stacks=stacks([IN_LOCK] * 3)),
        # So complete a standstill that nobody waited for the limit.
        certain(processes=looks(), stacks=stacks([IN_LOCK] * 3)),
        # A healthy trial may be silent for longer, but not asleep.
        silent(processes=looks(), stacks=stacks([IN_LOCK] * 3), prediction=PREDICTED_LONG),
        # A waiting main thread beside one that wakes now and then by itself: after four limits.
        silent(times=4.1, processes=looks(side_timed=True), stacks=stacks([IN_LOCK] * 6)),
        # No native frames to be had: the kernel's account carries it, after four limits.
        silent(times=4.1, processes=looks(), stacks=stacks([(*HOOK, *BACKWARD)] * 3, is_native=False)),
        # A child that rests as well.
        silent(times=4.1, processes=looks(wchan="do_wait", children=1), stacks=stacks([IN_LOCK] * 4)),
    ],
    "starved": [
        silent(
            times=4.1,
            processes=looks(wchan="do_sys_poll", timed=True, switches_per_s=0.4, cpu_share=0.0005, children=1),
            stacks=stacks([ASKING_THE_LOADER] * 4),
        ),
    ],
    "limit_too_short": [
        silent(
            times=4.1,
            prediction=PREDICTED_LONG,
            processes=looks(**BUSY),
            stacks=stacks([IN_BACKWARD_PYTHON] * 3, is_native=False),
        ),
        silent(times=4.1, prediction=PREDICTED_LONG, **LOOP),
        case(
            stopped_by=StopReason.TOTAL,
            duration_s=TOTAL_S,
            silence_s=TOTAL_S - LAST_MARK_S,
            prediction=PREDICTED_LONG,
            processes=looks(**BUSY),
        ),
    ],
    "gpu_spin": [
        silent(times=4.1, processes=looks(**BUSY), stacks=stacks([IN_GPU_WAIT] * 3), gpus=gpus(), prediction=PREDICTED),
    ],
    "hung_busy": [
        silent(times=4.1, prediction=PREDICTED, **LOOP),
        # Without a prediction, the same phase in step 0 is the yardstick: 0.125 s.
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
        silent(failures=(SourceFailure(id="failure-1-py-spy", source="py-spy", reason="it is not installed"),)),
    ],
}

EVERY = [(rule, i, c) for rule, cases in CANNED.items() for i, c in enumerate(cases)]
IDS = [f"{rule}-{i}" for rule, i, _ in EVERY]


# --- The contract --------------------------------------------------------------------------------------------------


def test_every_rule_has_canned_evidence_of_its_own():
    assert tuple(CANNED) == RULES.names()


@pytest.mark.parametrize(("rule", "_i", "canned"), EVERY, ids=IDS)
def test_a_rule_fires_on_its_own_evidence(rule, _i, canned):
    verdict = RULES.load(rule)(canned)
    assert verdict is not None
    assert verdict.rule == rule
    assert verdict.because


# What precedes another rule in the table on purpose, and is compatible with it.
BOTH = {
    ("misconfigured", 0): {"passed"},
    ("nonfinite_loss", 0): {"passed"},
    **{("below_target", i): {"passed"} for i in range(7)},
    **{("gradients_wrong", i): {"passed"} for i in range(2)},
    ("xid", 0): {"crashed"},
    ("foreign_device", 0): {"oom"},
    ("foreign_device", 1): {"slow"},
    ("memory_leak", 0): {"oom"},
    ("slow_why", 0): {"slow"},
    ("slow_why", 1): {"slow"},
    ("infra", 2): {"crashed"},
    ("infra", 3): {"crashed"},
    ("infra", 4): {"crashed"},
    ("infra", 5): {"crashed"},
    ("infra", 6): {"crashed"},
    ("infra", 7): {"hung_waiting"},
}


@pytest.mark.parametrize(("rule", "i", "canned"), EVERY, ids=IDS)
def test_a_rule_stays_silent_on_the_evidence_of_all_others(rule, i, canned):
    fired = {name for name in RULES if RULES.load(name)(canned) is not None}
    assert fired - {"unresolved"} == ({rule} | BOTH.get((rule, i), set())) - {"unresolved"}


@pytest.mark.parametrize(("rule", "_i", "canned"), EVERY, ids=IDS)
def test_the_first_rule_wins_and_cites_what_is_there(rule, _i, canned):
    verdict = classify(canned)
    assert verdict.rule == rule
    assert verdict.cites
    assert set(verdict.cites) <= known_ids(canned)
    assert set(verdict.also) == BOTH.get((rule, _i), set())


@pytest.mark.parametrize(("rule", "_i", "canned"), EVERY, ids=IDS)
def test_nothing_is_a_hang_while_it_moves(rule, _i, canned):
    """The same evidence with marks up to the end is never a HANG."""
    if canned.outcome.stopped_by is StopReason.CERTAIN:
        return
    lively = replace(canned, evidence=replace(canned.evidence, silence_s=0.0))
    assert classify(lively).kind is not Kind.HANG


# --- Each rule's words ---------------------------------------------------------------------------------------------


def test_a_deadlock_names_the_function_that_waits_and_the_numbers():
    verdict = classify(silent(processes=looks(), stacks=stacks([IN_LOCK] * 3)))
    assert (verdict.kind, verdict.cause, verdict.confidence) == (Kind.HANG, "deadlock", Confidence.HIGH)
    assert verdict.because == (
        "rank 0 silent for 6.0 s in backward of step 1 (stall limit 4.0 s); at 6 of 6 looks all 2 threads sleep, and "
        "in 3 of 3 samples the main thread waits in acquire_forever (harness/specimens/backward_deadlock.py:21) "
        "(kernel: futex_do_wait); 0.00 s CPU in 3.0 s"
    )
    assert verdict.signature == (
        "HANG deadlock: backward_deadlock.acquire_forever < fault._strike < graph._engine_run_backward < "
        "_tensor.backward < trainer.train"
    )
    assert (verdict.phase, verdict.step, verdict.rank) == ("backward", 1, 0)
    assert set(verdict.cites) >= {"stack-1", "stack-3", "proc-1", "proc-6", "progress"}


@pytest.mark.parametrize(
    ("wchan", "leaf", "owns_gil", "cause"),
    [
        ("futex_do_wait", LOCK_LEAF, False, "deadlock"),
        (
            "futex_do_wait",
            (native("pthread_mutex_lock", LIBC), native("ffi_call", "/lib/libffi.so.8")),
            True,
            "gil-held",
        ),
        ("futex_do_wait", (native("pthread_mutex_lock", LIBC), native("my_queue::take")), False, "native-lock"),
        ("futex_do_wait", (native("sem_wait", LIBC), native("my_queue::take")), False, "native-wait"),
        ("anon_pipe_write", (native("write", LIBC), native("os_write", LIBPYTHON)), False, "blocked-pipe"),
    ],
)
def test_the_cause_of_a_wait_is_read_from_kernel_stack_and_gil(wchan, leaf, owns_gil, cause):
    waiting = stacks([(*leaf, *HOOK, *BACKWARD)] * 3, owns_gil=owns_gil)
    verdict = classify(silent(processes=looks(wchan=wchan), stacks=waiting))
    assert (verdict.kind, verdict.cause) == (Kind.HANG, cause)


@pytest.mark.parametrize(
    ("wchan", "state", "leaf", "children", "cause"),
    [
        ("do_wait", "S", native("wait4", LIBC), 1, "waiting-for-child"),
        ("anon_pipe_read", "S", native("read", LIBC), 1, "waiting-for-child"),
        ("anon_pipe_read", "S", native("read", LIBC), 0, "blocked-io"),
        ("do_epoll_wait", "S", native("epoll_wait", LIBC), 0, "blocked-io"),
        ("wait_for_partner", "S", native("open64", LIBC), 0, "blocked-io"),
        ("nfs_wait_bit_killable", "D", native("open64", LIBC), 0, "uninterruptible-io"),
    ],
)
def test_a_wait_that_the_outside_may_end_is_a_hang_only_after_four_limits(wchan, state, leaf, children, cause):
    evidence = {
        "processes": looks(wchan=wchan, state=state, children=children),
        "stacks": stacks([(leaf, *HOOK, *BACKWARD)] * 4),
    }
    assert classify(silent(times=1.5, **evidence)).kind is Kind.UNRESOLVED
    late = classify(silent(times=4.1, **evidence))
    assert (late.kind, late.cause, late.confidence) == (Kind.HANG, cause, Confidence.MEDIUM)


def test_without_native_frames_the_reason_says_so():
    verdict = classify(
        silent(
            times=4.1,
            processes=looks(),
            stacks=stacks([(*HOOK, *BACKWARD)] * 3, is_native=False, source="faulthandler (SIGUSR1 was sent)"),
        )
    )
    assert (verdict.kind, verdict.cause, verdict.confidence) == (Kind.HANG, "unseen-wait", Confidence.MEDIUM)
    assert "as faulthandler (SIGUSR1 was sent) says without native frames" in verdict.because


def test_without_native_frames_a_wait_in_threading_is_a_deadlock_all_the_same():
    waiting = (python("Condition.wait", "/opt/lib/python3.11/threading.py", 327), *HOOK, *BACKWARD)
    verdict = classify(silent(times=4.1, processes=looks(), stacks=stacks([waiting] * 3, is_native=False)))
    assert (verdict.kind, verdict.cause) == (Kind.HANG, "deadlock")


def test_one_python_sample_beside_native_ones_is_compared_by_its_python_frames():
    mixed = (*stacks([(*HOOK, *BACKWARD)], is_native=False), *stacks([IN_LOCK] * 3)[1:])
    assert classify(silent(processes=looks(), stacks=mixed)).kind is Kind.HANG
    elsewhere = (*stacks([BACKWARD], is_native=False), *stacks([IN_LOCK] * 3)[1:])
    assert classify(silent(processes=looks(), stacks=elsewhere)).kind is Kind.UNRESOLVED


def test_an_infinite_loop_needs_words_about_what_does_not_move():
    verdict = classify(silent(times=4.1, prediction=PREDICTED, **LOOP))
    assert (verdict.kind, verdict.cause, verdict.confidence) == (Kind.HANG, "infinite-loop", Confidence.HIGH)
    assert "spin_forever (harness/specimens/infinite_loop.py:19)" in verdict.because
    assert "41 times the longest healthy silence (0.40 s, predicted from n_layers=1,2,3)" in verdict.because
    assert "prediction" in verdict.cites


def test_an_endless_kernel_is_told_by_what_the_gpu_does_not_do():
    verdict = classify(CANNED["gpu_spin"][0])
    assert (verdict.kind, verdict.cause, verdict.confidence) == (Kind.HANG, "gpu-spin", Confidence.HIGH)
    assert "in 3 of 3 samples the host waits for its GPU in _micro_batch (nsa/train/run.py:150)" in verdict.because
    assert "GPU 0, utilisation 100 %, memory traffic 0 %, 123 of 700 W" in verdict.because
    assert {"gpu-1", "gpu-3", "stack-3", "progress"} <= set(verdict.cites)


@pytest.mark.parametrize(
    "why_not",
    [
        {"gpus": gpus(traffic=31)},
        {"gpus": gpus(watts=480.0)},
        {"gpus": gpus(utilisation=60)},
        {"gpus": gpus(samples=1)},
        {"gpus": ()},
        {"stacks": stacks(in_operator(i) for i in range(3))},
        {"times": 3.0},
        {"prediction": PREDICTED_LONG},
        # A rank that waits inside NCCL reads the same: its recorder says that it waits for others.
        {"collectives": (CollectiveState(id="recorder-1", t_s=9.0, rank=0, source="pipe", backend="nccl",
                                         collectives=(Collective(group="0", seq=4, op="all_reduce"),)),)},
    ],
    ids=["traffic", "power", "pauses", "one-look", "no-nvml", "moving-stacks", "early", "predicted", "pending"],
)  # fmt: skip
def test_no_endless_kernel_without_every_sign_of_one(why_not):
    seen = {"times": 4.1, "processes": looks(**BUSY), "stacks": stacks([IN_GPU_WAIT] * 3), "gpus": gpus()}
    assert classify(silent(**{**seen, **why_not})).cause != "gpu-spin"


@pytest.mark.parametrize("evidence", [LOOP, {"processes": looks(), "stacks": stacks([IN_LOCK] * 3)}])
def test_full_utilisation_is_never_taken_for_progress(evidence):
    """A hang stays the hang that it is, whatever the GPU reads meanwhile."""
    without = classify(silent(times=4.1, prediction=PREDICTED, **evidence))
    for utilisation in (0, 100):
        verdict = classify(silent(times=4.1, prediction=PREDICTED, gpus=gpus(utilisation=utilisation), **evidence))
        assert (verdict.kind, verdict.cause, verdict.because) == (without.kind, without.cause, without.because)
    assert without.kind is Kind.HANG


def test_a_program_fault_of_the_gpu_is_not_held_against_the_hardware():
    assert classify(exited(1, gpus=gpus(xids=(13, 31, 43)))).kind is Kind.CRASH
    assert classify(exited(1, gpus=gpus(xids=(79,)))).cause == "xid-79"


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


def test_a_deadlock_beside_somebody_elses_process_is_the_programs_own():
    seen = silent(processes=looks(), stacks=stacks([IN_LOCK] * 3), gpus=gpus(foreign_mib=73000, utilisation=0))
    assert (classify(seen).kind, classify(seen).cause) == (Kind.HANG, "deadlock")


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
    idle = "host-bound: GPU idle, 1800 autograd nodes per token (150 in each of 12 layers); "
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
        assert because.startswith(f"host-bound: GPU idle; {said} (predicted from 5 sizes), {limit}")
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


def test_a_c_function_that_keeps_the_gil_is_named_as_the_cause():
    assert classify(CANNED["hung_busy"][2]).cause == "gil-held"


def test_a_c_function_without_a_name_that_keeps_the_gil_is_one_line_of_the_standard_library():
    """As on an interpreter that is linked statically and stripped."""
    fullmatch = python("fullmatch", "/usr/lib/python3.12/re/__init__.py", 172)
    matching = (native("0x7f4debda16ce", LIBC), fullmatch, HOOK[0], *ENGINE_NATIVE, *BACKWARD)
    for owns_gil, cause in ((True, "gil-held"), (False, "infinite-loop")):
        held = {"processes": looks(**BUSY), "stacks": stacks([matching[1:], matching, matching], owns_gil=owns_gil)}
        assert classify(silent(times=4.1, prediction=PREDICTED, **held)).cause == cause


def test_slow_says_what_it_would_have_needed():
    verdict = classify(CANNED["slow"][0])
    assert "2 of 5 steps done" in verdict.because
    assert "at 21.00 s a step it would have needed about 107.0 s" in verdict.because
    assert "predicted for a healthy trial: 5.0 s)" in verdict.because


def test_slow_says_that_a_prediction_far_beyond_its_trials_is_a_lower_bound():
    seen = CANNED["slow"][0]
    far = classify(replace(seen, trial=replace(seen.trial, prediction=replace(PREDICTED, beyond=9.0)))).because
    said = "at least about 5.0 s, from n_layers=1,2,3; this is 9 times beyond, where time may grow faster)"
    assert f"predicted for a healthy trial: {said}" in far


def test_slow_without_a_whole_step_gives_a_lower_bound():
    assert "no step was done in" in classify(CANNED["slow"][1]).because
    assert "more than" in classify(CANNED["slow"][1]).because


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


# --- Where one step further would be wrong -------------------------------------------------------------------------


def test_silence_with_cpu_burning_and_no_yardstick_is_unresolved():
    first_step = {"heartbeats": marks(steps=1), "heartbeats_total": 5, "steps_done": 0}
    verdict = classify(silent(times=4.1, **LOOP, **first_step))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "busy")
    assert "missing: a prediction, or the same phase in an earlier step" in verdict.because
    assert "for slow: 2.9 s CPU in 3.0 s" in verdict.because


def test_a_slow_backward_with_one_python_stack_and_many_native_ones_is_never_a_hang():
    moving = stacks(in_operator(i) for i in range(6))
    for prediction in (None, PREDICTED):
        verdict = classify(silent(times=40.0, prediction=prediction, processes=looks(**BUSY), stacks=moving))
        assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "busy")
        assert "4 different native stacks in 6 samples" in verdict.because


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


@pytest.mark.parametrize("is_native", [False, True])
def test_a_limit_shorter_than_the_prediction_decides_nothing(is_native):
    still = stacks([IN_BACKWARD_PYTHON] * 3, is_native=is_native)
    verdict = classify(silent(times=4.1, prediction=PREDICTED_LONG, processes=looks(**BUSY), stacks=still))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "limit-too-short")
    assert "a healthy trial may be silent for 230.0 s (upper limit from 5x512)" in verdict.because


def test_a_wait_for_a_child_that_works_is_not_a_hang():
    compiling = looks(wchan="anon_pipe_read", children=2, others_share=0.9)
    verdict = classify(silent(times=4.1, processes=compiling, stacks=stacks([IN_LOCK] * 4)))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "waits-for-child")
    assert "its other processes used 2.7 s CPU" in verdict.because


def test_a_wait_for_a_child_that_sleeps_on_a_timer_is_not_a_hang():
    sleeping = looks(wchan="do_wait", children=1, others_may_move="PID 120 waits with a time limit")
    verdict = classify(silent(times=9.0, processes=sleeping, stacks=stacks([IN_LOCK] * 4)))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "waits-for-child")
    assert "another of its processes may move: PID 120 waits with a time limit" in verdict.because


def test_a_lock_beside_a_process_that_sleeps_on_a_timer_asks_for_four_limits():
    evidence = {
        "processes": looks(children=1, others_may_move="PID 120 waits with a time limit"),
        "stacks": stacks([IN_LOCK] * 4),
    }
    assert classify(silent(times=1.5, **evidence)).kind is Kind.UNRESOLVED
    late = classify(silent(times=4.1, **evidence))
    assert (late.kind, late.confidence) == (Kind.HANG, Confidence.MEDIUM)


def test_silence_before_the_first_step_and_after_the_last_is_held_against_the_start_up_limit():
    standing = {"processes": looks(), "stacks": stacks([IN_LOCK] * 3)}
    build = (Heartbeat(seq=1, t_s=LAST_MARK_S, rank=0, pid=PID, phase="build", edge="begin", step=None),)
    for evidence in ({"heartbeats": build}, {"steps_done": 5}):
        early = silent(times=1.5, **standing, **evidence)
        assert classify(early).kind is Kind.UNRESOLVED
        late = silent(times=1.1 * STARTUP_S / STALL_S, **standing, **evidence)
        assert classify(late).kind is Kind.HANG


def test_a_wait_while_nobody_looked_at_the_children_is_not_a_hang():
    unseen = looks(children=1, others_share=None)
    verdict = classify(silent(times=4.1, processes=unseen, stacks=stacks([IN_LOCK] * 4)))
    assert verdict.kind is Kind.UNRESOLVED
    assert "missing: a look at its 1 child process(es)" in verdict.because


@pytest.mark.parametrize(
    "weaker",
    [
        {"others_may_move": "pt_data_worker (process 120) waits with a time limit (hrtimer_nanosleep)"},
        {"others_share": 0.2},
        {"children": 0},
        {"cpu_share": 0.3},
        {"io_per_s": 1000},
    ],
    ids=["a worker sleeps", "a worker computes", "no worker", "busy itself", "it reads"],
)
def test_a_loader_that_may_still_deliver_is_not_a_hang(weaker):
    asking = {"wchan": "do_sys_poll", "timed": True, "switches_per_s": 0.4, "cpu_share": 0.0005, "children": 1}
    case = silent(times=4.1, processes=looks(**(asking | weaker)), stacks=stacks([ASKING_THE_LOADER] * 4))
    assert classify(case).kind is Kind.UNRESOLVED


IN_WORKER = python("_worker_loop", f"{SITE}/torch/utils/data/_utils/worker.py", 349)
WORKS = (python("Shard.__getitem__", "/src/train/data.py", 44), IN_WORKER)
HAS_NO_WORK = (python("Queue.get", "/opt/lib/python3.11/multiprocessing/queues.py", 113), IN_WORKER)


def starving(*, mover: int, stuck: tuple[Frame, ...] = WORKS) -> Case:
    """Two workers: one in ``stuck``, one without work; ``mover`` is the PID of the one that sleeps on a timer."""
    asking = {"wchan": "do_sys_poll", "timed": True, "switches_per_s": 0.4, "cpu_share": 0.0005, "children": 2}
    seen = tuple(replace(look, movers=(mover,), others_may_move="pt_data_worker") for look in looks(**asking))
    taken = stacks([ASKING_THE_LOADER] * 4)
    for pid, frames in ((WORKER, stuck), (IDLE_WORKER, HAS_NO_WORK)):
        taken += tuple(replace(s, id=f"{s.id}-{pid}") for s in stacks([frames] * 4, pid=pid, is_native=False))
    return silent(times=4.1, processes=seen, stacks=taken)


def test_a_worker_without_work_does_not_hide_one_that_is_stuck():
    verdict = classify(starving(mover=IDLE_WORKER))
    assert (verdict.kind, verdict.cause, verdict.confidence) == (Kind.HANG, "data-starvation", Confidence.HIGH)
    assert "its 2 worker process(es), 1 have nothing to do" in verdict.because
    assert verdict.because.endswith("PID 120 is in __getitem__ (src/train/data.py:44)")
    assert {"stack-1-120", "stack-1-121"} <= set(verdict.cites)


def test_a_worker_that_has_work_and_sleeps_on_a_timer_may_still_deliver():
    assert classify(starving(mover=WORKER)).kind is Kind.UNRESOLVED


def test_workers_that_all_have_nothing_to_do_are_not_who_is_waited_for():
    assert classify(starving(mover=IDLE_WORKER, stuck=HAS_NO_WORK)).kind is Kind.UNRESOLVED


def test_a_wait_for_a_compiler_names_it():
    compiling = looks(wchan="anon_pipe_read", children=2, others_may_move="cc1plus (process 120) runs")
    verdict = classify(silent(times=4.1, processes=compiling, stacks=stacks([IN_LOCK] * 4)))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "compile-stall")


def test_pages_that_come_and_go_are_named():
    thrash = looks(**BUSY, faults_per_s=120_000.0)
    verdict = classify(silent(times=4.1, processes=thrash, stacks=stacks([spinning(19), spinning(20), spinning(19)])))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "page-thrash")


def test_a_poll_without_end_is_named_and_not_called_a_hang():
    polling = looks(wchan="hrtimer_nanosleep", timed=True, switches_per_s=800.0, cpu_share=0.03)
    verdict = classify(silent(times=4.1, processes=polling, stacks=stacks([IN_LOCK] * 4)))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "polling")


def test_a_process_that_is_done_and_does_not_end_says_which_threads_are_left():
    done = {"heartbeats": (*marks(), replace(marks()[-1], seq=14, edge="end")), "steps_done": 5}
    verdict = classify(certain(processes=looks(), stacks=stacks([IN_LOCK] * 3)))
    assert verdict.cause == "deadlock"
    verdict = classify(silent(times=8.0, processes=looks(), stacks=stacks([IN_LOCK] * 3), **done))
    assert (verdict.kind, verdict.cause, verdict.phase) == (Kind.HANG, "late-exit", "exit")
    assert "all steps are done, and these threads are left: holder in hold (src/x.py:3)" in verdict.because


def test_a_pipe_that_a_dead_child_was_to_fill_says_so():
    orphaned = tuple(replace(look, dead_children=1) for look in looks(wchan="anon_pipe_read"))
    read = stacks([(native("read", LIBC), *HOOK, *BACKWARD)] * 4)
    assert classify(silent(times=4.1, processes=orphaned, stacks=read)).cause == "child-dead"
    loading = {"heartbeats": marks(phase="data"), "heartbeats_total": 9}
    assert classify(silent(times=4.1, processes=orphaned, stacks=read, **loading)).cause == "loader-worker-dead"


def test_a_main_thread_that_sleeps_on_a_timer_is_not_a_hang():
    verdict = classify(silent(times=4.1, processes=looks(timed=True), stacks=stacks([IN_LOCK] * 4)))
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "timed-wait")


def test_a_thread_that_is_woken_again_and_again_is_not_a_hang():
    polling = looks(switches_per_s=800.0, cpu_share=0.03)
    assert classify(silent(times=4.1, processes=polling, stacks=stacks([IN_LOCK] * 4))).kind is Kind.UNRESOLVED


def test_looks_that_a_dump_disturbed_do_not_count():
    disturbed = tuple(replace(look, undisturbed_since=None) for look in looks())
    assert classify(silent(processes=disturbed, stacks=stacks([IN_LOCK] * 3))).kind is Kind.UNRESOLVED


def test_what_was_seen_before_the_last_mark_does_not_count():
    later = {"heartbeats": marks(last_s=30.0), "heartbeats_total": 13}
    for seen in ({"processes": looks(start_s=40.0)}, {"stacks": stacks([IN_LOCK] * 3, start_s=40.0)}):
        before = {"processes": looks(), "stacks": stacks([IN_LOCK] * 3)}
        assert classify(silent(times=9.0, **later, **(before | seen))).kind is Kind.UNRESOLVED


def test_what_was_seen_of_another_process_does_not_count():
    for seen in ({"processes": looks(pid=7)}, {"stacks": stacks([IN_LOCK] * 3, pid=7)}):
        own = {"processes": looks(), "stacks": stacks([IN_LOCK] * 3)}
        assert classify(silent(times=4.1, **(own | seen))).kind is Kind.UNRESOLVED


@pytest.mark.parametrize(
    "weaker",
    [
        {"processes": looks(pairs=1)},
        {"stacks": stacks([IN_LOCK])},
        {"stacks": stacks([IN_LOCK, (native("my_wait"), *HOOK, *BACKWARD), IN_LOCK])},
    ],
    ids=["one window", "one stack", "native stacks that differ"],
)
def test_a_standstill_takes_two_windows_and_two_stacks_that_agree(weaker):
    evidence = {"processes": looks(), "stacks": stacks([IN_LOCK] * 3)} | weaker
    assert classify(silent(times=4.1, **evidence)).kind is Kind.UNRESOLVED


def test_a_side_thread_on_a_timer_asks_for_four_limits():
    evidence = {"processes": looks(side_timed=True), "stacks": stacks([IN_LOCK] * 3)}
    assert classify(silent(times=1.5, **evidence)).kind is Kind.UNRESOLVED


def test_a_process_that_was_seen_stopped_for_a_moment_only_is_not_a_hang():
    """Between Ctrl-Z and fg, or while a scheduler makes room."""
    assert classify(silent(times=1.5, processes=looks(state="T", pairs=4))).kind is Kind.UNRESOLVED
    assert classify(silent(times=1.5, processes=looks(state="T", pairs=6))).cause == "stopped"


def test_a_process_that_a_debugger_stopped_is_not_a_hang():
    assert classify(silent(times=4.1, processes=looks(state="t", pairs=9))).kind is Kind.UNRESOLVED


def test_a_process_that_was_continued_is_not_stopped():
    waking = (*looks(state="T")[:3], *looks()[3:])
    assert classify(silent(times=4.1, processes=waking)).kind is Kind.UNRESOLVED


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


def test_the_yardstick_of_a_trial_without_prediction_is_the_same_phase_of_earlier_steps():
    times = {"data": 0.0, "forward": 5.0, "backward": 7.0, "optim": 9.0}
    first = [(0, p, e, t + (0.5 if e == "end" else 0.0)) for p, t in times.items() for e in ("begin", "end")]
    second = [(1, "backward", "begin", 10.0), (1, "backward", "progress", 16.0)]
    beats = tuple(
        Heartbeat(seq=i + 1, t_s=t, rank=0, pid=PID, phase=p, edge=e, step=s)
        for i, (s, p, e, t) in enumerate([*first, *second])
    )
    yardstick = healthy_silence_s(silent(heartbeats=beats))
    # 1.5 s from the end of backward to the optimizer; neither the other phases nor the present step count.
    assert yardstick == (1.5, "backward of earlier steps", "progress")


def cut_off(silence_s: float, beats: tuple, **evidence: object) -> Case:
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


def test_a_long_start_up_is_no_measure_for_silence_between_steps():
    build = Heartbeat(seq=0, t_s=0.1, rank=0, pid=PID, phase="build", edge="end", step=None)
    beats = (build, *marks(steps=1, step_s=1.0, last_s=TOTAL_S - 3.5))
    assert classify(cut_off(3.5, beats)).kind is Kind.UNRESOLVED


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


@pytest.mark.parametrize(
    "change",
    [{"faults_per_s": 5000.0}, {"rss_per_s": 2_000_000}, {"io_per_s": 100}, {"children": 1, "others_share": 0.5}],
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


def test_a_total_limit_in_a_silence_longer_than_any_before_is_not_slow():
    cut = case(stopped_by=StopReason.TOTAL, duration_s=TOTAL_S, silence_s=3.5, heartbeats=marks(last_s=TOTAL_S - 3.5))
    verdict = classify(cut)
    assert (verdict.kind, verdict.cause) == (Kind.UNRESOLVED, "cut-off-in-silence")


def test_a_total_limit_during_a_standstill_is_not_slow():
    last_s = TOTAL_S - 3.9
    standing = case(
        stopped_by=StopReason.TOTAL,
        duration_s=TOTAL_S,
        silence_s=3.9,
        heartbeats=marks(step_s=20.0, last_s=last_s),
        heartbeats_total=13,
        processes=looks(start_s=last_s + 0.1),
    )
    assert classify(standing).kind is Kind.UNRESOLVED


def test_a_sigkill_that_we_sent_is_not_the_kernels():
    ours = case(stopped_by=StopReason.STALL, exit=Exit(signal=9), silence_s=6.0, memory_limit_hits=1)
    assert classify(ours).kind is Kind.UNRESOLVED


READ_SHARD = (python("read_shard", "/src/data.py", 3),)
IDLE = (python("get", f"{SITE}/torch/utils/data/_utils/worker.py", 300),)


def loader_job(*, frames: tuple[Frame, ...] = READ_SHARD, watched_s: float = 9.0, **worker: object) -> Case:
    """A job that asks its DataLoader, whose one worker sleeps in ``frames``."""
    return still_running(
        silence_s=watched_s,
        processes=(*looks(pid=PID + 1, **worker), *looks(timed=True)),
        stacks=(*stacks([ASKING_THE_LOADER] * 3), *stacks([frames], is_native=False, pid=PID + 1)),
    )


def test_a_loaders_worker_that_sleeps_for_good_is_named():
    verdict = classify(loader_job())
    assert (verdict.kind, verdict.cause, verdict.phase) == (Kind.HANG, "data-starvation", "data")
    assert f"worker (PID {PID + 1}) waits in read_shard (src/data.py:3) without a time limit" in verdict.because


@pytest.mark.parametrize(
    "job",
    [
        loader_job(timed=True),
        loader_job(timed=None),
        loader_job(wchan="do_sys_poll"),
        loader_job(wchan="anon_pipe_read"),
        loader_job(wchan="sk_wait_data"),
        loader_job(wchan="do_wait"),
        loader_job(state="D"),
        loader_job(cpu_share=0.4),
        loader_job(io_per_s=4096),
        loader_job(frames=IDLE),
        loader_job(watched_s=1.0),
    ],
    ids=["timer", "unknown", "poll", "pipe", "socket", "child", "disk", "works", "reads", "idle", "too soon"],
)
def test_a_loader_that_may_still_deliver_is_no_hang(job):
    assert classify(job).kind is Kind.UNRESOLVED


# --- A silence out of proportion to the trial's own pace -------------------------------------------------------------

QUICK = Pace(
    steps=3,
    longest_s=0.05,
    gaps=(("backward", "begin", 0.05), ("data", "begin", 0.01), ("step", "begin", 0.05)),
)
STANDS_S = 8.6
IN_RECV = (native("recv", LIBC), python("ask", "/src/tracker.py", 9), *BACKWARD)


def beyond_pace(
    *, silence_s: float = STANDS_S, source: str = "default", stall_s: float = 30.0, **evidence: object
) -> Case:
    """A trial of quick steps that stood still for ``silence_s``, far below its limit of ``stall_s``."""
    seen = {"processes": looks(wchan="sk_wait_data"), "stacks": stacks([IN_RECV] * 3), "pace": QUICK, **evidence}
    found = case(stopped_by=StopReason.PACE, exit=Exit(signal=15), silence_s=silence_s, **seen)
    limit = Limit(seconds=stall_s, source=source)
    return replace(found, trial=replace(found.trial, budget=replace(found.trial.budget, stall=limit)))


def test_a_wait_for_the_outside_out_of_proportion_to_the_own_pace_says_all_that_it_rests_on():
    verdict = classify(beyond_pace())
    assert (verdict.kind, verdict.cause, verdict.confidence) == (Kind.HANG, "blocked-io", Confidence.MEDIUM)
    assert verdict.because == (
        "rank 0 silent for 8.6 s in backward of step 1 (stall limit 30.0 s, not waited for); at 6 of 6 looks all 2 "
        "threads sleep, and in 3 of 3 samples the main thread waits in ask (src/tracker.py:9) (kernel: sk_wait_data); "
        "0.00 s CPU in 3.0 s; that is 172 times its longest gap between marks in 3 steps (0.05 s), and only whoever is "
        "at the other end could end it"
    )
    rival = next(other for other in verdict.alternatives if other.cause == "slow-device")
    assert "--stall 60s" in rival.experiment


def flushing(seen: tuple[ProcessState, ...]) -> tuple[ProcessState, ...]:
    """The same looks, the side thread in disk sleep."""
    return tuple(
        replace(look, threads=(look.threads[0], *(replace(t, state="D") for t in look.threads[1:]))) for look in seen
    )


@pytest.mark.parametrize(
    "weaker",
    [
        {"silence_s": 8.4},
        {"source": "set by the user (stall_s)"},
        {"pace": Pace()},
        {"pace": replace(QUICK, steps=2)},
        {"pace": replace(QUICK, gaps=QUICK.gaps[1:])},
        {"pace": replace(QUICK, longest_s=1.0)},
        {"steps_done": 5},
        {"processes": looks(wchan="sk_wait_data", side_timed=True)},
        {"processes": looks(wchan="sk_wait_data", timed=True)},
        {"processes": looks(wchan="do_wait", children=1, others_may_move="PID 120 waits with a time limit")},
        {"processes": looks(wchan="sk_wait_data", cpu_share=0.5)},
        {"processes": looks(wchan="nfs_wait_bit_killable", state="D")},
        {"processes": flushing(looks(wchan="do_wait", children=1))},
        {"processes": looks(), "stacks": stacks([(*HOOK, *BACKWARD)] * 3, is_native=False)},
        {"processes": looks(wchan="request_wait_answer"), "stacks": stacks([(native("read", LIBC), *IN_RECV[1:])] * 3)},
        {"stacks": stacks([IN_RECV, (native("send", LIBC), *IN_RECV[1:]), IN_RECV])},
        *(
            {"stacks": stacks([(IN_RECV[0], python(function, file, 9), *BACKWARD)] * 3)}
            for function, file in (
                ("save_checkpoint", "/src/train.py"),
                ("Trainer.evaluate", "/src/train.py"),
                ("_write", f"{SITE}/torch/serialization.py"),
                ("_run", f"{SITE}/torch/_inductor/codecache.py"),
                ("_find_and_load", "<frozen importlib._bootstrap>"),
                ("Client.__init__", "/src/client.py"),
            )
        ),
        {"stacks": stacks([(IN_RECV[0], *IN_GPU_WAIT)] * 3)},
    ],
    ids=[
        "too early",
        "the user's limit",
        "no pace",
        "two steps",
        "a new place",
        "longer steps",
        "at its end",
        "a thread on a timer",
        "a timer",
        "a child that may move",
        "it moves",
        "a device",
        "a thread waits for a device",
        "no native frames",
        "a file system that a program serves",
        "stacks that differ",
        "saves",
        "evaluates",
        "saves, by file",
        "compiles",
        "imports",
        "sets up",
        "a GPU",
    ],
)  # fmt: skip
def test_a_wait_for_the_outside_is_watched_on_where_the_pace_says_nothing_about_it(weaker):
    assert classify(beyond_pace(**weaker)).kind is not Kind.HANG


def test_activation_checkpointing_saves_nothing():
    recomputing = (IN_RECV[0], IN_RECV[1], python("checkpoint", f"{SITE}/torch/utils/checkpoint.py", 5), *BACKWARD)
    assert classify(beyond_pace(stacks=stacks([recomputing] * 3))).kind is Kind.HANG


def test_what_is_certain_at_its_limit_is_certain_at_its_pace():
    standing = {"processes": looks(), "stacks": stacks([IN_LOCK] * 3)}
    verdict = classify(beyond_pace(**standing))
    assert (verdict.cause, verdict.confidence) == ("deadlock", Confidence.HIGH)
    assert "times its longest gap" not in verdict.because
    stopped = classify(beyond_pace(processes=looks(state="T", pairs=6)))
    assert (stopped.kind, stopped.cause) == (Kind.HANG, "stopped")


def test_a_loop_out_of_proportion_to_the_own_pace_needs_a_hundred_gaps_of_its_phase():
    earlier = marks(steps=4, step_s=0.4)
    looping = {"processes": looks(**BUSY), "stacks": stacks([spinning(19), spinning(20), spinning(19)])}
    seen = {**looping, "heartbeats": earlier, "heartbeats_total": len(earlier), "steps_done": 3}
    verdict = classify(beyond_pace(**seen))
    assert (verdict.kind, verdict.cause, verdict.confidence) == (Kind.HANG, "infinite-loop", Confidence.MEDIUM)
    # What is predicted is the longest silence of a whole trial; a hundred of those are not waited for as well.
    predicted = beyond_pace(**seen)
    predicted = replace(predicted, trial=replace(predicted.trial, prediction=replace(PREDICTED, silence_s=0.2)))
    assert classify(predicted).kind is Kind.HANG
    slower = replace(QUICK, longest_s=0.1, gaps=(("backward", "begin", 0.1),))
    assert classify(beyond_pace(**seen, pace=slower)).kind is Kind.UNRESOLVED
    untold = tuple(replace(mark, phase="step") for mark in earlier)
    assert classify(beyond_pace(**{**seen, "heartbeats": untold})).kind is Kind.UNRESOLVED


SPINS = {"processes": looks(**BUSY), "stacks": stacks([IN_GPU_WAIT] * 3), "gpus": gpus()}


def test_an_endless_kernel_out_of_proportion_to_the_own_pace_is_told_with_less_confidence():
    """A card that is occupied, moves no memory and draws no power computes nothing, however long it is given."""
    verdict = classify(beyond_pace(**SPINS))
    assert (verdict.kind, verdict.cause, verdict.confidence) == (Kind.HANG, "gpu-spin", Confidence.MEDIUM)
    assert "that is 172 times its longest gap between marks in 3 steps (0.05 s)" in verdict.because


@pytest.mark.parametrize(
    "weaker",
    [
        {"gpus": gpus(watts=480.0)},
        {"gpus": gpus(watts=None)},
        {"gpus": gpus(traffic=31)},
        {"silence_s": 8.4},
        {"pace": replace(QUICK, gaps=(("backward", "begin", 0.1),))},  # a hundred of them are ten seconds
        {"source": "set by the user (--stall)"},
    ],
    ids=["power", "power-unknown", "traffic", "early", "long-phase", "by-user"],
)
def test_a_kernel_that_may_work_is_given_its_limits(weaker):
    assert classify(beyond_pace(**{**SPINS, **weaker})).kind is Kind.UNRESOLVED


def test_a_loop_after_the_last_step_asks_for_four_start_up_limits():
    looping = {"processes": looks(**BUSY), "stacks": stacks([spinning(19), spinning(20), spinning(19)])}
    earlier = marks(steps=4, step_s=0.4)
    late = {"heartbeats": earlier, "heartbeats_total": len(earlier), "steps_done": 5, "silence_s": STARTUP_S + 1.0}
    seen = beyond_pace(**looping, **late)
    ended = replace(seen, outcome=replace(seen.outcome, stopped_by=StopReason.STARTUP))
    assert classify(ended).kind is Kind.UNRESOLVED


def starving_beyond_pace(*, stuck: tuple[Frame, ...] = WORKS, stall_s: float = 30.0) -> Case:
    late = starving(mover=IDLE_WORKER, stuck=stuck)
    budget = replace(late.trial.budget, stall=Limit(seconds=stall_s, source="default"))
    return replace(
        late,
        trial=replace(late.trial, budget=budget),
        outcome=replace(late.outcome, stopped_by=StopReason.PACE),
        evidence=replace(late.evidence, silence_s=STANDS_S, pace=QUICK),
    )


STARTED_LIKE_THIS = (python("Popen.__init__", "/opt/lib/python3.11/multiprocessing/popen_fork.py", 19),)


def test_a_starved_loader_out_of_proportion_to_the_own_pace_is_told_with_less_confidence():
    verdict = classify(starving_beyond_pace(stuck=(*WORKS, *STARTED_LIKE_THIS)))
    assert (verdict.kind, verdict.cause, verdict.confidence) == (Kind.HANG, "data-starvation", Confidence.MEDIUM)
    assert "that is 172 times its longest gap between marks in 3 steps (0.05 s)" in verdict.because
    assert any("--stall 60s" in other.experiment for other in verdict.alternatives)


def test_a_starved_loader_is_watched_on_where_the_pace_says_nothing_about_it():
    told = starving_beyond_pace(stall_s=4.0)
    stalled = replace(told, outcome=replace(told.outcome, stopped_by=StopReason.STALL))
    assert classify(stalled).kind is Kind.HANG
    seen = told.evidence
    for weaker in (
        {"pace": replace(QUICK, steps=2)},
        {"pace": replace(QUICK, longest_s=1.0)},
        {"processes": flushing(seen.processes)},
        {"stacks": tuple(sample for sample in seen.stacks if sample.pid != WORKER)},
        {"stacks": starving(mover=IDLE_WORKER, stuck=(python("download", "/src/x.py", 3), *WORKS)).evidence.stacks},
    ):
        assert classify(replace(stalled, evidence=replace(seen, **weaker))).kind is Kind.UNRESOLVED, weaker.keys()
