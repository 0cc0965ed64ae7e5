"""The first screen of a report; of a run over cells also its sentences, and how strongly they may speak."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from harness.core.boundary import Claim, Finding
from harness.core.campaign import Task
from harness.core.cause import AxisFinding, MinimiseFinding
from harness.core.point import assignment, word_of
from harness.core.verdict import Kind
from harness.report.asked import answers, ending, names_by_expectation, verdict_by_expectation, where, why_slow
from harness.report.findings import FAILED, cells_of
from harness.report.summary import (
    Summary,
    happened,
    how_ended,
    judged,
    notes_of,
    place_of,
    rank_of,
    steps_of,
    to_look_at,
)
from harness.report.text import count, how_many, listed, seconds
from harness.report.tried import verdict_counts, verdicts
from harness.report.words import (
    ENDS,
    LINEAR_R_SQUARED,
    RAN_OUT,
    answer_along,
    claim_along,
    day,
    how_often_in,
    not_run,
    other_settings,
    several_programs,
    tally,
    unfinished,
    verdict_along,
    watched_without_verdict,
    what_passes_miss,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.campaign import AxisFit, CellResult, FailureTable
    from harness.core.point import Point
    from harness.report.findings import Findings
    from harness.report.tried import Group


SHORTER = {MinimiseFinding.CAUSE: "", MinimiseFinding.GOOD_FAILS: "The good corner fails: "}
"""What stands before the sentence of a search for settings where the name of its finding says too much."""


def summarise(findings: Findings) -> Summary:
    """What happened, how sure, where, what next."""
    run = findings.run
    group, record = next(iter(findings.groups), None), to_look_at(findings)
    verdict, tone = verdict_of(findings)
    if findings.is_line:
        claim, sure = claim_along(findings)
        begins = run.boundary is None or run.boundary.finding is Finding.INCONCLUSIVE
    else:
        claim, sure = claim_of(findings), sure_of(findings)
        begins = not run.records or bool(_watched(findings))
    return Summary(
        kind=_kind(findings),
        verdict=verdict,
        tone=tone,
        answer=headline(findings),
        claim=claim,
        sure=sure or ("Nothing is claimed.",),
        judged=judged(record),
        happened=happened(findings, group),
        rank=rank_of(findings, record),
        place=place_of(findings, record),
        steps=steps_of(findings),
        tally=tally(findings),
        when=day(run.started_at),
        notes=notes_of(findings),
        planted=_planted(findings, group),
        begins_with_verdict=begins,
        job=findings.answer.job,
        ended=how_ended(findings),
    )


def verdict_of(findings: Findings) -> tuple[str, str]:
    """The answer in a few words, and the tone to set them in; of a matrix that asks, the answer to each question."""
    if findings.is_line:
        return verdict_along(findings)
    verdict, tone = _verdict(findings)
    words = [f"{answer.word}. {answer.says or answer.because.rstrip('. ')}" for answer in answers(findings)]
    gaps = [*map(not_run, findings.lost), *filter(None, [several_programs(findings)])]
    return "; ".join((". ".join(words) or verdict, *gaps)), "unsure" if gaps and tone == "good" else tone


def brief_of(findings: Findings) -> str:
    """What a line of a list has room for: a program's verdicts, or the few words of an answer, and how far it came."""
    every = findings.run.records
    counts = verdicts(every)
    if findings.is_single and every:
        return next(iter(counts)) if len(counts) == 1 else verdict_counts(every)
    is_open = findings.is_line and findings.run.boundary is None  # which the verdict says by itself
    partial = "" if findings.run.is_whole or is_open or not every else f"Partial ({findings.run.ended}): "
    return f"{partial}{verdict_of(findings)[0]}"


def _kind(findings: Findings) -> str:
    run = findings.run
    if findings.is_line:
        return "threshold" if len(run.axis.values) > 1 else "single"
    if findings.is_single:
        return "single"
    return "matrix" if run.spec.task is Task.CELLS else run.spec.task.value


def _planted(findings: Findings, group: Group | None) -> str:
    """That a fault was planted; in how many cells, and that it was not in the one that is spoken of; empty for none."""
    fault = findings.run.spec.matrix.fault
    if fault is None:
        return ""
    text = f"The fault {fault} was planted on purpose"
    if findings.is_line:
        return f"{text}."
    cells = {trial.record.trial.point for trial in findings.trials if trial.record.trial.fault is not None}
    this = ", not in this one" if group and group.first.record.trial.fault is None else ""
    return f"{text} in {len(cells)} of {count(len(findings.by_cell), 'cell')}{this}."


def _verdict(findings: Findings) -> tuple[str, str]:
    """A few words, and the tone to set them in."""
    if not findings.trials:
        return (f"No answer ({findings.run.ended})", "unsure")
    if findings.expects:
        return verdict_by_expectation(findings)
    if findings.failed:
        return (_failures(findings), "bad")
    if watched := _watched(findings):
        return (watched, "unsure")
    if findings.slow:
        return ("SLOW: nothing hung or crashed", "slow")
    ended = verdicts(findings.run.records)
    ended.pop(Kind.PASS, None)
    if ended:
        return (listed(ended), "unsure")
    if findings.pending:
        passed = len(findings.by_cell)
        return (f"{passed} of {count(passed + len(findings.pending), 'cell')} passed", "unsure")
    return ("PASS: nothing failed", "good")


def _failures(findings: Findings) -> str:
    """``HANG (deadlock) in all 3 cells with attention=nsa, and in no other``."""
    words: list[str] = []
    for group, word in zip(findings.groups, findings.group_words, strict=True):
        if group.first.verdict.kind in FAILED and word not in words:
            words.append(word)
    if findings.is_single:
        return listed(words)
    at = f"in {len(cells_of(findings.failed))} of {count(len(findings.by_cell), 'cell')}"
    settings = where(findings, words[0]) if len(words) == 1 else ""
    return _answered_first(findings, words) or f"{listed(words)} {settings or at}"


def _answered_first(findings: Findings, words: Sequence[str]) -> str:
    """What the causes that were named end in, apart from other failures; empty where there are no others."""
    own = {str(trial.verdict) for trial in findings.failed if trial.cell in findings.answered}
    answered = [word for word in words if word in own]
    if not answered or len(answered) == len(words):
        return ""
    at = f"{listed(answered)} in {_cells_ended(findings, answered)} of {count(len(findings.by_cell), 'cell')}"
    others = [f"{word} in {_cells_ended(findings, [word])}" for word in words if word not in own]
    return f"{at}, and {listed(others)}"


def _cells_ended(findings: Findings, words: Sequence[str]) -> int:
    """In how many cells a trial ended so."""
    return len(cells_of(trial for trial in findings.failed if str(trial.verdict) in words))


def headline(findings: Findings) -> str:
    """The answer in a few sentences: over cells what they ended in, and what minimal pairs say about the axes."""
    run, answer = findings.run, findings.answer
    if not run.records:
        return f"No answer ({run.ended}): {'; '.join(map(not_run, findings.lost)) or 'no trial was finished'}."
    if findings.is_line and run.boundary is None:
        return unfinished(findings)
    partial = "" if run.is_whole else f"Partial ({run.ended}): "
    if findings.is_line and run.boundary is not None:
        return partial + answer_along(findings, run.boundary)
    if findings.is_single:
        return f"{partial}{_single(findings)}"
    if answer.minimised is not None:
        search = answer.minimised
        word = SHORTER.get(search.finding, f"{search.finding.capitalize()}: ")
        return f"{partial}{word}{search.because}"
    if answer.explored is not None:
        return f"{partial}{answer.explored.because}"
    return partial + _over_cells(findings)


def _over_cells(findings: Findings) -> str:
    lost = " ".join(f"{sentence}: it left no run." for sentence in map(not_run, findings.lost))
    decided = " ".join(one.because for one in answers(findings) if one.says)
    axes = "".join(map(_of_table, findings.answer.failures))
    rest = f"{_cells(findings)}{axes or _alike(findings)}{_growth(findings)}".strip()
    mixed = several_programs(findings)
    mixed = f"{mixed[0].upper()}{mixed[1:]}. Cells are compared only where they ran the same one." if mixed else ""
    return " ".join(filter(None, (lost, mixed, decided, names_by_expectation(findings), why_slow(findings), rest)))


def _watched(findings: Findings) -> str:
    """``No hang was seen``, or why it is undecided, of a job that was only watched; empty where that was told."""
    last = findings.trials[-1] if findings.trials else None
    if last is None or not findings.is_watched or last.verdict.kind not in (Kind.UNRESOLVED, Kind.SLOW):
        return ""
    sentence = watched_without_verdict(last.verdict)
    return sentence[0].upper() + sentence[1:]


def _single(findings: Findings) -> str:
    """What the program did, most frequent first; of a job that was only watched, what the last look showed."""
    if watched := _watched(findings):
        return f"{watched}."
    trials = findings.trials
    times = count(len(trials), "look" if findings.is_watched else "run")
    is_one_look = findings.is_watched and len(trials) == 1
    words: list[str] = []
    for group in findings.groups:
        verdict = group.first.verdict
        cause = f" ({verdict.cause})" if verdict.cause else ""
        often = "" if is_one_look else f" in {len(group.trials)} of {times}"
        words.append(f"{ENDS[verdict.kind]}{cause}{often}")
    endings = listed(words) or f"passes in {len(trials)} of {times}"
    return f"The program {endings}."


def _cells(findings: Findings) -> str:
    total = findings.by_cell
    idle = len(findings.not_run) or len(findings.pending)
    words: dict[str, int] = {}
    for trials in total.values():
        word = ending(trials)
        words[word] = words.get(word, 0) + 1
    if set(words) == {"PASS"} and not idle:
        return f"No cell failed: all {len(total)} passed, {count(len(findings.trials), 'trial')}."
    words |= {"not started": idle} if idle else {}
    split = how_many(sorted(words.items(), key=lambda item: -item[1]))
    return f"{count(len(total) + idle, 'cell')}: {split}.{_out_of_time(findings)}"


def _out_of_time(findings: Findings) -> str:
    """Where the time ran out, in the settings that tell those cells from the others."""
    cells = cells_of(findings.slow)
    if len(cells) == 1:
        return f" SLOW: {findings.name_of(cells[0])}."
    settings = where(findings, findings.slow[0].word) if cells else ""
    return f" SLOW {settings}." if settings else ""


def _of_table(table: FailureTable) -> str:
    """Which axes minimal pairs implicate in one failure, and which they show to make no difference."""
    implicated: list[str] = []
    inert: list[str] = []
    pair = text = ""
    for verdict in table.axes:
        if verdict.finding is AxisFinding.INERT:
            inert.append(verdict.axis)
        elif verdict.finding is AxisFinding.IMPLICATED:
            cells = verdict.cells
            if not implicated and len(cells) > 1:
                pair = f" (pairs that differ in nothing else: {cells[0]}, and {cells[1]})"
            implicated.append(verdict.axis)
    if implicated:
        text += f" {table.failure} depends on {listed(implicated)}{pair}."
    if inert:
        text += f" {listed(inert)} changed nothing that runs."
    return text


def _alike(findings: Findings) -> str:
    """Whether cells that differ in one axis only ended alike; only where cells ended in more than one way."""
    if len(set(findings.endings.values())) < 2:
        return ""
    return _compared(findings) + _more_time(findings) + _not_comparable(findings)


def _compared(findings: Findings) -> str:
    same: list[str] = []
    other: list[str] = []
    for pair in findings.pairs:
        if pair.different:
            other.append(f"{pair.axis} ({len(pair.different)} of {count(pair.total, 'pair')})")
        elif pair.total:
            same.append(f"{pair.axis} ({len(pair.alike)} of {count(pair.total, 'pair')})")
    ends = list(filter(None, (_in(other, "ended differently"), _in(same, "ended alike"))))
    return f" Cells that differ only {', and only '.join(ends)}." if ends else ""


def _more_time(findings: Findings) -> str:
    text = ""
    for pair in findings.pairs:
        for slow, passed in pair.outlasted:
            text += f" {_outlasted(findings, pair.axis, slow, passed)}"
    return text


def _not_comparable(findings: Findings) -> str:
    """Of which axes pairs say nothing, because their limits were not the same; not beside a failure."""
    incomparable: list[str] = []
    for pair in findings.pairs:
        number = len(pair.incomparable) - len(pair.outlasted)
        if number:
            incomparable.append(f"{pair.axis} ({count(number, 'pair')})")
    if not incomparable or findings.failed:
        return ""
    return f" Not comparable, because one side was given less time than the other took: {listed(incomparable)}."


def _in(axes: list[str], ended: str) -> str:
    return f"in {' or '.join(axes)} {ended}" if axes else ""


def _outlasted(findings: Findings, axis: str, slow: Point, passed: Point) -> str:
    """What ran out of time in one cell and came to its end in another that was given more of it."""
    slow_trials, whole = findings.by_cell[slow], findings.by_cell[passed]
    limit = min(trial.record.trial.budget.total.seconds for trial in slow_trials)
    change = f"{assignment(axis, passed.get(axis))}, not {word_of(slow.get(axis))}"
    return (
        f"Given more time and nothing else ({change}), {findings.name_of(slow)} "
        f"passed {len(whole)} of {len(whole)}, in {seconds(whole.longest_s)} at most; {seconds(limit)} were not enough."
    )


def _growth(findings: Findings) -> str:
    """How time and memory grow along the ordered axes, where a line through the measured points says it."""
    text = ""
    for axis_fit in findings.answer.fits:
        fit = axis_fit.fit
        if fit.is_growth and fit.r_squared >= LINEAR_R_SQUARED:
            text += f" {_grows(findings, axis_fit)}"
    return text


def _grows(findings: Findings, axis_fit: AxisFit) -> str:
    """The growth of one quantity: ``Seconds a step: 1.12 s more for each n_layers (n_layers 1 to 8).``."""
    fit, sizes = axis_fit.fit, axis_fit.fit.sizes
    settings = other_settings(findings, axis_fit)
    others = f"with {listed(settings)}; " if settings else ""
    unit = " s" if fit.is_of_time else ""
    interval = f", 95 %: {fit.slope_low:.3g} to {fit.slope_high:.3g}" if fit.slope_low != fit.slope_high else ""
    return (
        f"{fit.quantity[0].upper() + fit.quantity[1:]}: {fit.slope:.3g}{unit} more for each {axis_fit.axis}{interval} "
        f"({others}{axis_fit.axis} {sizes[0]:g} to {sizes[-1]:g})."
    )


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
        order = list(Claim)
        return max((cause.claim for cause in answer.causes), key=order.index, default="").capitalize()
    if not findings.failed:
        return _word(is_again=_is_steady(findings))
    again = max((result.count.bad for result in findings.results), default=0) > 1
    return _word(is_again=again and bool(findings.axes_with(AxisFinding.IMPLICATED)))


def _word(*, is_again: bool) -> str:
    return (Claim.REPRODUCED if is_again else Claim.OBSERVED).capitalize()


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
        often = how_often_in(findings)
        rate = f" {often[0].upper()}{often[1:]}." if often else ""
        return (f"{verdict_counts(findings.run.records)}.{rate}",) if findings.run.records else ()
    failed = [result for result in findings.results if result.count.bad]
    sentences = _causes(findings)
    if not sentences and failed:
        sentences = _failed_cells(findings, failed)
    slow = [len(trials) for trials in findings.by_cell.values() if trials.kinds == {Kind.SLOW}]
    sentences += [f"{count(len(slow), 'cell')} {RAN_OUT}{_each(slow)}."] if slow else []
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


def _failed_cells(findings: Findings, failed: Sequence[CellResult]) -> list[str]:
    """What the cells that failed ended in, those that ended alike together, in the order in which they are told of."""
    order = findings.group_words

    def place(result: CellResult) -> int:
        word = result.seen[0][0]
        return order.index(word) if word in order else len(order)

    by_words: dict[tuple[str, str], list[str]] = {}
    for result in sorted(failed, key=place):
        ended = listed(dict(result.seen))
        often = f"{result.count}{', as expected' if result.cell in findings.foreseen else ''}"
        by_words.setdefault((ended, often), []).append(result.name)
    sentences: list[str] = []
    for (ended, often), names in islice(by_words.items(), MOST_WAYS):
        sentences.append(_failed(ended, often, names))
    signatures = {trial.verdict.signature for trial in findings.failed}  # a signature names the stack
    if len(cells_of(findings.failed)) >= 2 and len(signatures) == 1 and None not in signatures:
        every = "Both" if len(findings.failed) == 2 else f"All {len(findings.failed)}"
        sentences.append(f"{every} failed trials end in the same stack.")
    return sentences


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
