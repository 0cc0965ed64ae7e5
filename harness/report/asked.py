"""Asked: what the cells of a matrix answer to its questions and expectations, and which settings tell them apart."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
from typing import TYPE_CHECKING

from harness.core.campaign import CellStatus
from harness.core.evidence import GRAPH_NODES
from harness.core.matrix import Asks
from harness.core.point import AxisType, assignment, word_of
from harness.core.verdict import FAILURES, Kind
from harness.report.findings import cells_of
from harness.report.text import count, how_many, listed, seconds
from harness.report.tried import grouped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from harness.core.campaign import CellResult
    from harness.core.matrix import MatrixQuestion
    from harness.core.point import Axis, Point
    from harness.report.findings import Findings
    from harness.report.tried import Numbered, Pair, Pairs, TrialSet


def where(findings: Findings, verdict: str) -> str:
    """``in all 3 cells with attention=nsa, and in no other``; empty when no three settings tell them apart.

    ``verdict`` may be the name of a signature's failure. Said of the cells that were tried; whether the settings are
    the reason is for pairs that differ in nothing else.
    """
    inside: list[Point] = []
    outside: list[Point] = []
    undecided = 0
    if findings.run.programs:
        return ""  # the commit, and not a setting, may be what tells them apart
    for cell, trials in findings.by_cell.items():
        if verdict in trials.words or verdict in findings.named.get(cell, ()):
            inside.append(cell)
        elif trials.is_undecided:
            undecided += 1
        else:
            outside.append(cell)
    if not inside:
        return ""
    if not outside:
        return f"in each of {len(inside)} cells" if len(inside) > 1 and not undecided else ""
    if len(inside) == 1:
        return f"in one cell of {len(findings.by_cell)}, {findings.name_of(inside[0])}"
    settings = _settings(findings, inside, outside)
    if not settings:
        return ""
    all_of = "both" if len(inside) == 2 else f"all {len(inside)}"
    return f"in {all_of} cells with {settings}, and in no other{' that could be told' if undecided else ''}"


def _settings(findings: Findings, inside: Sequence[Point], outside: Sequence[Point]) -> str:
    """The fewest settings that tell ``inside`` from ``outside``: one, or else two, or else three; else empty.

    Where several sets of the same size do it, all of them are said: these cells do not tell which of them it is.
    """
    traits = list(_shared(findings, inside))
    for size in (1, 2, 3):
        telling: set[_Trait] = set()
        for some in combinations(traits, size):
            if not any(_has_all(cell, some) for cell in outside):
                telling.update(some)
        if telling:
            return ", ".join(trait.text for trait in traits if trait in telling)
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class _Trait:
    """What cells share of one axis: its name, the places of its values on the axis that count, and both in words."""

    axis: Axis
    places: range
    text: str


def _shared(findings: Findings, inside: Sequence[Point]) -> Iterator[_Trait]:
    """What all of ``inside`` have in common: a value, ``attention=nsa``, or on an ordered axis a least, ``n>=5``."""
    for factor in findings.run.spec.matrix.space.factors:
        axis = factor.axis
        at = sorted({axis.index(cell.get(factor.name)) for cell in inside})
        word = word_of(axis.values[at[0]])
        if len(at) == 1:
            yield _Trait(axis, range(at[0], at[0] + 1), assignment(factor.name, axis.values[at[0]]))
        elif axis.type is AxisType.ORDERED:
            yield _Trait(axis, range(at[0], len(axis.values)), f"{factor.name}>={word}")


def _has_all(cell: Point, traits: Iterable[_Trait]) -> bool:
    return all(trait.axis.index(cell.get(trait.axis.name)) in trait.places for trait in traits)


MOST_NAMED = 4
"""Cells that ended otherwise than expected which are named; the table has all."""

REST = {CellStatus.INCONCLUSIVE: "inconclusive", CellStatus.SKIPPED: "skipped", CellStatus.NOT_RUN: "not run"}


def verdict_by_expectation(findings: Findings) -> tuple[str, str]:
    """Whether all cells ended as expected, else in what instead, and the tone; of a matrix that expects something."""
    results, surprises = findings.results, findings.surprises
    of_all = f"of {count(len(results), 'cell')}"
    if surprises:
        instead = listed(_instead(findings))
        verb = "is" if len(surprises) == 1 else "are"
        return f"{len(surprises)} {of_all} {verb} not as expected: {instead}", "bad"
    as_expected = len(findings.results_that_are(CellStatus.EXPECTED))
    if as_expected == len(results):
        return (f"All {as_expected} cells are as expected" if as_expected > 1 else "The cell is as expected"), "good"
    numbers = {status: len(findings.results_that_are(status)) for status in REST}
    rest = how_many((REST[status], number) for status, number in numbers.items() if number)
    is_skipped_only = as_expected + numbers[CellStatus.SKIPPED] == len(results)
    return f"{as_expected} {of_all} as expected, {rest}", "good" if is_skipped_only else "unsure"


def names_by_expectation(findings: Findings) -> str:
    """``Not as expected: layers=4; layers=8.``, by what they ended in where that is several; empty where none is."""
    ways = _instead(findings)
    texts: list[str] = []
    for way, results in ways.items():
        names = [result.name for result in results[:MOST_NAMED]]
        names += [f"{len(results) - MOST_NAMED} more"] if len(results) > MOST_NAMED else []
        texts.append("; ".join(names) + (f" ({way})" if len(ways) > 1 else ""))
    return f"Not as expected: {'; '.join(texts)}." if texts else ""


def _instead(findings: Findings) -> dict[str, list[CellResult]]:
    """``HANG (deadlock) instead of PASS``, with the cells that did so; first the one that is told of."""
    subject = findings.subject
    cell = subject.trial.point if subject else None
    surprises = sorted(findings.surprises, key=lambda result: result.cell != cell)
    return grouped(surprises, lambda result: f"{_ended(findings, result)} instead of {expected(result)}")


def _ended(findings: Findings, result: CellResult) -> str:
    trials = findings.by_cell.get(result.cell)
    return ending(trials) if trials else result.because


def expected(result: CellResult) -> str:
    """``CRASH (#7)``: what a cell was expected to end in, and what that is known as."""
    return f"{result.expected} ({result.issue})" if result.issue else result.expected


def ending(trials: TrialSet) -> str:
    """What the trials of a cell ended in: ``PASS``, or ``CRASH in some trials, PASS in others``."""
    failures = [word for word in trials.words if word != Kind.PASS]
    if not failures or len(failures) == len(trials.words):
        return listed(trials.words)
    return f"{listed(failures)} in some trials, {Kind.PASS} in others"


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
    holds = question.when.holds
    return [(one, other) for one, other in pairs if holds(dict(one)) and holds(dict(other))]


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
