"""World: how many processes a trial trains with, and which of them one is, as its environment says it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.dotted import leaves

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One process among those that train together; they meet at ``host`` and ``port``, which is 0 when alone.

    ``first`` is the first rank on this node and ``local`` how many there are here; 0 means all of them.
    """

    rank: int = 0
    world: int = 1
    port: int = 0
    host: str = "127.0.0.1"
    first: int = 0
    local: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of a trial's ranks that this node has: number ``node`` of ``nodes``, which meet at ``host:port``."""

    node: int = 0
    nodes: int = 1
    host: str = "127.0.0.1"
    port: int = 0

    def ranks(self, world: int) -> range:
        """Its ranks among ``world``."""
        return range(self.node * world // self.nodes, (self.node + 1) * world // self.nodes)


def world_of(config: Mapping[str, Any]) -> int:
    """How many ranks a trial with this configuration has: ``parallel.world``; 1 when it is 0 or not there."""
    world = leaves(config).get("parallel.world", 1)
    return world if isinstance(world, int) and world > 1 else 1


def variables(prefix: str) -> dict[str, str]:
    """The variables of this process whose names start with ``prefix``, sorted."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefix)}


def set_missing(variables: Mapping[str, str]) -> None:
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


def own_share() -> Share:
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
