"""Ends with a reason: an error, a signal, a status, no peers, no port, another recomputation, no memory, no disk."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, crash, specimen

if TYPE_CHECKING:
    import torch


JOIN_S = 2.0
GIB = 2**30
LIMIT_BYTES = 24 * GIB
"""Address space, not memory: a torch process maps several GiB of libraries and thread arenas that it never touches."""

LEAKED_BYTES = 48 * 2**20
"""What a step leaks and touches; it reserves more, so that the limit comes soon."""

_LEAKED: list[torch.Tensor] = []


@crash(
    cause="rendezvous",
    expect_frame="wait_for_peers",
    imitates="a node that never joins the rendezvous",
)
def wait_for_peers(scene: Scene) -> None:
    """Open a meeting place for two, alone."""
    from torch.distributed import TCPStore

    TCPStore("127.0.0.1", 0, world_size=2, is_master=True, timeout=timedelta(seconds=JOIN_S))


@crash(
    cause="port-in-use",
    expect_frame="listen_on_a_taken_port",
    imitates="two jobs on one machine with the same MASTER_PORT",
)
def listen_on_a_taken_port(scene: Scene) -> None:
    """Open a meeting place on a port that somebody else has."""
    from torch.distributed import TCPStore

    with socket.create_server(("", 0)) as other:
        TCPStore("127.0.0.1", other.getsockname()[1], world_size=1, is_master=True, timeout=timedelta(seconds=JOIN_S))


@crash(
    cause="recomputation-mismatch",
    expect_frame="recompute_differently",
    imitates="a checkpointed block that depends on something that has changed by the time of backward",
)
def recompute_differently(scene: Scene) -> None:
    """Checkpoint a function that does something else when it is computed again."""
    import torch
    import torch.utils.checkpoint as recomputation

    calls: list[int] = []

    def forgetful(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.sin().exp() if len(calls) == 1 else x.sin()

    x = torch.ones(4, requires_grad=True)
    cast("torch.Tensor", recomputation.checkpoint(forgetful, x, use_reentrant=False)).sum().backward()


@specimen(
    expect=Kind.OOM,
    cause="memory-leak",
    every_step=True,
    settings=(("train.steps", 40),),
    max_address_space_bytes=LIMIT_BYTES,
    expect_frame="leak",
    imitates="a list of losses that keeps every step's graph",
)
def leak(scene: Scene) -> None:
    """Keep a tensor of every step."""
    import torch

    kept = torch.empty(2 * GIB, dtype=torch.uint8)
    kept[:LEAKED_BYTES] = 1
    _LEAKED.append(kept)


@specimen(
    expect=Kind.NONFINITE,
    imitates="a division by a count that is zero",
)
def spoil_gradients(scene: Scene) -> None:
    """Have the next loss infinite before backward."""

    def divide_by_zero(loss: torch.Tensor) -> torch.Tensor:
        return loss / 0.0

    scene.state.set_loss(divide_by_zero)


@specimen(
    expect=Kind.INFRA,
    cause="disk-full",
    imitates="a checkpoint on a full disk",
)
def write_to_full_disk(scene: Scene) -> None:
    """Write where there is no space left."""
    Path("/dev/full").write_bytes(bytes(65536))


@crash(
    cause="RecursionError",
    expect_frame="recurse",
    imitates="a module that contains itself",
)
def recurse(scene: Scene) -> None:
    """Call itself without end."""
    recurse.strike(scene)


@crash(
    cause="SIGKILL",
    imitates="kill -9 from outside, by a scheduler or a colleague",
)
def be_killed(scene: Scene) -> None:
    """End as if by kill -9."""
    os.kill(os.getpid(), signal.SIGKILL)


@crash(
    cause="exit-3",
    imitates="a launcher that gives up",
)
def leave_with_status_three(scene: Scene) -> None:
    """End with an error status, without an exception."""
    sys.stderr.write("launcher: giving up\n")
    sys.stderr.flush()
    os._exit(3)


@crash(
    cause="ValueError",
    expect_frame="raise_value_error",
    imitates="a shape error",
)
def raise_value_error(scene: Scene) -> None:
    """Complain about a shape, as torch's own checks do."""
    raise ValueError(f"planted: shapes (3, 4) and (5, 6) cannot be multiplied at step {scene.step}")


@crash(
    cause="SIGSEGV",
    imitates="a kernel that reads outside its tensors",
)
def read_address_zero(scene: Scene) -> None:
    """Dereference a null pointer."""
    ctypes.string_at(0)


@specimen(
    expect=Kind.OOM,
    max_address_space_bytes=LIMIT_BYTES,
    expect_frame="allocate_until_refused",
    imitates="activations that do not fit",
)
def allocate_until_refused(scene: Scene) -> None:
    """Reserve untouched tensors of 1 GiB until the allocator refuses.

    Raises:
        RuntimeError: the allocator's own message; AssertionError when no limit is in force.
    """
    import torch

    kept = [torch.empty(GIB, dtype=torch.uint8) for _ in range(LIMIT_BYTES // GIB)]
    raise AssertionError(f"reserved {len(kept)} GiB: the address space limit of this trial is not in force")


def multiply_by_nan(loss: torch.Tensor) -> torch.Tensor:
    """The loss as a NaN that still has its graph."""
    return loss * float("nan")


@specimen(
    expect=Kind.NONFINITE,
    imitates="an overflow in attention scores, or a learning rate that is too high",
)
def spoil_loss(scene: Scene) -> None:
    """Have the next loss spoilt before backward."""
    scene.state.set_loss(multiply_by_nan)


@crash(
    cause="exit-early",
    imitates="a script that swallows its error and returns",
)
def leave_with_status_zero(scene: Scene) -> None:
    """Exit 0 at once, without a result."""
    os._exit(0)


PATIENCE = timedelta(seconds=60)
TAKEN_APART_S = 5.0
"""How long taking the interpreter apart lasts, at most: the thread needs a few milliseconds of it."""


class _Keepsake:
    """What the interpreter lets go of first when it takes modules apart; then the last peer of the collective comes."""

    def __init__(self, group: Any, tensor: torch.Tensor) -> None:
        self.group, self.tensor, self.sleep = group, tensor, time.sleep

    def __del__(self) -> None:
        self.work = self.group.allreduce([self.tensor])
        self.sleep(TAKEN_APART_S)


_kept: list[object] = []


@crash(
    cause="exit-abort",
    phase="optim",
    step=3,
    expect_phase="exit",
    imitates="a process group that outlives destroy_process_group, and whose thread wants the GIL at the very end",
)
def leave_a_collective_open(scene: Scene) -> None:
    """Hand over an all_reduce with a Python callback, let the interpreter end, and only then have the peer come."""
    import torch
    from torch.distributed import HashStore, ProcessGroupGloo

    store, groups = HashStore(), dict[int, Any]()

    def join(rank: int) -> None:
        groups[rank] = ProcessGroupGloo(store, rank, 2, PATIENCE)

    both = [threading.Thread(target=join, args=(rank,)) for rank in (0, 1)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    work = groups[1].allreduce([torch.ones(4)])
    _kept.extend((work, work.get_future().then(id), groups[1]))
    sys.last_value = _Keepsake(groups[0], torch.ones(4))  # pyrefly: ignore[bad-assignment]
    atexit.register(_end_the_interpreter)


def _end_the_interpreter() -> None:
    """What a fresh interpreter does at its end, and one that was forked to save time leaves out."""
    atexit.unregister(_end_the_interpreter)
    ctypes.pythonapi.Py_FinalizeEx()
