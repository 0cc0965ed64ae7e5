"""Cause: which settings a failure needs, and what was seen for each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.core.boundary import Claim, Count
from harness.core.point import Point, Value, assignment, size_of, word_of


class MinimiseFinding(StrEnum):
    """How the search for the settings that a failure needs ended."""

    CAUSE = "cause found"
    GOOD_FAILS = "the good corner fails too"
    BAD_PASSES = "the bad corner passes"
    REFUSED = "a corner is refused"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCount:
    """The trials of one cell, by answer."""

    cell: Point
    good: int = 0
    bad: int = 0
    unresolved: int = 0

    def __str__(self) -> str:
        if self.bad:
            return f"failed {self.bad} of {self.good + self.bad + self.unresolved}"
        return f"passed {self.good} of {self.good + self.unresolved}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One setting that the failure needs: with ``value`` it fails, one step back to ``last_good`` it passes.

    ``back`` are the trials of the failing cell with this one setting taken back, ``required`` the passes that its
    certificate asks for. ``cleared``: it failed among them, not as often as a failing cell would, which asks for more
    passes. ``kept_by`` says which rule forbids the single step back, when one does: ``back`` then takes back what the
    rule ties to it, too, or is None where no cell allows it. ``others`` are other values of a categorical axis in
    place of ``value``.
    """

    axis: str
    value: Value
    good: Value
    last_good: Value
    is_threshold: bool = False
    back: CellCount | None = None
    required: int = 0
    cleared: bool = False
    kept_by: str = ""
    others: tuple[Count, ...] = ()

    @property
    def certified(self) -> bool:
        """Whether taking it back passed as often as the certificate asks, and never failed by itself."""
        if self.back is None or (self.back.bad and not self.cleared):
            return False
        return 0 < self.required <= self.back.good

    def __str__(self) -> str:
        size, passes = size_of(self.value), size_of(self.last_good)
        if not self.is_threshold or isinstance(self.value, bool) or size is None or passes is None:
            return assignment(self.axis, self.value)
        return f"{self.axis}{'>=' if passes < size else '<='}{word_of(self.value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Freedom:
    """A cause with everything else set at random: ``failed`` of ``tried`` such cells failed too.

    ``free`` are the axes that took several values while it always failed; ``against`` are the other settings of a
    cell that passed, and so the first thing to look at.
    """

    tried: int
    failed: int
    free: tuple[str, ...] = ()
    against: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A set of settings that fails together, and that no longer fails when any single one takes a step back.

    ``certified`` says that for every need this was seen often enough; a need that a rule keeps in place is not
    certified. ``sure``: its failures are no false alarms. Not claimed: that it is the smallest such set, or the only
    one.
    """

    needs: tuple[Need, ...]
    seen: CellCount
    excluded_rate: float | None = None
    confidence: float = 0.95
    claim: Claim = Claim.OBSERVED
    freedom: Freedom | None = None
    sure: bool = True

    @property
    def certified(self) -> bool:
        """Whether the set surely fails, and every step back that rules allow, one at least, is certified."""
        certified = 0
        for need in self.needs:
            if not need.certified and (need.back or not need.kept_by):
                return False
            certified += need.certified
        return self.sure and self.seen.bad > 0 and certified > 0

    def __str__(self) -> str:
        return ", ".join(map(str, self.needs)) or "nothing: the good corner itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimised:
    """The answer of a search for the settings that a failure needs.

    ``complete`` says that no further cause exists among the settings that differ between the two corners, if adding
    a bad setting never makes a failure rarer: with every found cause broken in every possible way, the rest passed.
    """

    finding: MinimiseFinding
    causes: tuple[Cause, ...] = ()
    complete: bool = False
    because: str = ""
    notes: tuple[str, ...] = ()
    counts: tuple[CellCount, ...] = ()
    trials: int = 0
    failures: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """A combination of settings and the answers of the cells that it occurs in, each cell counted once."""

    settings: tuple[tuple[str, Value], ...]
    passed: int = 0
    failed: int = 0

    def __str__(self) -> str:
        text = ", ".join(assignment(name, value) for name, value in self.settings)
        cells = "cell" if self.failed == 1 else "cells"
        return f"{text}: {self.failed} {cells} failed, {self.passed} passed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """What trying every combination of ``strength`` axes showed.

    Of ``combinations`` that the rules allow, ``passed`` occur in a cell that passed and ``explained`` contain a cause
    that was found or exclude every cell without one; the others were not told. ``suspects`` are combinations that
    failed and never passed: where to look, not what is to blame. That is ``causes``. ``uncertified`` says, a sentence
    each, what is not certified and what would certify it: empty where every cause is and every combination was told.
    """

    strength: int
    combinations: int
    passed: int
    explained: int
    impossible: int
    causes: tuple[Cause, ...] = ()
    suspects: tuple[Interaction, ...] = ()
    uncertified: tuple[str, ...] = ()
    counts: tuple[CellCount, ...] = ()
    because: str = ""
    notes: tuple[str, ...] = ()
    trials: int = 0
    failures: int = 0
    seconds: float = 0.0


class AxisFinding(StrEnum):
    """What the cells that were run say about one axis."""

    IMPLICATED = "implicated"
    NOT_NECESSARY = "not necessary"
    NOT_SUFFICIENT = "not sufficient"
    INERT = "inert"
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisVerdict:
    """One finding about one axis and the cells that carry it; ``because`` names what was seen of them."""

    axis: str
    finding: AxisFinding
    because: str
    cells: tuple[CellCount, ...] = ()
