"""The first screen of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.campaign import Met, Task
from harness.core.cause import AxisFinding, MinimiseFinding
from harness.core.verdict import Kind
from harness.report.campaign.asked import answered, why_slow
from harness.report.campaign.facts import (
    by_cell,
    ending,
    groups,
    is_single,
    kinds,
    name_of,
    pairs,
    results,
    word_of,
)
from harness.report.campaign.next_steps import next_steps
from harness.report.campaign.sure import FAILED, MOST_NAMED, claim_of, sure_of
from harness.report.campaign.where import cells_said, where
from harness.report.facts import is_line, numbered
from harness.report.subject import subject
from harness.report.summary import Summary, judged, notes_of, place_of, rank_of, summarise_along
from harness.report.text import count, listed, seconds
from harness.report.words import ENDS, LINEAR_R_SQUARED, day

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.point import Point
    from harness.core.record import Run
    from harness.report.campaign.asked import Answered
    from harness.report.facts import Group


ENOUGH = 3
"""Different values that a line must go through before a headline speaks of growth."""


def summarise(run: Run, run_dir: Path) -> Summary:
    """What happened, how sure, where, what next."""
    if is_line(run):
        return summarise_along(run, run_dir, next_steps(run))
    record = subject(run)
    verdict, tone = _verdict(run)
    verdict = _first_words(answered(run)) or verdict
    group, place = next(iter(groups(run)), None), place_of(record, run_dir)
    happened = (
        (f"{_at(run, group)}: {group.first.verdict.because.rstrip('.')}.",)
        if group
        else ("Every trial passed: all steps done, the loss finite, nothing left behind.",)
        if run.records
        else ()
    )
    return Summary(
        kind="single" if is_single(run) else "matrix" if run.spec.task is Task.CELLS else run.spec.task.value,
        verdict=verdict,
        tone=tone,
        answer=headline(run),
        claim=claim_of(run),
        sure=sure_of(run) or ("Nothing is claimed.",),
        judged=judged(record),
        happened=happened,
        rank=rank_of(record, run_dir),
        place=place,
        steps=next_steps(run, place=place.text if place.is_line else ""),
        tally=tally(run),
        when=day(run.started_at),
        notes=notes_of(run),
        planted=_planted(run, group),
        is_said=not run.records,
    )


def _first_words(answers: Sequence[Answered]) -> str:
    """``No. Safe mode makes no difference``: each question's answer, before anything else is said."""
    words = [f"{a.word}. {a.says}" if a.says else f"{a.word}. {a.because.rstrip('. ')}" for a in answers]
    return ". ".join(words)


def _planted(run: Run, group: Group | None) -> str:
    """In how many cells a fault was planted, and that it was not in the one that is spoken of; empty for none."""
    if run.spec.matrix.fault is None:
        return ""
    cells = {trial.record.trial.point for trial in numbered(run) if trial.record.trial.fault is not None}
    where = f"{len(cells)} of {count(len(by_cell(run)), 'cell')}"
    this = ", not in this one" if group and group.first.record.trial.fault is None else ""
    return f"The fault {run.spec.matrix.fault} was planted on purpose in {where}{this}."


def _at(run: Run, group: Group) -> str:
    number = group.first.number
    return f"Trial {number}" if is_single(run) else f"At {group.value}, trial {number}"


def _verdict(run: Run) -> tuple[str, str]:
    if not run.records:
        return (f"No answer ({run.ended})", "unsure")
    seen = dict.fromkeys(str(group.first.verdict) for group in groups(run) if group.first.verdict.kind in FAILED)
    if seen:
        cells = {t.record.trial.point for t in numbered(run) if t.verdict.kind in FAILED}
        at = "" if is_single(run) else f"in {len(cells)} of {count(len(by_cell(run)), 'cell')}"
        told = where(run, next(iter(seen))) if at and len(seen) == 1 else ""
        return (f"{listed(seen)} {told or at}".rstrip(), "bad")
    ended = {trial.verdict.kind for trial in numbered(run)}
    if ended == {Kind.PASS}:
        return ("PASS: nothing failed", "good")
    if Kind.SLOW in ended:
        return ("SLOW: nothing hung or crashed", "slow")
    return (listed(word for word in kinds(run.records) if word != Kind.PASS), "unsure")


def headline(run: Run) -> str:
    """The answer in a few sentences: what the cells ended in, and what minimal pairs say about the axes."""
    if not run.records:
        return f"No answer ({run.ended}): no trial was finished."
    answer = run.answer
    partial = "" if run.is_whole else f"Partial ({run.ended}): "
    if is_single(run):
        return f"{partial}{_single(run)}"
    if answer is not None and answer.minimised is not None:
        because = answer.minimised.because
        word = "" if answer.minimised.finding is MinimiseFinding.CAUSE else f"{answer.minimised.finding.capitalize()}: "
        return f"{partial}{word}{because}"
    if answer is not None and answer.explored is not None:
        return f"{partial}{answer.explored.because}"
    decided = " ".join(a.because for a in answered(run) if a.says)
    rest = f"{_cells(run)}{_axes(run) or _alike(run)}{_growth(run)}".strip()
    return partial + " ".join(text for text in (decided, why_slow(run), rest) if text)


def _single(run: Run) -> str:
    """What the program did, most frequent first."""
    trials = numbered(run)
    words = (
        f"{ENDS[group.first.verdict.kind]}{f' ({group.first.verdict.cause})' if group.first.verdict.cause else ''} in "
        f"{len(group.trials)} of {count(len(trials), 'run')}"
        for group in groups(run)
    )
    said = listed(words) or f"passes in all of {count(len(trials), 'run')}"
    return f"The program {said}."


def _cells(run: Run) -> str:
    total = by_cell(run)
    left = [r for r in results(run) if r.met in (Met.SKIPPED, Met.NOT_RUN)]
    words: dict[str, int] = {}
    for trials in total.values():
        said = listed(dict.fromkeys(map(word_of, trials)))
        words[said] = words.get(said, 0) + 1
    if set(words) == {"PASS"} and not left:
        return f"No cell failed: all {len(total)} passed, {count(len(numbered(run)), 'trial')}."
    words |= {"not started": len(left)} if left else {}
    split = listed(f"{n} {word}" for word, n in sorted(words.items(), key=lambda item: -item[1]))
    return f"{count(len(total) + len(left), 'cell')}: {split}.{_surprises(run)}{_out_of_time(run)}"


def _surprises(run: Run) -> str:
    """What ended otherwise than expected, unless that is what failed or was slow, which is said anyway."""
    said = {t.record.trial.point for t in numbered(run) if t.verdict.kind in FAILED or t.verdict.kind is Kind.SLOW}
    found = [r for r in results(run) if r.met is Met.UNEXPECTED and r.cell not in said]
    return f" Not as expected: {cells_said(run, [r.cell for r in found], most=MOST_NAMED)}." if found else ""


def _out_of_time(run: Run) -> str:
    """Where the time ran out, in the settings that tell those cells from the others."""
    slow = [trial for trial in numbered(run) if trial.verdict.kind is Kind.SLOW]
    cells = list(dict.fromkeys(trial.record.trial.point for trial in slow))
    if len(cells) == 1:
        return f" SLOW: {name_of(run, cells[0])}."
    told = where(run, word_of(slow[0])) if slow else ""
    return f" SLOW {told}." if told else ""


def _axes(run: Run) -> str:
    """Which axes minimal pairs implicate, and which they show to make no difference."""
    sentences: list[str] = []
    for table in run.answer.failures if run.answer else ():
        implicated = [v for v in table.axes if v.finding is AxisFinding.IMPLICATED]
        inert = [v.axis for v in table.axes if v.finding is AxisFinding.INERT]
        if implicated:
            fails, passes = implicated[0].cells[:2] if len(implicated[0].cells) > 1 else (None, None)
            pair = f" (pairs that differ in nothing else: {fails}, and {passes})" if fails else ""
            sentences.append(f" {table.failure} depends on {listed(v.axis for v in implicated)}{pair}.")
        if inert:
            sentences.append(f" {listed(inert)} changed nothing that runs.")
    return "".join(sentences)


def _alike(run: Run) -> str:
    """Whether cells that differ in one axis only ended alike; only where cells ended in more than one way."""
    if len({ending(trials) for trials in by_cell(run).values()}) < 2:
        return ""
    found = [pair for pair in pairs(run) if pair.total]
    same = [f"{p.axis} ({len(p.alike)} of {count(p.total, 'pair')})" for p in found if not p.different]
    other = [f"{p.axis} ({len(p.different)} of {count(p.total, 'pair')})" for p in found if p.different]
    ends = (_in(other, "ended differently"), _in(same, "ended alike"))
    text = f" Cells that differ only {', and only '.join(filter(None, ends))}." if any(ends) else ""
    text += "".join(f" {_outlasted(run, p.axis, slow, passed)}" for p in pairs(run) for slow, passed in p.outlasted)
    untold = [f"{p.axis} ({count(n, 'pair')})" for p in pairs(run) if (n := len(p.untold) - len(p.outlasted))]
    if untold and not any(trial.verdict.kind in FAILED for trial in numbered(run)):
        text += f" Not comparable, because one side was given less time than the other took: {listed(untold)}."
    return text


def _in(axes: list[str], ended: str) -> str:
    return f"in {' or '.join(axes)} {ended}" if axes else ""


def _outlasted(run: Run, axis: str, slow: Point, passed: Point) -> str:
    """What ran out of time in one cell and came to its end in another that was given more of it."""
    trials = [by_cell(run)[cell] for cell in (slow, passed)]
    took = max(t.record.outcome.duration_s for t in trials[1])
    limit = min(t.record.trial.budget.total.seconds for t in trials[0])
    return (
        f"Given more time and nothing else ({axis}={passed.get(axis)}, not {slow.get(axis)}), {name_of(run, slow)} "
        f"passed {len(trials[1])} of {len(trials[1])}, in {seconds(took)} at most; {seconds(limit)} were not enough."
    )


def _growth(run: Run) -> str:
    """How time and memory grow along the ordered axes, where a line through the measured points says it."""
    sentences: list[str] = []
    for found in run.answer.fits if run.answer else ():
        fit, at = found.fit, sorted({x for x, _ in found.fit.points})
        if len(at) < ENOUGH or fit.r_squared < LINEAR_R_SQUARED or fit.slope_low <= 0:
            continue
        good = dict(run.spec.matrix.space.good)
        held = listed(f"{name}={value}" for name, value in found.fixed if value != good.get(name))
        where = (
            f" (with {held}; {found.axis} {at[0]:g} to {at[-1]:g})"
            if held
            else f" ({found.axis} {at[0]:g} to {at[-1]:g})"
        )
        each = f"{fit.slope:.3g}{' s' if 'seconds' in fit.quantity else ''}"
        interval = f", 95 %: {fit.slope_low:.3g} to {fit.slope_high:.3g}" if fit.slope_low != fit.slope_high else ""
        sentences.append(
            f" {fit.quantity[0].upper() + fit.quantity[1:]}: {each} more for each {found.axis}{interval}{where}."
        )
    return "".join(sentences)


def tally(run: Run) -> str:
    """``19 trials in 72 s: 17 PASS, 2 HANG``."""
    split = ", ".join(f"{n} {kind}" for kind, n in kinds(run.own).items())
    reused = f"; {count(len(run.reused), 'trial')} taken over from earlier runs" if run.reused else ""
    return f"{count(len(run.own), 'trial')} in {seconds(run.seconds)}{': ' + split if split else ''}{reused}"
