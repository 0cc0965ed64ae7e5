"""World: how many processes a trial trains with, and which of them one is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One process among those that train together; ``port`` is where they meet on this machine, 0 when alone."""

    rank: int = 0
    world: int = 1
    port: int = 0


def world_of(config: Mapping[str, Any]) -> int:
    """How many ranks a trial with this configuration has: ``parallel.world``; 1 when it is 0 or not there."""
    section = config.get("parallel")
    world = cast("Mapping[str, Any]", section).get("world", 1) if isinstance(section, dict) else 1
    return world if isinstance(world, int) and world > 1 else 1
