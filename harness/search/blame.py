"""What a search for the settings that a failure needs may say, and how strongly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.core.boundary import Claim
from harness.core.cause import Cause, CellCount, Minimised, MinimiseFinding
from harness.search.posterior import excluded_rate
from harness.search.tally import worth

if TYPE_CHECKING:
    from harness.core.cause import Need
    from harness.search.ladder import Levels
    from harness.search.minimise import Minimise


def conclude(search: Minimise) -> Minimised:
    """The causes as the trials so far show them."""
    causes = tuple(_cause(search, levels) for levels in search.found)
    finding = search.finding
    if finding is MinimiseFinding.CAUSE and (search.stopped or any(not c.certified for c in causes)):
        finding = MinimiseFinding.INCONCLUSIVE if not any(c.certified for c in causes) else finding
    return Minimised(
        finding=finding,
        causes=causes,
        complete=search.is_complete,
        because=_because(search, finding, causes),
        notes=tuple(_notes(search, causes)),
        counts=tuple(search.count(cell) for cell in search.tallies),
        trials=search.trials,
        failures=search.failures,
        seconds=search.seconds,
    )


def _cause(search: Minimise, levels: Levels) -> Cause:
    needs = tuple(search.need(levels, i) for i, level in enumerate(levels) if level)
    seen = search.count(search.ladder.cell(levels))
    passes = [worth(need.back.good, need.back.bad) for need in needs if need.certified and need.back is not None]
    confidence = search.effort.confidence
    free = [need for need in needs if not need.kept_by]
    sure = levels in search.sure
    both_twice = sure and seen.bad > 1 and bool(free) and all(need.certified and need.required > 1 for need in free)
    return Cause(
        needs=needs,
        seen=seen,
        excluded_rate=excluded_rate(min(passes), confidence=confidence) if passes else None,
        confidence=confidence,
        claim=Claim.REPRODUCED if both_twice else Claim.OBSERVED,
        freedom=search.freedom(levels),
        sure=sure,
    )


def _because(search: Minimise, finding: MinimiseFinding, causes: tuple[Cause, ...]) -> str:
    good, bad = search.count(search.good_cell), search.count(search.bad_cell)
    match finding:
        case MinimiseFinding.GOOD_FAILS:
            return f"the good corner {good}; without a passing side there is nothing to compare with."
        case MinimiseFinding.BAD_PASSES:
            return f"the bad corner {bad}{_excluding(bad, search.effort.confidence)}; there is nothing to explain here."
        case MinimiseFinding.CAUSE:
            return " ".join(_sentence(cause) for cause in causes)
        case MinimiseFinding.INCONCLUSIVE:
            if causes:
                return "Not certified: " + " ".join(_sentence(cause) for cause in causes)
            return f"the good corner {good}, the bad corner {bad}; that is not enough to look for a cause."


def _sentence(cause: Cause) -> str:
    shown = [need for need in cause.needs if need.certified and need.back is not None]
    text = f"{{{cause}}} {cause.seen}"
    if shown:
        least = min(worth(need.back.good, need.back.bad) for need in shown if need.back is not None)
        each = "a step back from it" if len(cause.needs) == 1 else "each single step back"
        which = "" if len(shown) == len(cause.needs) else f" ({', '.join(need.axis for need in shown)})"
        text += f"; {each}{which} passed at least {least} times without a failure{_cleared(shown)}"
        text += _excluding(CellCount(cell=cause.seen.cell, good=least), cause.confidence)
    return text + "."


def _cleared(shown: list[Need]) -> str:
    """A certificate with failures in it is worth that of fewer passes without; it says so."""
    names = ", ".join(need.axis for need in shown if need.cleared)
    return f", or more often for the same certificate where a failure did not come again ({names})" if names else ""


def _excluding(count: CellCount, confidence: float) -> str:
    rate = excluded_rate(count.good, confidence=confidence)
    if rate is None or count.bad:
        return ""
    at_least = math.ceil(rate * 100) / 100  # rounded up: never more than what was ruled out
    return f", so that a failure rate of {at_least:g} or more would have been seen with {confidence * 100:g} %"


def _notes(search: Minimise, causes: tuple[Cause, ...]) -> list[str]:
    notes: list[str] = []
    if search.stopped:
        notes.append(f"The search was ended early by {search.stopped}.")
    for cause in causes:
        if cause.seen.bad and not cause.sure and not search.stopped:
            notes.append(f"{{{cause}}} {cause.seen}: too few to tell a rare failure from false alarms.")
        for need in cause.needs:
            notes.extend(_about(need.axis, need.kept_by, open_=need.back is None and not need.kept_by))
            if need.back is not None and not need.certified:
                back = f"with {need.axis}={need.last_good} it {need.back}"
                notes.append(f"The certificate is incomplete: {back}, {need.required or 'more'} passes are asked for.")
            for other in need.others:
                answer = f"failed {other.bad}" if other.bad else f"passed {other.good}"
                of = other.good + other.bad + other.unresolved
                notes.append(f"With {need.axis}={other.value} instead it {answer} of {of}.")
    notes.extend(search.holes)
    notes.extend(
        f"{search.space.name_of(cell)} {search.count(cell)}, and not as often as a failing cell would: not counted."
        for cell, tally in search.tallies.items()
        if tally.bad and not search.fails(cell)
    )
    if causes and not search.is_complete:
        notes.append("Not claimed: that no other set of settings fails, or that none is smaller.")
    if causes and search.is_complete:
        notes.append(
            "No other cause among these settings, if adding a bad one never makes a failure rarer: with every cause "
            "broken in every way, the rest passed."
        )
    return notes


def _about(axis: str, kept_by: str, *, open_: bool) -> list[str]:
    if kept_by:
        return [f"That {axis} is needed by itself was not shown: taking it back breaks a rule ({kept_by})."]
    return [f"That {axis} is needed was not shown: with it taken back no trial gave an answer."] if open_ else []
