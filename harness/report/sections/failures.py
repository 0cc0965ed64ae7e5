"""Failures: for each value, or kind of failure, that did not pass, what was seen and why it is called what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.outcome import Ending
from harness.core.ports import Block
from harness.core.verdict import Kind
from harness.report import seen
from harness.report.facts import steps_of
from harness.report.sections.beside import folder_of
from harness.report.sections.trials import ended
from harness.report.stacks import why_no_variables
from harness.report.stops import sentence, stops_of, untouched
from harness.report.text import code, count, details, listed, md, table
from harness.report.words import at, of

if TYPE_CHECKING:
    from harness.core.evidence import Evidence
    from harness.core.outcome import Outcome
    from harness.core.record import TrialRecord
    from harness.report.findings import Findings
    from harness.report.tried import Group

IN_FULL = 4
"""Groups of trials that are shown with all their evidence; the others in one line each."""

IN_SIGHT = 20
"""Of the others over many cells, those that are not folded."""


def section(findings: Findings) -> Block | None:
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
    stopped = [("stopped to look", md(sentence(stops)))] if stops else []
    return [("cleaned up", seen.cleanup(outcome.cleanup)), *stopped]


def in_short(groups: tuple[Group, ...], *, where: str) -> str:
    """One line for each group."""
    rows: list[tuple[str, ...]] = []
    for group in groups:
        verdict = group.first.verdict
        rows.append((md(group.value), md(verdict), listed(group.numbers), md(verdict.because)))
    return table((where, "verdict", "trials", "why"), rows, right=(0,) if where != "cell" else ())
