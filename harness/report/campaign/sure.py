"""Sure: how strongly a run over cells may speak, and the counts behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.cause import AxisFinding
from harness.core.verdict import FAILURES, Kind
from harness.report.campaign.facts import by_cell, groups, is_single, kinds, numbered, results
from harness.report.text import count, listed
from harness.report.words import RAN_OUT

if TYPE_CHECKING:
    from harness.core.record import CampaignRun

FAILED = FAILURES | {Kind.BELOW_TARGET}
"""Kinds that a headline names as a failure: a trial that ended well with wrong numbers did not pass either."""


def claim_of(run: CampaignRun) -> str:
    """The strongest of the three words that the trials carry; empty while there is no answer."""
    answer = run.answer
    if is_single(run):
        return "Reproduced" if max((len(g.trials) for g in groups(run)), default=len(run.records)) > 1 else "Observed"
    if answer is None:
        return ""
    if answer.minimised is not None:
        claims = [cause.claim for cause in answer.minimised.causes]
        return max(claims, key=list(type(claims[0])).index).capitalize() if claims else ""
    failed = [trial for trial in numbered(run) if trial.verdict.kind in FAILED]
    if not failed:
        return "Reproduced" if _is_steady(run) else "Observed"
    again = max(r.count.bad for r in results(run)) > 1 if results(run) else False
    pairs = any(v.finding is AxisFinding.IMPLICATED for table in answer.failures for v in table.axes)
    return "Reproduced" if again and pairs else "Observed"


def _is_steady(run: CampaignRun) -> bool:
    """Whether every cell was run more than once, and each time ended as before."""
    cells = by_cell(run).values()
    told = all(len(trials) > 1 and len({str(t.verdict) for t in trials}) == 1 for trials in cells)
    return bool(cells) and told and all(r.keys for r in results(run)) and Kind.UNRESOLVED not in _kinds(run)


def _kinds(run: CampaignRun) -> set[Kind]:
    return {trial.verdict.kind for trial in numbered(run)}


def sure_of(run: CampaignRun) -> tuple[str, ...]:
    """The counts that carry it."""
    found: list[str] = []
    if is_single(run):
        return (f"{listed(f'{n} {word}' for word, n in kinds(run.records).items())}.",) if run.records else ()
    answer = run.answer
    for cause in answer.minimised.causes if answer and answer.minimised else ():
        found.append(f"{{{cause}}} {cause.seen}.")
        found += [f"With {n.axis} one step back, at {n.last_good}, it {n.back}." for n in cause.needs if n.back]
    failed = [r for r in results(run) if r.count.bad]
    if not found and failed:
        by_words: dict[str, list[str]] = {}
        order = [str(group.first.verdict) for group in groups(run)]
        for result in sorted(failed, key=lambda r: order.index(r.seen[0][0]) if r.seen[0][0] in order else len(order)):
            by_words.setdefault(f"{listed(word for word, _ in result.seen)}, {result.count}", []).append(result.name)
        found += [f"{words}: {listed(names, most=2)}." for words, names in list(by_words.items())[:4]]
    slow = [trials for trials in by_cell(run).values() if all(t.verdict.kind is Kind.SLOW for t in trials)]
    if slow:
        again = min(len(trials) for trials in slow)
        found.append(f"{count(len(slow), 'cell')} {RAN_OUT}, each at least {again} of {again}.")
    passed = [r.count.good for r in results(run) if r.count.good and not r.count.bad]
    if passed and not failed and not found:
        found.append(f"{count(len(passed), 'cell')} passed, each at least {min(passed)} of {min(passed)}.")
    elif passed:
        found.append(f"{count(len(passed), 'cell')} passed every time.")
    return tuple(found)
