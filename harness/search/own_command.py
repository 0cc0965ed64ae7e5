"""The program's own command lines: what fails, in the fewest settings found, and what it is next to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.campaign import OwnCommand, Task, Variant
from harness.core.command_line import at_commit, composed, difference
from harness.core.point import assignment
from harness.core.ports import CellRequest
from harness.core.verdict import Answer, Kind
from harness.search.tables import count_of, of_cell
from harness.store.redact import redact_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.campaign import CampaignAnswer, CampaignSpec
    from harness.core.command_line import CommandLine
    from harness.core.point import Point
    from harness.core.record import TrialRecord
    from harness.core.trial import Trial

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
    line = _line(here[0].trial)
    variants: list[Variant] = []
    for other in next_to:
        there = of_cell(other, records)
        if there:
            change = difference(line, _line(there[0].trial)) or f"with {_other_settings(cell, other)}"
            variants.append(Variant(change=redact_text(change), count=count_of(other, there)))
    return OwnCommand(
        line=tuple(map(redact_text, at_commit(line, here[0].trial.commit))),
        verdict=str(failed[0].verdict),
        count=count_of(cell, here),
        tried_again=len(again),
        failed_again=again.count(Answer.BAD),
        next_to=tuple(variants),
    )


def _other_settings(cell: Point, other: Point) -> str:
    """The settings of ``other`` that are not those of ``cell``: ``mode=single``, ``commit=v2``."""
    return " ".join(assignment(name, value) for name, value in other if value != cell.get(name))


def _line(trial: Trial) -> CommandLine:
    return composed(trial.config, python=trial.python or PROGRAM, env=trial.env)
