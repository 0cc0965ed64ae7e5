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

    from harness.core.point import Value


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
        "lock-deadlock": "harness.specimens.locks:acquire_twice",
        "backward-deadlock": "harness.specimens.backward_deadlock:acquire_forever",
        "gil-wait": "harness.specimens.native:lock_mutex_twice_with_gil",
        "blocked-pipe": "harness.specimens.waits:write_into_full_pipe",
        "stopped": "harness.specimens.waits:stop_myself",
        "sigterm-immune": "harness.specimens.locks:acquire_twice_deaf_to_sigterm",
        "infinite-loop": "harness.specimens.loops:spin_forever",
        "slow-loop": "harness.specimens.loops:crawl",
        "crash": "harness.specimens.endings:raise_value_error",
        "segfault": "harness.specimens.endings:read_address_zero",
        "oom": "harness.specimens.endings:allocate_until_refused",
        "nan-loss": "harness.specimens.endings:spoil_loss",
        "exit-early": "harness.specimens.endings:leave_with_status_zero",
        "flaky-hang": "harness.specimens.locks:acquire_twice_sometimes",
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
        "exit-abort": "harness.specimens.exit_abort:leave_a_collective_open",
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
        "gloo-skip": "harness.specimens.nccl_collectives:SKIP_ON_CPU",
        "gloo-unused": "harness.specimens.nccl_collectives:UNUSED_ON_CPU",
        "gpu-spin": "harness.specimens.gpu_kernels:launch_endless",
        "gpu-host-bound": "harness.specimens.gpu_kernels:feed_one_by_one",
        "gpu-compile": "harness.specimens.gpu_kernels:compile_for_long",
        "gpu-oom": "harness.specimens.gpu_memory:fill_gpu",
        "gpu-thrash": "harness.specimens.gpu_memory:allocate_odd_sizes",
        "nccl-skip": "harness.specimens.nccl_collectives:sum_unless_odd",
        "nccl-shape": "harness.specimens.nccl_collectives:sum_another_shape",
        "nccl-spin": "harness.specimens.nccl_collectives:SPIN",
        "nccl-unused": "harness.specimens.nccl_collectives:leave_out_parameters",
        "nccl-lock": "harness.specimens.nccl_ranks:LOCK",
        "nccl-stopped": "harness.specimens.nccl_ranks:STOPPED",
        "nccl-killed": "harness.specimens.nccl_ranks:KILLED",
        "nccl-straggler": "harness.specimens.nccl_ranks:compute_for_long",
        "nccl-slow": "harness.specimens.nccl_ranks:work_in_every_step",
        "rank-killed": "harness.specimens.one_rank:KILLED",
        "rank-exits": "harness.specimens.one_rank:EXITS",
        "rank-stopped": "harness.specimens.one_rank:stop_this_rank",
        "rank-backward-lock": "harness.specimens.one_rank:acquire_in_one_rank",
        "rank-loader-loop": "harness.specimens.one_rank:look_for_long_documents",
        "rank-loader-stuck": "harness.specimens.one_rank:LOADER_STUCK",
        "rank-nan": "harness.specimens.one_rank:spoil_one_loss",
        "rank-unused": "harness.specimens.one_rank:leave_out_last_block",
        "late-binding": "harness.specimens.checkpointing:bind_late",
        "reentrant-unused": "harness.specimens.checkpointing:REENTRANT_UNUSED",
        "rank-never-joins": "harness.specimens.one_rank:wait_before_joining",
        "rank-port-in-use": "harness.specimens.one_rank:occupy_another_port",
        "skipped-collective": "harness.specimens.collectives:average_unless_rank_1",
        "extra-collective": "harness.specimens.collectives:reduce_on_rank_2",
        "other-collective": "harness.specimens.collectives:reduce_or_broadcast",
        "other-shape": "harness.specimens.collectives:reduce_ragged",
        "collective-timeout": "harness.specimens.one_rank:wait_for_nothing",
        "straggler": "harness.specimens.one_rank:STRAGGLER",
        "rank-slow-steps": "harness.specimens.one_rank:compute_more",
    },
)
