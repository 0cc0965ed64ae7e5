"""The options that commands share, each declared once: what is asked, what it may cost, how trials are run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.cli import complete
from harness.cli.options import DURATION, NEW_RUNS, ON, PER_TRIAL, SEED, SETTING, VARIABLE
from harness.core.verdict import BAD_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

REUSE = "Count trials of earlier runs, or none (default: searches of our trainer or of commits do)."
OF_PROGRAMS = ("env", "success", "progress", "progress_file")
"""Options that need a command behind --."""

AXES = click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="NAME[=V,..]",
    shell_complete=complete.axes,
    help="What to vary, the good value first: mode=single,ddp. A flag {amp:--amp} of a command needs none.",
)

BAD = click.option(
    "--bad",
    multiple=True,
    metavar="KIND",
    shell_complete=complete.kinds,
    help=f"What counts as failing: {', '.join(map(str.lower, BAD_KINDS))}.",
)

TRIAL_OPTIONS = (
    click.option(
        "--fault", metavar="NAME[@COND,..]", shell_complete=complete.faults, help="Plant a known fault in our trainer."
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        type=SETTING,
        metavar="NAME=VALUE",
        help="Hold a setting of our trainer (model.dim=256), or a {name} or flag of a command.",
    ),
    click.option("--steps", type=click.IntRange(min=1), help="Optimizer steps of a trial."),
    click.option(
        "--env", multiple=True, type=VARIABLE, metavar="NAME=VALUE", help="A variable for a command: NCCL_DEBUG=INFO."
    ),
    click.option("--success", multiple=True, metavar="REGEX", help="What a command's output must show to pass."),
    click.option("--progress", metavar="REGEX", help="A line of a command's output that is progress."),
    click.option("--progress-file", metavar="PATH", help="A file whose growth is progress of a command."),
    click.option("--startup", type=DURATION, help="Longest silence before a step is seen (default: 120s)."),
    click.option("--stall", type=DURATION, help="Longest silence after that (default: learned from passed trials)."),
    click.option("--total", type=DURATION, help="Longest trial (default: learned)."),
)

SOUGHT = (
    BAD,
    click.option("--certify", type=click.IntRange(min=1), help="Passes of a certificate (default: by cost, 18 to 44)."),
)

SHARED = (
    click.option("--budget", type=DURATION, help="End after this time, with a partial report; a resumed run in all."),
    click.option(
        "--max-trials", type=click.IntRange(min=1), help="End after so many (default: 200); a resumed run in all."
    ),
    click.option("--jobs", type=click.IntRange(min=1), help="Trials at once (default: what the GPUs allow, else 1)."),
    click.option(
        "--executor",
        metavar="NAME",
        shell_complete=complete.executors,
        help="How trials start: forkserver (default) or local.",
    ),
    *ON,
    PER_TRIAL,
    click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of everything random."),
    click.option(
        "--resume",
        is_flag=False,
        flag_value="latest",
        metavar="[RUN]",
        shell_complete=complete.runs,
        help="Continue RUN, or the last unfinished one that asks the same; --max-trials and --budget may be new.",
    ),
    click.option("--reuse/--fresh", default=None, help=REUSE),
    NEW_RUNS,
    click.option("--json", "as_json", is_flag=True, help="The whole run as JSON on standard output."),
)

DRY_RUN = click.option("--dry-run", is_flag=True, help="Print the plan and its cost, run nothing.")
SIGNATURE = click.option("--signature", metavar="NAME", help="Follow only the failure that the file calls NAME.")


def with_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """What gives a command ``options``, in their order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


placed = with_options(*ON)
"""Where a trial runs."""
shared = with_options(*SHARED)
"""How trials are run."""
asking = with_options(*TRIAL_OPTIONS, *SHARED, DRY_RUN)
"""What is asked, of our trainer or of a program, and how trials are run."""
searching = with_options(AXES, *TRIAL_OPTIONS, SIGNATURE, *SOUGHT, *SHARED, DRY_RUN)
"""The same for a search for what several axes do together."""


EXIT_CODES = """\b
Exit codes:
  0    answered and certified
  1    answered, but not certified
  2    wrong use: unknown option, axis or value, or an error in the file
  3    budget used up: the report is partial
  4    baseline not reproduced: good fails, bad passes, or one is refused
  6    the machine or the run directory is in the way
  130  interrupted; everything so far is kept, --resume continues
"""
