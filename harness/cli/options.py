"""The options that several commands share, each declared once, and their types."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.cli import complete
from harness.core.verdict import BAD_KINDS
from harness.spec.amounts import duration, shortened

if TYPE_CHECKING:
    from collections.abc import Callable


class Duration(click.ParamType[float]):
    """Seconds, written 90, 90s, 1.5m or 2h."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of seconds; a usage error with an example otherwise."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Assignment(click.ParamType[tuple[str, str]]):
    """``NAME=VALUE``, kept as text until the target says what type it has; ``example`` is one that the option takes."""

    name = "NAME=VALUE"

    def __init__(self, *, example: str) -> None:
        self.example = example

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The pair; a usage error with an example otherwise."""
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            self.fail(f"{shortened(value)} is not NAME=VALUE; write for example {self.example}", param, ctx)
        return name.strip(), text.strip()


ON = (
    click.option(
        "--on",
        metavar="ENGINE[:WHERE]",
        help="Run trials on nodes: slurm, slurm:PARTITION, ray, ray:ADDRESS, local (experimental).",
    ),
    click.option("--nodes", type=click.IntRange(min=1), help="How many nodes to ask it for (default: 1)."),
    click.option("--gres", metavar="TEXT", help="What each node must have, in the engine's words: gpu:2."),
)
"""Options of commands that can run trials elsewhere."""

PER_TRIAL = click.option(
    "--nodes-per-trial",
    type=click.IntRange(min=1),
    help="Nodes that one trial spans (default: 1; the others run more).",
)

RUNS = click.option("--runs", metavar="DIR", help="Where runs are (default: ./runs, or NSA_HARNESS_RUNS).")
NEW_RUNS = click.option("--runs", metavar="DIR", help="Where runs go (default: ./runs, or NSA_HARNESS_RUNS).")

JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
LOCALS = click.option(
    "--locals", "keeps_locals", is_flag=True, help="Keep and show the variables of its own stuck frames."
)
PID = click.argument("pid", required=False, type=click.IntRange(min=1))
SLURM = click.option(
    "--slurm", metavar="JOBID", help="A job of Slurm that runs, on all of its nodes, instead of a PID."
)
FILES = click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))

SEED = click.IntRange(0, 2**63 - 1)
DURATION = Duration()
VARIABLE = Assignment(example="NCCL_DEBUG=INFO")
PLACE = Assignment(example="n_layers=4, for {n_layers} in the command")
SETTING = Assignment(example="model.dim=256, or n_layers=4 for {n_layers} in a command")


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
