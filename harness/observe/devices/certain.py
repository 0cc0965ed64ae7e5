"""Whether ranks can be known never to meet, by what their flight recorders hold and where their stacks wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.collective import agreed_wait
from harness.core.collectives import Parting, diverges
from harness.observe.certainty import Certainty

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.devices import CollectiveState
    from harness.core.evidence import StackSample


def told_apart(
    *, ranks: Mapping[int, int], stacks: Sequence[StackSample], collectives: Sequence[CollectiveState], world: int
) -> bool:
    """Whether the recorders alone say that the ranks can never meet, whatever else is still to be seen of them.

    They called different operations; or one did not call what the others wait in, and waits for them elsewhere itself.
    """
    found = diverges(collectives, world=world)
    if found is None or found.parting is Parting.TOGETHER:
        return False
    if found.parting is not Parting.MISSING:
        return True
    waits = [agreed_wait([s for s in stacks if s.pid == ranks.get(rank)]) for rank in found.odd]
    return len(waits) == 1 and not found.unheard and waits[0] is not None and waits[0].kind != "gpu"


def never_meet(
    *, ranks: Mapping[int, int], stacks: Sequence[StackSample], collectives: Sequence[CollectiveState], world: int
) -> Certainty:
    """Certain when every rank waits, and one of them in another operation than the rest or for them elsewhere.

    With NCCL a rank waits on its GPU and burns a core there, so neither its stack nor its CPU time tells. Not certain:
    a rank that only waits for its GPU may come when its kernel ends, however long that takes.
    """
    waits = {rank: agreed_wait([s for s in stacks if s.pid == pid]) for rank, pid in ranks.items()}
    if len(waits) < world or any(wait is None for wait in waits.values()):
        return Certainty(certain=False, because="not every rank is there and waits")
    found = diverges(collectives, world=world)
    if found is None or found.parting is Parting.TOGETHER:
        return Certainty(certain=False, because="the flight recorders show no rank apart from the others")
    if found.parting is Parting.MISSING:
        odd = [waits[rank] for rank in found.odd]
        if any(wait is None or wait.kind == "gpu" for wait in odd):
            return Certainty(certain=False, because="the missing rank waits for its GPU, which may end its work")
    names = ", ".join(map(str, found.odd)) or "one of them"
    return Certainty(
        certain=True,
        because=f"operation {found.seq} of process group {found.group}: {found.parting} (rank {names}), and all wait",
    )
