"""Several ranks on gloo, and something that strikes one of them: it ends, waits, loops, or is late."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from harness.core.verdict import Kind
from harness.specimens.catalog import LATER, Needs, Scene, specimen
from harness.specimens.endings import be_killed, leave_with_status_zero, multiply_by_nan
from harness.specimens.family import compute_until
from harness.specimens.loaders import read_the_unreachable

if TYPE_CHECKING:
    from torch import Tensor

ON_RANK_1: dict[str, Any] = {"needs": Needs.GLOO, "world": 2, "at_rank": 1}
on_rank_1 = partial(specimen, **ON_RANK_1)

_kept: list[socket.socket] = []
WORK_S = 1.5


KILLED = replace(be_killed, **ON_RANK_1, imitates="a rank that the kernel, a scheduler or a colleague ended")

EXITS = replace(
    leave_with_status_zero,
    needs=Needs.GLOO,
    world=4,
    at_rank=2,
    imitates="one rank's shard of the data is shorter, and its loop simply ends",
)


@on_rank_1(
    expect=Kind.HANG,
    cause="stopped",
    step=LATER,
    imitates="a node whose job was suspended",
)
def stop_this_rank(scene: Scene) -> None:
    """Send SIGSTOP to this rank."""
    os.kill(os.getpid(), signal.SIGSTOP)


@on_rank_1(
    expect=Kind.HANG,
    cause="deadlock",
    phase="backward",
    inside_backward=True,
    expect_frame="acquire_in_one_rank",
    imitates="a gradient hook that shares a lock with a logging thread, on one rank",
)
def acquire_in_one_rank(scene: Scene) -> None:
    """Take a lock twice inside the autograd engine."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@on_rank_1(
    expect=Kind.HANG,
    cause="infinite-loop",
    phase="data",
    step=LATER,
    expect_frame="look_for_long_documents",
    imitates="a filter of one rank's shard that does not go on past a short document",
)
def look_for_long_documents(scene: Scene) -> None:
    """Skip documents until one is long enough, and forget to go on to the next."""
    is_long = [False, True]
    position = 0
    while not is_long[position]:
        pass


LOADER_STUCK = replace(
    read_the_unreachable,
    **ON_RANK_1,
    expect_frame="read_one",
    imitates="one rank's shard lies on a file system that does not answer",
)


@on_rank_1(
    expect=Kind.NONFINITE,
    expect_phase="reduce",
    imitates="a corrupt document in one rank's shard",
)
def spoil_one_loss(scene: Scene) -> None:
    """Have this rank's next loss spoilt before backward."""
    scene.state.set_loss(multiply_by_nan)


@on_rank_1(
    expect=Kind.HANG,
    cause="unused-parameter",
    expect_phase="backward",
    imitates="a layer that is skipped at random, with a seed of its own on every rank",
)
def leave_out_last_block(scene: Scene) -> None:
    """Let the last block return its input in this rank, from now on."""
    block = scene.state.blocks[-1]
    setattr(block, "forward", pass_on)  # noqa: B010 - a module's method, replaced on this one instance


def pass_on(x_BTX: Tensor, **_options: object) -> Tensor:
    """The input as it is, with its gradient."""
    return x_BTX * 1.0


@on_rank_1(
    expect=Kind.HANG,
    cause="deadlock",
    phase="start",
    startup_s=5.0,
    expect_frame="wait_before_joining",
    imitates="a node that waits for a file system or a licence before it starts",
)
def wait_before_joining(scene: Scene) -> None:
    """Wait for an event that nobody sets, before the process group exists."""
    threading.Event().wait()


@on_rank_1(
    expect=Kind.CRASH,
    cause="port-in-use",
    phase="start",
    at_rank=0,
    imitates="two jobs on one host that both use the default MASTER_PORT",
)
def occupy_another_port(scene: Scene) -> None:
    """Listen on a port, and make it the one where this rank opens the store."""
    taken = socket.create_server(("127.0.0.1", 0))
    _kept.append(taken)
    os.environ["MASTER_PORT"] = str(taken.getsockname()[1])


@on_rank_1(
    expect=Kind.PASS,
    every_step=True,
    look_alike=True,
    imitates="a rank on a throttled GPU or a busy host",
)
def compute_more(scene: Scene) -> None:
    """Compute for ``WORK_S`` seconds what the step does not need."""
    compute_until(time.monotonic() + WORK_S)


TOTAL_S = 9.0
"""Enough for three steps after the two in which DDP arranges itself; with few more a busy machine lets it end."""

STRAGGLER = replace(
    compute_more,
    expect=Kind.SLOW,
    cause="straggler",
    settings=(("train.steps", 60),),
    stall_s=20.0,
    total_s=TOTAL_S,
    imitates="a rank on a throttled GPU or a busy host, with a job limit that was set for the others",
)


@on_rank_1(
    expect=Kind.CRASH,
    cause="collective-timeout",
    phase="data",
    settings=(("parallel.timeout_s", 2.0),),  # a busy machine takes more than one second for a healthy first step
    imitates="a short timeout of the process group, and one rank that waits for its data",
)
def wait_for_nothing(scene: Scene) -> None:
    """Wait for an event that nobody sets."""
    threading.Event().wait()
