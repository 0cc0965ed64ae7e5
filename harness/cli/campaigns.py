"""What every command that runs a matrix does: begin or resume a run, show it, write its report, end with its code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.foreign import INVOCATION
from harness.cli.wiring import new_run
from harness.clock import WallClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.cluster.head import On
    from harness.core.campaign import CampaignSpec
    from harness.core.record import Run
    from harness.settings import Settings
    from harness.store.run_store import RunStore


def answer(ctx: click.Context, options: Mapping[str, Any], question: Callable[[Settings], CampaignSpec]) -> None:
    """Answer ``question``, or go on with the run that ``--resume`` names; print its plan alone with ``--dry-run``.

    The command ends with the exit code that means what came of it.
    """
    from harness.cli.console import result
    from harness.cli.exit_codes import of_search
    from harness.report.findings import Findings
    from harness.report.write import form, summary_text
    from harness.settings import Settings

    settings = Settings.read(runs=options["runs"])
    if options["dry_run"] and not options["resume"]:
        from harness.cli.plan_text import print_plan

        print_plan(settings, question(settings))
        return
    run = run_of(ctx, settings, options, question)
    if options["as_json"]:
        click.echo(form(run, Path(run.directory), "json"))  # as it is: a line that is broken is no JSON
    else:
        result(summary_text(run))
    ctx.exit(of_search(Findings(run=run)))


def run_of(
    ctx: click.Context, settings: Settings, options: Mapping[str, Any], question: Callable[[Settings], CampaignSpec]
) -> Run:
    """The run of ``question``, to its end, or the one that ``--resume`` names, taken up where it was left."""
    from harness.cli.startable import prove_programs
    from harness.cli.taken_up import allowance_of, run_to_take_up
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
