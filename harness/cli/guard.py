"""nsa-harness guard: jobs watched for weeks; each hang told once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import DURATION

if TYPE_CHECKING:
    from harness.guard.receivers import Receiver

EPILOG = """\b
Examples:
  nsa-harness guard 4242
  nsa-harness guard --match 'torchrun .*train' --notify json://127.0.0.1:8080
  nsa-harness guard --slurm 17 --every 5m
  nsa-harness guard 4242 --on-hang term --metrics 9477
\b
It takes the CPU time of every process of the job each ten seconds, looks into
what is quiet for half a minute, and into everything each --every. It tells of
a hang when two looks agree, once, and of its end. --on-hang term also sends
SIGTERM to the process that was named or matched, for a hang of high
confidence only. A job of Slurm is looked into each --every, by an agent on
each of its nodes.
\b
Events are in RUNS/guard.jsonl, the report of each hang in RUNS. A guard that
is started again goes on where the last one was: no hang is lost. A receiver
may hear of one twice if the guard was killed in between; the number of the
incident is in every message.
\b
Exit codes:
  0    every job has ended
  2    wrong use, no such job, another guard has the folder
  6    the folder of --runs cannot be written to
  130  interrupted; the jobs run on
"""


TAKES = (
    "guard takes jobs that run already: a PID, --slurm JOBID, or --match REGEX; a program is started and watched with: "
    "nsa-harness run -- COMMAND"
)


class Pid(click.IntRange):
    """The number of a process; whoever types a program instead is shown what starts one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``value`` as a number from 1 on."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            raise click.UsageError(f"{value!r} is no PID. {TAKES}", ctx) from None


@click.command(epilog=EPILOG)
@click.argument("pids", metavar="[PID]...", nargs=-1, type=Pid(min=1))
@click.option(
    "--slurm", metavar="JOBID", multiple=True, type=click.IntRange(min=1), help="A job of Slurm, on all nodes."
)
@click.option("--match", metavar="REGEX", help="Guard this user's jobs whose command line fits, now and later.")
@click.option("--on-hang", type=click.Choice(["tell", "term"]), default="tell", show_default=True)
@click.option(
    "--notify",
    "urls",
    metavar="URL",
    multiple=True,
    help="Tell an apprise address (slack://, ...), otlp:URL or tensorboard:FOLDER.",
)
@click.option("--metrics", metavar="PORT", type=click.IntRange(1, 65535), help="Serve Prometheus metrics on 127.0.0.1.")
@click.option(
    "--every",
    type=DURATION,
    help="Look into what computes this often (default: each 15m, or less often where that takes 0.1% of a CPU).",
)
@click.option("--runs", metavar="DIR", help="Where reports and events go (default: ./runs, or NSA_HARNESS_RUNS).")
@click.pass_context
def guard(
    ctx: click.Context,
    *,
    pids: tuple[int, ...],
    slurm: tuple[int, ...],
    match: str | None,
    on_hang: str,
    urls: tuple[str, ...],
    metrics: int | None,
    every: float | None,
    runs: str | None,
) -> None:
    """Watch running jobs for weeks, and tell once of each hang, with its report.

    PID is any process of a job. Jobs are not signalled, ended or slowed, unless --on-hang term says so.
    """
    from functools import partial
    from shutil import rmtree

    from harness.cli.exit_codes import ExitCode
    from harness.clock import WallClock
    from harness.guard.guard import Guard, Ledger, cannot_see, look_into, write_up
    from harness.guard.jobs import job_of, of_slurm
    from harness.guard.receivers import Metrics, address
    from harness.settings import Settings

    if not pids and not slurm and match is None:
        raise click.UsageError(TAKES)
    pattern = _pattern(match)
    jobs = [*map(job_of, pids), *map(of_slurm, slurm)]
    receivers: list[Receiver] = list(map(address, urls))
    folder = Settings.read(runs=runs).runs
    ledger = Ledger.open(folder)
    rmtree(folder / "looks", ignore_errors=True)  # a guard that was killed may have left a look half done
    one = Guard(
        ledger=ledger,
        receivers=receivers,
        metrics=Metrics(port=metrics),
        clock=WallClock(),
        look=partial(look_into, looks=folder / "looks", runs=folder),
        report=write_up,
        say=partial(click.echo, err=True),
        pattern=pattern,
        end=on_hang == "term",
        routine_s=every,
    )
    if blind := cannot_see():
        click.echo(f"warning: {blind}", err=True)
    one.remember()
    for job in jobs:
        one.guard(job)
    try:
        one.run(stop=lambda: False)
    except KeyboardInterrupt:
        click.echo("interrupted; the jobs run on", err=True)
        one.write_reports()  # the messages name them
        ctx.exit(ExitCode.INTERRUPTED)
    finally:
        ledger.close()


def _pattern(match: str | None) -> re.Pattern[str] | None:
    if match is None:
        return None
    try:
        return re.compile(match)
    except re.error as error:
        raise click.BadParameter(f"{match!r} is no regular expression: {error}", param_hint="--match") from error
