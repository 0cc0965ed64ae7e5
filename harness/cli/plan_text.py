"""What a question is expected to spend, and between which command lines or cells: ``--dry-run``, for every question."""

from __future__ import annotations

import shlex
from itertools import starmap
from statistics import median
from typing import TYPE_CHECKING

from harness.campaign import of_use
from harness.cli.fitting import say
from harness.core.campaign import Task
from harness.core.command_line import composed
from harness.core.point import assignment
from harness.core.verdict import Kind
from harness.earlier import Earlier, earlier_trials
from harness.plan.cells import CellPlanner
from harness.replay import foreseen
from harness.report.text import count, seconds
from harness.search.afterwards import TRIES
from harness.search.forecast import within
from harness.search.strategies import strategy_of
from harness.store.redact import redact_text
from harness.targets import TARGETS
from harness.targets.script import ScriptTarget
from harness.trees import prove_of_commits

if TYPE_CHECKING:
    from harness.core.campaign import CampaignSpec
    from harness.core.matrix import Matrix
    from harness.core.point import Point
    from harness.settings import Settings


def print_plan(settings: Settings, question: CampaignSpec) -> None:
    """Say it, on standard output. Trials of earlier runs that would count are taken into account; nothing is run."""
    prove_of_commits(question.matrix)
    earlier = _earlier(settings, question)
    counted = of_use(question, strategy_of(question), earlier.counted) if question.reuse else []
    took = [record.outcome.duration_s for record in (*earlier.passed, *counted) if record.verdict.kind is Kind.PASS]
    pass_s = median(took) if took else None
    estimate = within(foreseen(question, counted, pass_s=pass_s), most=question.matrix.effort.max_trials, done=0)
    say(question.question)
    say(f"plan: {estimate.text}" if estimate.trials else "plan: nothing is left to run")
    if counted:
        say(f"      on top of {count(len(counted), 'trial')} of earlier runs that count; --fresh runs all anew")
    if estimate.trials and pass_s is not None:
        say(f"      a pass took {seconds(pass_s)}, the median of {count(len(took), 'earlier trial')}")
    if question.matrix.command and question.task is Task.MINIMISE:
        say(f"      {TRIES} of them run the minimal command line once more, before it is printed")
    _print_cells(question)
    if not question.matrix.command:
        config = " ".join(starmap(assignment, question.matrix.base.config)) or "(defaults)"
        say(f"held fixed: {config}")
        say(f"fault: {question.matrix.fault or 'none'}; controls: {', '.join(question.controls) or 'none'}")


def _earlier(settings: Settings, question: CampaignSpec) -> Earlier:
    """What earlier runs in the same place have tried."""
    from harness.machine import code_fingerprint, describe, program_of

    machine, folder = describe(), settings.runs / "to-come"
    target = TARGETS.load(question.matrix.target)(python=settings.python)
    planner = CellPlanner(question, target=target, code=code_fingerprint(), machine=machine.fingerprint)
    return earlier_trials(
        folder,
        question=question,
        machine=machine,
        program=program_of(question),
        like=lambda record: planner.again(record.trial),
    )


def _print_cells(spec: CampaignSpec) -> None:
    space, axis = spec.matrix.space, spec.axis
    good = spec.good or space.good
    bad = good.with_value(axis, space.factor(axis).bad) if axis else spec.bad or space.bad
    say(f"from {_cell_text(spec.matrix, good)}")
    say(f"to {_cell_text(spec.matrix, bad)}")
    if spec.task is not Task.CELLS:
        say(f"sought: {spec.signature or ', '.join(spec.bad_kinds) or 'the first failure that shows up'}")


def _cell_text(matrix: Matrix, cell: Point) -> str:
    """A cell as the command line that it means, where it means one."""
    if not matrix.command:
        return matrix.space.name_of(cell)
    bundle = matrix.bundle(cell)
    config = ScriptTarget(python="").config({"command": shlex.join(matrix.command), **dict(bundle.config)})
    line = composed({**config, "more": bundle.args}, python=bundle.python or "python", env=bundle.env)
    return redact_text(str(line))
