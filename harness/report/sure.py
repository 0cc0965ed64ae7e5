"""Sure: how strongly a run over cells may speak, and the counts behind it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from harness.core.boundary import Claim
from harness.core.cause import AxisFinding
from harness.core.point import assignment
from harness.core.verdict import Kind
from harness.report.findings import cells_of
from harness.report.text import count, listed
from harness.report.tried import verdict_counts
from harness.report.words import RAN_OUT, what_passes_miss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.campaign import CellResult
    from harness.core.cause import Cause
    from harness.report.findings import Findings
    from harness.report.tried import Numbered

MOST_WAYS = 4
"""Ways to fail that are told of."""

MOST_NAMED = 2
"""Cells that a sentence names; more are counted."""


def claim_of(findings: Findings) -> str:
    """The strongest of the three words that the trials carry; empty while there is no answer."""
    answer = findings.run.answer
    if findings.is_single:
        return _word(is_again=max(map(len, findings.groups), default=len(findings.run.own)) > 1)
    if answer is None:
        return ""
    if answer.causes or answer.minimised is not None:
        return _of_causes(answer.causes)
    if not findings.failed:
        return _word(is_again=_is_steady(findings))
    again = max((result.count.bad for result in findings.results), default=0) > 1
    return _word(is_again=again and bool(findings.axes_with(AxisFinding.IMPLICATED)))


def _word(*, is_again: bool) -> str:
    return (Claim.REPRODUCED if is_again else Claim.OBSERVED).capitalize()


def _of_causes(causes: Sequence[Cause]) -> str:
    """The strongest claim that one of them carries."""
    order = list(Claim)
    return max((cause.claim for cause in causes), key=order.index).capitalize() if causes else ""


def _is_steady(findings: Findings) -> bool:
    """Whether every cell was run more than once, and each time ended as before."""
    if not findings.by_cell or Kind.UNRESOLVED in findings.kinds:
        return False
    for trials in findings.by_cell.values():
        if len(trials) < 2 or len(trials.verdicts) > 1:
            return False
    return all(result.keys for result in findings.results)


def sure_of(findings: Findings) -> tuple[str, ...]:
    """The counts that carry it."""
    if findings.is_single:
        return (f"{verdict_counts(findings.run.records)}.",) if findings.run.records else ()
    failed = [result for result in findings.results if result.count.bad]
    sentences = _causes(findings)
    if not sentences and failed:
        sentences = _failures(findings, failed)
    sentences += _slow_cells(findings)
    return (*sentences, *_passed_cells(findings, is_alone=not failed and not sentences))


def _causes(findings: Findings) -> list[str]:
    """Each cause that a search for the settings has found, and how often every step back from it passed."""
    sentences: list[str] = []
    for cause in findings.answer.causes:
        sentences.append(f"{{{cause}}} {cause.seen}.")
        for need in cause.needs:
            if need.back:
                less = what_passes_miss(need.back, failing=cause.seen)
                sentences.append(f"With {assignment(need.axis, need.last_good)} instead it {need.back}{less}.")
    return sentences


def _failures(findings: Findings, failed: Sequence[CellResult]) -> list[str]:
    """What the cells that failed ended in, those that ended alike together, in the order in which they are told of."""
    order = findings.group_words

    def place(result: CellResult) -> int:
        word = result.seen[0][0]
        return order.index(word) if word in order else len(order)

    by_words: dict[tuple[str, str], list[str]] = {}
    for result in sorted(failed, key=place):
        ended = listed(dict(result.seen))
        by_words.setdefault((ended, str(result.count)), []).append(result.name)
    sentences: list[str] = []
    for (ended, often), names in islice(by_words.items(), MOST_WAYS):
        sentences.append(_failed(ended, often, names))
    if _are_alike(findings.failed):
        every = "Both" if len(findings.failed) == 2 else f"All {len(findings.failed)}"
        sentences.append(f"{every} failed trials end in the same stack.")
    return sentences


def _slow_cells(findings: Findings) -> list[str]:
    slow = [len(trials) for trials in findings.by_cell.values() if trials.kinds == {Kind.SLOW}]
    return [f"{count(len(slow), 'cell')} {RAN_OUT}{_each(slow)}."] if slow else []


def _passed_cells(findings: Findings, *, is_alone: bool) -> list[str]:
    """How often the cells passed that never failed; ``is_alone`` where nothing else was seen."""
    passes = [result.count.good for result in findings.results if result.count.good and not result.count.bad]
    if not passes:
        return []
    every_time = "" if is_alone else " every time"
    return [f"{count(len(passes), 'cell')} passed{every_time}{_each(passes)}."]


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


def _are_alike(failed: Sequence[Numbered]) -> bool:
    """Whether all failures are one: trials of several cells with the same signature, which names their stack."""
    signatures = {trial.verdict.signature for trial in failed}
    return len(cells_of(failed)) >= 2 and len(signatures) == 1 and None not in signatures
