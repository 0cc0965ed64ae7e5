"""SPECIMENS: programs with a known fault and a declared verdict.

A specimen is planted into a healthy trainer from outside: when the trainer announces the phase and step where the
specimen strikes, the worker calls its function, in the trainer's own process and thread. Nothing inside the model
or the trainer knows of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from harness.core.verdict import Kind
from harness.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.core.outcome import Outcome
    from harness.core.point import Value
    from harness.core.verdict import Verdict


LATER = 3
"""A step before which three were done, so that the trainer has a pace of its own (``harness.reading.pace``)."""


NOBODYS = frozenset({Kind.PASS, Kind.INFRA})
"""Verdicts in which no rank and no phase of the program is at fault."""


class Needs(StrEnum):
    """What a specimen needs of the machine, from least to most."""

    CPU = "cpu"
    GLOO = "gloo"
    GPU = "gpu"
    NCCL = "nccl"


@dataclass(slots=True, kw_only=True)
class Scene:
    """What a specimen may use when it strikes.

    ``rank`` it strikes in, of ``world``; the trainer computes on ``device`` (``cpu``, ``cuda:1``) and is at ``step``.
    ``random`` gives uniform numbers in [0, 1), seeded by the trial (its seed, point and repeat). ``state`` is the
    trainer's own (``nsa.train.probe.TrainingState``), None before it is built.
    """

    trial_dir: Path
    random: Callable[[], float]
    step: int = 0
    state: Any = None
    rank: int = 0
    world: int = 1
    device: str = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """A fault, or something that only looks like one: when it strikes, what it does, what the verdict must be.

    When: ``phase`` and ``step``, at the phase's beginning; ``inside_backward`` runs it inside the autograd engine,
    from a gradient hook; ``every_step`` repeats it from ``step`` on; ``at_rank`` names the one rank that it strikes
    in (None: all).

    Verdict: kind ``expect``, or one of ``or_else`` when ``flaky`` (it strikes only sometimes); ``cause`` where the
    kind has one; ``expect_rank`` and ``expect_phase`` where they are not those in which it strikes; ``expect_frame``,
    a function that the reason or the signature must name. A ``look_alike`` looks like a hang and is none.

    Surroundings: ``needs`` and ``world`` (ranks) are what it takes to run it; ``settings`` change the healthy trainer
    that it is planted in; ``startup_s``, ``stall_s`` and ``total_s`` are the limits it is meant to be watched with
    (None: any), ``max_address_space_bytes`` the limit it runs into, ``leaves_processes`` whether others outlive it
    unless swept.

    ``name`` is that of its row in the table.
    """

    strike: Callable[[Scene], None]
    expect: Kind
    imitates: str
    name: str = ""
    cause: str | None = None
    phase: str = "forward"
    step: int = 1
    inside_backward: bool = False
    every_step: bool = False
    needs: Needs = Needs.CPU
    world: int = 1
    at_rank: int | None = None
    settings: tuple[tuple[str, Value], ...] = ()
    leaves_processes: bool = False
    max_address_space_bytes: int | None = None
    total_s: float | None = None
    stall_s: float | None = None
    startup_s: float | None = None
    flaky: bool = False
    look_alike: bool = False
    or_else: tuple[Kind, ...] = ()
    expect_frame: str | None = None
    expect_rank: int | None = None
    expect_phase: str | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Every kind that is a right verdict."""
        return (self.expect, *self.or_else)

    @property
    def verdict_rank(self) -> int | None:
        """The rank that the verdict must name: the one it strikes in; None where no one rank is at fault."""
        if self.expect in NOBODYS:
            return None
        if self.expect_rank is not None or self.at_rank is not None:
            return self.at_rank if self.expect_rank is None else self.expect_rank
        return 0 if self.world == 1 else None

    @property
    def verdict_phase(self) -> str | None:
        """The phase that the verdict must name; None where nothing failed but the harness, and where any will do."""
        if self.expect in NOBODYS or (self.every_step and self.expect_phase is None):
            return None
        return self.expect_phase or self.phase


def specimen(**declared: Any) -> Callable[[Callable[[Scene], None]], Specimen]:
    """Make the function below a :class:`Specimen` that strikes so; ``declared`` are its other fields."""
    return lambda strike: Specimen(strike=strike, **declared)


hang = partial(specimen, expect=Kind.HANG)
crash = partial(specimen, expect=Kind.CRASH)


class _Specimens(Registry):
    """A table that gives each specimen the name of its row."""

    def load(self, name: str) -> Specimen:
        """As :meth:`Registry.load`."""
        return _named(super().load(name), name)


@cache
def _named(part: Specimen, name: str) -> Specimen:
    return replace(part, name=name)


SPECIMENS = _Specimens(
    "specimen",
    {
        "clean": "harness.specimens.healthy:do_nothing",
        "slow-step": "harness.specimens.healthy:work_for_long",
        "stdout-flood": "harness.specimens.healthy:print_without_end",
        "late-grandchild": "harness.specimens.healthy:leave_a_grandchild",
        "lock-deadlock": "harness.specimens.waits:acquire_twice",
        "backward-deadlock": "harness.specimens.backward_deadlock:acquire_forever",
        "gil-wait": "harness.specimens.native:lock_mutex_twice_with_gil",
        "blocked-pipe": "harness.specimens.waits:write_into_full_pipe",
        "stopped": "harness.specimens.waits:stop_myself",
        "sigterm-immune": "harness.specimens.waits:acquire_twice_deaf_to_sigterm",
        "infinite-loop": "harness.specimens.waits:spin_forever",
        "slow-loop": "harness.specimens.waits:crawl",
        "crash": "harness.specimens.endings:raise_value_error",
        "segfault": "harness.specimens.endings:read_address_zero",
        "oom": "harness.specimens.endings:allocate_until_refused",
        "nan-loss": "harness.specimens.endings:spoil_loss",
        "exit-early": "harness.specimens.endings:leave_with_status_zero",
        "flaky-hang": "harness.specimens.waits:acquire_twice_sometimes",
        "native-lock": "harness.specimens.native:lock_mutex_twice",
        "native-loop": "harness.specimens.native:search_without_end",
        "gil-loop": "harness.specimens.native:match_for_ages",
        "device-wait": "harness.specimens.native:wait_beyond_signals",
        "import-deadlock": "harness.specimens.waits:import_what_imports_itself",
        "pool-deadlock": "harness.specimens.waits:wait_for_own_pool",
        "file-wait": "harness.specimens.waits:open_unanswered",
        "peer-wait": "harness.specimens.waits:read_from_mute_peer",
        "child-wait": "harness.specimens.waits:wait_for_idle_child",
        "poll-forever": "harness.specimens.waits:poll_for_a_file",
        "late-exit": "harness.specimens.waits:leave_a_waiting_thread",
        "exit-abort": "harness.specimens.endings:leave_a_collective_open",
        "loader-dead": "harness.specimens.loaders:lose_a_worker",
        "loader-lost": "harness.specimens.loaders:get_from_the_dead",
        "loader-starved": "harness.specimens.loaders:read_the_unreachable",
        "abort": "harness.specimens.native:abort",
        "killed": "harness.specimens.endings:be_killed",
        "exit-status": "harness.specimens.endings:leave_with_status_three",
        "recursion": "harness.specimens.endings:recurse",
        "recompute-mismatch": "harness.specimens.endings:recompute_differently",
        "peers-missing": "harness.specimens.endings:wait_for_peers",
        "port-in-use": "harness.specimens.endings:listen_on_a_taken_port",
        "memory-leak": "harness.specimens.endings:leak",
        "infinite-loss": "harness.specimens.endings:spoil_gradients",
        "disk-full": "harness.specimens.endings:write_to_full_disk",
        "compile-stall": "harness.specimens.look_alikes:compile_for_ever",
        "page-thrash": "harness.specimens.look_alikes:touch_memory",
        "long-compile": "harness.specimens.look_alikes:run_compiler",
        "heavy-tail": "harness.specimens.look_alikes:step_with_a_heavy_tail",
        "slow-first-step": "harness.specimens.look_alikes:start_slowly",
        "slow-loader": "harness.specimens.loaders:read_from_afar",
        "slow-save": "harness.specimens.look_alikes:save_slowly",
        "slow-python": "harness.specimens.look_alikes:count_in_python",
        "slow-product": "harness.specimens.look_alikes:multiply_for_long",
        "slow-thread": "harness.specimens.look_alikes:wait_for_computing_thread",
        "slow-import": "harness.specimens.look_alikes:import_from_afar",
        "slow-server": "harness.specimens.look_alikes:ask_slow_server",
        "slow-upload": "harness.specimens.look_alikes:upload_checkpoint",
        "slow-first-eval": "harness.specimens.look_alikes:wait_for_late_answer",
        "sleepy-steps": "harness.specimens.look_alikes:sleep_between_marks",
        "back-off": "harness.specimens.look_alikes:back_off",
        "gc-pause": "harness.specimens.look_alikes:collect_garbage",
        "lock-given-back": "harness.specimens.look_alikes:wait_for_working_thread",
        "debugged": "harness.specimens.look_alikes:be_debugged",
        "suspended": "harness.specimens.look_alikes:be_suspended",
        "supervisor-killed": "harness.specimens.instrument:kill_supervisor",
        "supervisor-stopped": "harness.specimens.instrument:stop_supervisor",
        "guard-killed": "harness.specimens.instrument:kill_guard",
        "pipe-in-folder": "harness.specimens.instrument:leave_pipe",
        "endless-result": "harness.specimens.instrument:leave_endless_result",
        "gloo-skip": "harness.specimens.nccl:SKIP_ON_CPU",
        "gloo-unused": "harness.specimens.nccl:UNUSED_ON_CPU",
        "gpu-spin": "harness.specimens.gpu:launch_endless",
        "gpu-host-bound": "harness.specimens.gpu:feed_one_by_one",
        "gpu-compile": "harness.specimens.gpu:compile_for_long",
        "gpu-oom": "harness.specimens.gpu:fill_gpu",
        "gpu-thrash": "harness.specimens.gpu:allocate_odd_sizes",
        "nccl-skip": "harness.specimens.nccl:sum_unless_odd",
        "nccl-shape": "harness.specimens.nccl:sum_another_shape",
        "nccl-spin": "harness.specimens.nccl:SPIN",
        "nccl-unused": "harness.specimens.nccl:leave_out_parameters",
        "nccl-lock": "harness.specimens.nccl:LOCK",
        "nccl-stopped": "harness.specimens.nccl:STOPPED",
        "nccl-killed": "harness.specimens.nccl:KILLED",
        "nccl-straggler": "harness.specimens.nccl:compute_for_long",
        "nccl-slow": "harness.specimens.nccl:work_in_every_step",
        "rank-killed": "harness.specimens.ranks:KILLED",
        "rank-exits": "harness.specimens.ranks:EXITS",
        "rank-stopped": "harness.specimens.ranks:STOPPED",
        "rank-backward-lock": "harness.specimens.ranks:acquire_in_one_rank",
        "rank-loader-loop": "harness.specimens.ranks:look_for_long_documents",
        "rank-loader-stuck": "harness.specimens.ranks:LOADER_STUCK",
        "rank-nan": "harness.specimens.ranks:SPOILED",
        "rank-unused": "harness.specimens.ranks:leave_out_last_block",
        "late-binding": "harness.specimens.ranks:bind_late",
        "reentrant-unused": "harness.specimens.ranks:REENTRANT_UNUSED",
        "rank-never-joins": "harness.specimens.ranks:wait_before_joining",
        "rank-port-in-use": "harness.specimens.ranks:occupy_another_port",
        "skipped-collective": "harness.specimens.ranks:average_unless_rank_1",
        "extra-collective": "harness.specimens.ranks:reduce_on_rank_2",
        "other-collective": "harness.specimens.ranks:reduce_or_broadcast",
        "other-shape": "harness.specimens.ranks:reduce_ragged",
        "collective-timeout": "harness.specimens.ranks:wait_for_nothing",
        "straggler": "harness.specimens.ranks:STRAGGLER",
        "rank-slow-steps": "harness.specimens.ranks:compute_more",
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Which columns are right; None where the specimen declares nothing, or did not strike.

    ``wrong`` says every difference in words, those that have no column included.
    """

    kind: bool
    cause: bool | None = None
    rank: bool | None = None
    phase: bool | None = None
    wrong: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether everything is as declared."""
        return not self.wrong


def score(specimen: Specimen, verdict: Verdict, outcome: Outcome) -> Score:
    """``verdict`` and ``outcome`` held against what ``specimen`` declares."""
    if verdict.kind not in specimen.kinds:
        kinds = " or ".join(specimen.kinds)
        why = f"expected {kinds}, got {verdict} by rule {verdict.rule}: {verdict.because}"
        return Score(kind=False, wrong=(why, *_leftovers(specimen, outcome)))
    if verdict.kind is not specimen.expect or verdict.kind is Kind.PASS:
        return Score(kind=True, wrong=_leftovers(specimen, outcome))
    columns = {
        "cause": (specimen.cause, verdict.cause),
        "rank": (specimen.verdict_rank, verdict.rank),
        "phase": (specimen.verdict_phase, verdict.phase),
    }
    right: dict[str, bool | None] = {}
    wrong: list[str] = []
    for name, (declared, got) in columns.items():
        right[name] = None if declared is None else declared == got
        if right[name] is False:
            wrong.append(f"expected {name} {declared}, got {got}: {verdict.because}")
    wrong += _others(specimen, verdict)
    return Score(kind=True, **right, wrong=(*wrong, *_leftovers(specimen, outcome)))


def _others(specimen: Specimen, verdict: Verdict) -> list[str]:
    """What must hold of a verdict of the right kind and has no column of its own."""
    wrong: list[str] = []
    named = f"{verdict.because} {verdict.signature or ''}"
    if specimen.expect_frame is not None and specimen.expect_frame not in named:
        wrong.append(f"neither reason nor signature names {specimen.expect_frame}: {verdict.because}")
    is_bound = specimen.expect is not Kind.INFRA and not specimen.every_step
    if is_bound and verdict.step is not None and verdict.step != specimen.step:
        wrong.append(f"struck at step {specimen.step}, the verdict says step {verdict.step}")
    if not verdict.cites:
        wrong.append("the verdict cites no evidence")
    return wrong


def _leftovers(specimen: Specimen, outcome: Outcome) -> tuple[str, ...]:
    left = [f"PID {s.pid} ({s.command}) is still there, state {s.state}" for s in outcome.cleanup.survivors]
    if specimen.leaves_processes and not outcome.cleanup.ended:
        left.insert(0, "it leaves a process behind, but the cleanup ended none")
    return tuple(left)
