"""What a search for the settings that a failure needs may say, and how strongly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.boundary import Claim
from harness.core.cause import Cause, CellCount, Minimised, MinimiseFinding
from harness.core.point import assignment
from harness.core.verdict import REFUSED
from harness.search.certificate import excluded_rate, stated
from harness.search.constraints import members
from harness.search.tables import of_cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.core.campaign import CampaignAnswer, CampaignSpec
    from harness.core.cause import Need
    from harness.core.record import TrialRecord
    from harness.search.constraints import Levels
    from harness.search.minimise import Minimise


def conclude(search: Minimise) -> Minimised:
    """The causes as the trials so far show them."""
    causes = tuple(_cause(search, levels) for levels in search.failing_sets)
    finding = search.finding
    is_certified = any(cause.certified for cause in causes)
    if finding is MinimiseFinding.CAUSE and not is_certified and (search.stopped or causes):
        finding = MinimiseFinding.INCONCLUSIVE
    return Minimised(
        finding=finding,
        causes=causes,
        complete=search.is_complete,
        because=_because(search, finding, causes),
        notes=tuple(_notes(search, causes)),
        counts=tuple(map(search.count, search.tallies)),
        trials=search.trials,
        failures=search.failures,
        seconds=search.seconds,
    )


def _cause(search: Minimise, levels: Levels) -> Cause:
    needs = tuple(search.need(levels, position) for position in members(levels))
    count = search.count(search.ladder.cell(levels))
    sure = levels in search.sure
    both_twice = sure and count.bad > 1 and _are_certified(needs)
    return Cause(
        needs=needs,
        seen=count,
        excluded_rate=search.excluded_rate(levels),
        confidence=search.effort.confidence,
        claim=Claim.REPRODUCED if both_twice else Claim.OBSERVED,
        freedom=search.freedom(levels),
        sure=sure,
    )


def _are_certified(needs: Sequence[Need]) -> bool:
    """Whether each setting that can be taken back was, more than once, and passed as often as was asked."""
    is_any_free = False
    for need in needs:
        if need.back is None and need.kept_by:
            continue
        if not need.certified or need.required <= 1:
            return False
        is_any_free = True
    return is_any_free


def _because(search: Minimise, finding: MinimiseFinding, causes: tuple[Cause, ...]) -> str:
    good, bad = search.count(search.good_cell), search.count(search.bad_cell)
    match finding:
        case MinimiseFinding.GOOD_FAILS:
            return f"the baseline {good}; without a passing side there is nothing to compare with."
        case MinimiseFinding.BAD_PASSES:
            return f"the cell that was to fail {bad}{_excluding(bad, search.effort.confidence)}: nothing to explain."
        case MinimiseFinding.CAUSE:
            return " ".join(map(_sentence, causes))
        case MinimiseFinding.INCONCLUSIVE | MinimiseFinding.REFUSED:
            if causes:
                return "Not certified: " + " ".join(map(_sentence, causes))
            return f"the baseline {good}, the cell that was to fail {bad}; that is not enough to look for a cause."


def _sentence(cause: Cause) -> str:
    certified: list[str] = []
    cleared: list[str] = []
    passes: list[int] = []
    for need in cause.needs:
        if need.certified and need.back is not None:
            certified.append(need.axis)
            passes.append(need.back.good)
            if need.cleared:
                cleared.append(need.axis)
    text = f"{{{cause}}} {cause.seen}"
    if certified:
        each = "it" if len(cause.needs) == 1 else "any one of them"
        which = "" if len(certified) == len(cause.needs) else f" ({', '.join(certified)})"
        times = f"{min(passes)}" if min(passes) == max(passes) else f"{min(passes)} to {max(passes)}"
        # A certificate with failures in it is worth that of fewer passes without; it says so.
        names = ", ".join(cleared)
        rarely = f", more often where a failure did not come again ({names})" if names else ", never failing"
        text += f"; with {each}{which} taken back it passed {times} times{rarely}"
        text += _detectable_rate(cause.excluded_rate, cause.confidence)
    return text + "."


def _excluding(count: CellCount, confidence: float) -> str:
    return "" if count.bad else _detectable_rate(excluded_rate(count.good, confidence=confidence), confidence)


def _detectable_rate(rate: float | None, confidence: float) -> str:
    if rate is None:
        return ""
    clause = f"a failure rate of {stated(rate):g} or more would have been seen with {confidence * 100:g} %"
    return f", so that {clause} if trials do not depend on each other"


def _notes(search: Minimise, causes: tuple[Cause, ...]) -> list[str]:
    notes: list[str] = []
    if search.stopped:
        notes.append(f"The search was ended early by {search.stopped}.")
    for cause in causes:
        if not search.stopped:
            notes.extend(rareness(cause))
        for need in cause.needs:
            notes.extend(about(need))
    notes.extend(search.holes)
    for cell, tally in search.tallies.items():
        if tally.bad and not search.fails(cell):
            seldom = "and not as often as a failing cell would: not counted."
            notes.append(f"{search.space.name_of(cell)} {search.count(cell)}, {seldom}")
    if causes and not search.is_complete:
        notes.append("Not claimed: that no other set of settings fails, or that none is smaller.")
    if causes and search.is_complete:
        notes.append(
            "No other cause among these settings, if adding a bad one never makes a failure rarer: with every cause "
            "broken in every way, the rest passed."
        )
    return notes


def rareness(cause: Cause) -> Iterator[str]:
    """That its failures may yet be false alarms; nothing where they cannot."""
    if cause.seen.bad and not cause.sure:
        yield f"{{{cause}}} {cause.seen}: too few to tell a rare failure from false alarms."


def about(need: Need) -> Iterator[str]:
    """What was not shown of one setting that a cause needs, and what other values of its axis did."""
    if need.kept_by and need.back is None:
        yield f"That {need.axis} is needed by itself was not shown: taking it back breaks a rule ({need.kept_by})."
    elif need.kept_by:
        tied = f"what a rule ties to it was taken back with it ({need.kept_by})"
        yield f"That {need.axis} is needed by itself was not shown: {tied}, and that {need.back}."
    elif need.back is None:
        yield f"That {need.axis} is needed was not shown: with it taken back no trial gave an answer."
    if need.back is not None and not need.certified:
        back = f"with {assignment(need.axis, need.last_good)} it {need.back}"
        yield f"The certificate is incomplete: {back}, {need.required or 'more'} passes are asked for."
    for other in need.others:
        answer = f"failed {other.bad}" if other.bad else f"passed {other.good}"
        of = other.good + other.bad + other.unresolved
        if not of:
            continue  # interrupted before it was tried
        yield f"With {assignment(need.axis, other.value)} instead it {answer} of {of}."


def with_refusal(answer: CampaignAnswer, spec: CampaignSpec, records: Sequence[TrialRecord]) -> CampaignAnswer:
    """``answer`` as the trials say it where every one of a corner ended with its command line refused."""
    minimised = answer.minimised
    if minimised is None or minimised.finding is not MinimiseFinding.INCONCLUSIVE or minimised.causes:
        return answer
    space = spec.matrix.space
    corners = (("the baseline", spec.good or space.good), ("the cell that was to fail", spec.bad or space.bad))
    for name, cell in corners:
        here = of_cell(cell, records)
        if here and all(record.verdict.cause == REFUSED for record in here):
            because = f"{name} never ran, {len(here)} of {len(here)} times: {here[0].verdict.because}."
            refused = replace(minimised, finding=MinimiseFinding.REFUSED, because=because)
            return replace(answer, minimised=refused, because=because)
    return answer
