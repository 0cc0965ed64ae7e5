"""Ends with a reason: no peers, no port, another recomputation, no memory left step by step, no disk, no stack."""

from __future__ import annotations

import os
import signal
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen

if TYPE_CHECKING:
    import torch

    from nsa.train.probe import TrainingState

JOIN_S = 2.0
GIB = 2**30
LIMIT_BYTES = 24 * GIB
"""Address space, not memory: see ``harness.specimens.oom``."""
LEAKED_BYTES = 48 * 2**20
"""What a step leaks and touches; it reserves more, so that the limit comes soon."""

_LEAKED: list[torch.Tensor] = []


def wait_for_peers(scene: Scene) -> None:
    """Open a meeting place for two, alone."""
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    TCPStore("127.0.0.1", 0, world_size=2, is_master=True, timeout=timedelta(seconds=JOIN_S))


def listen_on_a_taken_port(scene: Scene) -> None:
    """Open a meeting place on a port that somebody else has."""
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    with socket.create_server(("", 0)) as other:
        TCPStore("127.0.0.1", other.getsockname()[1], world_size=1, is_master=True, timeout=timedelta(seconds=JOIN_S))


def recompute_differently(scene: Scene) -> None:
    """Checkpoint a function that does something else when it is computed again."""
    import torch
    from torch.utils.checkpoint import checkpoint

    calls: list[int] = []

    def forgetful(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.sin().exp() if len(calls) == 1 else x.sin()

    x = torch.ones(4, requires_grad=True)
    cast("torch.Tensor", checkpoint(forgetful, x, use_reentrant=False)).sum().backward()


def leak(scene: Scene) -> None:
    """Keep a tensor of every step."""
    import torch

    kept = torch.empty(2 * GIB, dtype=torch.uint8)
    kept[:LEAKED_BYTES] = 1
    _LEAKED.append(kept)


def spoil_gradients(scene: Scene) -> None:
    """Have the next loss infinite before backward."""

    def divide_by_zero(loss: object) -> object:
        return cast("torch.Tensor", loss) / 0.0

    cast("TrainingState", scene.state).set_loss(divide_by_zero)


def write_to_full_disk(scene: Scene) -> None:
    """Write where there is no space left."""
    Path("/dev/full").write_bytes(bytes(65536))


def recurse(scene: Scene) -> None:
    """Call itself without end."""
    recurse(scene)


def be_killed(scene: Scene) -> None:
    """End as if by kill -9."""
    os.kill(os.getpid(), signal.SIGKILL)


def leave_with_status_three(scene: Scene) -> None:
    """End with an error status, without an exception."""
    sys.stderr.write("launcher: giving up\n")
    sys.stderr.flush()
    os._exit(3)


PEERS = Specimen(
    name="peers-missing",
    strike=wait_for_peers,
    expect=Kind.CRASH,
    cause="rendezvous",
    expect_frame="wait_for_peers",
    imitates="a node that never joins the rendezvous",
)

PORT = Specimen(
    name="port-in-use",
    strike=listen_on_a_taken_port,
    expect=Kind.CRASH,
    cause="port-in-use",
    expect_frame="listen_on_a_taken_port",
    imitates="two jobs on one machine with the same MASTER_PORT",
)

RECOMPUTATION = Specimen(
    name="recompute-mismatch",
    strike=recompute_differently,
    expect=Kind.CRASH,
    cause="recomputation-mismatch",
    expect_frame="recompute_differently",
    imitates="a checkpointed block that depends on something that has changed by the time of backward",
)

LEAK = Specimen(
    name="memory-leak",
    strike=leak,
    expect=Kind.OOM,
    cause="memory-leak",
    every_step=True,
    settings=(("train.steps", 40),),
    max_address_space_bytes=LIMIT_BYTES,
    expect_frame="leak",
    imitates="a list of losses that keeps every step's graph",
)

INFINITE = Specimen(
    name="infinite-loss",
    strike=spoil_gradients,
    expect=Kind.NONFINITE,
    imitates="a division by a count that is zero",
)

DISK = Specimen(
    name="disk-full",
    strike=write_to_full_disk,
    expect=Kind.INFRA,
    cause="disk-full",
    imitates="a checkpoint on a full disk",
)

RECURSION = Specimen(
    name="recursion",
    strike=recurse,
    expect=Kind.CRASH,
    cause="RecursionError",
    expect_frame="recurse",
    imitates="a module that contains itself",
)

KILLED = Specimen(
    name="killed",
    strike=be_killed,
    expect=Kind.CRASH,
    cause="SIGKILL",
    imitates="kill -9 from outside, by a scheduler or a colleague",
)

STATUS = Specimen(
    name="exit-status",
    strike=leave_with_status_three,
    expect=Kind.CRASH,
    cause="exit-3",
    imitates="a launcher that gives up",
)
