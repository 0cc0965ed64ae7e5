"""Suspects: combinations of settings that failed and never passed. Where to look, not what is to blame."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from harness.core.cause import Interaction
from harness.search.covering import Combination, combinations_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.cause import CellCount
    from harness.core.space import Space

MOST_SUSPECTS = 20


def suspects(space: Space, counts: Sequence[CellCount], *, strength: int) -> tuple[Interaction, ...]:
    """The combinations of ``strength`` axes in cells that failed, and in none that passed; most failures first."""
    passed, failed = Counter[Combination](), Counter[Combination]()
    for count in counts:
        if count.good or count.bad:
            (failed if count.bad else passed).update(combinations_in(space, [count.cell], strength=strength))
    interactions = [Interaction(settings=c, failed=n) for c, n in failed.items() if c not in passed]
    return tuple(sorted(interactions, key=lambda s: (-s.failed, str(s))))[:MOST_SUSPECTS]
