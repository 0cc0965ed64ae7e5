"""The rules for several ranks: each fires on its own evidence, stays silent on all other, and names the rank."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from harness.classify.engine import ALWAYS, RANK_RULES, classify
from harness.classify.facts import known_ids
from harness.core.devices import Collective, CollectiveState, GpuProcess, GpuSample
from harness.core.evidence import (
    Evidence,
    Frame,
    GradientTruth,
    Heartbeat,
    LogTail,
    Measurement,
    ProcessState,
    RankFacts,
    StackSample,
    ThreadStack,
    ThreadState,
    WorkerResult,
)
from harness.core.outcome import Ending, Exit, Outcome, StopReason
from harness.core.pace import Pace
from harness.core.point import Point
from harness.core.success import Success
from harness.core.trial import Budget, Limit, Trial
from harness.core.verdict import Case, Kind

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
    cpu_share: float = 0.0
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
            voluntary_switches=5,
            involuntary_switches=5,
            timed=seen.timed,
        )
        # gloo's own thread polls a hundred times a second, whatever the program does.
        ticker = replace(main, tid=900 + rank, name="gloo_tcp_loop", state="S", timed=True, cpu_s=t_s * 0.004)
        ticker = replace(ticker, voluntary_switches=int(100 * t_s))
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
                others_cpu_s=0.0,
                undisturbed_since=f"proc-{10 * rank + i}" if i % 2 else None,
            )
        )
    return tuple(found)


def stacks(rank: int, seen: Seen) -> tuple[StackSample, ...]:
    pid = 100 + rank
    threads = (ThreadStack(tid=pid, name="MainThread", frames=seen.frames, owns_gil=False),)
    return tuple(
        StackSample(
            id=f"stack-{10 * rank + i}", source="py-spy", native=True, t_s=9.0 + i, rank=rank, pid=pid, threads=threads
        )
        for i in range(3)
    )


def case(
    *ranks: Seen,
    ending: Ending = Ending.STOPPED_BY_US,
    stopped_by: StopReason | None = StopReason.STALL,
    exit: Exit | None = None,
    duration_s: float = END_S,
    text: str = "",
    success: Success | None = None,
    **evidence: object,
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


def ended(*ranks: Seen, code: int = 1, **more: object) -> Case:
    """Every rank ended by itself."""
    return case(*ranks, ending=Ending.EXITED, stopped_by=None, exit=Exit(code=code), **more)


def certain(*ranks: Seen) -> Case:
    return case(*ranks, stopped_by=StopReason.CERTAIN)


def watched(*ranks: Seen) -> Case:
    """A job that somebody else started; nothing certain was seen."""
    return case(*ranks, ending=Ending.STILL_RUNNING, stopped_by=None)


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


ON_GPU = (native("cuStreamSynchronize", "/usr/lib/libcuda.so.580"), python("Run._optimize", "/src/run.py", 9), *STEP)
ROLL_CALL = calls("monitored_barrier", line=40)
SPINS = {"state": "R", "cpu_share": 0.99}
"""A rank that waits for its GPU burns a core in the driver."""

USUAL = (1000, 9, 1000, 9)


def gpu(rank: int, *, xids: tuple[int, ...] = (), start_s: float = 9.0) -> tuple[GpuSample, ...]:
    """The rank's GPU as one reads that waits inside NCCL, or spins."""
    return tuple(
        GpuSample(
            id=f"gpu-{10 * rank + i}", t_s=start_s + i, index=rank, name="NVIDIA H200", utilisation=100,
            memory_utilisation=0, power_w=121.0, power_limit_w=700.0,
            processes=(GpuProcess(pid=100 + rank, ours=True),), xids=xids,
        )
        for i in range(3)
    )  # fmt: skip


BOTH_SPIN = (*gpu(0), *gpu(1))
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

CANNED: dict[str, list[tuple[Case, str | None, int | None]]] = {
    "interrupted": [(case(IN_LOCK, WAITS_FOR_GRADIENTS, stopped_by=StopReason.INTERRUPT), "interrupted", None)],
    "infra": [(case(Seen(), Seen(), ending=Ending.NEVER_STARTED, stopped_by=None), "never-started", None)],
    "xid": [(case(Seen((1, "optim"), ON_GPU, **SPINS), WAITS_FOR_GRADIENTS, gpus=gpu(0, xids=(79,))), "xid-79", 0)],
    "running": [
        (watched(Seen(frames=WORK, state="R", cpu_share=0.9), WAITS_FOR_GRADIENTS), "moving", 0),
        (watched(WAITS_FOR_GRADIENTS, WAITS_FOR_GRADIENTS), "may-go-on", None),
        (watched(WAITS_FOR_GRADIENTS, Seen(exit=Exit(), ended_s=0.0)), "rank-gone", 1),
    ],
    "gradients_wrong": [
        (ended(*FINISHED, code=0, success=TRUE_GRADIENTS, steps_done=5, gradients=WRONG), "gradients-wrong", None),
        (ended(*FINISHED, code=0, success=TRUE_GRADIENTS, steps_done=5), "gradients-unknown", None),
    ],
    "ranks_passed": [
        (ended(*FINISHED, code=0, steps_done=5), None, None),
        (ended(*FINISHED, code=0, success=TRUE_GRADIENTS, steps_done=5, gradients=RIGHT), None, None),
    ],
    "rank_failed": [
        (ended(LOST, KILLED), "SIGKILL", 1),
        (ended(LOST, LEFT), "exit-early", 1),
        (ended(Seen(exit=Exit(code=1), ended_s=4.0, result=raised("ValueError", "shapes")), LOST), "ValueError", 0),
        # Nobody tells the others, as with NCCL: they wait until we end them.
        (certain(WAITS_FOR_GRADIENTS, KILLED), "SIGKILL", 1),
        # The vote has every rank raise at once, whoever had the NaN.
        (
            ended(
                *(
                    Seen(
                        exit=Exit(code=1),
                        ended_s=4.0 + rank,
                        result=raised("nsa.errors.NonFiniteLoss", "loss = nan at step 1 on rank 1", rank=rank),
                    )
                    for rank in range(2)
                )
            ),
            None,
            1,
        ),
        (ended(Seen(exit=Exit(signal=6), ended_s=4.0), LOST, text=GLOO_SIZES), "collective-mismatch", None),
        (
            ended(
                *(
                    Seen(exit=Exit(code=1), ended_s=4.0, result=raised("RuntimeError", SHAPES, rank=rank))
                    for rank in range(2)
                )
            ),
            "collective-mismatch",
            None,
        ),
    ],
    "collective_timeout": [
        # The waiting side says who is missing, and the missing one is still there to be looked at.
        (
            certain(
                Seen((1, "reduce"), exit=Exit(code=1), ended_s=5.0, result=lost(0, accuses=1)),
                Seen((1, "data"), frames=LOCK),
            ),
            "collective-timeout",
            1,
        ),
        # Nobody accuses; one is gone without a word, as below torchrun.
        (
            ended(Seen((1, "reduce"), result=cut_off(0)), Seen((1, "data"))),
            "rank-lost",
            1,
        ),
        # Nobody says, but one is behind.
        (
            ended(
                Seen((1, "reduce"), exit=Exit(code=1), ended_s=5.0, result=lost(0)),
                Seen((1, "data"), exit=Exit(code=1), ended_s=6.0, result=lost(1)),
            ),
            "collective-timeout",
            1,
        ),
    ],
    "ranks_crashed": [
        # A launcher that says nothing of its ranks, and ranks that say nothing themselves.
        (ended(Seen(), Seen(), code=7), "exit-7", None),
        (ended(Seen(), Seen(), code=0), "exit-early", None),
    ],
    "collective_parted": [
        # Rank 1 left out an all_reduce that it had always made, and waits for rank 0 elsewhere.
        (
            case(
                Seen((2, "forward"), ON_GPU, **SPINS),
                Seen((2, "reduce"), ROLL_CALL),
                collectives=(recorded(0, *USUAL, 1000, last="started"), recorded(1, *USUAL)),
            ),
            "collective-mismatch",
            1,
        ),
        # Another size than what used to follow; nothing else tells two ranks apart.
        (
            case(
                Seen((2, "forward"), ON_GPU, **SPINS),
                Seen((2, "forward"), ON_GPU, **SPINS),
                collectives=(
                    recorded(0, *USUAL, 1000, last="started"),
                    recorded(1, *USUAL, 2_000_000, last="started"),
                ),
            ),
            "collective-mismatch",
            1,
        ),
        # Another operation, with nothing to compare with: nobody is blamed.
        (
            case(
                Seen((2, "forward"), ON_GPU, **SPINS),
                Seen((2, "forward"), ON_GPU, **SPINS),
                collectives=(recorded(0, 7, last="started"), recorded(1, None, last="started")),
            ),
            "collective-mismatch",
            None,
        ),
        # DDP launched what rank 1 ended its backward without.
        (
            case(
                Seen((1, "optim"), ON_GPU, **SPINS),
                Seen((2, "reduce"), ROLL_CALL),
                collectives=(recorded(0, *USUAL, 1000, last="started"), recorded(1, *USUAL)),
            ),
            "unused-parameter",
            1,
        ),
        # All called it, and on one GPU it has not begun.
        (
            case(
                Seen((1, "optim"), ON_GPU, **SPINS),
                Seen((1, "optim"), ON_GPU, **SPINS),
                collectives=(recorded(0, *USUAL, last="started"), recorded(1, *USUAL, last="scheduled")),
                gpus=BOTH_SPIN,
            ),
            "gpu-spin",
            1,
        ),
        # One waits for its GPU and for nobody, the other for it.
        (
            case(
                Seen((1, "optim"), ON_GPU, **SPINS),
                Seen((1, "forward"), ON_GPU, **SPINS),
                collectives=(recorded(0, *USUAL, 9, last="started"), recorded(1, *USUAL)),
                gpus=BOTH_SPIN,
            ),
            "gpu-spin",
            1,
        ),
    ],
    "rank_missing": [
        # Their recorders agree on who is missing, and its stack says why.
        (
            case(
                Seen((1, "optim"), ON_GPU, **SPINS),
                IN_LOCK,
                collectives=(recorded(0, *USUAL, 9, last="started"), recorded(1, *USUAL)),
            ),
            "deadlock",
            1,
        ),
        (case(WAITS_FOR_GRADIENTS, IN_LOCK), "deadlock", 1),
        (certain(IN_LOCK, WAITS_FOR_GRADIENTS), "deadlock", 0),
        (case(WAITS_FOR_GRADIENTS, Seen(frames=LOCK, state="T")), "stopped", 1),
        (case(Seen(frames=ALL_REDUCE), Seen(frames=ALL_REDUCE), IN_LOCK, Seen(frames=ALL_REDUCE)), "deadlock", 2),
        (case(Seen((1, "reduce"), BARRIER), Seen((1, "data"), LOOP, state="R", cpu_share=0.9)), "infinite-loop", 1),
        (case(IN_LOCK, IN_LOCK), "deadlock", None),
    ],
    "collective_mismatch": [
        # Of two, the one that went past the call never made it.
        (certain(Seen((1, "data"), ALL_REDUCE), Seen((1, "reduce"), BARRIER)), "collective-mismatch", 1),
        # At the same mark, nobody can say.
        (certain(Seen(frames=ALL_REDUCE), Seen(frames=BARRIER)), "collective-mismatch", None),
        # Of four, the odd one out.
        (
            certain(Seen(frames=BARRIER), Seen(frames=BARRIER), Seen(frames=ALL_REDUCE), Seen(frames=BARRIER)),
            "collective-mismatch",
            2,
        ),
        (certain(WAITS_FOR_GRADIENTS, Seen((2, "reduce"), BARRIER)), "unused-parameter", 1),
    ],
    "collective_stuck": [(case(Seen(frames=ALL_REDUCE), Seen(frames=ALL_REDUCE)), "collective-stuck", None)],
    "rank_slow": [
        (
            case(
                Seen((3, "forward"), last_s=19.8, gap_s=0.5),
                Seen((3, "forward"), last_s=19.7, gap_s=0.5),
                stopped_by=StopReason.TOTAL,
                measurement=Measurement(startup_s=1.0, step_s=(5.0, 5.0)),
            ),
            None,
            None,
        ),
        (case(Seen(frames=ALL_REDUCE), Seen((1, "data"), SLEEP, timed=True)), "straggler", 1),
    ],
    "ranks_unresolved": [
        # It computes, and nothing tells a long piece of work from an endless one.
        (case(Seen(frames=ALL_REDUCE), Seen((1, "data"), WORK, state="R", cpu_share=0.9)), "straggler", 1),
    ],
}
"""Rule -> cases, each with the cause and the rank that the verdict must name."""

EVERY = [(rule, *row) for rule, rows in CANNED.items() for row in rows]
IDS = [f"{rule}-{i}" for rule, rows in CANNED.items() for i in range(len(rows))]
SHARED = {"misconfigured", "nonfinite_loss", "below_target", "parted_once"}
"""Rules that have their evidence elsewhere: those for one process, and one for recordings of others."""


def test_every_rule_has_canned_evidence():
    assert [name for name in RANK_RULES if name not in SHARED] == list(CANNED)


@pytest.mark.parametrize(("rule", "canned", "cause", "rank"), EVERY, ids=IDS)
def test_the_verdict_is_that_of_its_rule_and_names_cause_and_rank(rule, canned, cause, rank):
    verdict = classify(canned)
    assert verdict.rule == rule, verdict.because
    assert (verdict.cause, verdict.rank) == (cause, rank)
    assert verdict.because
    assert verdict.cites
    assert set(verdict.cites) <= known_ids(canned)


@pytest.mark.parametrize(("rule", "canned", "_cause", "_rank"), EVERY, ids=IDS)
def test_a_rule_stays_silent_on_the_evidence_of_all_others(rule, canned, _cause, _rank):
    if rule == "interrupted":
        return  # however sure a hang looks, the user ended it
    fired = {name for name in RANK_RULES if RANK_RULES.load(name)(canned) is not None}
    # What would pass, but for its gradients, passes too.
    assert fired - ALWAYS == {rule, *({"ranks_passed"} if rule == "gradients_wrong" else ())} - ALWAYS


@pytest.mark.parametrize(("rule", "canned", "_cause", "_rank"), EVERY, ids=IDS)
def test_nothing_is_a_hang_while_any_rank_moves(rule, canned, _cause, _rank):
    """The same evidence with one rank's marks up to the end is never a HANG."""
    if canned.outcome.stopped_by is not StopReason.STALL:
        return
    first, *rest = canned.evidence.ranks
    moving = replace(first, silence_s=0.0)
    evidence = replace(canned.evidence, silence_s=0.0, ranks=(moving, *rest))
    assert classify(replace(canned, evidence=evidence)).kind is not Kind.HANG


def test_a_missing_rank_is_named_with_where_the_others_wait():
    verdict = classify(case(WAITS_FOR_GRADIENTS, IN_LOCK))
    assert verdict.because.startswith(
        "rank 1 does not come: it waits in log_gradient (src/hooks.py:9), in backward of step 1; "
        "rank 0 waits in the all-reduce of gradients, in backward of step 1; rank 1 silent for 17.0 s in backward"
    )
    assert (verdict.kind, verdict.phase) == (Kind.HANG, "backward")


def test_a_timeout_names_the_rank_that_did_not_come_and_not_the_one_that_says_so():
    (canned, _, _), *_ = CANNED["collective_timeout"]
    verdict = classify(canned)
    assert verdict.kind is Kind.CRASH
    assert verdict.because.startswith("rank 1 is missing (the others called the roll): deadlock")
    assert "rank 0 gave up waiting" in verdict.because


def test_two_equal_sides_leave_the_other_explanation_open():
    (canned, _, _), *_ = CANNED["collective_mismatch"]
    other, *_ = classify(canned).alternatives
    assert other.because == "rank 0 makes one call too many, rather than rank 1 one too few"
    assert other.experiment


QUICK = Pace(steps=3, longest_s=0.02, gaps=tuple((phase, edge, 0.02) for phase in PHASES for edge in ("begin", "end")))


@pytest.mark.parametrize(("watts", "kind"), [(121.0, Kind.HANG), (560.0, Kind.UNRESOLVED)])
def test_a_gpu_that_draws_power_is_not_held_against_the_pace(watts, kind):
    """One rank that evaluates on its GPU while the others wait looks like an endless kernel, but for its power."""
    at_work = tuple(replace(sample, power_w=watts) for sample in BOTH_SPIN)
    waits = Seen((1, "optim"), ON_GPU, **SPINS)
    late = {"collectives": (recorded(0, *USUAL, last="started"), recorded(1, *USUAL, last="scheduled"))}
    assert classify(case(waits, waits, **late, gpus=at_work)).cause == "gpu-spin"  # at a limit, both are
    paced = case(waits, waits, **late, gpus=at_work, stopped_by=StopReason.PACE, pace=QUICK, silence_s=9.0)
    assert classify(paced).kind is kind
