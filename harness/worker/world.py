"""World: how many processes a trial trains with, and which of them one is."""

from __future__ import annotations

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
