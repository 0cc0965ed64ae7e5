"""nsa-harness run: any program as one supervised trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from harness.cli.foreign import INVOCATION, RepeatableCommand
from harness.cli.matrix_options import placed
from harness.cli.options import DURATION, JSON, LOCALS, NEW_RUNS, PLACE, VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.campaign import CampaignSpec
    from harness.core.evidence import Evidence
    from harness.settings import Settings
    from harness.store.run_store import RunStore

MOST_RUNS = 1000

EPILOG = """\b
Examples:
  nsa-harness run -- torchrun --nproc-per-node 2 train.py --n-layers 4
  nsa-harness run --repeat 5 --limit 10m -- python train.py
  nsa-harness run --until-fail -- python train.py --steps 100
  nsa-harness run --progress 'step (\\d+)' --steps 100 -- ./train.sh
  nsa-harness run --set n_layers=4 -- python train.py --layers {n_layers}
  nsa-harness run --on slurm:gpu --nodes 2 --gres gpu:8 \\
                  -- torchrun --nproc-per-node 8 train.py

Progress is seen without a change to the program: optimizer steps, backward
passes and data loaders of any Python that imports torch. Where there is no
such Python, name a line of its output (--progress) or a file that grows.

--stall counts once a step is seen: of an optimizer, or counted by a group of
--progress. Until then --startup does, whatever is printed. A wait that
somebody else may end is watched for four times the limit; a sleep that ends
by itself is never called a hang.

Its standard input is empty. A program that reads some is given it in the
command: -- sh -c 'python train.py < answers.txt'. Descriptors above 2 are
handed on. In a pipe of its own (| tee log) its lines come late, as without
us; --env PYTHONUNBUFFERED=1 has them seen at once.

Ctrl-C while it is silent means that it is stuck now: silent for 3 s, and for
1.5 times its longest silence before, it is looked into once, for some five
seconds, and then ended. Before that, and a second time, it ends it at once.

\b
Exit codes:
  0    it passed, every time
  1    it failed: hang, crash, out of memory, not finite, missed --success
  2    wrong use, or no such program
  3    inconclusive: a limit ran out while it progressed, or no proof
  6    the machine was in the way, or it could not be started, or not ended
  130  interrupted
"""


@click.command(cls=RepeatableCommand, epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
@click.option(
    "--set",
    "values",
    multiple=True,
    type=PLACE,
    metavar="NAME=VALUE",
    help="The value of a {name} in the command.",
)
@click.option(
    "--env", multiple=True, type=VARIABLE, metavar="NAME=VALUE", help="A variable for the program: NCCL_DEBUG=INFO."
)
@click.option("--steps", type=click.IntRange(min=1), help="Steps it must make to pass.")
@click.option("--success", multiple=True, metavar="REGEX", help="What its output must show to pass, beside exit 0.")
@click.option("--progress", metavar="REGEX", help="A line of output that is progress; a group counts the steps.")
@click.option("--progress-file", metavar="PATH", help="A file (or pattern) whose growth is progress.")
@click.option("--startup", type=DURATION, help="Longest silence before a step is seen (default: 120s).")
@click.option("--stall", type=DURATION, help="Longest silence after that (default: learned, 2m at first).")
@click.option("--limit", type=DURATION, help="Longest run (default: none); looking into a silence may end after it.")
@click.option("--repeat", type=click.IntRange(1, MOST_RUNS), default=1, show_default=True, help="Run it this often.")
@click.option("--until-fail", is_flag=True, help="Run it until it fails, at most --repeat times (then 1000).")
@placed
@click.option("--echo", is_flag=True, help="Show the program's own output while it runs.")
@LOCALS
@NEW_RUNS
@JSON
@click.pass_context
def run(ctx: click.Context, *, command: tuple[str, ...], **options: Any) -> None:
    """Run COMMAND once, supervised: its progress, a verdict with evidence, a report, and nothing left behind.

    The program runs in its own interpreter, environment and folder, unmodified. A hang is told from slowness by
    evidence, usually within ten seconds; stacks of all ranks are taken before anything is ended.
    """
    from harness.cli.exit_codes import of_program, tell_survivors
    from harness.cli.foreign import settings_of, variables
    from harness.cli.wiring import new_run, prove_program
    from harness.launch.supervisor import inherited
    from harness.report.findings import Findings
    from harness.settings import Settings
    from harness.targets.script import ScriptTarget

    descriptors = inherited()
    if options["keeps_locals"] and options["on"]:
        raise click.UsageError("--locals shows what this machine sees; it cannot be had with --on")
    if options["until_fail"] and options["repeat"] == 1:
        options["repeat"] = MOST_RUNS
    settings = Settings.read(runs=options["runs"])
    config = ScriptTarget(python="").config(settings_of(command, options))
    prove_program(settings, config, env=variables(options["env"]), is_elsewhere=bool(options["on"]))
    with new_run(settings, _question(command, options), invocation=ctx.meta[INVOCATION]) as store:
        _conduct(settings, store, config, options, descriptors=descriptors)
        _conclude(store, as_json=options["as_json"])
        tell_survivors(store.run())
        ctx.exit(of_program(Findings(run=store.run())))


def _question(command: tuple[str, ...], options: Mapping[str, Any]) -> CampaignSpec:
    from harness.cli.foreign import patterns
    from harness.core.spec import Limits
    from harness.core.success import Success
    from harness.solo import question

    return question(
        command=command,
        limits=Limits(startup_s=options["startup"], stall_s=options["stall"], total_s=options["limit"]),
        success=Success(require=patterns(options["success"], option="--success")),
        repeats=options["repeat"],
    )


def _conduct(
    settings: Settings,
    store: RunStore,
    config: Mapping[str, object],
    options: Mapping[str, Any],
    *,
    descriptors: tuple[int, ...],
) -> None:
    from dataclasses import replace

    from harness.cli.console import RunScreen
    from harness.cli.foreign import pairs, variables
    from harness.cli.wiring import Interrupt, lanes
    from harness.cluster.head import On
    from harness.core.point import Point
    from harness.solo import Solo

    with (
        Interrupt() as interrupted,
        RunScreen(folder=store.run_dir, repeats=options["repeat"], echo=options["echo"]) as screen,
        lanes(
            settings,
            target="command",
            executor="local",
            interrupted=interrupted,
            on=On.of(options, whole=True),
            keeps_locals=options["keeps_locals"],
        ) as tools,
    ):
        Solo(
            store=store,
            parts=replace(tools[0], descriptors=descriptors),
            screen=screen,
            interrupted=interrupted,
            config=config,
            point=Point.of(pairs(options["values"])),
            env=variables(options["env"]),
            until_fail=options["until_fail"],
        ).run()


def _conclude(store: RunStore, *, as_json: bool) -> None:
    import json

    from harness.cli.console import result
    from harness.cli.foreign import write_report
    from harness.report import one
    from harness.report.findings import Findings
    from harness.report.summary import steps_of
    from harness.store import layout

    records = store.records()
    if not records:
        asked = f" ({store.run().asked})" if store.run().asked else ""
        click.echo(f"interrupted{asked} before anything was decided; what was seen is in {store.run_dir}", err=True)
        return
    evidence: dict[str, Evidence] = {}
    for record in records:
        facts = store.read_evidence(record.trial.key)
        if facts is not None:
            evidence[record.trial.key] = facts
    if as_json:
        click.echo(json.dumps(one.data(store.run(), evidence) | {"run": str(store.run_dir)}, indent=1))
    else:
        steps = steps_of(Findings(run=store.run(), run_dir=store.run_dir))
        result(lambda: one.text(store.run(), evidence, where=layout.report(store.run_dir), steps=steps))
    write_report(store)
