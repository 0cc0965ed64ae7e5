"""What every command that runs a matrix does: begin or resume a run, show it, write its report, end with its code."""

from __future__ import annotations

import math
import shlex
import sys
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from harness.campaign import of_use
from harness.cli.fitting import say
from harness.cli.foreign import INVOCATION
from harness.cli.wiring import new_run
from harness.clock import WallClock
from harness.core.campaign import Task
from harness.core.errors import NotResumableError, ResumeError
from harness.core.invocation import SEARCHES
from harness.core.point import assignment
from harness.core.ports import CellRequest
from harness.core.spec import Allowance
from harness.core.verdict import Kind
from harness.earlier import earlier_trials
from harness.plan.cells import CellPlanner
from harness.replay import foreseen
from harness.report.text import count, seconds
from harness.search.afterwards import TRIES, line_of
from harness.search.forecast import within
from harness.search.strategies import strategy_of
from harness.store.redact import redact_text
from harness.store.run_store import find_run, find_to_resume
from harness.targets import TARGETS
from harness.trees import prove_of_commits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.cluster.head import On
    from harness.core.campaign import CampaignSpec
    from harness.core.invocation import Invocation
    from harness.core.point import Point
    from harness.core.record import Run
    from harness.settings import Settings
    from harness.store.run_store import RunStore


def answer(ctx: click.Context, options: Mapping[str, Any], question: Callable[[Settings], CampaignSpec]) -> None:
    """Answer ``question``, or go on with the run that ``--resume`` names; print its plan alone with ``--dry-run``.

    The command ends with the exit code that means what came of it.
    """
    from harness.cli.console import result
    from harness.cli.exit_codes import of_search, tell_survivors
    from harness.report.findings import Findings
    from harness.report.write import form, summary_text
    from harness.settings import Settings

    settings = Settings.read(runs=options["runs"])
    if options["dry_run"] and not options["resume"]:
        print_plan(settings, question(settings))
        return
    run = run_of(ctx, settings, options, question)
    if options["as_json"]:
        click.echo(form(run, Path(run.directory), "json"))  # as it is: a line that is broken is no JSON
    else:
        result(lambda: summary_text(run))
    tell_survivors(run)
    ctx.exit(of_search(Findings(run=run)))


def run_of(
    ctx: click.Context, settings: Settings, options: Mapping[str, Any], question: Callable[[Settings], CampaignSpec]
) -> Run:
    """The run of ``question``, to its end, or the one that ``--resume`` names, taken up where it was left."""
    from harness.cli.wiring import prove_programs
    from harness.cluster.head import On
    from harness.machine import code_fingerprint, describe, program_of
    from harness.store.run_store import RunStore, read_run
    from harness.trees import prove_of_commits

    jobs, on = options["jobs"], On.of(options)
    if options["resume"]:
        run_dir = run_to_take_up(settings.runs, options["resume"], ctx.meta[INVOCATION])
        run = read_run(run_dir)
        with RunStore.open(
            run_dir,
            allowance=allowance_of(run, ctx.meta[INVOCATION], options),
            clock=WallClock(),
            machine=describe(),
            code=code_fingerprint(),
            program=program_of(run.spec),
            argv=("nsa-harness", *sys.argv[1:]),
        ) as store:
            store.recall(dict(settings.whole_env))
            return conduct(settings, store, jobs=jobs, on=on)
    spec = question(settings)
    prove_of_commits(spec.matrix)
    prove_programs(settings, spec.matrix, is_elsewhere=bool(on.engine))
    with new_run(settings, spec, invocation=ctx.meta[INVOCATION]) as store:
        return conduct(settings, store, jobs=jobs, on=on)


def conduct(settings: Settings, store: RunStore, *, jobs: int | None, on: On) -> Run:
    """Run what is left of the run in ``store`` and write its report; ``jobs`` trials at once (None: as many as fit)."""
    from harness.campaign import Campaign
    from harness.cli.console import screen
    from harness.cli.wiring import Interrupt, claims, lanes
    from harness.observe.neighbours import visible_gpus
    from harness.report.write import write
    from harness.trees import trees_for

    spec, gpus = store.spec, () if on.engine else visible_gpus(dict(settings.child_env))
    count = jobs or jobs_for(spec, gpus=len(gpus))
    with (
        Interrupt() as interrupted,
        screen(label=lambda trial: spec.matrix.space.name_of(trial.point)) as view,
        trees_for(spec, store.run_dir) as trees,
    ):
        view.opened(question=spec.question, directory=str(store.run_dir), resumed=len(store.records()))
        with lanes(
            settings, target=spec.matrix.target, executor=spec.executor, interrupted=interrupted, on=on, count=count
        ) as tools:
            run = Campaign(
                store=store,
                parts=tools,
                screen=view,
                gpus=gpus,
                claims=None if on.engine else claims(settings),
                interrupted=interrupted,
                trees=trees,
            ).run()
    write(run, store.run_dir)
    return run


def jobs_for(spec: CampaignSpec, *, gpus: int) -> int:
    """How many trials run at once by default: what fits on the GPUs; one where none is asked for.

    Trials that share CPU cores slow each other down, and a race that shows at one speed may not at another.
    """
    gpus_each = [row.gpus for row in spec.matrix.resources if row.gpus]
    return max(gpus // min(gpus_each), 1) if gpus_each else 1


MAX_TRIALS, BUDGET = "--max-trials", "--budget"
ANY_TIME = frozenset(
    {"--resume", "--runs", "--json", "--jobs", "--on", "--nodes", "--gres", "--nodes-per-trial", MAX_TRIALS, BUDGET}
)
"""Options that change nothing of what is asked."""


def run_to_take_up(runs_dir: Path, name: str, typed: Invocation) -> Path:
    """The run called ``name``; for ``latest`` the last one that did not come to its end and asks what ``typed`` does.

    Raises:
        StoreError: there is none.
        SpecError: more than one may be meant.
    """
    if name != "latest":
        return find_run(runs_dir, name)
    asked = replace(typed, options=tuple(option for option in typed.options if option[0] not in ANY_TIME))
    run_dir = find_to_resume(runs_dir, asked)
    which = f"the last run of `{shlex.join(asked.argv)}` that did not come to its end"
    click.echo(f"going on with {run_dir.name}, {which}", err=True)
    return run_dir


def allowance_of(run: Run, typed: Invocation, options: Mapping[str, Any]) -> Allowance | None:
    """What ``run`` may spend in all by the command ``typed``; None where that is what it was.

    Raises:
        NotResumableError: it was only looked at, or is of one program as it is.
        ResumeError: an option would change the question, or a limit is one that the run has already reached.
    """
    _refuse_others(run, typed)
    effort = run.spec.matrix.effort
    words = dict(typed.options)
    chosen: list[tuple[str, str]] = []
    max_trials, max_seconds = options["max_trials"], options["budget"]
    if max_trials not in (None, effort.max_trials):
        trials = len(run.own)
        if max_trials <= trials:
            raise ResumeError(f"{MAX_TRIALS} {max_trials} {_reached(f'{trials} trials', f'{MAX_TRIALS} {2 * trials}')}")
        chosen.append((MAX_TRIALS, str(max_trials)))
    if max_seconds not in (None, effort.max_seconds):
        if max_seconds <= run.spent_s:
            more = f"{BUDGET} {math.ceil(2 * run.spent_s)}s"
            raise ResumeError(f"{BUDGET} {words[BUDGET]} {_reached(f'{run.spent_s:.0f} s', more)}")
        chosen.append((BUDGET, str(words[BUDGET])))
    if not chosen:
        return None
    return Allowance(max_trials=max_trials, max_seconds=max_seconds, options=tuple(chosen))


def _reached(spent: str, more: str) -> str:
    return f"counts all of the run, which has spent {spent}; give more, e.g. {more}"


def _refuse_others(run: Run, typed: Invocation) -> None:
    """ResumeError for whatever would ask another question than ``run`` does; to say the same again is fine."""
    begun = run.invocation
    if run.argv and not any(run.argv[1 : 1 + len(verb)] == verb for verb in SEARCHES):
        raise NotResumableError(f"{run.id} was begun by `{shlex.join(run.argv)}`, which cannot be gone on with")
    if any(name == "--dry-run" for name, _ in typed.options):
        where = run.directory or run.id
        raise ResumeError(f"--dry-run plans a new run; where this one stands is shown by: nsa-harness status {where}")
    for name, value in typed.options:
        if name not in ANY_TIME and (begun is None or (name, value) not in begun.options):
            raise ResumeError(f"{name} cannot be changed with --resume, which goes on with what {run.id} asks")
    for what, words, before in (
        ("a file", typed.operands, begun.operands if begun else ()),
        ("the command behind --", typed.command, begun.command if begun else ()),
    ):
        if words and words != before:
            raise ResumeError(f"{what} cannot be changed with --resume, which goes on with what {run.id} asks")


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
