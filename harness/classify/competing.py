"""The causes that compete with a verdict's own, weighed by what the case shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.rivals import RIVALS
from harness.classify.signs import in_stack, text_of
from harness.core.outcome import Ending
from harness.core.verdict import Alternative, Confidence, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.classify.rivals import Entry, Rival
    from harness.classify.signs import Sign
    from harness.core.verdict import Case, Verdict

MOST = 4
"""Alternatives of a verdict: whoever reads more than this reads none."""

SETTLED = frozenset(
    {"interrupted", "misconfigured", "unknown-ending", "ended-meanwhile", "paused", "steps-not-counted"}
)
"""Undecided for reasons that no experiment with the program is about."""


def competing(case: Case, verdict: Verdict) -> tuple[Alternative, ...]:
    """What else it may be: the best supported first, those of the rule itself before all others.

    A verdict that is proof has rivals only where it proves what happened and not why (a crash, memory).
    """
    if verdict.kind in (Kind.PASS, Kind.BELOW_TARGET, Kind.NONFINITE) or verdict.cause in SETTLED:
        return verdict.alternatives
    causes = {verdict.cause, *(alternative.cause for alternative in verdict.alternatives)}
    alternatives: list[Alternative] = []
    for entry in RIVALS:
        if not _applies(entry, case, verdict):
            continue
        for rival in entry.rivals:
            if rival.cause not in causes:
                causes.add(rival.cause)
                alternatives.append(_weighed(rival, case))
    alternatives.sort(key=lambda alternative: len(alternative.against) - len(alternative.supports))
    return (*verdict.alternatives, *alternatives)[:MOST]


def _applies(entry: Entry, case: Case, verdict: Verdict) -> bool:
    if verdict.confidence is Confidence.PROOF and not entry.proven:
        return False
    if entry.kinds and verdict.kind not in entry.kinds:
        return False
    if verdict.cause in entry.unless or (entry.causes and verdict.cause not in entry.causes):
        return False
    if entry.limited and case.outcome.ending is Ending.STILL_RUNNING:
        return False
    if entry.shows is not None and not entry.shows(case):
        return False
    if entry.stack and not in_stack(entry.stack, "yes")(case):
        return False
    return entry.text is None or entry.text.search(text_of(case)) is not None


def _weighed(rival: Rival, case: Case) -> Alternative:
    return Alternative(
        cause=rival.cause,
        because=rival.because,
        supports=_sentences(rival.pro, case),
        against=_sentences(rival.con, case),
        experiment=rival.test_of(case),
    )


def _sentences(signs: Iterable[Sign], case: Case) -> tuple[str, ...]:
    """What the case shows of these signs."""
    return tuple(filter(None, [sign(case) for sign in signs]))
