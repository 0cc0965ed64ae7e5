"""Data: a run as the page has it: sentences and counts of its report, cells, trials, tracks and stacks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from harness.core.errors import StoreError
from harness.core.evidence import FIRST_MARKS
from harness.core.outcome import Ending
from harness.core.verdict import Kind
from harness.reading.frames import telling_frame
from harness.report.findings import steps_of
from harness.report.render.json import first_screen
from harness.report.sections.evidence import ended, why
from harness.report.seen import LOG_LINES
from harness.report.stacks import deciding_sample, place, rank_by_pid, rank_name, shortened, thread_to_show
from harness.report.summary import judged
from harness.report.tried import TrialSet, grouped, place_on, together, verdict_counts
from harness.report.watched import whereabouts
from harness.report.words import ANSWERED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.campaign import CellResult
    from harness.core.evidence import Evidence, Heartbeat, RankFacts, ThreadStack
    from harness.core.record import Run, TrialRecord
    from harness.core.verdict import Verdict
    from harness.report.findings import Findings
    from harness.report.write import Report


class StretchKind(StrEnum):
    """What is known of a stretch of time."""

    PHASE = "phase"
    BETWEEN = "between"
    STARTING = "starting"
    NOT_KEPT = "not kept"
    NO_MARK = "no mark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A rank from ``start_s`` to ``end_s`` seconds after the trial's start.

    ``phase`` is the one that it had begun and not ended, or empty; ``marks`` counts those that were not kept.
    """

    start_s: float
    end_s: float
    kind: StretchKind
    phase: str = ""
    step: int | None = None
    marks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePart:
    """A part of a phase that said when it was done, such as ``blocks.3``; it began where the part before it was."""

    start_s: float
    end_s: float
    name: str
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One rank: ``ended_s`` is when its process ended by itself, ``how`` with what."""

    rank: int
    stretches: tuple[Stretch, ...]
    parts: tuple[PhasePart, ...]
    ended_s: float | None = None
    how: str = ""


def tracks(evidence: Evidence, *, end_s: float) -> tuple[Track, ...]:
    """A track for each rank that left a mark or is known by its process, in the order of ranks."""
    marks = by_rank(evidence)
    facts_by_rank = {facts.rank: facts for facts in evidence.ranks}
    every = evidence.heartbeats_total  # of a single process
    return tuple(
        _track_of(rank, marks.get(rank, []), facts=facts_by_rank.get(rank), every=every, end_s=end_s)
        for rank in sorted({*marks, *facts_by_rank})
    )


def by_rank(evidence: Evidence) -> dict[int, list[Heartbeat]]:
    """The marks of each rank, oldest first; ranks that left none are not there."""
    marks = list(chain.from_iterable(facts.heartbeats for facts in evidence.ranks))
    return grouped(sorted(marks or evidence.heartbeats, key=lambda mark: (mark.t_s, mark.seq)), lambda mark: mark.rank)


def _track_of(rank: int, marks: list[Heartbeat], *, facts: RankFacts | None, every: int, end_s: float) -> Track:
    total = facts.heartbeats_total if facts else every
    ended_s = facts.ended_s if facts else None
    until_s = end_s if ended_s is None else min(ended_s, end_s)
    return Track(
        rank=rank,
        stretches=stretches_of(marks, not_kept=max(total - len(marks), 0), until_s=until_s),
        parts=_parts(marks, has_gap=total > len(marks)),
        ended_s=ended_s,
        how=facts.exit.words if facts and facts.exit and ended_s is not None else "",
    )


def stretches_of(marks: Sequence[Heartbeat], *, not_kept: int, until_s: float) -> tuple[Stretch, ...]:
    """What a rank's marks say it was doing, without gaps, ``not_kept`` of them behind the first ones."""
    if not marks:
        return (Stretch(start_s=0.0, end_s=until_s, kind=StretchKind.STARTING),)
    stretches = [Stretch(start_s=0.0, end_s=marks[0].t_s, kind=StretchKind.STARTING)]
    for number, (mark, after) in enumerate(pairwise(marks), start=1):
        if not_kept and number == FIRST_MARKS:
            stretches.append(Stretch(start_s=mark.t_s, end_s=after.t_s, kind=StretchKind.NOT_KEPT, marks=not_kept))
        else:
            _append(stretches, _after(mark, end_s=after.t_s))
    last = marks[-1]
    phase, end_s = "" if last.edge == "end" else last.phase, max(until_s, last.t_s)
    stretches.append(Stretch(start_s=last.t_s, end_s=end_s, kind=StretchKind.NO_MARK, phase=phase, step=last.step))
    return tuple(stretch for stretch in stretches if stretch.end_s > stretch.start_s)


def _append(stretches: list[Stretch], stretch: Stretch) -> None:
    """Put ``stretch`` behind the last one, or make that one longer where it is the same phase of the same step."""
    last = stretches[-1]
    if (last.kind, last.phase, last.step) == (stretch.kind, stretch.phase, stretch.step):
        stretches[-1] = replace(last, end_s=stretch.end_s)
    else:
        stretches.append(stretch)


def _after(mark: Heartbeat, *, end_s: float) -> Stretch:
    """From a mark to the next one: inside a phase, or between two."""
    if mark.edge == "end":
        return Stretch(start_s=mark.t_s, end_s=end_s, kind=StretchKind.BETWEEN)
    return Stretch(start_s=mark.t_s, end_s=end_s, kind=StretchKind.PHASE, phase=mark.phase, step=mark.step)


def _parts(marks: Sequence[Heartbeat], *, has_gap: bool) -> tuple[PhasePart, ...]:
    """What said that it was done inside a phase, each from the mark before it."""
    parts: list[PhasePart] = []
    for number, (before, mark) in enumerate(pairwise(marks), start=1):
        is_gap = has_gap and number == FIRST_MARKS
        if mark.edge == "progress" and mark.detail and not is_gap:
            parts.append(PhasePart(start_s=before.t_s, end_s=mark.t_s, name=mark.detail, phase=mark.phase))
    return tuple(parts)


DETAILED = 300
"""Trials with tracks and stacks on the page, those that did not pass first; a page of more would be slow to open."""

DEEPEST = 60
"""Frames of a thread that are kept, from the innermost."""


class ValueTable:
    """Values that occur often, each once; a value's number stands for it."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, key: Any, value: Any) -> int:
        """The number of ``value``, which ``key`` tells from others."""
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]


def of_run(report: Report) -> dict[str, Any]:
    """One run as JSON-ready data; nothing is hidden yet."""
    run, frames, stacks = report.run, ValueTable(), ValueTable()
    records = run.records
    names = axes(run)
    order = sorted(range(len(records)), key=lambda i: (records[i].verdict.kind is Kind.PASS, i))
    detailed = set(order[:DETAILED])
    trials: list[dict[str, Any]] = []
    for place_in_run, record in enumerate(records):
        trial = _trial(record, names=names)
        if place_in_run in detailed:
            trial |= _evidence(report.findings, record, frames, stacks)
        trials.append(trial)
    return {
        **first_screen(report),
        "id": run.id,
        "code": run.code,
        "started": run.started_at[:16].replace("T", " "),
        "ended": report.summary.ended,
        "answered": ANSWERED,
        "job_line": whereabouts(report.summary.job) if report.summary.job else "",
        "before_place": report.summary.before_place,
        "tally": report.summary.tally,
        "sure": list(report.summary.sure),
        "notes": list(report.summary.notes),
        "axes": list(names),
        "cells": _cells(report.findings, names),
        "trials": trials,
        "frames": frames.values,
        "stacks": stacks.values,
        "detailed": len(detailed),
        "subject": None if report.findings.subject_number is None else report.findings.subject_number - 1,
    }


def axes(run: Run) -> tuple[str, ...]:
    """The names of the settings that are varied, in their order."""
    factors = run.spec.matrix.space.factors
    return tuple(factor.name for factor in factors if len(factor.axis.values) > 1 or factor.name == run.spec.axis)


def _place_of(record: TrialRecord, names: Sequence[str]) -> list[Any]:
    """The values of the axes, and what was changed beside them for a control."""
    control = record.trial.role if record.trial.is_control else ""
    return [*map(record.trial.point.get, names), control]


def _cells(findings: Findings, names: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each place that was tried, in the order of its axes; and those that were only asked for.

    A control stands behind the place that it belongs to.
    """
    by_place = together(findings.trials, lambda trial: tuple(_place_of(trial.record, names)))
    results: dict[tuple[Any, ...], CellResult] = {}
    for result in () if findings.is_line else findings.results:
        results[(*map(result.cell.get, names), "")] = result
    rows: list[dict[str, Any]] = []
    axes = [findings.run.spec.matrix.space.factor(name).axis for name in names]
    for at in sorted({*by_place, *results}, key=lambda at: (*map(place_on, axes, at), at[-1])):
        trials = by_place.get(at, TrialSet())
        because = "" if trials else results[at].because
        places = [number - 1 for number in trials.numbers]
        rows.append({"at": list(at), "trials": places, "because": because, **_counts(trials)})
    return rows


def _counts(trials: TrialSet) -> dict[str, Any]:
    return {
        "seen": verdict_counts(trials.records),
        "kinds": sorted(kind.value for kind in trials.kinds),
        "good": trials.good,
        "bad": trials.bad,
        "pass_s": None if trials.pass_s is None else round(trials.pass_s, 3),
        "all_s": round(trials.seconds, 2),
        "peak": trials.peak_bytes,
    }


def _trial(record: TrialRecord, *, names: Sequence[str]) -> dict[str, Any]:
    """What is known of a trial without its evidence."""
    verdict, outcome, total = record.verdict, record.outcome, record.trial.budget.total
    return {
        "at": _place_of(record, names),
        "role": why(record).replace("`", ""),
        "verdict": str(verdict),
        "kind": verdict.kind.value,
        "answer": record.answer.value,
        "because": verdict.because,
        "judged": judged(record),
        "seconds": round(outcome.duration_s, 3),
        "limit": None if total.is_endless else round(total.seconds, 3),
        "steps": None if outcome.ending is Ending.STILL_RUNNING else steps_of(record),
        "silent": round(record.measurement.longest_silence_s, 3),
        "peak": record.measurement.peak_rss_bytes,
        "ended": ended(outcome),
        "started": record.started_at,
        "rank": verdict.rank,
        "signals": [[round(t_s, 3), name] for t_s, name, _ in outcome.cleanup.signals],
    }


def _evidence(findings: Findings, record: TrialRecord, frames: ValueTable, stacks: ValueTable) -> dict[str, Any]:
    """What its evidence adds: tracks, stacks, the end of its output; or why there is none."""
    try:
        evidence = findings.evidence_of(record)
    except StoreError as error:
        return {"missing": f"Its evidence cannot be read: {error}"}
    if evidence is None:
        return {"missing": "Its evidence is missing."}
    decides = deciding_sample(evidence, record.verdict)
    every = tracks(evidence, end_s=record.outcome.duration_s)
    return {
        "tracks": [_track(track, rank_name(track.rank, record, evidence)) for track in every],
        "samples": _samples(evidence, record.verdict, frames, stacks),
        "decides": decides.id if decides else "",
        "output": [[log.stream, "\n".join(log.text.splitlines()[-LOG_LINES:])] for log in evidence.logs if log.text],
        "no_stacks": [f"{failure.source}: {failure.reason}" for failure in evidence.failures],
    }


def _track(track: Track, name: str) -> dict[str, Any]:
    return {
        "rank": track.rank,
        "name": name,
        "stretches": list(map(_stretch, track.stretches)),
        "parts": [[round(p.start_s, 4), round(p.end_s, 4), p.name, p.phase] for p in track.parts],
        "ended": None if track.ended_s is None else round(track.ended_s, 3),
        "how": track.how,
    }


def _stretch(stretch: Stretch) -> list[Any]:
    what = stretch.phase or (str(stretch.marks) if stretch.marks else "")
    return [round(stretch.start_s, 4), round(stretch.end_s, 4), stretch.kind.value, what, stretch.step]


def _samples(evidence: Evidence, verdict: Verdict, frames: ValueTable, stacks: ValueTable) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    ranks = rank_by_pid(evidence)
    for sample in sorted(evidence.stacks, key=lambda one: (one.t_s, one.rank)):
        decides, main = thread_to_show(evidence, verdict, sample), 0
        threads: list[int] = []
        names: list[str] = []
        for number, thread in enumerate(sample.threads):
            threads.append(_stack(thread, frames, stacks))
            names.append(thread.name or str(thread.tid))
            if thread is decides:
                main = number
        samples.append(
            {
                "id": sample.id,
                "t": round(sample.t_s, 3),
                "who": f"rank {ranks[sample.pid]}" if sample.pid in ranks else f"process {sample.pid}",
                "pid": sample.pid,
                "source": sample.source,
                "threads": threads,
                "names": names,
                "main": main,
            }
        )
    return samples


def _stack(thread: ThreadStack, frames: ValueTable, stacks: ValueTable) -> int:
    """The number of a thread's stack: its frames' numbers from the innermost on, and which of them tells."""
    telling, telling_index = telling_frame(thread), -1
    numbers: list[int] = []
    for index, frame in enumerate(thread.frames[:DEEPEST]):
        numbers.append(frames.number(frame, [shortened(place(frame)), int(frame.native)]))
        if frame is telling and telling_index < 0:
            telling_index = index
    key = (tuple(numbers), telling_index)
    return stacks.number(key, [numbers, telling_index, max(len(thread.frames) - DEEPEST, 0)])
