"""Options that several commands share, and their types."""

from __future__ import annotations

from pathlib import Path

import click

from harness.spec.amounts import duration, shortened


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
