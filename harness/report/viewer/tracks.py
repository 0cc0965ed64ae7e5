"""Tracks: what each rank of a trial was doing from 0 to its end, as far as the marks that were kept tell it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from harness.core.evidence import FIRST_MARKS
from harness.report.figures.timeline import by_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.evidence import Evidence, Heartbeat, RankFacts


class StretchKind(StrEnum):
    """What is known of a stretch of time."""

    PHASE = "phase"
    BETWEEN = "between"
    STARTING = "starting"
    NOT_KEPT = "not kept"
    NO_MARK = "no mark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A rank from ``start_s`` to ``end_s`` seconds after the trial's start.

    ``phase`` is the one that it had begun and not ended, or empty; ``marks`` counts those that were not kept.
    """

    start_s: float
    end_s: float
    kind: StretchKind
    phase: str = ""
    step: int | None = None
    marks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePart:
    """A part of a phase that said when it was done, such as ``blocks.3``; it began where the part before it was."""

    start_s: float
    end_s: float
    name: str
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One rank: ``ended_s`` is when its process ended by itself, ``how`` with what."""

    rank: int
    stretches: tuple[Stretch, ...]
    parts: tuple[PhasePart, ...]
    ended_s: float | None = None
    how: str = ""


def tracks(evidence: Evidence, *, end_s: float) -> tuple[Track, ...]:
    """A track for each rank that left a mark or is known by its process, in the order of ranks."""
    marks = by_rank(evidence)
    facts_by_rank = {facts.rank: facts for facts in evidence.ranks}
    every = evidence.heartbeats_total  # of a single process
    known_ranks: list[Track] = []
    for rank in sorted({*marks, *facts_by_rank}):
        facts = facts_by_rank.get(rank)
        known_ranks.append(_track(rank, marks.get(rank, []), facts=facts, every=every, end_s=end_s))
    return tuple(known_ranks)


def _track(rank: int, marks: list[Heartbeat], *, facts: RankFacts | None, every: int, end_s: float) -> Track:
    total = facts.heartbeats_total if facts else every
    ended_s = facts.ended_s if facts else None
    until_s = end_s if ended_s is None else min(ended_s, end_s)
    return Track(
        rank=rank,
        stretches=_stretches(marks, not_kept=max(total - len(marks), 0), until_s=until_s),
        parts=_parts(marks, has_gap=total > len(marks)),
        ended_s=ended_s,
        how=facts.exit.words if facts and facts.exit and ended_s is not None else "",
    )


def _stretches(marks: Sequence[Heartbeat], *, not_kept: int, until_s: float) -> tuple[Stretch, ...]:
    if not marks:
        return (Stretch(start_s=0.0, end_s=until_s, kind=StretchKind.STARTING),)
    stretches = [Stretch(start_s=0.0, end_s=marks[0].t_s, kind=StretchKind.STARTING)]
    for number, (mark, after) in enumerate(pairwise(marks), start=1):
        if not_kept and number == FIRST_MARKS:
            stretches.append(Stretch(start_s=mark.t_s, end_s=after.t_s, kind=StretchKind.NOT_KEPT, marks=not_kept))
        else:
            _append(stretches, _after(mark, end_s=after.t_s))
    last = marks[-1]
    phase, end_s = "" if last.edge == "end" else last.phase, max(until_s, last.t_s)
    stretches.append(Stretch(start_s=last.t_s, end_s=end_s, kind=StretchKind.NO_MARK, phase=phase, step=last.step))
    return tuple(stretch for stretch in stretches if stretch.end_s > stretch.start_s)


def _append(stretches: list[Stretch], stretch: Stretch) -> None:
    """Put ``stretch`` behind the last one, or make that one longer where it is the same phase of the same step."""
    last = stretches[-1]
    if (last.kind, last.phase, last.step) == (stretch.kind, stretch.phase, stretch.step):
        stretches[-1] = replace(last, end_s=stretch.end_s)
    else:
        stretches.append(stretch)


def _after(mark: Heartbeat, *, end_s: float) -> Stretch:
    """From a mark to the next one: inside a phase, or between two."""
    if mark.edge == "end":
        return Stretch(start_s=mark.t_s, end_s=end_s, kind=StretchKind.BETWEEN)
    return Stretch(start_s=mark.t_s, end_s=end_s, kind=StretchKind.PHASE, phase=mark.phase, step=mark.step)


def _parts(marks: Sequence[Heartbeat], *, has_gap: bool) -> tuple[PhasePart, ...]:
    """What said that it was done inside a phase, each from the mark before it."""
    parts: list[PhasePart] = []
    for number, (before, mark) in enumerate(pairwise(marks), start=1):
        is_gap = has_gap and number == FIRST_MARKS
        if mark.edge == "progress" and mark.detail and not is_gap:
            parts.append(PhasePart(start_s=before.t_s, end_s=mark.t_s, name=mark.detail, phase=mark.phase))
    return tuple(parts)
