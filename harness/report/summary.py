"""Summary: what a reader must have seen after ten seconds, for every kind of run and every form of its report."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from harness.core.dotted import leaves
from harness.core.errors import StoreError
from harness.core.ports import Block
from harness.core.verdict import FAILURES
from harness.reading.frames import own_frame, own_line, telling_frame
from harness.reading.printed import ending_traceback, fatal_frames, of_its_end, raised_at, raised_in
from harness.report.next_steps import next_steps
from harness.report.stacks import ENDED_BY_ITSELF, deciding_stack
from harness.report.text import code, count, md, short_path
from harness.report.tried import TrialSet, together
from harness.report.watched import OVER, untouched, whereabouts
from harness.report.words import ANSWERED, at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.campaign import ForeignJob
    from harness.core.evidence import Evidence, Frame
    from harness.core.record import TrialRecord
    from harness.core.trial import Trial
    from harness.report.findings import Findings
    from harness.report.tried import Group
    from harness.report.words import NextStep


NO_RANKS = "no ranks"
"""``Summary.rank`` of a program that has none."""

COMPARISON = "comparison"
"""The kind of a report on two runs."""

NOTHING_BEHIND = "nothing left behind"

AGAIN_AND_AGAIN = 3
"""Failures after the last pass from which on it is told that trials may change what later ones find."""

SURPRISES = 3
"""Cells that passed where a failure was expected of which the first screen tells."""

STEPS = 2
"""Next steps that stand on the first screen of a page; the page and the JSON have them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceToLook:
    """Where to look: a function with its file and line, or in words why no line is known.

    ``brief`` is the line without the folders of its file; empty where there is none.
    """

    text: str
    brief: str = ""

    @property
    def is_line(self) -> bool:
        """Whether it is a line."""
        return bool(self.brief)

    @classmethod
    def at(cls, function: str, file: str, line: int, *, trial: Trial | None = None) -> PlaceToLook:
        """That line of that file; of a commit's worktree, which is gone by then, what git shows in its place."""
        where = f":{line}" if line else ""
        brief = f"{function} ({file.rpartition('/')[2]}{where})"
        inside = file.removeprefix(f"{trial.tree}/") if trial is not None else file
        if trial is not None and trial.commit and inside != file:
            return cls(text=f"{function} (git show {trial.commit}:{inside}, line {line})", brief=brief)
        return cls(text=f"{function} ({short_path(file)}{where})" if file else function, brief=brief)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The first screen of a report.

    ``verdict`` is a few words, ``tone`` (good, bad, slow, unsure) how to set them, ``answer`` the whole sentence;
    ``begins_with_verdict`` where that sentence names it. ``claim`` is one of the three words or empty; ``sure`` are the
    counts that carry it, ``judged`` the rule and its confidence. ``rank`` and ``place`` are those at fault, with a
    reason in words where there is none. ``planted`` names a fault that was put there on purpose. ``job`` is what was
    only watched. ``ended`` says how the run ended, behind a semicolon; of a watch nothing, for it answers no question.
    """

    kind: str
    verdict: str
    tone: str
    answer: str
    claim: str
    sure: tuple[str, ...]
    judged: str
    happened: tuple[str, ...]
    rank: str
    place: PlaceToLook
    steps: tuple[NextStep, ...]
    tally: str
    when: str
    notes: tuple[str, ...] = ()
    planted: str = ""
    begins_with_verdict: bool = False
    job: ForeignJob | None = None
    ended: str = ""

    @property
    def before_place(self) -> str:
        """What stands before the line: the rank, or why none is named; nothing for a program that has no ranks."""
        return "" if self.rank == NO_RANKS else f"{self.rank}, "


def to_look_at(findings: Findings) -> TrialRecord | None:
    """The trial whose line is looked for: along an axis of the first group, which is the failure sought, if any."""
    if not findings.is_line:
        return findings.subject
    group = next(iter(findings.groups), None)
    return group.first.record if group else None


def steps_of(findings: Findings) -> tuple[NextStep, ...]:
    """What to do next, with the line to look at."""
    place = place_of(findings, to_look_at(findings))
    return next_steps(findings, place=place.text if place.is_line else "")


def happened(findings: Findings, group: Group | None) -> tuple[str, ...]:
    """What the first trial of ``group`` ended in and why, and where; that all passed; nothing before a trial.

    Of cells that passed where a failure was expected, and nothing else that was not, what they were to end in.
    """
    if findings.surprises and findings.subject is None:
        return tuple(f"At {result.name}: {result.because}." for result in findings.surprises[:SURPRISES])
    if group:
        place = at(findings, group.value) if findings.is_line else group.value
        trial = "trial" if findings.is_single and not findings.is_line else f"at {place}, trial"
        begins = f"as expected, {trial}" if group.first.cell in findings.foreseen else trial
        text = f"{begins} {group.first.number}: {group.first.verdict.because.rstrip('.')}."
        return (text[0].upper() + text[1:],)
    if findings.trials:
        every = "Every trial that was run" if findings.pending else "Every trial"
        return (f"{every} passed: {_checked(findings)}.",)
    return ()


def _checked(findings: Findings) -> str:
    """What was looked at of trials that all passed: of a stranger's program less than of our own trainer."""
    trial = findings.trials[0].record.trial
    if trial.target == "nsa":
        return f"all steps done, the loss finite, {_behind(findings)}"
    parts = ["exit status 0"]
    if leaves(trial.config).get("steps"):
        parts.append("the steps that were asked for")
    if trial.success is not None:
        parts.append("what success asks for")
    behind = _behind(findings)
    if behind != NOTHING_BEHIND:
        behind += " (if the work was in them, the program must wait for it)"
    return f"{', '.join((*parts, behind))}; nothing else was looked at, such as its loss"


def _behind(findings: Findings) -> str:
    """How many trials left processes behind, if any."""
    littered = sum(trial.record.outcome.cleanup.ended > 0 for trial in findings.trials)
    if not littered:
        return NOTHING_BEHIND
    return f"{littered} of {len(findings.trials)} left processes behind, which were ended"


def how_ended(findings: Findings) -> str:
    """``; ended: answered``; empty of a watch that came to its end, which may have answered nothing."""
    run = findings.run
    asked = f" ({run.asked})" if run.asked else ""
    return "" if findings.is_watched and run.is_whole else f"; ended: {run.ended}{asked}"


def job_line(job: ForeignJob) -> str:
    """The command line of a watched job and where it runs, as Markdown."""
    return f"{code(job.command)} {md(whereabouts(job))}".strip() + "."


def notes_of(findings: Findings) -> tuple[str, ...]:
    """What a reader must know beside the answer."""
    boundary, explored = findings.answer.boundary, findings.answer.explored
    uncertified = [f"Not certified: {text}" for text in explored.uncertified] if explored else []
    notes = (*(boundary.notes if boundary else ()), *uncertified, *findings.answer.notes, *findings.run.notes)
    return (*notes, *_spoiled(findings), *missing_evidence(findings), *_touched(findings))


def _spoiled(findings: Findings) -> tuple[str, ...]:
    """That a cell passed and from some trial on failed in another way than sought: the trials may not be alike."""
    for cell in together(findings.searched, lambda trial: trial.cell).values():
        failing = list(takewhile(lambda trial: trial.has_failed_otherwise, reversed(cell.trials)))
        if len(failing) >= AGAIN_AND_AGAIN and TrialSet(trials=cell.trials[: -len(failing)]).has_passed:
            place = (
                at(findings, findings.value_of(cell.first)) if findings.is_line else findings.name_of(cell.first.cell)
            )
            often = f"{place} passed, then failed {len(failing)} times in another way"
            return (f"{often}: a trial may have left something behind that later ones run into, such as a file.",)
    return ()


def missing_evidence(findings: Findings) -> tuple[str, ...]:
    """Of how many trials the evidence is missing; a report that was passed on says it, and why, in a section."""
    trials = len(findings.trials)
    missing = sum(not findings.has_evidence_of(trial.record) for trial in findings.trials)
    if not missing or findings.is_passed_on:
        return ()
    whose = f"the {count(trials, 'trial')}" if missing == trials else f"{missing} of {count(trials, 'trial')}"
    return (f"The evidence of {whose} is missing: what is said of them rests on the journal alone.",)


def _touched(findings: Findings) -> tuple[str, ...]:
    """Of a job that is not ours, how long its processes were stopped to look at them, in all looks together."""
    if not findings.is_watched:
        return ()
    looks: list[Evidence] = []
    for trial in findings.trials:
        evidence = findings.readable_evidence_of(trial.record)
        looks += [evidence] if evidence is not None else []
    job = findings.answer.job
    over = f"{OVER[0].upper()}{OVER[1:]}." if job is not None and job.is_over else ""
    return tuple(filter(None, (over, f"{untouched(looks).capitalize()}." if looks else "")))


def judged(record: TrialRecord | None) -> str:
    """The rule and how strongly it judges; empty when there is nothing to judge."""
    return f"{record.verdict} by rule {record.verdict.rule}, confidence {record.verdict.confidence}" if record else ""


def rank_of(findings: Findings, record: TrialRecord | None) -> str:
    """``rank 1``, or why no rank is named; a program that is not ours may have none."""
    if record is None:
        return "no rank failed"
    evidence = findings.readable_evidence_of(record)
    # Without evidence, rank 0 may be one of several or a program of one process.
    has_ranks = bool(evidence.ranks) if evidence is not None else bool(record.verdict.rank)
    if record.trial.target != "nsa" and not has_ranks:
        return NO_RANKS
    if record.verdict.rank is not None:
        return f"rank {record.verdict.rank}"
    return "all ranks alike" if _failed_alike(evidence) else "no single rank"


def _failed_alike(evidence: Evidence | None) -> bool:
    """Whether every one of several ranks ended in the same exception with the same message."""
    raised: set[tuple[str, str | None]] = set()
    for facts in evidence.ranks if evidence else ():
        if facts.result is None:
            return False
        if facts.result.exception:
            raised.add((facts.result.exception, facts.result.message))
    return evidence is not None and len(evidence.ranks) > 1 and len(raised) == 1


def place_of(findings: Findings, record: TrialRecord | None) -> PlaceToLook:
    """``acquire_forever (harness/specimens/backward_deadlock.py:32)``, or what there is in its place."""
    if record is None:
        return PlaceToLook(text="no line to look at")
    try:
        evidence = findings.evidence_of(record)
    except StoreError:
        return PlaceToLook(text="line not known: its evidence cannot be read")
    return place_in(record, evidence)


def place_in(record: TrialRecord, evidence: Evidence | None) -> PlaceToLook:
    """As :func:`place_of`: the program's own line, and one inside a library only where none of its own is known."""
    if evidence is None:
        return PlaceToLook(text="line not known: its evidence is missing")
    result = evidence.result_of(record.verdict.rank)
    if record.verdict.kind in FAILURES and result is not None and result.exception:
        cited = [
            log.text for log in evidence.logs if log.id in record.verdict.cites
        ]  # where a process that it began died
        frames = fatal_frames("\n".join(cited)) + raised_at(result)
        none = PlaceToLook(text="no line in its traceback")
        return _innermost(frames, trial=record.trial) if frames else none
    why = "it ended without a traceback" if record.verdict.kind in ENDED_BY_ITSELF else "no stack was taken"
    is_one = not evidence.ranks  # of several, a traceback in the output may be another rank's
    if is_one and record.verdict.kind in ENDED_BY_ITSELF:
        for log in evidence.logs:
            lines = of_its_end(log.text) if log.id in record.verdict.cites else []
            frames = fatal_frames("\n".join(lines)) or raised_in(ending_traceback(lines))
            if frames:
                return _innermost(frames, trial=record.trial)
            if before := raised_in("\n".join(lines)):
                printed = _innermost(before, trial=record.trial)
                why = f"more was printed below its last traceback, of {printed.text}"
    decides = deciding_stack(evidence, record.verdict)
    frame = own_frame(decides[1]) or telling_frame(decides[1]) if decides else None
    if frame is not None:
        return PlaceToLook.at(frame.function, frame.file, frame.line, trial=record.trial)
    phase = record.verdict.phase
    return PlaceToLook(text=f"{why}; it was in {phase}" if phase else why)


def _innermost(frames: Sequence[Frame], *, trial: Trial | None) -> PlaceToLook:
    frame = own_line(frames)
    return PlaceToLook.at(frame.function, frame.file, frame.line, trial=trial)


def first(findings: Findings, summary: Summary) -> Block:
    """Verdict, answer and claim in one paragraph, then a line for each question that a reader has."""
    run = findings.run
    steps = list(map(with_command, summary.steps[:STEPS]))
    place = code(summary.place.text) if summary.place.is_line else md(summary.place.text)
    rows = (
        ("What happened", list(map(md, filter(None, (summary.planted, *summary.happened))))),
        ("How sure", list(map(md, (*summary.sure, *([f"{summary.judged}."] if summary.judged else []))))),
        ("Rank and line", [f"{md(summary.before_place)} {place}.".lstrip()] if run.records else []),
        ("What next", steps or [ANSWERED]),
        ("Job", [job_line(summary.job)] if summary.job is not None else []),
        ("Run", [f"{md(summary.tally)}; {md(summary.when)}; {code(run.id)}{md(summary.ended)}."]),
        *(("Note", [md(note)]) for note in summary.notes),
    )
    word = f" *{summary.claim}.*" if summary.claim else ""
    body = "\n".join(f"- **{name}:** {' '.join(texts)}" for name, texts in rows if texts)
    two_parts = f"**{md(summary.verdict)}.** {md(summary.answer)}"
    lead = f"**{md(summary.answer)}**" if summary.begins_with_verdict else two_parts
    return Block(title="", markdown=f"{lead}{word}\n\n{body}")


def with_command(step: NextStep) -> str:
    """A next step in a line of Markdown, with its command."""
    return f"{md(step.text)} {code(shlex.join(step.command))}" if step.command else md(step.text)
