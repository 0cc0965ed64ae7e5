"""What is run when a search is over: controls beside the first failing value, and minimal command lines once more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.boundary import Claim, Finding
from harness.core.campaign import OwnCommand, Task, Variant
from harness.core.command_line import at_commit, composed, difference
from harness.core.point import assignment
from harness.core.ports import CellRequest
from harness.core.trial import CONTROL
from harness.core.verdict import Answer, Kind
from harness.search.tables import count_of, of_cell
from harness.store.redact import redact_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.boundary import Boundary
    from harness.core.campaign import CampaignAnswer, CampaignSpec
    from harness.core.command_line import CommandLine
    from harness.core.point import Point
    from harness.core.record import TrialRecord
    from harness.core.trial import Trial


PASSES = 3
"""Passes asked of a control when the failure showed in every trial at its value."""


def next_control(spec: CampaignSpec, boundary: Boundary, records: Sequence[TrialRecord]) -> CellRequest | None:
    """The trial of a control that would still tell something; None once each has passed often enough, or has failed."""
    if not _has_failing_value(boundary):
        return None
    for name in spec.controls:
        kinds = _kinds(name, spec, boundary, records)
        if not _failed(kinds, spec) and kinds.count(Kind.PASS) < _passes_required(boundary):
            cell = spec.at(boundary.first_bad)
            return CellRequest(cell=cell, role=f"{CONTROL} {name}", reason=f"control: {name}")
    return None


def with_controls(boundary: Boundary, spec: CampaignSpec, records: Sequence[TrialRecord]) -> Boundary:
    """``boundary`` with what its controls showed; isolated if all of them passed where a failure was reproduced."""
    if not _has_failing_value(boundary) or not spec.controls:
        return boundary
    at = assignment(boundary.axis, boundary.first_bad)
    passed: list[str] = []
    failed: list[str] = []
    incomplete: list[str] = []
    for name in spec.controls:
        kinds = _kinds(name, spec, boundary, records)
        if _failed(kinds, spec):
            failed.append(f"control {name} does not pass at {at}")
        elif kinds.count(Kind.PASS) >= _passes_required(boundary):
            passed.append(f"control {name} passes at {at}")
        else:
            incomplete.append(f"control {name} was not run to its end at {at}")
    notes = (*boundary.notes, *passed, *failed, *incomplete)
    isolated = bool(passed) and not failed and not incomplete and boundary.claim is Claim.REPRODUCED
    return replace(boundary, notes=notes, claim=Claim.ISOLATED if isolated else boundary.claim)


def _has_failing_value(boundary: Boundary) -> bool:
    return boundary.finding in (Finding.THRESHOLD, Finding.ALL_FAIL)


def _passes_required(boundary: Boundary) -> int:
    """As many passes as make a rare failure of the control unlikely."""
    for count in boundary.counts:
        if count.good and count.bad:
            return boundary.certificate_passes
    return PASSES


def _kinds(name: str, spec: CampaignSpec, boundary: Boundary, records: Sequence[TrialRecord]) -> list[Kind]:
    here = of_cell(spec.at(boundary.first_bad), records)
    return [record.verdict.kind for record in here if record.trial.control == name]


def _failed(kinds: Sequence[Kind], spec: CampaignSpec) -> bool:
    """Whether a control has failed once, or was spoiled by the machine too often to be told."""
    return bool(set(kinds) - {Kind.PASS, Kind.INFRA}) or kinds.count(Kind.INFRA) > spec.matrix.infra_retries


AGAIN = "again"
"""The role of a trial that only shows a minimal command line once more before it is printed."""

TRIES = 2
"""How often a minimal command line is tried again."""

PROGRAM = "python"
"""What stands for an interpreter that a command line leaves to the harness."""


def once_more(answer: CampaignAnswer, records: Sequence[TrialRecord]) -> CellRequest | None:
    """The cause that is to be tried again next; None once each was tried :data:`TRIES` times, or spoiled as often."""
    for cause in answer.causes:
        cell = cause.seen.cell
        kinds = [record.verdict.kind for record in of_cell(cell, records) if record.trial.role == AGAIN]
        answers = len(kinds) - kinds.count(Kind.INFRA)
        if answers < TRIES and len(kinds) < 2 * TRIES:
            reason = f"the minimal command line once more, {answers + 1} of {TRIES}"
            return CellRequest(cell=cell, role=AGAIN, reason=reason)
    return None


def own_commands(spec: CampaignSpec, answer: CampaignAnswer, records: Sequence[TrialRecord]) -> tuple[OwnCommand, ...]:
    """The command line of each cause, or of the first failing value, as one would type it without the harness."""
    commands: list[OwnCommand] = []
    for cell, next_to in (*_of_causes(answer), *_of_threshold(spec, answer)):
        command = _own_command(cell, next_to, records)
        if command is not None:
            commands.append(command)
    return tuple(commands)


def _of_causes(answer: CampaignAnswer) -> list[tuple[Point, list[Point]]]:
    """The failing cell of each cause, and the passing ones a step back from it."""
    rows: list[tuple[Point, list[Point]]] = []
    for cause in answer.causes:
        next_to = [need.back.cell for need in cause.needs if need.back]
        rows.append((cause.seen.cell, next_to))
    return rows


def _of_threshold(spec: CampaignSpec, answer: CampaignAnswer) -> list[tuple[Point, list[Point]]]:
    """The first failing cell along an axis and the last passing one, where there are such."""
    boundary = answer.boundary
    if spec.task is not Task.BISECT or boundary is None or boundary.first_bad is None:
        return []
    base = spec.good or spec.matrix.space.good
    good = [] if boundary.last_good is None else [base.with_value(boundary.axis, boundary.last_good)]
    return [(base.with_value(boundary.axis, boundary.first_bad), good)]


def _own_command(cell: Point, next_to: Sequence[Point], records: Sequence[TrialRecord]) -> OwnCommand | None:
    here = of_cell(cell, records)
    failed: list[TrialRecord] = []
    again: list[Answer] = []
    for record in here:
        if record.answer is Answer.BAD:
            failed.append(record)
        if record.trial.role == AGAIN and record.verdict.kind is not Kind.INFRA:
            again.append(record.answer)
    if not failed:
        return None
    line = line_of(here[0].trial)
    variants: list[Variant] = []
    for other in next_to:
        there = of_cell(other, records)
        if there:
            settings = " ".join(assignment(name, value) for name, value in other if value != cell.get(name))
            change = difference(line, line_of(there[0].trial)) or f"with {settings}"
            variants.append(Variant(change=redact_text(change), count=count_of(other, there)))
    return OwnCommand(
        line=tuple(map(redact_text, at_commit(line, here[0].trial.commit))),
        verdict=str(failed[0].verdict),
        count=count_of(cell, here),
        tried_again=len(again),
        failed_again=again.count(Answer.BAD),
        next_to=tuple(variants),
    )


def line_of(trial: Trial) -> CommandLine:
    """The command line of a trial, as one would type it."""
    return composed(trial.config, python=trial.python or PROGRAM, env=trial.env)
