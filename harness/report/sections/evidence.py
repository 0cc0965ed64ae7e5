"""Every trial in a list; of those that did not pass, what was seen and why it is called so; where all of it lies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.core.outcome import Ending, StopReason
from harness.core.ports import Block
from harness.core.verdict import Kind
from harness.report import seen
from harness.report.findings import steps_of
from harness.report.stacks import why_no_variables
from harness.report.text import code, count, details, listed, md, seconds, size, table
from harness.report.watched import stops_in_words, stops_of, untouched
from harness.report.words import at, of
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.evidence import Evidence
    from harness.core.outcome import Outcome
    from harness.core.record import TrialRecord
    from harness.report.findings import Findings
    from harness.report.tried import Group, Numbered


def beside_section(findings: Findings) -> Block | None:
    """The archive, and the trials whose evidence it lacks; None for a report in its run's own folder."""
    run, run_dir = findings.run, findings.run_dir
    path = layout.bundle_manifest(run_dir)
    if not path.is_file():
        return None
    manifest = json.loads(path.read_text(encoding="utf-8"))
    trials = len(run.records)
    archive = layout.archive(run_dir).name
    holds = f"[{code(archive)}]({archive}) holds the journal and the evidence of"
    missing = [number for number, r in enumerate(run.records, start=1) if r.trial.key in set(manifest["left_out"])]
    if not manifest["left_out"]:
        text = f"{holds} all {count(trials, 'trial')}, without names and secrets."
    elif len(manifest["left_out"]) == trials:
        text = (
            f"[{code(archive)}]({archive}) holds the journal of {count(trials, 'trial')}, and the evidence of none. "
            f"**{manifest.get('why') or 'Their evidence is missing.'}** What this page says rests on the journal: "
            "verdicts, their reasons, durations and measurements as they were recorded. That the verdicts follow from "
            "what was seen cannot be checked again."
        )
    else:
        numbers = listed(missing, most=len(missing))
        text = f"{holds} {trials - len(missing)} of {count(trials, 'trial')}; that of {numbers} is missing."
    return Block(title="Evidence beside this page", markdown=text)


def folder_of(findings: Findings, record: TrialRecord) -> str:
    """``trials/<key>``, as a link to the archive that holds it where this report was passed on."""
    folder = code(f"trials/{record.trial.key}")
    is_linked = findings.is_passed_on and findings.has_evidence_of(record)
    return f"[{folder}]({layout.archive(findings.run_dir).name})" if is_linked else folder


MOST = 2000
"""Trials that are listed; of a larger run the others are in the journal."""

ROLES = {
    "search": "search",
    "certify": "repeat at the last good value",
    "confirm": "repeat at the first bad value",
}


def trials_section(findings: Findings) -> Block | None:
    """The table of values that were tried, and all trials; None when there are none."""
    every = findings.trials
    if not every:
        return None
    body = _listed(findings, every[:MOST])
    more = f"\n\n{len(every) - MOST} more are in the journal." if len(every) > MOST else ""
    folded = details(f"Every trial ({len(every)}), in the order of running", body + more)
    parts = [_counts(findings), folded] if findings.is_line else [folded]
    return Block(title="Trials", markdown="\n\n".join(parts))


def _counts(findings: Findings) -> str:
    rows: list[tuple[object, ...]] = []
    for cell in filter(len, findings.along):
        good, bad, total = cell.good, cell.bad, len(cell)
        kinds = ", ".join(f"{n} {md(kind)}" for kind, n in cell.verdicts.items())
        pass_s = seconds(cell.pass_s) if cell.pass_s is not None else "-"
        neither = f"{total - good - bad}/{total}"
        rows.append((cell.value, f"{good}/{total}", f"{bad}/{total}", neither, kinds, pass_s, _peak(cell.peak_bytes)))
    head = (findings.run.axis.name, "passed", "failed", "neither", "verdicts", "a pass takes", "peak memory")
    return table(head, rows, right=(0, 1, 2, 3, 5, 6))


def _listed(findings: Findings, trials: Sequence[Numbered]) -> str:
    """A row for each trial: along an axis with its value, over cells with its cell and its memory."""
    rows: list[tuple[object, ...]] = []
    for trial in trials:
        record = trial.record
        where = md(findings.value_of(trial)) if findings.is_line else code(findings.name_of(trial.cell))
        verdict = md(trial.verdict) if trial.verdict.kind is Kind.PASS else f"**{md(trial.verdict)}**"
        took, gap_s = f"{record.outcome.duration_s:.2f}", record.measurement.longest_silence_s
        gap = seconds(gap_s) if gap_s else "-"  # fewer than two marks have none between them
        steps = "-" if record.outcome.ending is Ending.STILL_RUNNING else steps_of(record)
        peak = () if findings.is_line else (_peak(record.measurement.peak_rss_bytes),)
        end = (md(ended(record.outcome)), folder_of(findings, record))
        rows.append((trial.number, where, why(record), verdict, took, steps, gap, *peak, *end))
    head = ("why", "verdict", "seconds", "steps", "longest between marks")
    if findings.is_line:
        return table(("#", findings.run.axis.name, *head, "ended", "folder"), rows, right=(0, 1, 4, 5, 6))
    return table(("#", "cell", *head, "peak memory", "ended", "folder"), rows, right=(0, 4, 5, 6, 7))


def _peak(peak_bytes: int) -> str:
    return size(peak_bytes) if peak_bytes else "-"


def why(record: TrialRecord) -> str:
    """What a trial was run for, and of which earlier run it is if it was not run for this one."""
    origin = f" (taken over from {code(record.run)})" if record.run else ""
    return md(ROLES.get(record.trial.role, record.trial.role)) + origin


def ended(outcome: Outcome) -> str:
    """How the process ended, in words: ``exit 0``, ``signal 11``, ``ended by us: stall limit``."""
    exit_record = outcome.exit
    match outcome.ending:
        case Ending.EXITED:
            return f"exit {_or_unknown(None if exit_record is None else exit_record.code)}"
        case Ending.SIGNALLED:
            return f"signal {_or_unknown(None if exit_record is None else exit_record.signal)}"
        case Ending.STOPPED_BY_US if outcome.stopped_by is StopReason.EXAMINED:
            return f"ended by us after a last look: {outcome.why}"
        case Ending.STOPPED_BY_US:
            return f"ended by us: {outcome.stopped_by or 'no reason kept'}"
        case Ending.NEVER_STARTED:
            return f"never started: {outcome.why}"
        case Ending.STILL_RUNNING if outcome.exit is None:
            return "still running when it was judged"
        case Ending.STILL_RUNNING:
            return "while it was watched, how nobody saw"


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else str(value)


IN_FULL = 4
"""Groups of trials that are shown with all their evidence; the others in one line each."""

IN_SIGHT = 20
"""Of the others over many cells, those that are not folded."""


def failures_section(findings: Findings) -> Block | None:
    """Evidence for every group of trials that did not pass; None when all passed.

    Along an axis the first values are shown in full, over cells the first cell of every kind of failure; the others
    in one line each.
    """
    groups, where, in_sight = findings.groups, "cell", IN_SIGHT
    if findings.is_line:
        where, in_sight = findings.run.axis.name, len(groups)
    first = list(groups[:IN_FULL]) if findings.is_line else _first_of_each(groups)
    rest = tuple(group for group in groups if group not in first)
    parts = [in_full(findings, group) for group in first]
    if rest:
        parts.append(f"### Others\n\n{in_short(rest[:in_sight], where=where)}")
    if rest[in_sight:]:
        more = in_short(rest[in_sight:], where=where)
        parts.append(details(f"{count(len(rest) - in_sight, 'more group')} of trials that did not pass", more))
    return Block(title="Evidence", markdown="\n\n".join(parts)) if parts else None


def _first_of_each(groups: tuple[Group, ...]) -> list[Group]:
    failures: set[str] = set()
    first: list[Group] = []
    for group in groups:
        failure = group.first.verdict.signature or str(group.first.verdict)
        if failure not in failures and len(first) < IN_FULL:
            first.append(group)
        failures.add(failure)
    return first


def in_full(findings: Findings, group: Group) -> str:
    """All evidence of the first trial of ``group``."""
    trial = group.first
    name, total = str(group.value), len(findings.by_cell[trial.cell])
    if findings.is_line:
        name, total = at(findings, group.value), len(findings.at_value(group.value))
    verdict = trial.verdict
    evidence = findings.evidence_of(trial.record)
    head = f"### {md(name)}: {md(verdict)}, {of(len(group.trials), total)}"
    parts = [head, _facts(findings, group, evidence)]
    if evidence is None:
        parts.append(f"The evidence of trial {trial.number} is missing (no {code('evidence.json')} in its folder).")
        return "\n\n".join(parts)
    parts += [
        seen.where(evidence, trial.record) if verdict.kind in (Kind.HANG, Kind.SLOW, Kind.UNRESOLVED) else "",
        seen.processes(evidence, trial.record),
        seen.variables(evidence) or _no_variables(findings, trial.record, evidence),
        seen.raised(evidence, verdict.rank),
        seen.ranks(evidence, trial.record.outcome),
        seen.devices(evidence),
        seen.threads(evidence),
        seen.timeline(evidence, trial.record.outcome),
        seen.logs(evidence, trial.record.outcome),
        seen.unusable(evidence),
    ]
    return "\n\n".join(filter(None, parts))


def _no_variables(findings: Findings, record: TrialRecord, evidence: Evidence) -> str:
    reason = why_no_variables(findings.run, record, evidence)
    return f"{md(reason[:1].upper() + reason[1:])}." if reason else ""


def _facts(findings: Findings, group: Group, evidence: Evidence | None) -> str:
    record, verdict = group.first.record, group.first.verdict
    rows = [
        ("why", md(verdict.because)),
        ("rule", f"{code(verdict.rule)}, confidence {md(verdict.confidence)}"),
        ("evidence", listed(map(code, verdict.cites))),
        *_progress(record, evidence),
        ("ended", md(ended(record.outcome))),
        ("limits", seen.limits(record.trial.budget)),
        *_healthy(record),
        *_touched(record.outcome, evidence),
        ("trials", listed(group.numbers)),
        ("folder", folder_of(findings, record)),
        *_program(record),
    ]
    if verdict.signature:
        same = sum(t.verdict.signature == verdict.signature for t in group.trials)
        rows.append(("signature", f"{code(verdict.signature)} ({same} of {len(group.trials)} alike)"))
    if verdict.also:
        rows.append(("also noted", md("; ".join(verdict.also))))
    return table(("", f"trial {group.first.number}"), rows)


def _program(record: TrialRecord) -> list[tuple[str, str]]:
    """Where the files are that its stacks and tracebacks name, where they were those of a commit."""
    commit = record.trial.commit
    if commit is None:
        return []
    shown = code(f"git show {commit}:FILE")
    return [("program", f"commit {code(commit)}, in a worktree that was removed at the end: {shown}")]


def _progress(record: TrialRecord, evidence: Evidence | None) -> list[tuple[str, str]]:
    """Phase and steps; of a job that was only watched nobody counted its steps, nor has it a phase without marks."""
    verdict, is_watched = record.verdict, record.outcome.ending is Ending.STILL_RUNNING
    if is_watched and (evidence is None or not evidence.heartbeats_total):
        return []
    phase = md(verdict.phase or "-") + (f", step {verdict.step}" if verdict.step is not None else "")
    return [("phase", phase), *([] if is_watched else [("steps done", f"{steps_of(record)}")])]


def _healthy(record: TrialRecord) -> list[tuple[str, str]]:
    """How long a healthy trial should take; of a job that was only watched nobody asks that."""
    is_watched = record.outcome.ending is Ending.STILL_RUNNING
    return [] if is_watched else [("healthy time", seen.healthy(record.trial.prediction))]


def _touched(outcome: Outcome, evidence: Evidence | None) -> list[tuple[str, str]]:
    """What was done to its processes: how they were ended, and how long they were stopped to be looked at."""
    if outcome.ending is Ending.STILL_RUNNING:
        return [] if evidence is None else [("touched", md(untouched([evidence])))]
    stops = () if evidence is None else stops_of([evidence])
    stopped = [("stopped to look", md(stops_in_words(stops)))] if stops else []
    return [("cleaned up", seen.cleanup(outcome.cleanup)), *stopped]


def in_short(groups: tuple[Group, ...], *, where: str) -> str:
    """One line for each group."""
    rows: list[tuple[str, ...]] = []
    for group in groups:
        verdict = group.first.verdict
        rows.append((md(group.value), md(verdict), listed(group.numbers), md(verdict.because)))
    return table((where, "verdict", "trials", "why"), rows, right=(0,) if where != "cell" else ())
