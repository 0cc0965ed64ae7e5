"""What a question is expected to spend, and between which command lines or cells: ``--dry-run``, for every question."""

from __future__ import annotations

from itertools import starmap
from statistics import median
from typing import TYPE_CHECKING

from harness.campaign import of_use
from harness.cli.fitting import say
from harness.core.campaign import Task
from harness.core.point import assignment
from harness.core.ports import CellRequest
from harness.core.verdict import Kind
from harness.earlier import earlier_trials
from harness.plan.cells import CellPlanner
from harness.replay import foreseen
from harness.report.text import count, seconds
from harness.search.afterwards import TRIES, line_of
from harness.search.forecast import within
from harness.search.strategies import strategy_of
from harness.store.redact import redact_text
from harness.targets import TARGETS
from harness.trees import prove_of_commits

if TYPE_CHECKING:
    from harness.core.campaign import CampaignSpec
    from harness.core.point import Point
    from harness.settings import Settings


def print_plan(settings: Settings, question: CampaignSpec) -> None:
    """Say it, on standard output. Trials of earlier runs that would count are taken into account; nothing is run."""
    from harness.machine import code_fingerprint, describe, program_of

    prove_of_commits(question.matrix)
    machine, target = describe(), TARGETS.load(question.matrix.target)(python=settings.python)
    planner = CellPlanner(question, target=target, code=code_fingerprint(), machine=machine.fingerprint)
    earlier = earlier_trials(
        settings.runs / "to-come",
        question=question,
        machine=machine,
        program=program_of(question),
        like=lambda record: planner.again(record.trial),
    )
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
    _print_cells(planner)
    if not question.matrix.command:
        config = " ".join(starmap(assignment, question.matrix.base.config)) or "(defaults)"
        say(f"held fixed: {config}")
        say(f"fault: {question.matrix.fault or 'none'}; controls: {', '.join(question.controls) or 'none'}")


def _print_cells(planner: CellPlanner) -> None:
    spec = planner.spec
    space, axis = spec.matrix.space, spec.axis
    good = spec.good or space.good
    bad = good.with_value(axis, space.factor(axis).bad) if axis else spec.bad or space.bad
    say(f"from {_cell_text(planner, good)}")
    say(f"to {_cell_text(planner, bad)}")
    if spec.task is not Task.CELLS:
        say(f"sought: {spec.signature or ', '.join(spec.bad_kinds) or 'the first failure that shows up'}")


def _cell_text(planner: CellPlanner, cell: Point) -> str:
    """A cell as the command line that it means, where it means one."""
    if not planner.matrix.command:
        return planner.matrix.space.name_of(cell)
    return redact_text(str(line_of(planner.like(CellRequest(cell=cell, role="search", reason="")))))
