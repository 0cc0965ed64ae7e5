"""The rules for several ranks: what the evidence of each becomes, which rank is named, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from harness.classify.engine import RANK_RULES, classify
from harness.core.devices import Collective, CollectiveState, GpuProcess, GpuSample
from harness.core.evidence import (
    Evidence,
    Frame,
    GradientTruth,
    Heartbeat,
    LogTail,
    LoopSample,
    Measurement,
    ProcessState,
    RankFacts,
    SourceFailure,
    StackSample,
    ThreadStack,
    ThreadState,
    WorkerResult,
)
from harness.core.node import Node
from harness.core.outcome import Ending, Exit, Outcome, StopReason
from harness.core.point import Point
from harness.core.success import Success
from harness.core.trial import Budget, Limit, Trial
from harness.core.verdict import Case, Confidence, Kind, Verdict
from known_ids import known_ids

STALL_S, STARTUP_S, TOTAL_S = 4.0, 20.0, 60.0
END_S = 20.0

# --- Where a rank may be ------------------------------------------------------------------------------------------

SITE = "/venv/lib/python3.11/site-packages"
LIBC, LIBPYTHON, TORCH = "/lib/libc.so.6", "/opt/python/lib/libpython3.11.so.1.0", f"{SITE}/torch/lib/libtorch_cpu.so"


def native(function: str, file: str = TORCH) -> Frame:
    return Frame(function=function, file=file, line=0, native=True)


def python(function: str, file: str, line: int) -> Frame:
    return Frame(function=function, file=file, line=line)


C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
COND_WAIT = (native("pthread_cond_wait", LIBC), native("std::condition_variable::wait", "/lib/libstdc++.so.6"))
STEP = (python("Run._step", "/src/nsa/train/run.py", 143), python("train", "/src/nsa/train/trainer.py", 61))
BACKWARD = (
    python("_engine_run_backward", f"{SITE}/torch/autograd/graph.py", 979),
    python("Tensor.backward", f"{SITE}/torch/_tensor.py", 623),
    *STEP,
)


def calls(collective: str, *, line: int = 20) -> tuple[Frame, ...]:
    wrapper = python("wrapper", f"{SITE}/torch/distributed/c10d_logger.py", 83)
    where = python("average", "/src/metrics.py", line)
    return (*COND_WAIT, native("c10d::Work::wait"), python(collective, C10D, 3000), wrapper, where, *STEP)


ALL_REDUCE, BARRIER = calls("all_reduce"), calls("barrier", line=30)
GRADIENTS = (*COND_WAIT, native("c10d::Work::wait"), native("c10d::Reducer::finalize_backward"), *BACKWARD)
LOCK = (
    native("PyThread_acquire_lock_timed", LIBPYTHON),
    native("lock_PyThread_acquire_lock", LIBPYTHON),
    python("log_gradient", "/src/hooks.py", 9),
    native("torch::autograd::Engine::evaluate_function"),
    *BACKWARD,
)
SLEEP = (native("clock_nanosleep", LIBC), python("wait_for_cache", "/src/data.py", 33), *STEP)
LOOP = (python("skip_short", "/src/data.py", 12), *STEP, native("_start", "/usr/bin/python3.11"))
WORK = (native("mkl_blas_sgemm"), python("embed", "/src/model.py", 5), *STEP)

PHASES = ("data", "reduce", "forward", "backward", "optim")


def marks(rank: int, *, until: tuple[int, str], last_s: float = 3.0, gap_s: float = 0.05) -> tuple[Heartbeat, ...]:
    """A rank's marks up to the beginning of a phase, ``gap_s`` apart."""
    names = [(s, p, e) for s in range(5) for p in PHASES for e in ("begin", "end")]
    names = names[: names.index((*until, "begin")) + 1]
    first_s = last_s - gap_s * (len(names) - 1)
    return tuple(
        Heartbeat(seq=i + 1, t_s=first_s + i * gap_s, rank=rank, pid=100 + rank, phase=p, edge=e, step=s)
        for i, (s, p, e) in enumerate(names)
    )


@dataclass
class Seen:
    """One rank of a canned case: its marks, where its stacks are, what /proc says, how it ended."""

    until: tuple[int, str] = (1, "backward")
    frames: tuple[Frame, ...] = ()
    state: str = "S"
    timed: bool = False
    wakes: bool = False
    cpu_share: float = 0.0
    loops: tuple[LoopSample, ...] = ()
    native: bool = True
    exit: Exit | None = None
    ended_s: float | None = None
    result: WorkerResult | None = None
    last_s: float = 3.0
    gap_s: float = 0.05


def raised(exception: str, message: str, *, rank: int = 0, at: str = "") -> WorkerResult:
    traceback = f'Traceback (most recent call last):\n  File "/src/x.py", line 1, in f\n{at}' if at else None
    return WorkerResult(
        id=f"result-{rank}",
        status="raised",
        steps_done=1,
        phase="backward",
        exception=exception,
        message=message,
        traceback=traceback,
    )


def lost(rank: int, *, accuses: int | None = None) -> WorkerResult:
    who = "" if accuses is None else f"rank {accuses} does not answer a roll call. "
    said = "The connection said: Timed out waiting 2000ms for recv operation to complete"
    return raised("nsa.errors.RankLost", f"rank {rank} waited for the others and lost one: {who}{said}", rank=rank)


def cut_off(rank: int) -> WorkerResult:
    return raised("RuntimeError", "[pair.cc:537] Read error [127.0.0.1]:1: Connection reset by peer.", rank=rank)


def done(rank: int) -> WorkerResult:
    return WorkerResult(id=f"result-{rank}", status="finished", steps_done=5, phase="optim")


def looks(rank: int, seen: Seen) -> tuple[ProcessState, ...]:
    found = []
    for i in range(6):
        t_s = 8.0 + (i // 2) * 2.4 + (i % 2)
        main = ThreadState(
            tid=100 + rank,
            name="python",
            state=seen.state,
            wchan="hrtimer_nanosleep" if seen.timed else "futex_do_wait",
            cpu_s=1.0 + seen.cpu_share * (t_s - 8.0),
            voluntary_switches=5 + (i if seen.wakes else 0),
            involuntary_switches=5,
            timed=seen.timed,
        )
        # gloo's own thread polls a hundred times a second, whatever the program does.
        ticks = replace(main, tid=900 + rank, name="gloo_tcp_loop", state="S", timed=True, cpu_s=t_s * 0.004)
        ticker = ticks if seen.state in "Tt" else replace(ticks, voluntary_switches=int(100 * t_s))
        ticker = replace(ticker, state=seen.state) if seen.state in "Tt" else ticker
        found.append(
            ProcessState(
                id=f"proc-{10 * rank + i + 1}",
                t_s=t_s,
                rank=rank,
                pid=100 + rank,
                state=seen.state,
                threads=(main, ticker),
                rss_bytes=10**8,
                minor_faults=7,
                read_bytes=5,
                written_bytes=5,
                children=0,
                parent=1,
                undisturbed_since=f"proc-{10 * rank + i}" if i % 2 else None,
            )
        )
    return tuple(found)


def stacks(rank: int, seen: Seen) -> tuple[StackSample, ...]:
    pid = 100 + rank
    threads = (ThreadStack(tid=pid, name="MainThread", frames=seen.frames, owns_gil=False),)
    return tuple(
        StackSample(
            id=f"stack-{10 * rank + i}", source="py-spy", t_s=9.0 + 1.2 * i, rank=rank, pid=pid,
            native=seen.native and not seen.loops, threads=threads,
            loops=tuple(replace(loop, tid=pid) for loop in seen.loops[i : i + 1]),
        )
        for i in range(3)
    )  # fmt: skip


def case(
    *ranks: Seen,
    ending: Ending = Ending.STOPPED_BY_US,
    stopped_by: StopReason | None = StopReason.STALL,
    exit: Exit | None = None,
    duration_s: float = END_S,
    text: str = "",
    success: Success | None = None,
    **evidence: Any,
) -> Case:
    def limit(seconds: float) -> Limit:
        return Limit(seconds=seconds, source="test")

    facts = []
    for rank, seen in enumerate(ranks):
        own = marks(rank, until=seen.until, last_s=seen.last_s, gap_s=seen.gap_s)
        facts.append(
            RankFacts(
                id=f"rank-{rank}",
                rank=rank,
                pid=100 + rank,
                steps_done=own[-1].step or 0,
                heartbeats=own,
                heartbeats_total=len(own),
                silence_s=(seen.ended_s or duration_s) - seen.last_s,
                result=seen.result,
                exit=seen.exit,
                ended_s=seen.ended_s,
            )
        )
    everything = sorted((m for f in facts for m in f.heartbeats), key=lambda mark: mark.t_s)
    there = [(rank, seen) for rank, seen in enumerate(ranks) if seen.frames]
    trial = Trial(
        target="nsa",
        point=Point.of({"world": len(ranks)}),
        repeat=0,
        role="search",
        config={"train": {"steps": 5}, "parallel": {"world": len(ranks)}},
        seed=1,
        code="c",
        machine="m",
        success=success,
        budget=Budget(startup=limit(STARTUP_S), stall=limit(STALL_S), total=limit(TOTAL_S)),
    )
    seen_all = {
        "steps_wanted": 5,
        "steps_done": min(f.steps_done for f in facts),
        "heartbeats": tuple(everything),
        "heartbeats_total": len(everything),
        "silence_s": duration_s - max(seen.last_s for seen in ranks),
        "stacks": tuple(s for rank, seen in there for s in stacks(rank, seen)),
        "processes": tuple(p for rank, seen in there for p in looks(rank, seen)),
        "result": next((f.result for f in facts if f.result), None),
        "logs": (LogTail(id="log-stderr", stream="stderr", text=text, size_bytes=len(text)),) if text else (),
        "config_seen": True,
        "ranks": tuple(facts),
    }
    return Case(
        trial=trial,
        outcome=Outcome(ending=ending, exit=exit, stopped_by=stopped_by, duration_s=duration_s),
        evidence=Evidence(**{**seen_all, **evidence}),
    )


def ended(*ranks: Seen, code: int = 1, **more: Any) -> Case:
    """Every rank ended by itself."""
    return case(*ranks, ending=Ending.EXITED, stopped_by=None, exit=Exit(code=code), **more)


def certain(*ranks: Seen, **more: Any) -> Case:
    """Ended after six seconds of silence, far below the four limits that the outside is given."""
    return case(*ranks, **{"stopped_by": StopReason.CERTAIN, "duration_s": 9.0, **more})


def watched(*ranks: Seen, silence_s: float = 9.0) -> Case:
    """A job that somebody else started, of which no marks are known, as it is judged while it runs on."""
    found = case(*ranks, ending=Ending.STILL_RUNNING, stopped_by=StopReason.CERTAIN)
    facts = tuple(replace(f, heartbeats=(), heartbeats_total=0, silence_s=silence_s) for f in found.evidence.ranks)
    unmarked = replace(found.evidence, heartbeats=(), heartbeats_total=0, silence_s=silence_s, ranks=facts)
    return replace(found, evidence=replace(unmarked, world=len(facts), steps_wanted=0))


def not_looked_into(seen: Case) -> Case:
    """The same where nobody may read a stack."""
    refused = SourceFailure(id="failure-1", source="py-spy", reason="ptrace refused")
    return replace(seen, evidence=replace(seen.evidence, stacks=(), failures=(refused,)))


FINISHED = tuple(Seen((4, "optim"), exit=Exit(code=0), ended_s=9.0, result=done(rank)) for rank in range(2))


def recorded(rank: int, *sizes: int | None, last: str = "", op: str = "all_reduce") -> CollectiveState:
    """What a rank's flight recorder holds: operations of these sizes, the last one not over if ``last`` says so.

    ``None`` stands for a barrier.
    """
    calls = []
    for i, size in enumerate(sizes, start=1):
        over = not last or i < len(sizes)
        name = "barrier" if size is None else op
        shapes = () if size is None else ((size,),)
        state = "completed" if over else last
        calls.append(Collective(group="0", seq=i, op=name, sizes=shapes, dtypes=("Float",), state=state, done=over))
    both = (("0", (0, 1)),)
    return CollectiveState(
        id=f"recorder-{rank + 1}", t_s=12.0, rank=rank, source="pipe", backend="nccl", collectives=tuple(calls),
        groups=both,
    )  # fmt: skip


def between_two(state: CollectiveState) -> CollectiveState:
    """The same of operations between two ranks, which are counted by themselves on each side."""
    return replace(state, collectives=tuple(replace(call, p2p=True) for call in state.collectives))


ON_GPU = (native("cuStreamSynchronize", "/usr/lib/libcuda.so.580"), python("Run._optimize", "/src/run.py", 9), *STEP)
ROLL_CALL = calls("monitored_barrier", line=40)
SPINS = {"state": "R", "cpu_share": 0.99}
"""A rank that waits for its GPU burns a core in the driver."""

USUAL = (1000, 9, 1000, 9)


def gpu(rank: int, *, watts: float = 121.0, xids: tuple[int, ...] = ()) -> tuple[GpuSample, ...]:
    """The rank's GPU as one reads that waits inside NCCL, or spins."""
    return tuple(
        GpuSample(
            id=f"gpu-{10 * rank + i}", t_s=9.0 + 1.5 * i, index=rank, name="NVIDIA H200", utilisation=100,
            memory_utilisation=0, power_w=watts, power_limit_w=700.0,
            processes=(GpuProcess(pid=100 + rank, ours=True),), xids=xids,
        )
        for i in range(3)
    )  # fmt: skip


BOTH_SPIN = (*gpu(0), *gpu(1))
FOR_LONG = tuple(replace(sample, t_s=4.0 + 20.0 * (sample.t_s - 4.0)) for sample in BOTH_SPIN)
TRUE_GRADIENTS = Success(gradients="true")
RIGHT = GradientTruth(id="gradients", compared=195, worst=1e-7, parameter="embed.weight")
WRONG = replace(RIGHT, worst=1.5, parameter="blocks.0.attn.q_proj.weight", wrong=("blocks.0.attn.q_proj.weight",))
KILLED = Seen(until=(1, "forward"), exit=Exit(signal=9), ended_s=3.2)
LEFT = Seen(until=(1, "forward"), exit=Exit(code=0), ended_s=3.2)
LOST = Seen(exit=Exit(code=1), ended_s=4.0, result=lost(0))
WAITS_FOR_GRADIENTS = Seen(frames=GRADIENTS)
IN_LOCK = Seen(frames=LOCK)
GLOO_SIZES = "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 16 vs 8. Received data size\n"
SHAPES = (
    "Detected mismatch between collectives on ranks. Rank 0 is running collective: ALLREDUCE [8], but Rank 1 is [9]"
)


def endless(*, why: str = "") -> tuple[LoopSample, ...]:
    """A loop whose locals stay and that asks nobody, once for every sample."""
    loop = LoopSample(tid=0, depth=0, outer=1, function="skip_short", file="/src/data.py", line=12, header_line=11,
                      header="while n < 3:", state="same", needs="locals", endless=why)  # fmt: skip
    return (loop,) * 3


def counting(*values: int, of: int) -> tuple[LoopSample, ...]:
    """A loop over a range that was seen at these turns."""
    return tuple(
        replace(loop, needs="", header=f"for i in range({of}):", counters=(("i", value),), counter="i", bound=of,
                state=f"{value}")
        for loop, value in zip(endless(), values, strict=True)
    )  # fmt: skip


AT_WORK = {"state": "R", "cpu_share": 0.9}
ON_ITS_GPU = Seen((1, "optim"), ON_GPU, **SPINS)
IN_NEXT_FORWARD = Seen((2, "forward"), ON_GPU, **SPINS)
ASKS_WHO_IS_THERE = Seen((2, "reduce"), ROLL_CALL)
NEVER_CALLED = (recorded(0, *USUAL, 1000, last="started"), recorded(1, *USUAL))
LATE_ON_ITS_GPU = (recorded(0, *USUAL, last="started"), recorded(1, *USUAL, last="scheduled"))
REDUCES, IN_BARRIER = Seen(frames=ALL_REDUCE), Seen(frames=BARRIER)
STOPPED = Seen(frames=LOCK, state="T")
SLEEPS = Seen((1, "data"), SLEEP, timed=True)
WORKS = Seen((1, "data"), WORK, **AT_WORK)
LOOPS = Seen((1, "data"), LOOP, **AT_WORK)
GONE = Seen(exit=Exit(), ended_s=0.1)
"""A rank of a job that somebody else started: it is not there, and how it ended nobody here knows."""


def crossing(rank: int) -> CollectiveState:
    """Operations of two groups, each of which has begun on one rank and waits on the other."""
    states = ("started", "scheduled") if rank == 0 else ("scheduled", "started")
    calls = tuple(Collective(group=g, seq=1, op="all_reduce", state=s) for g, s in zip("12", states, strict=True))
    return replace(recorded(rank, 1), collectives=calls, groups=())


def raising(*messages: str, exception: str = "RuntimeError") -> tuple[Seen, ...]:
    """Ranks that raised, one after the other."""
    return tuple(
        Seen(exit=Exit(code=1), ended_s=4.0 + rank, result=raised(exception, message, rank=rank))
        for rank, message in enumerate(messages)
    )


ANY = -1
"""Where no rank stands out, and nothing is claimed of the one that is named."""

OF_A_GRADIENT_CHECK = {"code": 0, "success": TRUE_GRADIENTS, "steps_done": 5}

TABLE: dict[str, list[tuple[Case, str, int | None]]] = {
    "interrupted": [
        (case(IN_LOCK, WAITS_FOR_GRADIENTS, stopped_by=StopReason.INTERRUPT), "UNRESOLVED interrupted proof", None)
    ],
    "infra": [(case(Seen(), Seen(), ending=Ending.NEVER_STARTED, stopped_by=None), "INFRA never-started proof", None)],
    "xid": [(case(ON_ITS_GPU, WAITS_FOR_GRADIENTS, gpus=gpu(0, xids=(79,))), "INFRA xid-79 proof", 0)],
    "gradients_wrong": [
        (ended(*FINISHED, **OF_A_GRADIENT_CHECK, gradients=WRONG), "BELOW_TARGET gradients-wrong proof", None),
        (ended(*FINISHED, **OF_A_GRADIENT_CHECK), "BELOW_TARGET gradients-unknown proof", None),
    ],
    "ranks_passed": [
        (ended(*FINISHED, code=0, steps_done=5), "PASS - proof", None),
        (ended(*FINISHED, **OF_A_GRADIENT_CHECK, gradients=RIGHT), "PASS - proof", None),
    ],
    "rank_failed": [
        (ended(LOST, KILLED), "CRASH SIGKILL proof", 1),
        (ended(LOST, LEFT), "CRASH exit-early proof", 1),
        (ended(*raising("shapes", exception="ValueError"), LOST), "CRASH ValueError proof", 0),
        # Nobody tells the others, as with NCCL: they wait until we end them.
        (certain(WAITS_FOR_GRADIENTS, KILLED), "CRASH SIGKILL proof", 1),
        # The vote has every rank raise at once, whoever had the NaN.
        (
            ended(*raising(*["loss = nan at step 1 on rank 1"] * 2, exception="nsa.errors.NonFiniteLoss")),
            "NONFINITE - proof",
            1,
        ),
        (ended(Seen(exit=Exit(signal=6), ended_s=4.0), LOST, text=GLOO_SIZES), "CRASH collective-mismatch proof", None),
        (ended(*raising(SHAPES, SHAPES)), "CRASH collective-mismatch proof", None),
    ],
    "collective_timeout": [
        # The waiting side says who is missing, and the missing one is still there to be looked at.
        (
            certain(
                Seen((1, "reduce"), exit=Exit(code=1), ended_s=5.0, result=lost(0, accuses=1)),
                Seen((1, "data"), frames=LOCK),
            ),
            "CRASH collective-timeout high",
            1,
        ),
        # Nobody accuses; one is gone without a word, as below torchrun.
        (ended(Seen((1, "reduce"), result=cut_off(0)), Seen((1, "data"))), "CRASH rank-lost high", 1),
        # Nobody says, but one is behind.
        (
            ended(
                Seen((1, "reduce"), exit=Exit(code=1), ended_s=5.0, result=lost(0)),
                Seen((1, "data"), exit=Exit(code=1), ended_s=6.0, result=lost(1)),
            ),
            "CRASH collective-timeout high",
            1,
        ),
    ],
    "ranks_crashed": [
        # A launcher that says nothing of its ranks, and ranks that say nothing themselves.
        (ended(Seen(), Seen(), code=7), "CRASH exit-7 proof", None),
        (ended(Seen(), Seen(), code=0), "CRASH exit-early proof", None),
    ],
    "stalled": [
        (certain(WAITS_FOR_GRADIENTS, IN_LOCK), "HANG deadlock high", 1),
        (certain(IN_LOCK, WAITS_FOR_GRADIENTS), "HANG deadlock high", 0),
        (certain(REDUCES, REDUCES, IN_LOCK, REDUCES), "HANG deadlock high", 2),
        (watched(WAITS_FOR_GRADIENTS, IN_LOCK), "HANG deadlock high", 1),
        # All in the same lock: no rank is to blame.
        (certain(IN_LOCK, IN_LOCK), "HANG deadlock high", None),
        # Their recorders agree on who is missing, and its stack says why.
        (
            certain(ON_ITS_GPU, IN_LOCK, collectives=(recorded(0, *USUAL, 9, last="started"), recorded(1, *USUAL))),
            "HANG deadlock high",
            1,
        ),
        # Whoever stopped one rank alone does not mean to go on with the job.
        (certain(WAITS_FOR_GRADIENTS, STOPPED), "HANG stopped high", 1),
        (certain(IN_BARRIER, Seen((1, "data"), LOOP, **AT_WORK, loops=endless())), "HANG infinite-loop high", 1),
        # One waits for its GPU and for nobody, the other for it.
        (
            certain(
                ON_ITS_GPU,
                Seen((1, "forward"), ON_GPU, **SPINS),
                collectives=(recorded(0, *USUAL, 9, last="started"), recorded(1, *USUAL)),
                gpus=FOR_LONG,
            ),
            "HANG gpu-spin medium",
            1,
        ),
        # The same between two ranks, where no recorder says who has to send.
        (
            certain(
                ON_ITS_GPU,
                Seen((1, "forward"), ON_GPU, **SPINS),
                collectives=(
                    between_two(recorded(0, 9, 9, last="started", op="recv")),
                    between_two(recorded(1, 9, op="send")),
                ),
                gpus=FOR_LONG,
            ),
            "HANG gpu-spin medium",
            1,
        ),
        # All called it, and on one GPU it has not begun.
        (certain(ON_ITS_GPU, ON_ITS_GPU, collectives=LATE_ON_ITS_GPU, gpus=FOR_LONG), "HANG gpu-spin medium", 1),
    ],
    "desync": [
        # Rank 1 left out an all_reduce that it had always made, and waits for rank 0 elsewhere.
        (certain(IN_NEXT_FORWARD, ASKS_WHO_IS_THERE, collectives=NEVER_CALLED), "HANG collective-mismatch high", 1),
        # DDP launched what rank 1 ended its backward without.
        (certain(ON_ITS_GPU, ASKS_WHO_IS_THERE, collectives=NEVER_CALLED), "HANG unused-parameter high", 1),
        # Another size than what used to follow; nothing else tells two ranks apart.
        (
            certain(
                IN_NEXT_FORWARD,
                IN_NEXT_FORWARD,
                collectives=(
                    recorded(0, *USUAL, 1000, last="started"),
                    recorded(1, *USUAL, 2_000_000, last="started"),
                ),
            ),
            "HANG collective-mismatch medium",
            1,
        ),
        # Another operation, with nothing to compare with: nobody is blamed.
        (
            certain(
                IN_NEXT_FORWARD,
                IN_NEXT_FORWARD,
                collectives=(recorded(0, 7, last="started"), recorded(1, None, last="started")),
            ),
            "HANG collective-mismatch high",
            None,
        ),
        # Each device has begun what the other has queued behind.
        (
            certain(ON_ITS_GPU, ON_ITS_GPU, collectives=(crossing(0), crossing(1))),
            "HANG collective-mismatch high",
            None,
        ),
        # By stacks: of two, the one that went past the call never made it.
        (certain(Seen((1, "data"), ALL_REDUCE), Seen((1, "reduce"), BARRIER)), "HANG collective-mismatch high", 1),
        # At the same mark, nobody can say.
        (certain(REDUCES, IN_BARRIER), "HANG collective-mismatch medium", None),
        # Of four, the odd one out.
        (certain(IN_BARRIER, IN_BARRIER, REDUCES, IN_BARRIER), "HANG collective-mismatch high", 2),
        (certain(WAITS_FOR_GRADIENTS, Seen((2, "reduce"), BARRIER)), "HANG unused-parameter high", 1),
        (watched(WAITS_FOR_GRADIENTS, GONE), "HANG rank-gone high", 1),
        # All are there and sleep on one machine, where nothing is slow between them.
        (certain(REDUCES, REDUCES, world=2), "HANG collective-stuck medium", None),
        (watched(WAITS_FOR_GRADIENTS, WAITS_FOR_GRADIENTS), "HANG collective-stuck medium", None),
        # Not known to be so, what connects them may be slow: only after four limits.
        (case(REDUCES, REDUCES), "HANG collective-stuck medium", None),
    ],
    "busy": [(case(IN_BARRIER, LOOPS), "HANG infinite-loop medium", 1)],
    "slow": [
        (
            case(
                Seen((3, "forward"), last_s=19.8, gap_s=0.5),
                Seen((3, "forward"), last_s=19.7, gap_s=0.5),
                stopped_by=StopReason.TOTAL,
                measurement=Measurement(startup_s=1.0, step_s=(5.0, 5.0)),
            ),
            "SLOW - medium",
            None,
        ),
        # It wakes by itself, and then it comes.
        (certain(REDUCES, SLEEPS), "SLOW straggler medium", 1),
        (case(REDUCES, SLEEPS), "SLOW straggler medium", 1),
        # One rank evaluates, and its loop says how far it is.
        (case(REDUCES, replace(WORKS, loops=counting(3, 8, 14, of=400))), "SLOW - high", None),
    ],
    "unresolved": [
        # It computes, and nothing tells a long piece of work from an endless one.
        (case(REDUCES, WORKS), "UNRESOLVED straggler low", 1),
        (certain(REDUCES, WORKS), "UNRESOLVED straggler low", 1),
        # It wakes, asks, and sleeps anew: for a file that the other rank would write.
        (certain(REDUCES, replace(SLEEPS, wakes=True)), "UNRESOLVED timed-wait low", 1),
        (certain(IN_BARRIER, LOOPS), "UNRESOLVED straggler low", 1),
        (certain(REDUCES, REDUCES), "UNRESOLVED undecided low", ANY),
        # Its GPU may be at work, and the others wait for it.
        (
            certain(ON_ITS_GPU, ON_ITS_GPU, collectives=LATE_ON_ITS_GPU, gpus=(*gpu(0), *gpu(1, watts=560.0))),
            "UNRESOLVED busy low",
            ANY,
        ),
        (certain(REDUCES, Seen((1, "forward"), ON_GPU, **SPINS)), "UNRESOLVED undecided low", ANY),
        # Whoever stopped all of the job may go on with it.
        (certain(STOPPED, STOPPED, duration_s=6.5), "UNRESOLVED cut-off-in-silence low", ANY),
        (watched(WORKS, WAITS_FOR_GRADIENTS), "UNRESOLVED moving low", 0),
        (watched(WAITS_FOR_GRADIENTS, SLEEPS), "UNRESOLVED may-go-on low", 1),
        (watched(STOPPED, STOPPED), "UNRESOLVED paused low", ANY),
        (not_looked_into(watched(IN_LOCK, SLEEPS)), "UNRESOLVED not-looked-into low", ANY),
        (not_looked_into(watched(WORKS, WORKS)), "UNRESOLVED moving low", ANY),
        (watched(GONE, GONE), "UNRESOLVED ended-meanwhile low", None),
    ],
}
"""What rule gives the verdict -> cases, each with kind, cause and confidence, and the rank that it must name."""

EVERY = [(rule, *row) for rule, rows in TABLE.items() for row in rows]
IDS = [f"{rule}-{i}" for rule, rows in TABLE.items() for i in range(len(rows))]
OF_ONE_PROCESS = {"misconfigured", "nonfinite_loss", "below_target", "slow_why"}
"""Rules that are asked of a trial as a whole: their evidence is in ``test_rules``."""


NODES = (Node(number=0, host="a"), Node(number=1, host="b"))
TIMER = (
    python("Event.wait", "/usr/lib/python3.11/threading.py", 629),
    python("Timer.run", "/usr/lib/python3.11/threading.py", 1390),
)
OWN_THREAD = ThreadStack(tid=950, name="Thread-3", frames=TIMER)


def with_thread(seen: Case, *, name: str, has_a_card: bool = True) -> Case:
    """The same with another thread of this name in every process, asleep."""

    def more(look: ProcessState) -> ProcessState:
        beside = replace(look.threads[0], tid=950, name=name)
        return replace(look, threads=(*look.threads, beside), has_a_card=has_a_card)

    return replace(seen, evidence=replace(seen.evidence, processes=tuple(map(more, seen.evidence.processes))))


def without_turns(seen: Case) -> Case:
    """The same where not even the thread that carries messages got CPU time."""
    asleep = tuple(
        replace(look, threads=tuple(replace(thread, voluntary_switches=5) for thread in look.threads))
        for look in seen.evidence.processes
    )
    return replace(seen, evidence=replace(seen.evidence, processes=asleep))


def with_stack(seen: Case, stack: ThreadStack) -> Case:
    """The same with another thread's stack in every sample."""
    samples = tuple(replace(sample, threads=(*sample.threads, stack)) for sample in seen.evidence.stacks)
    return replace(seen, evidence=replace(seen.evidence, stacks=samples))


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(certain(REDUCES, REDUCES, world=2, nodes=NODES), id="on two machines"),
        pytest.param(certain(REDUCES, REDUCES, world=3), id="a third rank is elsewhere"),
        pytest.param(certain(REDUCES, REDUCES), id="how many there are is not known"),
        pytest.param(with_thread(certain(REDUCES, REDUCES, world=2), name="cuda-EvtHandlr"), id="a GPU may carry it"),
        pytest.param(with_stack(certain(REDUCES, REDUCES, world=2), OWN_THREAD), id="a thread may make a call"),
        pytest.param(certain(REDUCES, replace(REDUCES, cpu_share=0.01), world=2), id="one of them moves"),
        pytest.param(without_turns(certain(REDUCES, REDUCES, world=2)), id="they get no CPU time"),
        pytest.param(
            certain(*(Seen(frames=(*COND_WAIT, native("c10d::TCPStore::wait"), *STEP)),) * 2, world=2),
            id="who started them may put it into the store",
        ),
        pytest.param(certain(*(Seen(frames=calls("new_group")),) * 2, world=2), id="they come to life"),
    ],
)
def test_ranks_that_sleep_in_one_call_may_go_on_where_something_can_still_come(seen: Case):
    assert classify(seen).kind is Kind.UNRESOLVED


def test_a_thread_of_cudas_in_a_process_without_a_card_carries_nothing():
    """It is there with ``CUDA_VISIBLE_DEVICES=``, too."""
    seen = with_thread(certain(REDUCES, REDUCES, world=2), name="cuda-EvtHandlr", has_a_card=False)
    assert told(classify(seen)) == "HANG collective-stuck medium"


COMPRESSES = ThreadStack(
    tid=950,
    name="compress",
    frames=(*COND_WAIT, python("all_reduce", C10D, 3252), python("squeeze", "/src/topk.py", 25)),
)


def test_a_thread_that_waits_for_its_own_process_lets_nobody_go_on():
    """A hook's thread has died in one rank; that of the other waits for it."""
    seen = with_thread(with_stack(certain(REDUCES, REDUCES, world=2), COMPRESSES), name="compress")
    assert told(classify(seen)) == "HANG collective-stuck medium"


SAVES = ThreadStack(tid=950, name="saver", frames=(python("save", "/src/save.py", 9),))


@pytest.mark.parametrize(("timed", "kind"), [(True, Kind.UNRESOLVED), (False, Kind.HANG)])
def test_a_thread_that_goes_on_may_yet_come_where_its_rank_never_came(timed, kind):
    """It copies what rank 0 saved, and then meets the others in a barrier: after 30 s the job goes on."""
    seen = with_stack(certain(IN_NEXT_FORWARD, ASKS_WHO_IS_THERE, collectives=NEVER_CALLED), SAVES)
    call, wchan = ("clock_nanosleep", "hrtimer_nanosleep") if timed else ("futex", "futex_do_wait")

    def with_saver(look: ProcessState) -> ProcessState:
        saver = replace(look.threads[0], tid=950, state="S", timed=timed, call=call, wchan=wchan)
        return replace(look, threads=(*look.threads, saver))

    evidence = replace(seen.evidence, processes=tuple(map(with_saver, seen.evidence.processes)))
    assert classify(replace(seen, evidence=evidence)).kind is kind


def test_ranks_that_came_to_one_call_from_two_lines_are_told_with_both():
    other = Seen(REDUCES.until, (*ALL_REDUCE[:-1], python("save", "/src/train.py", 88)))
    verdict = classify(certain(REDUCES, other, world=2))
    assert told(verdict) == "HANG collective-mismatch medium"
    assert (
        "rank 0 came to it from train (nsa/train/trainer.py:61), rank 1 came to it from save (src/train.py:88)"
        in verdict.because
    )


def test_of_ranks_that_called_one_collective_on_two_lines_no_line_is_named_for_all():
    elsewhere = [python("forward", "/src/model.py", 8) if f.function == "average" else f for f in ALL_REDUCE]
    verdict = classify(certain(REDUCES, Seen(REDUCES.until, tuple(elsewhere)), world=2))
    assert verdict.kind is Kind.HANG
    assert "called from" not in verdict.because.partition(": all ranks are there")[0]
    assert "rank 1 came to it from forward (src/model.py:8)" in verdict.because


def told(verdict: Verdict) -> str:
    """``HANG deadlock high``."""
    return f"{verdict.kind} {verdict.cause or '-'} {verdict.confidence}"


def test_every_rule_has_evidence_of_its_own():
    """``desync`` is asked by ``stalled``, once it has found that no rank can go on."""
    assert set(RANK_RULES.names()) | {"desync"} == TABLE.keys() | OF_ONE_PROCESS


@pytest.mark.parametrize("odd", [0, 1])
def test_after_four_limits_it_is_the_rank_in_a_kernel_of_its_own_that_is_named(odd):
    """The other waits for it, and comes before it where ranks are gone through."""
    waits, spins = ON_ITS_GPU, Seen((1, "forward"), ON_GPU, **SPINS)
    seen = [spins if rank == odd else waits for rank in (0, 1)]
    recorders = [
        recorded(rank, *USUAL) if rank == odd else recorded(rank, *USUAL, 9, last="started") for rank in (0, 1)
    ]
    early = certain(*seen, collectives=tuple(recorders), gpus=BOTH_SPIN)
    assert classify(early).kind is Kind.UNRESOLVED
    ranks = tuple(replace(facts, silence_s=60.0) for facts in early.evidence.ranks)
    late = replace(early, evidence=replace(early.evidence, silence_s=60.0, ranks=ranks))
    verdict = classify(late)
    assert (verdict.kind, verdict.cause, verdict.rank) == (Kind.HANG, "gpu-spin", odd)


@pytest.mark.parametrize(("rule", "seen", "expected", "rank"), EVERY, ids=IDS)
def test_what_is_seen_of_ranks_gets_its_verdict_and_its_rank(rule, seen, expected, rank):
    verdict = classify(seen)
    assert (told(verdict), verdict.rule) == (expected, rule), verdict.because
    assert rank in (ANY, verdict.rank)
    assert verdict.because
    assert verdict.cites
    assert set(verdict.cites) <= known_ids(seen)


AGREE = {"gradients_wrong": {"ranks_passed"}, "xid": {"stalled"}, "interrupted": {"stalled"}}
"""Later rules that would have fired on the same evidence, and rightly so."""


@pytest.mark.parametrize(("rule", "seen", "_expected", "_rank"), EVERY, ids=IDS)
def test_no_other_rule_fires_on_the_evidence_of_one(rule, seen, _expected, _rank):
    assert set(classify(seen).also) <= AGREE.get(rule, set())


def just_marked(seen: Case) -> Case:
    """The same, but for a mark that the first rank has just made."""
    first, *rest = seen.evidence.ranks
    evidence = replace(seen.evidence, silence_s=0.0, ranks=(replace(first, silence_s=0.0), *rest))
    return replace(seen, evidence=evidence)


STANDING = [row for row in EVERY if row[0] in ("stalled", "desync")]
STANDING_IDS = [name for name, row in zip(IDS, EVERY, strict=True) if row in STANDING]


@pytest.mark.parametrize(("rule", "seen", "_expected", "_rank"), STANDING, ids=STANDING_IDS)
def test_nothing_is_a_hang_while_any_rank_moves(rule, seen, _expected, _rank):
    assert classify(just_marked(seen)).kind is not Kind.HANG


@pytest.mark.parametrize(("rule", "seen", "_expected", "_rank"), STANDING, ids=STANDING_IDS)
def test_nothing_is_a_hang_while_any_rank_computes(rule, seen, _expected, _rank):
    """The same evidence with one rank more, which computes and has not come yet."""
    late = case(*[Seen()] * len(seen.evidence.ranks), WORKS, duration_s=seen.outcome.duration_s).evidence
    more = replace(
        seen.evidence,
        ranks=(*seen.evidence.ranks, late.ranks[-1]),
        processes=(*seen.evidence.processes, *late.processes),
        stacks=(*seen.evidence.stacks, *late.stacks),
    )
    verdict = classify(replace(seen, evidence=more))
    blocked_for_good = {"deadlock", "stopped", "infinite-loop", "gpu-spin", "rank-gone"}
    blocked_for_good |= {"collective-mismatch", "unused-parameter"} if seen.evidence.collectives else set()
    assert verdict.kind is not Kind.HANG or verdict.cause in blocked_for_good, verdict.because


# --- What a reader is told ----------------------------------------------------------------------------------------


def test_of_an_undecided_rank_its_silence_is_told_once_and_by_its_own_number():
    verdict = classify(case(REDUCES, WORKS))
    assert "in backward of step 1; rank 1 silent for 17.0 s in data of step 1 (stall limit 4.0 s); " in verdict.because


def test_a_rank_of_which_nothing_was_seen_is_told_by_its_own_number():
    """It made no mark, and nobody looked at it."""
    seen = certain(REDUCES, WORKS)
    nothing = replace(seen.evidence.ranks[1], heartbeats=(), heartbeats_total=0)
    evidence = replace(
        seen.evidence,
        ranks=(seen.evidence.ranks[0], nothing),
        stacks=tuple(sample for sample in seen.evidence.stacks if sample.rank == 0),
        processes=tuple(look for look in seen.evidence.processes if look.rank == 0),
    )
    assert "; rank 1 silent for 6.0 s" in classify(replace(seen, evidence=evidence)).because


def test_the_silence_of_rank_0_is_told_by_its_number_too():
    assert "; rank 0 silent for 17.0 s" in classify(case(WORKS, REDUCES)).because


def test_a_missing_rank_is_named_with_where_the_others_wait():
    verdict = classify(certain(WAITS_FOR_GRADIENTS, IN_LOCK))
    assert verdict.because.startswith(
        "rank 1 does not come: it waits in log_gradient (src/hooks.py:9), in backward of step 1; "
        "rank 0 waits in the all-reduce of gradients, in backward of step 1; rank 1 silent for 6.0 s in backward"
    )
    assert verdict.phase == "backward"


def test_a_timeout_names_the_rank_that_did_not_come_and_not_the_one_that_says_so():
    verdict = classify(TABLE["collective_timeout"][0][0])
    assert verdict.because.startswith("rank 1 is missing (the others called the roll): deadlock")
    assert "rank 0 gave up waiting" in verdict.because


@pytest.mark.parametrize(("frames", "seen_last"), [(LOCK, True), ((), False)], ids=["sampled", "never seen"])
def test_of_a_rank_that_its_launcher_ended_it_is_told_where_it_was_and_not_that_it_had_ended(frames, seen_last):
    """It slept while the others gave up; torchrun ended it for that, and says nothing of it."""
    verdict = classify(ended(Seen((1, "reduce"), result=cut_off(0)), Seen((1, "data"), frames=frames)))
    assert verdict.because.startswith(
        "rank 1 is missing (nothing says how it ended): its last mark is in data of step 1"
    )
    assert ("and it was seen last in log_gradient (src/hooks.py:9)" in verdict.because) is seen_last
    assert "had ended" not in verdict.because


@pytest.mark.parametrize(("later_s", "is_cited"), [(0.0, True), (-9.0, False)])
def test_the_stack_that_shows_the_missing_rank_is_cited_where_it_is_of_this_silence(later_s, is_cited):
    """The looks at its processes were of an earlier silence, or are of its launcher alone by now."""
    seen = ended(Seen((1, "reduce"), result=cut_off(0)), Seen((1, "data"), frames=LOCK))
    taken = tuple(replace(sample, t_s=sample.t_s + later_s) for sample in seen.evidence.stacks)
    verdict = classify(replace(seen, evidence=replace(seen.evidence, stacks=taken, processes=())))
    assert "and it was seen last in log_gradient (src/hooks.py:9)" in verdict.because
    assert ("stack-12" in verdict.cites) is is_cited


def test_a_rank_that_sleeps_in_backward_beside_gloo_waits_for_the_others_though_no_native_frames_say_so():
    """As in every program with workers of a DataLoader: who handles SIGCHLD is not stopped for native frames."""
    python_only = Seen(until=(2, "backward"), frames=BACKWARD, native=False)
    verdict = classify(certain(python_only, Seen(until=(2, "reduce"), frames=BARRIER)))
    assert str(verdict) == "HANG (collective-mismatch)"
    assert "rank 0 waits in the all-reduce of gradients" in verdict.because
    elsewhere = Seen(until=(2, "backward"), frames=(*COND_WAIT, native("my_queue::take"), *BACKWARD))
    assert "gradients" not in classify(certain(elsewhere, Seen(until=(2, "reduce"), frames=BARRIER))).because


def test_two_equal_sides_leave_the_other_explanation_open():
    other, *_ = classify(certain(Seen((1, "data"), ALL_REDUCE), Seen((1, "reduce"), BARRIER))).alternatives
    assert other.cause == "one-call-too-many"
    assert other.experiment


# --- What may still come ------------------------------------------------------------------------------------------


def test_a_rank_of_another_machine_may_still_come():
    """Both that are here wait in the same call, and half of the ranks are elsewhere: nobody here can know of them."""
    assert classify(case(REDUCES, REDUCES, world=4)).confidence is not Confidence.HIGH
    assert classify(certain(REDUCES, REDUCES, world=4)).kind is Kind.UNRESOLVED


@pytest.mark.parametrize("late", [GONE, LEFT], ids=["gone", "left"])
def test_where_one_rank_has_ended_the_others_wait_for_nobody(late):
    verdict = classify(certain(REDUCES, replace(late, ended_s=1.0)))
    assert verdict.rank == 1
    assert (verdict.kind, verdict.cause) in [(Kind.HANG, "rank-gone"), (Kind.CRASH, "exit-early")]


def test_send_and_receive_meet_and_two_receivers_do_not():
    sends, receives = Seen(frames=calls("send")), Seen(frames=calls("recv", line=24))
    assert told(classify(certain(sends, receives))) == "UNRESOLVED undecided low"
    both_receive = classify(certain(receives, receives))
    assert told(both_receive).startswith("HANG collective-mismatch")
    assert "all receive, and none sends" in both_receive.because


def test_a_stopped_rank_must_be_seen_stopped_for_five_seconds():
    seen = certain(WAITS_FOR_GRADIENTS, STOPPED)
    early = tuple(look for look in seen.evidence.processes if look.t_s < 12.0)
    assert classify(replace(seen, evidence=replace(seen.evidence, processes=early))).kind is Kind.UNRESOLVED
    held = certain(WAITS_FOR_GRADIENTS, replace(STOPPED, state="t"))
    assert classify(held).kind is Kind.UNRESOLVED


def with_a_thread(seen: Case, *, rank: int, **how: Any) -> Case:
    """The same case, in which a thread of one rank beside its main one waits otherwise, and woke now and then."""
    found: list[ProcessState] = []
    for i, look in enumerate(seen.evidence.processes):
        if look.rank == rank:
            other = replace(look.threads[0], tid=800 + rank, name="NCCL Service", state="S")
            other = replace(other, **how)
            other = replace(other, voluntary_switches=5 + 5 * i)
            look = replace(look, threads=(*look.threads, other))
        found.append(look)
    return replace(seen, evidence=replace(seen.evidence, processes=tuple(found)))


POLLS = {"wchan": "poll_schedule_timeout", "call": "restart", "timed": None}
"""A wait with a limit that nobody could see, since a dump had interrupted it."""


def test_a_rank_that_waits_for_another_does_not_continue_it_by_a_thread_of_its_library():
    stopped = certain(WAITS_FOR_GRADIENTS, STOPPED)
    assert told(classify(with_a_thread(stopped, rank=0, **POLLS))) == "HANG stopped high"


@pytest.mark.parametrize(("a_second", "kind"), [(66, Kind.HANG), (4000, Kind.UNRESOLVED)])
def test_a_rank_that_burns_a_core_in_a_first_call_is_not_moved_by_what_keeps_its_connections_alive(a_second, kind):
    """NCCL makes a communicator in the first call: its watchdog and its store read and write a little meanwhile."""
    seen = certain(
        Seen(frames=ALL_REDUCE[2:], **SPINS),
        Seen(frames=BARRIER),
        collectives=(recorded(0, *USUAL), recorded(1, *USUAL)),
    )
    looks = tuple(replace(one, read_bytes=int(a_second * one.t_s)) for one in seen.evidence.processes)
    assert classify(replace(seen, evidence=replace(seen.evidence, processes=looks))).kind is kind


MAKES = (native("c10d::NCCLComm::create"), native("c10d::ProcessGroupNCCL::initNCCLComm"), *ALL_REDUCE[3:])
CONNECTS = (native("groupLaunch", "/venv/libnccl.so.2"), native("pncclCommInitRankConfig"), *MAKES)
AWAITS_ID = (
    native("__poll", LIBC),
    native("c10d::TCPStore::get"),
    native("c10d::ProcessGroupNCCL::broadcastUniqueNCCLID"),
    *MAKES[1:],
)


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        (Seen(frames=CONNECTS, **SPINS), Seen(frames=AWAITS_ID), "HANG collective-mismatch medium"),
        (Seen(frames=AWAITS_ID), Seen(frames=AWAITS_ID), "HANG collective-mismatch medium"),
        # It may take its time to connect, and without native frames nobody can tell.
        (Seen(frames=CONNECTS, **SPINS), Seen(frames=CONNECTS, **SPINS), "UNRESOLVED"),
        (Seen(frames=ALL_REDUCE[3:], **SPINS), Seen(frames=AWAITS_ID), "UNRESOLVED"),
    ],
)
def test_whoever_awaits_the_id_of_a_communicator_never_meets_whoever_makes_another(one, other, verdict):
    """Without a device given, NCCL makes a group's communicator in its first call, which no recorder shows."""
    both = (recorded(0, *USUAL), recorded(1, *USUAL))
    seen = with_thread(certain(one, other, collectives=both, world=2), name="pt_nccl_watchdg")
    assert told(classify(seen)).startswith(verdict)


GATHERS = (native("ncclSocketAccept", "/venv/libnccl.so.2"), native("bootstrapInit", "/venv/libnccl.so.2"), *MAKES)


OF_ANOTHER = GpuProcess(pid=7, ours=False, sm_percent=60)


@pytest.mark.parametrize("frames", [AWAITS_ID, GATHERS])
@pytest.mark.parametrize(
    ("card", "kind"),
    [
        ({"utilisation": 0}, Kind.HANG),
        # Its own kernels may come to what the other waits for, though its host waits: a send behind long ones.
        ({"power_w": 560.0}, Kind.UNRESOLVED),
        ({}, Kind.UNRESOLVED),
        # Others use the card, alone or together with it.
        ({"power_w": 560.0, "processes": (GpuProcess(pid=101, ours=True), OF_ANOTHER)}, Kind.HANG),
        ({"power_w": 560.0, "processes": (GpuProcess(pid=101, ours=True, sm_percent=20), OF_ANOTHER)}, Kind.UNRESOLVED),
    ],
)
def test_a_rank_before_its_communicator_gives_nothing_to_one_that_waits_on_its_gpu(frames, card, kind):
    """A pipeline in which one rank calls an extra barrier: the others go on to wait for what it would send next."""
    waits = recorded(0, *USUAL, 1000, last="started", op="recv 0<-1")
    gpus = (*gpu(0), *(replace(sample, **card) for sample in gpu(1)))
    verdict = classify(certain(ON_ITS_GPU, Seen(frames=frames), collectives=(between_two(waits),), gpus=gpus, world=2))
    assert verdict.kind is kind, verdict.because
    if kind is Kind.HANG:
        assert (verdict.cause, verdict.rank) == ("collective-mismatch", None)
        assert "nothing shows whose call is the wrong one" in verdict.because


def test_what_a_recorder_said_before_its_ranks_last_mark_counts_no_more():
    """Asked while a first step compiles; then the rank goes on, waits in an extra barrier and cannot answer again."""
    waits = between_two(recorded(0, *USUAL, 1000, last="started", op="recv 0<-1"))
    before = between_two(recorded(1, 1000, last="started", op="recv 1<-0"))
    gpus = (*gpu(0), *(replace(sample, utilisation=0) for sample in gpu(1)))
    seen = certain(
        ON_ITS_GPU, Seen(frames=AWAITS_ID), collectives=(waits, replace(before, t_s=1.0)), gpus=gpus, world=2
    )
    alone = certain(ON_ITS_GPU, Seen(frames=AWAITS_ID), collectives=(waits,), gpus=gpus, world=2)
    assert classify(seen).because == classify(alone).because
    assert told(classify(seen)).startswith("HANG collective-mismatch")


def test_that_only_one_rank_is_known_to_make_a_communicator_does_not_make_two_of_it():
    """Of the other no native frames could be had: it may make the same one."""
    both = (recorded(0, *USUAL), recorded(1, *USUAL))
    ranks = (Seen(frames=CONNECTS, **SPINS), Seen(frames=ALL_REDUCE[3:], **SPINS))
    verdict = classify(beyond(certain(*ranks, collectives=both, world=2)))
    assert (verdict.kind, verdict.cause) == (Kind.HANG, "collective-stuck"), verdict.because
    assert "different groups" not in verdict.because


@pytest.mark.parametrize(("call", "kind"), [("isend", Kind.UNRESOLVED), ("irecv", Kind.HANG)])
def test_the_first_irecv_between_two_ranks_waits_for_an_isend(call, kind):
    ranks = [Seen(frames=calls("irecv")), Seen(frames=calls(call, line=31))]
    assert classify(certain(*ranks)).kind is kind


@pytest.mark.parametrize(("inside", "kind"), [(True, Kind.HANG), (False, Kind.UNRESOLVED)])
def test_a_rank_in_nccls_barrier_waits_at_its_gpu_whatever_its_other_threads_write(inside, kind):
    """Its recorder had not answered, others use the card too, and NCCL's own threads tell the store that they live."""
    barrier = calls("barrier", line=49)
    at_the_gpu = (native("cuStreamSynchronize", "/usr/lib/libcuda.so.580"), *barrier) if inside else barrier
    left = Seen(until=(1, "forward"), exit=Exit(), ended_s=3.2)
    seen = certain(left, Seen(frames=at_the_gpu, **SPINS))
    writes = tuple(replace(look, written_bytes=int(1500 * look.t_s)) for look in seen.evidence.processes)
    assert classify(replace(seen, evidence=replace(seen.evidence, processes=writes))).kind is kind


def test_a_rank_that_ended_may_be_begun_anew_by_what_started_it():
    """A launcher of the program's own that waits some seconds before it starts a rank again."""
    seen = certain(WAITS_FOR_GRADIENTS, Seen(until=(1, "forward"), exit=Exit(), ended_s=3.2))
    assert told(classify(seen)) == "HANG rank-gone high"
    own = seen.evidence.processes
    looks = tuple(replace(look, parent=50) for look in own)
    asleep = [replace(one, id=f"{one.id}-launcher", pid=50, rank=0) for one in own]  # of the one that is left
    for timed, kind in ((False, Kind.HANG), (True, Kind.UNRESOLVED)):
        launcher = tuple(
            replace(
                one,
                threads=(replace(one.threads[0], tid=50, timed=timed, wchan="hrtimer_nanosleep" if timed else "x"),),
                undisturbed_since=one.undisturbed_since and f"{one.undisturbed_since}-launcher",
            )
            for one in asleep
        )
        if not timed:
            held = {"wchan": "do_wait", "call": "wait4", "holders": (100,), "outside": False}
            launcher = tuple(replace(one, threads=(replace(one.threads[0], **held),)) for one in launcher)
        again = replace(seen, evidence=replace(seen.evidence, processes=(*looks, *launcher)))
        verdict = classify(again)
        assert (verdict.kind, verdict.cause == "rank-gone") == (kind, kind is Kind.HANG)


@pytest.mark.parametrize("seen", [certain, case])
def test_a_rank_whose_loop_only_counts_on_is_not_hung(seen):
    """``while`` without a bound may count for ever: it is no progress, and no proof of the opposite."""
    loops = tuple(replace(loop, header="while True:", bound=None, counter="") for loop in counting(3, 8, 14, of=400))
    assert classify(seen(REDUCES, replace(WORKS, loops=loops))).kind is Kind.UNRESOLVED


LATE_AND_AT_WORK = {"collectives": LATE_ON_ITS_GPU, "gpus": (*gpu(0), *gpu(1, watts=560.0))}


def test_a_rank_that_computes_is_not_hung_while_another_makes_marks():
    """As where only the first rank reports, and each has something of its own to do."""
    assert classify(just_marked(case(IN_BARRIER, LOOPS))).kind is not Kind.HANG


def test_a_rank_that_the_last_looks_missed_may_still_come():
    """The other waits for it in a lock of its library, which looks like any other lock."""
    seen = certain(WAITS_FOR_GRADIENTS, WORKS)
    missed = tuple(look for look in seen.evidence.processes if look.rank == 0 or look.t_s < 12.0)
    assert classify(replace(seen, evidence=replace(seen.evidence, processes=missed))).kind is Kind.UNRESOLVED


def test_a_rank_whose_gpu_draws_power_is_at_work_however_long_the_others_wait():
    assert classify(case(ON_ITS_GPU, ON_ITS_GPU, **LATE_AND_AT_WORK)).kind is not Kind.HANG


def test_what_the_outside_could_end_is_never_more_than_likely():
    """The rank that is missing waits for its GPU, of which nothing is known: it may be at work."""
    waits = Seen((1, "forward"), ON_GPU, **SPINS)
    seen = case(ON_ITS_GPU, waits, collectives=(recorded(0, *USUAL, 9, last="started"), recorded(1, *USUAL)))
    assert classify(seen).confidence is not Confidence.HIGH


def test_the_same_broadcast_from_two_lines_may_meet():
    """``if rank == 0: broadcast_object_list(found) else: broadcast_object_list(empty)``, over a slow connection."""
    sends, receives = Seen(frames=calls("broadcast_object_list")), Seen(frames=calls("broadcast_object_list", line=24))
    assert classify(certain(sends, receives)).kind is not Kind.HANG


def test_whoever_has_sent_its_part_of_a_broadcast_may_be_at_the_next_call_already():
    """Rank 0 has handed all to its kernel; the other still receives, over a slow connection."""
    ahead, receives = Seen((1, "optim"), BARRIER), Seen((1, "reduce"), calls("broadcast"))
    assert classify(certain(ahead, receives)).confidence is not Confidence.HIGH


def test_whoever_makes_the_store_and_whoever_joins_it_do_meet_however_long_its_network_takes():
    main = python("host_meeting", "/src/nsa/ranks.py", 60)
    makes = Seen((0, "data"), (*COND_WAIT, native("c10d::TCPStore::TCPStore"), main))
    assert classify(certain(makes, Seen((0, "data"), calls("init_process_group")))).kind is not Kind.HANG


ASKS_ITS_LOADER = (
    python("wait", "/opt/lib/python3.11/multiprocessing/connection.py", 948),
    python("_MultiProcessingDataLoaderIter._try_get_data", f"{SITE}/torch/utils/data/dataloader.py", 1291),
    *STEP,
)


def with_a_worker(frames: tuple[Frame, ...], *, wakes: bool = True, **how: Any) -> Case:
    """Rank 1 asks its DataLoader's only worker for a batch again and again, and the others wait for rank 1."""
    seen = certain(REDUCES, Seen((1, "data"), ASKS_ITS_LOADER, timed=True, wakes=wakes), REDUCES)
    worker = Seen(frames=frames, **how)
    of_worker = [
        replace(look, id=f"{look.id}-w", pid=500, parent=101, threads=(replace(look.threads[0], tid=500),),
                undisturbed_since=look.undisturbed_since and f"{look.undisturbed_since}-w")
        for look in looks(1, worker)
    ]  # fmt: skip
    taken = [
        replace(sample, id=f"{sample.id}-w", pid=500, threads=(replace(sample.threads[0], tid=500),))
        for sample in stacks(1, worker)
    ]
    evidence = replace(
        seen.evidence,
        processes=(*seen.evidence.processes, *of_worker),
        stacks=(*seen.evidence.stacks, *taken),
    )
    return replace(seen, evidence=evidence)


def test_a_ranks_worker_that_is_stuck_is_why_the_rank_does_not_come():
    verdict = classify(with_a_worker(LOCK))
    assert (told(verdict), verdict.rank, verdict.phase) == ("HANG deadlock medium", 1, "data")
    assert "stack-10-w" in verdict.cites


def test_a_loader_with_a_time_limit_of_its_own_may_give_its_worker_up():
    assert classify(with_a_worker(LOCK, wakes=False)).kind is not Kind.HANG


@pytest.mark.parametrize("how", [AT_WORK, {"timed": True}], ids=["decodes", "sleeps on a timer"])
def test_a_ranks_worker_that_may_deliver_is_waited_for(how):
    assert classify(with_a_worker(WORK, **how)).kind is not Kind.HANG


def test_of_two_ranks_the_one_that_breaks_with_the_habit_is_named_and_that_is_said():
    last = (recorded(0, *USUAL, 1000, last="started"), recorded(1, *USUAL, 2_000_000, last="started"))
    verdict = classify(certain(IN_NEXT_FORWARD, IN_NEXT_FORWARD, collectives=last))
    assert "rank 1 did otherwise, which is not what followed these operations before" in verdict.because


def marked(*marks):
    """A rank's marks: phase, edge and step of each, a second apart."""
    return tuple(
        Heartbeat(seq=i, t_s=float(i), rank=0, pid=1, phase=phase, edge=edge, step=step)
        for i, (phase, edge, step) in enumerate(marks)
    )


def of_two(first, second, *, calls):
    """Two ranks with these marks that wait for each other in ``calls``."""
    made = certain(*calls)
    facts = tuple(
        replace(one, heartbeats=marks, heartbeats_total=len(marks))
        for one, marks in zip(made.evidence.ranks, (first, second), strict=True)
    )
    return replace(made, evidence=replace(made.evidence, ranks=facts))


ONE_BACKWARD = (("backward", "begin", 3), ("backward", "end", 3))
SECOND_BEGUN = (*ONE_BACKWARD, ("backward", "begin", 3))


@pytest.mark.parametrize(
    ("theirs", "cause"),
    [
        (ONE_BACKWARD, "collective-mismatch"),  # left the loop over micro-batches after its first
        ((*SECOND_BEGUN, ("backward", "end", 3)), "unused-parameter"),
        # Evaluates alone.
        ((*ONE_BACKWARD, *(("data", edge, 4) for edge in ("begin", "end") * 4)), "collective-mismatch"),
    ],
)
def test_of_several_backwards_a_rank_must_have_ended_the_one_that_the_other_is_in(theirs, cause):
    ranks = marked(*SECOND_BEGUN), marked(*theirs)
    verdict = classify(of_two(*ranks, calls=(WAITS_FOR_GRADIENTS, Seen(frames=BARRIER))))
    assert (verdict.kind, verdict.cause) == (Kind.HANG, cause)


@pytest.mark.parametrize(
    ("stands", "rank"),
    [
        (("forward", "begin", 4), 1),
        (("data", "begin", 4), 1),
        (("data", "end", 4), None),  # as much behind the loop as in it
        (("optim", "end", 3), None),
    ],
)
def test_who_stands_between_two_steps_may_have_left_the_loop_that_the_other_is_still_in(stands, rank):
    still_in_it = (*ONE_BACKWARD, ("data", "end", 4), ("forward", "end", 4), ("reduce", "begin", 4))
    ranks = marked(*ONE_BACKWARD, stands), marked(*still_in_it)
    verdict = classify(of_two(*ranks, calls=(Seen(frames=BARRIER), Seen(frames=ALL_REDUCE))))
    assert (verdict.kind, verdict.cause, verdict.rank) == (Kind.HANG, "collective-mismatch", rank)
    assert ("is further on" in verdict.because) == (rank is not None)


@pytest.mark.parametrize(("steps_done", "rank"), [(3, 0), (4, None)])
def test_who_has_done_the_step_of_its_last_mark_stands_between_two_steps_whatever_that_mark_was(steps_done, rank):
    """Of a program that marks its backwards alone, a call behind the step is as much in the loop as behind it."""
    further = marked(*ONE_BACKWARD, ("backward", "begin", 4), ("backward", "end", 4))
    made = of_two(further, marked(*ONE_BACKWARD), calls=(Seen(frames=ALL_REDUCE), Seen(frames=BARRIER)))
    facts = [replace(one, steps_done=steps_done) for one in made.evidence.ranks]
    verdict = classify(replace(made, evidence=replace(made.evidence, ranks=tuple(facts))))
    assert (verdict.cause, verdict.rank) == ("collective-mismatch", rank)
    if rank is None:
        rank_of = {sample.id: sample.rank for sample in made.evidence.stacks}
        shown = next(rank_of[cited] for cited in verdict.cites if cited in rank_of)
        assert (shown, verdict.confidence) == (1, Confidence.MEDIUM)


def test_an_unused_parameter_belongs_to_the_backward_that_ended_too_early():
    verdict = classify(certain(ON_ITS_GPU, ASKS_WHO_IS_THERE, collectives=NEVER_CALLED))
    assert (verdict.cause, verdict.rank, verdict.phase, verdict.step) == ("unused-parameter", 1, "backward", 1)


# --- Who else may end it ---------------------------------------------------------------------------------------------


IN_STORE = (native("c10d::TCPStore::wait"), python("wait_for_peer", "/src/setup.py", 12), *STEP)
JOINS = (native("PyThread_acquire_lock_timed", LIBPYTHON), python("join", "/lib/python3.11/threading.py", 1112), *STEP)


def beyond(seen: Case) -> Case:
    """The same after all the patience that is due to somebody outside."""
    silent = replace(seen.evidence, silence_s=4.5 * STALL_S)
    return replace(seen, evidence=silent, outcome=replace(seen.outcome, stopped_by=StopReason.STALL, duration_s=99.0))


def in_a_poll(seen: Case, rank: int, limit_s: float | None) -> Case:
    """The same, in which a rank polls with a time limit; None: it goes on with a poll that no look saw begin."""
    how = {"wchan": "poll_schedule_timeout", "call": "poll", "timed": True, "limit_s": limit_s}
    if limit_s is None:
        how |= {"call": "restart", "timed": None}
    processes = tuple(
        replace(look, threads=(replace(look.threads[0], **how), *look.threads[1:])) if look.rank == rank else look
        for look in seen.evidence.processes
    )
    return replace(seen, evidence=replace(seen.evidence, processes=processes))


def test_a_key_that_nobody_is_there_to_set_is_waited_for_in_vain_unless_the_wait_gives_up_soon():
    """``store.wait(keys, timedelta(seconds=26))``: whether the other has come is what it asks."""
    seen = certain(Seen(frames=IN_STORE), REDUCES)
    assert classify(in_a_poll(seen, 0, 1800.0)).kind is Kind.HANG
    assert classify(in_a_poll(seen, 0, 26.0)).kind is Kind.UNRESOLVED
    assert classify(in_a_poll(seen, 0, None)).kind is Kind.UNRESOLVED


def test_a_process_that_is_no_rank_may_set_the_key():
    """An evaluation in a process of its own, which a rank waits for."""
    seen = certain(Seen(frames=IN_STORE), REDUCES)
    assert classify(with_a_helper(seen, parent=100, cpu_share=0.99)).kind is Kind.UNRESOLVED
    assert classify(with_a_helper(seen, parent=100, wchan="pipe_read", holders=(100,), outside=False)).kind is Kind.HANG


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ((native("c10d::FileStore::wait"), python("client", "/src/round.py", 19), *STEP), Kind.UNRESOLVED),
        (IN_STORE, Kind.HANG),
    ],
    ids=["its own key", "torch's"],
)
def test_a_key_in_a_file_may_be_written_by_any_program(frames, kind):
    """A federated round starts when its coordinator says so; keys that torch makes its groups by are the ranks' own."""
    torch_asks = python("_new_process_group_helper", "/venv/lib/python3.11/site-packages/torch/distributed/c10d.py", 7)
    if kind is Kind.HANG:
        frames = (frames[0], torch_asks, *frames[1:])
    seen = certain(Seen(frames=frames), REDUCES)
    processes = tuple(
        replace(look, threads=(replace(look.threads[0], **NAPS), *look.threads[1:])) if look.rank == 0 else look
        for look in seen.evidence.processes
    )
    assert classify(replace(seen, evidence=replace(seen.evidence, processes=processes))).kind is kind


@pytest.mark.parametrize(("has_guests", "kind"), [(False, Kind.HANG), (True, Kind.UNRESOLVED)])
def test_who_is_connected_to_the_jobs_store_may_set_the_key(has_guests, kind):
    """A site's controller looks at the numbers of the first epoch, and says go."""
    seen = certain(Seen(frames=IN_STORE), REDUCES)
    serves = {"wchan": "do_epoll_wait", "call": "epoll_pwait", "timed": False, "outside": True}
    seen = with_a_thread(seen, rank=0, name="pt_tcpstore_uv", has_guests=has_guests, **serves)
    assert classify(seen).kind is kind


@pytest.mark.parametrize(("file", "kind"), [("resource_tracker", Kind.HANG), ("evaluate", Kind.UNRESOLVED)])
def test_a_service_of_multiprocessing_sets_no_key(file, kind):
    """Whoever waits for a rank gives its tracker of shared memory something to do, now or later."""
    seen = certain(Seen(frames=IN_STORE), REDUCES)
    frames = (python("main", f"/usr/lib/python3.11/multiprocessing/{file}.py", 239),)
    waits = {"wchan": "pipe_read", "call": "pipe-read", "timed": False, "holders": (), "outside": True}
    assert classify(with_a_helper(seen, parent=100, frames=frames, **waits)).kind is kind


def with_a_waiting_thread(seen: Case, rank: int, frames: tuple[Frame, ...]) -> Case:
    """The same, in which a second thread of one rank waits in these frames."""
    thread = ThreadStack(tid=800 + rank, name="saver", frames=frames, owns_gil=False)
    taken = tuple(
        replace(s, threads=(*s.threads, thread)) if s.rank == rank else s for s in seen.evidence.stacks
    )  # fmt: skip
    still = with_a_thread(seen, rank=rank, wchan="futex_do_wait", call="futex", timed=False).evidence.processes
    processes = tuple(
        replace(
            look, threads=tuple(replace(t, voluntary_switches=5) if t.tid == 800 + rank else t for t in look.threads)
        )
        for look in still
    )
    return replace(seen, evidence=replace(seen.evidence, stacks=taken, processes=processes))


@pytest.mark.parametrize(
    ("peer", "kind"),
    [(Seen(frames=WORK, state="R", cpu_share=0.99), Kind.UNRESOLVED), (IN_LOCK, Kind.HANG)],
    ids=["works", "is stuck"],
)
def test_a_thread_that_waits_in_a_collective_may_be_let_go_on_by_a_rank_that_works(peer, kind):
    """A checkpoint is saved by threads with a group of their own: one waits for the other rank's, which compresses."""
    seen = with_a_waiting_thread(certain(Seen(frames=JOINS), peer), 0, BARRIER)
    assert classify(seen).kind is kind


@pytest.mark.parametrize(
    ("limits_s", "silence_s", "kind"),
    [
        ((), 9.0, Kind.HANG),
        ((38.0,), 9.0, Kind.UNRESOLVED),
        ((2.5, 38.0, 1800.0), 41.0, Kind.UNRESOLVED),  # an error of a time limit may be late
        ((38.0,), 44.0, Kind.HANG),  # it is not that group
        ((600.0,), 9.0, Kind.HANG),  # torch's own, and whoever is as patient
    ],
)
def test_a_group_with_a_short_time_limit_is_a_question_and_its_error_may_be_the_answer(limits_s, silence_s, kind):
    """Rank 0 reduces in a group of 38 s, and deals with the error; rank 1 waits for what it sends then."""
    seen = certain(REDUCES, Seen(frames=calls("recv")))
    first, second = seen.evidence.ranks
    first = replace(first, limits_s=limits_s, silence_s=silence_s)
    assert classify(replace(seen, evidence=replace(seen.evidence, ranks=(first, second)))).kind is kind


def test_a_rank_that_sleeps_where_it_never_slept_before_has_left_the_call_of_its_stacks():
    """Its wait in the store gave up a moment ago: what is left of the silence is a pause of the program's own."""
    seen = certain(Seen(frames=IN_STORE), Seen(frames=calls("recv")))
    assert classify(seen).kind is Kind.HANG
    last_s = max(look.t_s for look in seen.evidence.processes)
    processes: list[Any] = []
    for look in seen.evidence.processes:
        if look.t_s == last_s and look.rank == 0:
            threads = tuple(replace(one, **NAPS) if one.tid == look.pid else one for one in look.threads)
            look = replace(look, threads=threads)
        processes.append(look)
    assert classify(replace(seen, evidence=replace(seen.evidence, processes=tuple(processes)))).kind is Kind.UNRESOLVED


def test_a_lock_whose_holder_waits_in_a_collective_for_a_rank_that_waits_in_another():
    """The main thread of rank 0 wants the weights' lock, its saver has it and meets rank 1, which sums gradients."""
    verdict = classify(with_a_waiting_thread(certain(IN_LOCK, REDUCES), 0, BARRIER))
    assert (verdict.kind, verdict.cause, verdict.rank) == (Kind.HANG, "deadlock", 0)
    assert "its thread saver waits in barrier, called from " in verdict.because
    works = Seen(frames=WORK, state="R", cpu_share=0.99)
    assert classify(with_a_waiting_thread(certain(IN_LOCK, works), 0, BARRIER)).kind is Kind.UNRESOLVED


def with_a_helper(
    seen: Case,
    *,
    parent: int,
    frames: tuple[Frame, ...] = (),
    command: str = "python",
    cpu_share: float = 0.0,
    **how: Any,
) -> Case:
    """The same with a process of the job beside the ranks."""
    state = "R" if cpu_share else "S"
    extra = tuple(
        replace(look, id=f"helper-{look.id}", pid=500, parent=parent, command=command,
                threads=(replace(look.threads[0], tid=500, state=state, cpu_s=cpu_share * look.t_s, **how),),
                undisturbed_since=look.undisturbed_since and f"helper-{look.undisturbed_since}")
        for look in seen.evidence.processes if look.rank == 0
    )  # fmt: skip
    thread = ThreadStack(tid=500, name="MainThread", frames=frames, owns_gil=False)
    taken = tuple(
        replace(s, id=f"helper-{s.id}", pid=500, threads=(thread,))
        for s in seen.evidence.stacks if s.rank == 0 and frames
    )  # fmt: skip
    own = seen.evidence
    return replace(seen, evidence=replace(own, processes=(*own.processes, *extra), stacks=(*own.stacks, *taken)))


NAPS = {"wchan": "hrtimer_nanosleep", "call": "clock_nanosleep", "timed": True}


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        (NAPS, Kind.UNRESOLVED),
        ({"wchan": "poll_schedule_timeout", "call": "restart", "timed": None}, Kind.UNRESOLVED),  # stopped as it began
        ({"command": "sleep", **NAPS}, Kind.HANG),
        ({"wchan": "pipe_read", "holders": (100,), "outside": False}, Kind.HANG),
    ],
    ids=["sleeps until then", "polls until then", "only sleeps", "waits for the ranks"],
)
@pytest.mark.parametrize("stuck", [IN_LOCK, STOPPED])
def test_a_helper_that_sleeps_may_end_or_continue_a_rank(stuck, how, kind):
    seen = with_a_helper(certain(WAITS_FOR_GRADIENTS, stuck), parent=101, **how)
    assert classify(seen).kind is kind
    assert classify(beyond(seen)).kind is Kind.HANG


POLLS = {"wchan": "poll_schedule_timeout", "call": "poll", "timed": True, "holders": (), "outside": True}


@pytest.mark.parametrize(
    ("command", "parent", "how", "kind"),
    [
        ("perl", 101, NAPS, Kind.UNRESOLVED),
        ("perl", 101, POLLS, Kind.UNRESOLVED),
        ("perl", 0, NAPS, Kind.UNRESOLVED),
        ("perl", 0, POLLS, Kind.HANG),
        ("tail", 101, NAPS, Kind.HANG),
    ],
    ids=["naps beside it", "polls beside it", "naps above it", "polls above it", "shows a log"],
)
def test_a_program_that_nobody_can_read_and_that_sends_signals_may_end_what_is_stuck(command, parent, how, kind):
    """Of a launcher that wakes in a poll to ask, as mpirun does, nothing else is to be expected."""
    seen = with_a_helper(certain(WAITS_FOR_GRADIENTS, IN_LOCK), parent=parent, command=command, **how)
    rows: dict[str, ProcessState] = {}
    for number, look in enumerate(look for look in seen.evidence.processes if look.pid == 500):
        thread = replace(look.threads[0], voluntary_switches=number)
        rows[look.id] = replace(look, threads=(thread,), sends_signals=True)
    above = {look.id: replace(look, parent=500) for look in seen.evidence.processes if look.rank == 1 and not parent}
    processes = tuple(rows.get(look.id) or above.get(look.id) or look for look in seen.evidence.processes)
    assert classify(replace(seen, evidence=replace(seen.evidence, processes=processes))).kind is kind


def met_awake(seen: Case, **how: Any) -> Case:
    """The same, in which the helper is awake at the last look, or as ``how`` says, and woke before it now and then."""
    looks = [look for look in seen.evidence.processes if look.pid == 500]
    woken: dict[str, ProcessState] = {}
    for number, look in enumerate(looks):
        thread = replace(look.threads[0], voluntary_switches=number)
        if look is looks[-1]:
            thread = replace(thread, **{"state": "R", "wchan": "", "call": "", "timed": None, **how})
        woken[look.id] = replace(look, state=thread.state, threads=(thread,))
    processes = tuple(woken.get(look.id, look) for look in seen.evidence.processes)
    return replace(seen, evidence=replace(seen.evidence, processes=processes))


def test_a_helper_that_counts_its_naps_may_end_a_rank_also_when_it_is_met_awake():
    """Of what wakes once a second one look in a hundred or so finds it between two naps."""
    counts = (python("<module>", "/src/kill_later.py", 2),)
    naps = with_a_helper(certain(WAITS_FOR_GRADIENTS, IN_LOCK), parent=101, frames=counts, **NAPS)
    stacks = tuple(replace(sample, actors=(500,)) if sample.pid == 500 else sample for sample in naps.evidence.stacks)
    naps = replace(naps, evidence=replace(naps.evidence, stacks=stacks))
    assert classify(naps).kind is Kind.UNRESOLVED
    assert classify(met_awake(naps)).kind is Kind.UNRESOLVED
    sleeper = {"wchan": "do_wait", "call": "wait4", "timed": False, "holders": (501,), "outside": False}
    script = with_a_helper(certain(WAITS_FOR_GRADIENTS, IN_LOCK), parent=101, command="bash", **sleeper)
    assert classify(met_awake(script)).kind is Kind.UNRESOLVED  # ``for i in $(seq 40); do sleep 1; done; kill $PID``
    forks = met_awake(script, state="D", wchan="kernel_clone", call="clone3", timed=False, holders=(), cpu_s=0.02)
    assert classify(forks).kind is Kind.UNRESOLVED
    computes = with_a_helper(certain(WAITS_FOR_GRADIENTS, IN_LOCK), parent=101, cpu_share=0.99)
    assert classify(computes).kind is Kind.HANG


def test_a_process_of_a_rank_that_waits_in_a_collective_waits_for_others_of_its_like():
    """The processes that save checkpoints have a group of their own; a rank waits for its own one on a pipe."""
    on_a_pipe = Seen(
        frames=(native("read", LIBC), python("recv", "/lib/python3.11/multiprocessing/connection.py", 250), *STEP)
    )
    seen = certain(on_a_pipe, Seen(frames=WORK, state="R", cpu_share=0.99))
    on_pipe = {"wchan": "pipe_read", "call": "pipe-read", "holders": (500,), "outside": False}
    piped = tuple(
        replace(look, threads=(replace(look.threads[0], **on_pipe), *look.threads[1:])) if look.rank == 0 else look
        for look in seen.evidence.processes
    )
    seen = replace(seen, evidence=replace(seen.evidence, processes=piped))
    lock = {"wchan": "futex_do_wait", "call": "futex", "timed": False}
    assert classify(with_a_helper(seen, parent=100, frames=BARRIER, **lock)).kind is Kind.UNRESOLVED
    assert classify(with_a_helper(seen, parent=100, frames=LOCK, **lock)).kind is Kind.HANG


BELOW_TORCHRUN = """{own}[rank0]: Traceback (most recent call last):
[rank0]:   File "/job/train.py", line 8, in train
[rank0]: RuntimeError: Read error [127.0.0.1]:64392: Connection reset by peer
E1127 08:33:48.872000 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 7) local_rank: 1
Traceback (most recent call last):
  File "/venv/lib/torch/distributed/launcher/api.py", line 383, in launch_agent
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
{rule}
train.py FAILED
{rule}
"""


@pytest.mark.parametrize(
    ("own", "quote"), [("", "without a result;"), ("shard 3\n-----\n", "without a result; stderr ends: shard 3;")]
)
def test_a_rank_that_exits_is_quoted_with_its_own_last_words_and_not_the_launchers(own, quote):
    text = BELOW_TORCHRUN.format(own=own, rule=60 * "=")
    verdict = classify(ended(LOST, Seen(exit=Exit(code=7), ended_s=4.0), text=text))

    assert (verdict.cause, verdict.rank) == ("exit-7", 1)
    assert quote in verdict.because


OWN_LINES = """{mark}Traceback (most recent call last):
{mark}  File "/job/train.py", line 3, in next_batch
{mark}ValueError: batch is empty
"""


@pytest.mark.parametrize(
    ("own", "signature"),
    [
        ("", "CRASH exit-7"),
        (OWN_LINES.format(mark=""), "CRASH exit-7: train.next_batch"),
        (OWN_LINES.format(mark="[rank1]: "), "CRASH exit-7: train.next_batch"),
    ],
)
def test_a_rank_that_exits_is_known_again_by_its_own_lines_and_not_by_the_launchers(own, signature):
    text = BELOW_TORCHRUN.format(own=own, rule=60 * "=")
    verdict = classify(ended(LOST, Seen(exit=Exit(code=7), ended_s=4.0), text=text))
    assert verdict.signature == signature


@pytest.mark.parametrize(("stopped", "confidence"), [(0, Confidence.MEDIUM), (1, Confidence.PROOF)])
def test_the_failure_of_a_rank_is_doubted_after_a_stop_of_that_very_rank(stopped, confidence):
    sample = replace(stacks(stopped, REDUCES)[0], t_s=2.5, stopped_s=0.2)
    failed = replace(KILLED, exit=Exit(code=7))
    verdict = classify(ended(failed, LOST, stacks=(sample,), text="read: Interrupted system call\n"))
    assert (verdict.kind, verdict.rank, verdict.confidence) == (Kind.CRASH, 0, confidence)
    doubt = "process 100 had been stopped by us for 200 ms, 0.5 s before" in verdict.because
    assert doubt is (confidence is Confidence.MEDIUM)


def beside_rank_1(seen: Case, stack: ThreadStack, *, name: str, cpu_share: float, moves: int) -> Case:
    """With another thread in rank 1, by which it touches ``moves`` new pages and reads as much at each look."""
    processes: list[ProcessState] = []
    for n, look in enumerate(seen.evidence.processes):
        if look.rank == 1:
            thread = replace(look.threads[0], tid=950, name=name, state="S", wchan="futex_do_wait", timed=False)
            thread = replace(thread, cpu_s=1.0 + cpu_share * look.t_s)
            moved = {"minor_faults": 7 + moves * n, "read_bytes": 5 + 1000 * moves * n}
            look = replace(look, threads=(*look.threads, thread), **moved)
        processes.append(look)
    stacks_of_1 = (replace(s, threads=(*s.threads, stack)) if s.rank == 1 else s for s in seen.evidence.stacks)
    return replace(seen, evidence=replace(seen.evidence, processes=tuple(processes), stacks=tuple(stacks_of_1)))


IMPORTS = ThreadStack(tid=950, name="", frames=(python("get_code", "<frozen importlib._bootstrap_external>", 1129),))


@pytest.mark.parametrize(
    ("name", "kind"), [("pt_nccl_heartbt", Kind.HANG), ("python", Kind.UNRESOLVED)], ids=["a recorder", "another"]
)
def test_a_loop_is_without_an_end_whatever_moves_because_we_asked_for_a_recorder(name, kind):
    """NCCL's recorder wants the lock that the loop keeps, and imports packages for half a minute to write its file."""
    loops = Seen((1, "data"), LOOP, **AT_WORK, loops=endless())
    moved = beside_rank_1(certain(IN_BARRIER, loops), IMPORTS, name=name, cpu_share=0.3, moves=400)
    verdict = classify(moved)
    assert verdict.kind is kind
    assert verdict.rank == 1


AT_THE_GPU = ThreadStack(
    tid=950,
    name="teacher",
    frames=(native("cuEventSynchronize", "/usr/lib/libcuda.so.580"), python("answer", "/src/t.py", 50)),
)


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        (AT_THE_GPU, Kind.UNRESOLVED),
        (replace(AT_THE_GPU, frames=(python("synchronize", "/v/torch/cuda/streams.py", 254),)), Kind.UNRESOLVED),
        (replace(AT_THE_GPU, frames=LOCK), Kind.HANG),
    ],
    ids=["at the GPU", "by Python alone", "in another lock"],
)
def test_who_waits_for_a_thread_that_sleeps_until_its_gpu_is_done_waits_for_the_gpu(stack, kind):
    """An event made with ``blocking=True`` lets its thread sleep in a lock: to the kernel nothing can end that."""
    behind = certain(ON_ITS_GPU, Seen((1, "forward"), LOCK))
    behind = beside_rank_1(behind, stack, name="python", cpu_share=0.0, moves=0)
    assert classify(behind).kind is kind


SENDS = calls("send", line=30)
RECEIVES = calls("recv", line=31)


@pytest.mark.parametrize("call", [SENDS, RECEIVES], ids=["send", "receive"])
def test_two_ranks_that_exchange_something_are_no_majority(call):
    """Rank 2 may have nobody to exchange with in this round, and be rightly in the barrier behind it."""
    verdict = classify(certain(Seen(frames=call), Seen(frames=call), Seen(frames=BARRIER)))
    assert (verdict.kind, verdict.rank) == (Kind.HANG, None)
    assert "nothing shows whose call is the wrong one" in verdict.because


def test_against_a_rank_that_makes_a_group_no_majority_counts():
    """The group may be of two ranks, and the calls of the others of other twos: whoever made them in another order."""
    reduces = Seen(frames=calls("all_reduce", line=23))
    verdict = classify(certain(reduces, Seen(frames=calls("new_group", line=13)), reduces))
    assert (verdict.kind, verdict.rank) == (Kind.HANG, None)
    assert "nothing shows whose call is the wrong one" in verdict.because
