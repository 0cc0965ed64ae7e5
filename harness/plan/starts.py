"""Starts: what never started in a few trials is not started again, in whichever cell it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from harness.core.command_line import composed
from harness.core.verdict import NEVER_STARTED

if TYPE_CHECKING:
    from harness.core.record import TrialRecord
    from harness.core.trial import Trial

ENOUGH = 3
"""So many trials that never started say of a program that the next will not start either."""

Program: TypeAlias = tuple[str | None, ...]


@dataclass(slots=True)
class Starts:
    """Which programs never started, in how many trials in a row, and why."""

    _failures: dict[Program, list[str]] = field(default_factory=dict[Program, list[str]])

    def note(self, record: TrialRecord) -> None:
        """Take in how a trial ended."""
        failures = self._failures.setdefault(_program(record.trial), [])
        if record.verdict.cause == NEVER_STARTED:
            failures.append(record.outcome.why)
        else:
            failures.clear()

    def why_not(self, trial: Trial) -> str:
        """Why ``trial`` need not be tried; empty where its program has started, or was hardly tried."""
        failures = self._failures.get(_program(trial), [])
        return f"it never started in {len(failures)} trials: {failures[-1]}" if len(failures) >= ENOUGH else ""


def _program(trial: Trial) -> Program:
    """What is started, and where it is looked for: trials that have all of this in common start or do not."""
    if trial.target != "command":
        return (trial.target, trial.python, trial.tree)
    line = composed(trial.config, python=trial.python or "python", env=trial.env)
    return (*line.argv[:1], dict(line.variables).get("PATH"), trial.tree)
