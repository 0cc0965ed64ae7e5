"""nsa-harness fsck: whether a run is as it was written, and what of a damaged one still stands."""

from __future__ import annotations

import sys

import click

from harness.cli.exit_codes import ExitCode
from harness.cli.fitting import fitting, say
from harness.cli.journal import RUN
from harness.cli.options import RUNS

EPILOG = """\b
Examples:
  nsa-harness fsck runs/20261121-130501-n_layers
  nsa-harness fsck runs/20261121-130501-n_layers --salvage
  nsa-harness fsck --accept       # after a change to the journal by hand
\b
Exit codes:
  0    everything is as it was written, or what stands was saved
  1    something is not; each is a line with its place
  2    wrong use
  6    there is no such run, or it cannot be read or written
"""


@click.command(epilog=EPILOG)
@RUN
@RUNS
@click.option("--salvage", is_flag=True, help="Write the journal again with every line that stands; keep the old one.")
@click.option("--accept", is_flag=True, help="The same, with lines that were changed by hand as they are now.")
@click.pass_context
def fsck(ctx: click.Context, *, run: str | None, runs: str | None, salvage: bool, accept: bool) -> None:
    """Check every line of RUN (the last one by default), its question, its machine and its trials' evidence.

    What is missing of a trial is named: its folder, its evidence, what it printed. What is damaged is told and never
    guessed. What --salvage leaves out, --resume asks again.
    """
    from harness.clock import WallClock
    from harness.core.errors import NoRunError
    from harness.settings import Settings
    from harness.store import fsck as checks
    from harness.store.run_store import find_run
    from harness.store.shelf import folders

    where = Settings.read(runs=runs).runs
    if run is None:  # also one that cannot be read
        begun = folders(where)
        if not begun:
            raise NoRunError(f"no run in {where}")
        directory = begun[-1]
    else:
        directory = find_run(where, run)
    named = directory if run in (None, "latest") else run  # a bundle is unpacked elsewhere
    problems = checks.problems(directory)
    for line in problems:
        say(line)
    if salvage or accept:
        intact, left_out, copy = checks.salvage(directory, clock=WallClock(), accept=accept)
        click.echo(f"{named}: {intact} lines stand, {left_out} were left out; the old journal is {copy}", err=True)
        problems = checks.problems(directory)
        for line in problems:
            say(f"still: {line}")
    else:
        what = "everything is" if not problems else f"{len(problems)} not"
        click.echo(fitting(f"{named}: {what} as it was written", to=sys.stderr), err=True)
    ctx.exit(ExitCode.FINDINGS if problems else ExitCode.OK)
