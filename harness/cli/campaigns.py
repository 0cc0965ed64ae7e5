"""What every command that runs a matrix does: begin or resume a run, show it, write its report, end with its code."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from harness.cli.exit_codes import ExitCode, of_boundary
from harness.cluster.placed import HERE

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from harness.cluster.placed import On
    from harness.core.campaign import CampaignSpec
    from harness.core.invocation import Invocation
    from harness.core.record import Run
    from harness.core.trial import Trial
    from harness.settings import Settings
    from harness.store.run_store import RunStore


def begin(
    settings: Settings, spec: CampaignSpec, *, invocation: Invocation, jobs: int | None = None, on: On = HERE
) -> Run:
    """A new run of ``spec``, to its end; ``jobs`` trials at once (None: as many as the GPUs allow, else one).

    ``invocation`` is the command that asks it; ``on`` are the nodes that trials run on, and says how many at once.
    """
    from harness.clock import WallClock
    from harness.machine import code_fingerprint, describe
    from harness.store.run_store import RunStore

    with RunStore.create(
        settings.runs,
        spec=spec,
        machine=describe(),
        code=code_fingerprint(),
        invocation=invocation,
        clock=WallClock(),
    ) as store:
        return conduct(settings, store, jobs=jobs, on=on)


def resume(settings: Settings, *, name: str, jobs: int | None = None, on: On = HERE) -> Run:
    """An earlier run, taken up where it was left; ``latest`` is the last one."""
    from harness.clock import WallClock
    from harness.machine import code_fingerprint, describe
    from harness.store.run_store import RunStore

    with RunStore.open(
        find(settings, name),
        clock=WallClock(),
        machine=describe(),
        code=code_fingerprint(),
        argv=("nsa-harness", *sys.argv[1:]),
    ) as store:
        store.recall(dict(settings.whole_env))
        return conduct(settings, store, jobs=jobs, on=on)


def find(settings: Settings, name: str | None) -> Path:
    """The directory of the run called ``name``: a path, a name below the runs, or the last run."""
    from harness.store.run_store import find_run

    return find_run(settings.runs, name)


def conduct(settings: Settings, store: RunStore, *, jobs: int | None, on: On = HERE) -> Run:
    """Run what is left of the run in ``store`` and write its report."""
    from harness.campaign import Campaign
    from harness.cli.console import screen
    from harness.cli.wiring import Interrupt, claims, lanes
    from harness.observe.neighbours import visible_gpus
    from harness.report.write import write
    from harness.trees import trees_for

    spec, gpus = store.spec, () if on.engine else visible_gpus(dict(settings.child_env))
    count = jobs or jobs_for(spec, gpus=len(gpus))

    def label(trial: Trial) -> str:
        return spec.matrix.space.name_of(trial.point)

    with (
        Interrupt() as interrupted,
        screen(label=label) as view,
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
    wanted = [row.gpus for row in spec.matrix.resources if row.gpus]
    return max(gpus // min(wanted), 1) if wanted else 1


def finish(ctx: click.Context, run: Run, *, as_json: bool) -> None:
    """Say what came of it on standard output and end with the exit code that means it."""
    from harness.cli.console import result
    from harness.report.write import summary_json, summary_text

    result(summary_json(run) if as_json else summary_text(run))
    ctx.exit(exit_code(run))


def exit_code(run: Run) -> ExitCode:
    """What the end of a run means to a script."""
    from harness.core.campaign import Met, Task
    from harness.core.cause import MinimiseFinding

    answer = run.answer
    if run.ended == "interrupted" or answer is None:
        return ExitCode.INTERRUPTED if run.ended == "interrupted" else ExitCode.BUDGET
    if run.spec.task is Task.CELLS and answer.surprises:
        return ExitCode.FINDINGS
    if run.ended == "budget used up":
        return ExitCode.BUDGET
    if answer.minimised is not None:
        if answer.minimised.finding in (MinimiseFinding.GOOD_FAILS, MinimiseFinding.BAD_PASSES):
            return ExitCode.BASELINE
        sure = answer.minimised.causes and all(cause.certified for cause in answer.minimised.causes)
        return ExitCode.OK if sure else ExitCode.FINDINGS
    if answer.boundary is not None:
        return of_boundary(answer.boundary, run.records)
    if answer.explored is not None:
        return ExitCode.FINDINGS if answer.explored.failures else ExitCode.OK
    untold = [result for result in answer.cells if result.met in (Met.UNTOLD, Met.NOT_RUN)]
    return ExitCode.INFRA if untold else ExitCode.OK
