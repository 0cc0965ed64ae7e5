"""The child's own environment: what it was given, and which rank it says that a process is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from harness.worker.world import Share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.worker.world import Place


def variables(prefix: str) -> dict[str, str]:
    """The variables of this process whose names start with ``prefix``, sorted."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefix)}


def update(variables: Mapping[str, str]) -> None:
    """Set variables that libraries read later; what the trial was given stays as it is."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def set_launch(place: Place) -> None:
    """Tell this process, and whatever it starts, which rank it is, in the variables that torchrun uses."""
    os.environ |= {
        "RANK": str(place.rank),
        "LOCAL_RANK": str(place.rank - place.first),
        "WORLD_SIZE": str(place.world),
        "LOCAL_WORLD_SIZE": str(place.local or place.world),
        "MASTER_ADDR": place.host,
        "MASTER_PORT": str(place.port),
    }


def share() -> Share:
    """Which part of the ranks is this node's, as its agent told; all of them without one."""
    nodes = int(os.environ.get("NSA_HARNESS_PARTS", "1"))
    if nodes == 1:
        return Share()
    return Share(
        node=int(os.environ["NSA_HARNESS_PART"]),
        nodes=nodes,
        host=os.environ["MASTER_ADDR"],
        port=int(os.environ["MASTER_PORT"]),
    )
