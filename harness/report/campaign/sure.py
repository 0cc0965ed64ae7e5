"""Sure: how strongly a run over cells may speak, and the counts behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.cause import AxisFinding
from harness.core.verdict import FAILURES, Kind
from harness.report.campaign.facts import by_cell, groups, is_single, kinds, numbered, results
from harness.report.text import count, listed
from harness.report.words import RAN_OUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.record import Run

FAILED = FAILURES | {Kind.BELOW_TARGET}
"""Kinds that a headline names as a failure: a trial that ended well with wrong numbers did not pass either."""

MOST_NAMED = 2
"""Cells that a sentence names; more are counted."""


def claim_of(run: Run) -> str:
    """The strongest of the three words that the trials carry; empty while there is no answer."""
    answer = run.answer
    if is_single(run):
        return "Reproduced" if max((len(g.trials) for g in groups(run)), default=len(run.own)) > 1 else "Observed"
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


def _is_steady(run: Run) -> bool:
    """Whether every cell was run more than once, and each time ended as before."""
    cells = by_cell(run).values()
    told = all(len(trials) > 1 and len({str(t.verdict) for t in trials}) == 1 for trials in cells)
    return bool(cells) and told and all(r.keys for r in results(run)) and Kind.UNRESOLVED not in _kinds(run)


def _kinds(run: Run) -> set[Kind]:
    return {trial.verdict.kind for trial in numbered(run)}


def sure_of(run: Run) -> tuple[str, ...]:
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
        by_words: dict[tuple[str, str], list[str]] = {}
        order = [str(group.first.verdict) for group in groups(run)]
        for result in sorted(failed, key=lambda r: order.index(r.seen[0][0]) if r.seen[0][0] in order else len(order)):
            by_words.setdefault((listed(word for word, _ in result.seen), str(result.count)), []).append(result.name)
        found += [_failed(*how, names) for how, names in list(by_words.items())[:4]]
        found += [f"{_alike(run)}."] if _alike(run) else []
    slow = [trials for trials in by_cell(run).values() if all(t.verdict.kind is Kind.SLOW for t in trials)]
    if slow:
        found.append(f"{count(len(slow), 'cell')} {RAN_OUT}{_each([len(trials) for trials in slow])}.")
    passed = [r.count.good for r in results(run) if r.count.good and not r.count.bad]
    if passed and not failed and not found:
        found.append(f"{count(len(passed), 'cell')} passed{_each(passed)}.")
    elif passed:
        found.append(f"{count(len(passed), 'cell')} passed every time{_each(passed)}.")
    return tuple(found)


def _each(times: Sequence[int]) -> str:
    """How often each of some cells did it, all its trials: ``, each 2 of 2``."""
    least = min(times)
    often = f"{least} of {least}" if least == max(times) else f"at least {least} of {least}"
    return f", {often}" if len(times) == 1 else f", each {often}"


def _failed(ended: str, often: str, names: Sequence[str]) -> str:
    """Cells that failed alike, by name where that is short: their names hold commas."""
    if len(names) > MOST_NAMED:
        return f"{ended} in {len(names)} cells, each {often}."
    return f"{ended}, {often}: {' and '.join(names)}."


def _alike(run: Run) -> str:
    """Whether all failures are one: trials of several cells with the same signature, which names their stack."""
    failed = [trial for trial in numbered(run) if trial.verdict.kind in FAILED]
    signatures = {trial.verdict.signature for trial in failed}
    if len({trial.record.trial.point for trial in failed}) < 2 or len(signatures) > 1 or None in signatures:
        return ""
    return f"{'Both' if len(failed) == 2 else f'All {len(failed)}'} failed trials end in the same stack"
