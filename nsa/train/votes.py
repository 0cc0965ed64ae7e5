"""Decisions that all ranks take together: no rank leaves a run alone, whatever it has seen.

Every vote is one exchange over gloo of two numbers per rank: what the rank wants, and its loss. Before it, rank
0 makes sure that all have come, so that a rank that does not come is named.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from nsa.errors import RankLost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nsa.train.world import World


_BROKEN = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting", "NCCL error")
"""What a lost rank looks like from another: gloo's words, and NCCL's."""

_ROLL_CALL_S = 5.0
"""How long a rank that is still there may take to notice the loss as well."""


class Wish(IntEnum):
    """What a rank wants to do next; the highest wish of all ranks is done."""

    GO_ON = 0
    SUBSTITUTE = 1
    END_OF_DATA = 2
    HALT = 3
    SIGNAL = 4
    NO_DATA = 5
    NOT_FINITE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What all ranks do.

    Attributes:
        wish: the highest wish.
        ranks: who wished it.
        loss: mean of the ranks' losses.
    """

    wish: Wish
    ranks: tuple[int, ...]
    loss: float


def decide(world: World, wish: Wish, *, loss: float = 0.0, where: str, timeout_s: float) -> Decision:
    """Learn what all ranks want, and do the same as they.

    Args:
        world: the ranks; alone, one's own wish is the decision.
        wish: what this rank wants.
        loss: this rank's loss.
        where: for the message, such as "step 3, before forward".
        timeout_s: how long to wait for the others.

    Raises:
        RankLost: a rank did not come in time, or its process is gone.
    """
    if world.votes is None:
        return Decision(wish=wish, ranks=(world.rank,), loss=loss)
    mine = torch.tensor([float(wish), loss], dtype=torch.float64)
    theirs = [torch.empty_like(mine) for _ in range(world.size)]
    try:
        dist.monitored_barrier(world.votes, timeout=timedelta(seconds=timeout_s), wait_all_ranks=True)
        dist.all_gather(theirs, mine, group=world.votes)
    except RuntimeError as error:
        raise RankLost(
            f"rank {world.rank} waited for the other ranks at {where} and lost one: {_absent(world)}. "
            f"Look at that rank's output and its last heartbeat. The connection said: {_first_line(error)}"
        ) from error
    wishes = [Wish(int(t[0])) for t in theirs]
    highest = max(wishes)
    return Decision(
        wish=highest,
        ranks=tuple(rank for rank, wished in enumerate(wishes) if wished is highest),
        loss=sum(float(t[1]) for t in theirs) / world.size,
    )


@contextmanager
def naming_the_lost(world: World, *, where: str) -> Iterator[None]:
    """Around a pass in which ranks exchange gradients: a broken connection becomes RankLost, with the rank's number.

    Which rank is gone is asked over the votes' own connections. Other errors go through unchanged.
    """
    try:
        yield
    except RuntimeError as error:
        if world.votes is None or not any(sign in str(error) for sign in _BROKEN):
            raise
        raise RankLost(
            f"rank {world.rank} lost a rank {where}: {_absent(world)}. Look at that rank's output and its last "
            f"heartbeat. The connection said: {_first_line(error)}"
        ) from error


def _absent(world: World) -> str:
    """Who does not answer: a message to and from every other rank, each pair on a connection of its own."""
    limit, mine = timedelta(seconds=_ROLL_CALL_S), torch.zeros(1)
    silent: list[int] = []
    for other in range(world.size):
        if other != world.rank:
            try:
                call = dist.isend(mine, dst=other, group=world.votes)
                answer = dist.irecv(torch.empty(1), src=other, group=world.votes)
                for work in (call, answer):
                    if work is not None:
                        work.wait(limit)
            except RuntimeError:
                silent.append(other)
    if not silent:
        return "all ranks answer a roll call"
    return f"rank {', '.join(map(str, silent))} does not answer a roll call"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip()
