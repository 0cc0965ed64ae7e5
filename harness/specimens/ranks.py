"""Several ranks on gloo: they do not make the same calls, or one of them ends, waits, loops, or is late.

And reentrant activation checkpointing under DDP: what it does to a loop variable, and what torch does not support.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from harness.core.verdict import Kind
from harness.specimens.catalog import LATER, Needs, Scene, crash, specimen
from harness.specimens.endings import be_killed, leave_with_status_zero, spoil_loss
from harness.specimens.family import compute_until
from harness.specimens.healthy import do_nothing
from harness.specimens.loaders import read_the_unreachable
from harness.specimens.waits import stop_myself

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor, nn


on_gloo = partial(specimen, needs=Needs.GLOO, world=2)


@on_gloo(
    expect=Kind.HANG,
    cause="collective-mismatch",
    phase="data",
    expect_rank=1,
    imitates="a metric that is averaged inside a condition which is not the same on all ranks",
)
def average_unless_rank_1(scene: Scene) -> None:
    """Average a number over all ranks, except that rank 1 does not take part."""
    import torch
    import torch.distributed as dist

    if scene.rank != 1:
        dist.all_reduce(torch.ones(1000))


@on_gloo(
    expect=Kind.HANG,
    cause="collective-mismatch",
    world=4,
    expect_rank=2,
    imitates="a debugging line that synchronises, on the rank that someone looked at",
)
def reduce_on_rank_2(scene: Scene) -> None:
    """All-reduce in one rank only."""
    import torch
    import torch.distributed as dist

    if scene.rank == 2:
        dist.all_reduce(torch.ones(10))


@on_gloo(
    expect=Kind.HANG,
    cause="collective-mismatch",
    imitates="branches of one condition that ranks decide differently",
)
def reduce_or_broadcast(scene: Scene) -> None:
    """All-reduce on even ranks, broadcast from a later one on odd ranks."""
    import torch
    import torch.distributed as dist

    numbers = torch.ones(100)
    if scene.rank % 2 == 0:
        dist.all_reduce(numbers)
    else:
        dist.broadcast(numbers, src=0)


@on_gloo(
    expect=Kind.CRASH,
    cause="collective-mismatch",
    imitates="averaging per-sample values where the last batch is shorter on one rank",
)
def reduce_ragged(scene: Scene) -> None:
    """All-reduce as many numbers as this rank happens to have."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(8 * (scene.rank + 1)))


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


STOPPED = replace(stop_myself, **ON_RANK_1, imitates="a node whose job was suspended")


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


SPOILED = replace(spoil_loss, **ON_RANK_1, expect_phase="reduce", imitates="a corrupt document in one rank's shard")


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


class LoopVariable:
    """What ``for block in blocks: x = checkpoint(lambda x: block(x), x)`` shares between its passes: the variable."""

    def __init__(self, forwards: list[Callable[..., Tensor]]) -> None:
        self.forwards, self.block = forwards, 0

    def run_what_the_variable_names(self, x_BTX: Tensor, **options: Any) -> Tensor:
        """The lambda: it looks the block up when it is called, and recomputation calls it after the loop."""
        return self.forwards[self.block](x_BTX, **options)


@crash(
    cause="ready-twice",
    step=0,
    needs=Needs.GLOO,
    world=2,
    settings=(("train.checkpointing", "reentrant"),),
    expect_phase="backward",
    expect_frame="blocks.1.mlp.fc2.weight",
    imitates="checkpoint(lambda x: block(x), x) in a for loop, as the origin had it",
)
def bind_late(scene: Scene) -> None:
    """Put a late-binding lambda in the place of every block that the trainer has recomputed in backward."""
    loop = LoopVariable([])
    recomputed: list[tuple[nn.Module, partial[Tensor]]] = []
    for block in cast("Iterable[nn.Module]", scene.state.blocks):
        forward = vars(block).get("forward")
        if not isinstance(forward, partial):
            return  # nothing is recomputed, so nothing is looked up late
        loop.forwards.append(forward.args[0])
        recomputed.append((block, cast("partial[Tensor]", forward)))
    for i, (block, forward) in enumerate(recomputed):
        checkpointed = partial(forward.func, loop.run_what_the_variable_names, *forward.args[1:])
        vars(block)["forward"] = partial(_in_turn, loop, i, checkpointed)


def _in_turn(loop: LoopVariable, i: int, checkpointed: Callable[..., Tensor], x_BTX: Tensor, **options: Any) -> Tensor:
    """One pass of the loop."""
    loop.block = i
    return checkpointed(x_BTX, **options)


REENTRANT_UNUSED = replace(
    bind_late,
    strike=do_nothing.strike,
    settings=(
        ("train.checkpointing", "reentrant"),
        ("parallel.find_unused_parameters", True),
        ("parallel.allow_known_bad", True),
    ),
    expect_frame="has been marked as ready twice",
    imitates="the combination that torch itself does not support, with every block bound as it should be",
)
