"""Asked: what the trials answer to each question of a matrix, in words, with the trials that the answer rests on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from harness.core.evidence import GRAPH_NODES
from harness.core.matrix import Asks
from harness.core.point import AxisType, assignment
from harness.core.verdict import FAILURES, Kind
from harness.report.findings import cells_of
from harness.report.text import count, listed, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.matrix import MatrixQuestion
    from harness.core.point import Point
    from harness.report.findings import Findings
    from harness.report.tried import Numbered, Pair, Pairs, TrialSet

YES, NO, NOT_KNOWN = "Yes", "No", "Not known"
FAR_MORE = 3
"""Times the autograd nodes of a trial that passed that explain why another one is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswer:
    """The answer to one question: ``word`` is Yes, No or Not known, ``says`` the sentence that was decided for.

    ``because`` are the counts, ``trials`` the numbers of those that were counted.
    """

    asks: Asks
    word: str
    says: str
    because: str
    trials: tuple[int, ...]


@lru_cache(maxsize=1)  # of one run several sections ask
def answers(findings: Findings) -> tuple[QuestionAnswer, ...]:
    """An answer to every question of the matrix; none while no trial has ended."""
    decide = {Asks.EVER: _ever, Asks.ALWAYS: _always, Asks.MATTERS: _matters}
    if not findings.by_cell:
        return ()
    return tuple(decide[question.asks](findings, question) for question in findings.run.spec.matrix.asks)


def _ever(findings: Findings, question: MatrixQuestion) -> QuestionAnswer:
    cells = _cells(findings, question)
    trials = list(chain.from_iterable(cells.values()))
    matches = [trial for trial in trials if _shows(trial, question)]
    if matches:
        where = f"{len(cells_of(matches))} of {count(len(cells), 'cell')}"
        because = f"{len(matches)} of {count(len(trials), 'trial')} did, in {where}."
        return _answer(question, YES, because, matches)
    return _never(cells, question, trials)


def _never(cells: dict[Point, TrialSet], question: MatrixQuestion, trials: list[Numbered]) -> QuestionAnswer:
    """No, of those that got through the phase that is asked about; where none did, that is not known."""
    reached = [trial for trial in trials if trial.verdict.kind is Kind.PASS]
    through = f" that got through {question.phase}" if question.phase else ""
    gap = _not_reached(cells, question)
    if not reached:
        return _answer(question, NOT_KNOWN, f"No trial{through or ' came to its end'}.{gap}", trials)
    none = "/".join(question.kinds) or "failure"
    scope = f"{count(len(reached), 'trial')} of {count(len(cells_of(reached)), 'cell')}"
    return _answer(question, NO, f"No {none} in the {scope}{through}.{gap}", trials)


def _always(findings: Findings, question: MatrixQuestion) -> QuestionAnswer:
    cells = _cells(findings, question)
    each = passes = judged = 0
    for trials in cells.values():
        if trials.is_undecided:
            continue
        judged += 1
        each += all(_shows(trial, question) for trial in trials)
        passes += trials.has_passed
    every = list(chain.from_iterable(cells.values()))
    if not judged:
        return _answer(question, NOT_KNOWN, "No trial could be judged.", every)
    because = f"{each} of {count(judged, 'cell')} end so every time; {passes} pass every time."
    return _answer(question, YES if each == judged else NO, because, every)


def _matters(findings: Findings, question: MatrixQuestion) -> QuestionAnswer:
    """By the pairs of cells that differ in the axis and in nothing else; unequal limits decide nothing."""
    every = findings.pairs_along(question.axis)
    alike, different = _that_hold(every.alike, question), _that_hold(every.different, question)
    total = len(alike) + len(different)
    trials: list[Numbered] = []
    for cell in chain.from_iterable((*alike, *different)):
        trials += findings.by_cell[cell]
    if not total:
        because = f"No two cells that can be compared differ only in {question.axis}."
        return _answer(question, NOT_KNOWN, because, trials)
    if different:
        because = f"{len(different)} of {count(total, 'pair')} of cells that differ only in it ended differently."
        return _answer(question, YES, because, trials)
    slow_pairs = 0
    for one, other in alike:
        slow_pairs += _has_slow(findings, one) and _has_slow(findings, other)
    both = f", {slow_pairs} of them out of time on both sides" if slow_pairs else ""
    because = f"{len(alike)} of {count(total, 'pair')} of cells that differ only in {question.axis} ended alike{both}."
    return _answer(question, NO, because, trials)


def _that_hold(pairs: Sequence[Pair], question: MatrixQuestion) -> list[Pair]:
    """The pairs of which both cells are asked about."""
    asked: list[Pair] = []
    for one, other in pairs:
        if question.when.holds(dict(one)) and question.when.holds(dict(other)):
            asked.append((one, other))
    return asked


def _answer(question: MatrixQuestion, word: str, because: str, trials: list[Numbered]) -> QuestionAnswer:
    sentence = {YES: question.yes, NO: question.no}.get(word, "")
    numbers = tuple(sorted({trial.number for trial in trials}))
    return QuestionAnswer(asks=question.asks, word=word, says=sentence.rstrip(". "), because=because, trials=numbers)


def _cells(findings: Findings, question: MatrixQuestion) -> dict[Point, TrialSet]:
    return {cell: trials for cell, trials in findings.by_cell.items() if question.when.holds(dict(cell))}


def _shows(trial: Numbered, question: MatrixQuestion) -> bool:
    verdict = trial.verdict
    is_kind = verdict.kind in (question.kinds or FAILURES)
    return is_kind and question.cause in ("", verdict.cause) and question.phase in ("", verdict.phase)


def _not_reached(cells: dict[Point, TrialSet], question: MatrixQuestion) -> str:
    """Cells of which no trial passed, and where they were when they ended."""
    unfinished = 0
    ended: Counter[str] = Counter()
    for trials in cells.values():
        if Kind.PASS not in trials.kinds:
            unfinished += 1
            for trial in trials:
                verdict = trial.verdict
                how = "ran out of time" if verdict.kind is Kind.SLOW else f"ended in {verdict.kind}"
                ended[f"{how} in {verdict.phase}" if verdict.phase else how] += 1
    if not unfinished:
        return ""
    endings = listed(f"{count(n, 'trial')} {how}" for how, n in ended.most_common())
    return f" {count(unfinished, 'cell')} did not get {'there' if question.phase else 'to the end'}: {endings}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Instead:
    """A cell that was slow, and one that passed and differs from it in ``axis`` alone."""

    axis: str
    slow: Point
    passed: Point

    @property
    def change(self) -> str:
        """``attention=nsa``: what it takes."""
        return assignment(self.axis, self.passed.get(self.axis))


@lru_cache(maxsize=1)
def instead(findings: Findings) -> Instead | None:
    """What passes in place of a slow cell, by the axis that decides most pairs; of its values the one nearest in size.

    An ordered axis does not count: another value of it is a smaller question, not another way to do the same.
    """
    best: Pairs | None = None
    for pairs in findings.pairs:
        is_ordered = findings.run.spec.matrix.space.factor(pairs.axis).axis.type is AxisType.ORDERED
        decides_more = best is None or len(pairs.different) > len(best.different)
        if not is_ordered and decides_more and _ways(findings, pairs):
            best = pairs
    if best is None:
        return None
    return max(_ways(findings, best), key=lambda way: _nodes(findings, way.passed) or 0.0)


def _ways(findings: Findings, pairs: Pairs) -> list[Instead]:
    """The pairs of which one side was slow, and the other passed every time."""
    ways: list[Instead] = []
    for one, other in pairs.different:
        slow, passed = (one, other) if _has_slow(findings, one) else (other, one)
        if _has_slow(findings, slow) and findings.by_cell[passed].has_passed:
            ways.append(Instead(axis=pairs.axis, slow=slow, passed=passed))
    return ways


def _has_slow(findings: Findings, cell: Point) -> bool:
    return Kind.SLOW in findings.by_cell[cell].kinds


def why_slow(findings: Findings) -> str:
    """How many autograd nodes a slow trial had built, and how many one that passed builds with one setting changed."""
    other = instead(findings)
    built, whole = (_nodes(findings, other.slow), _nodes(findings, other.passed)) if other else (None, None)
    if other is None or built is None or whole is None or built < FAR_MORE * whole:
        return ""
    return (
        f"{findings.name_of(other.slow)} had built {built:,.0f} autograd nodes when its time ran out; with "
        f"{other.change} and nothing else changed a forward pass has {whole:,.0f} in all."
    )


def instead_of_slow(findings: Findings) -> str:
    """``Use attention=nsa: with nothing else changed it passed 2 of 2, in 34 s at most.``; else empty."""
    other = instead(findings)
    if other is None:
        return ""
    trials = findings.by_cell[other.passed]
    passes = f"{len(trials)} of {len(trials)}, in {seconds(trials.longest_s)} at most"
    return f"Use {other.change}: with nothing else changed it passed {passes}."


def _nodes(findings: Findings, cell: Point) -> float | None:
    most: float | None = None
    for trial in findings.by_cell[cell]:
        nodes = dict(trial.record.measurement.facts).get(GRAPH_NODES)
        if nodes:
            most = max(most or nodes, nodes)
    return most
