"""rank-port-in-use: another program listens where the ranks want to meet."""

from __future__ import annotations

import os
import socket

from harness.core.verdict import Kind
from harness.specimens.catalog import Needs, Scene, Specimen

_kept: list[socket.socket] = []


def occupy_another_port(scene: Scene) -> None:
    """Listen on a port, and make it the one where this rank opens the store."""
    taken = socket.create_server(("127.0.0.1", 0))
    _kept.append(taken)
    os.environ["MASTER_PORT"] = str(taken.getsockname()[1])


SPECIMEN = Specimen(
    name="rank-port-in-use",
    strike=occupy_another_port,
    expect=Kind.CRASH,
    cause="port-in-use",
    phase="start",
    needs=Needs.GLOO,
    world=2,
    at_rank=0,
    imitates="two jobs on one host that both use the default MASTER_PORT",
)
