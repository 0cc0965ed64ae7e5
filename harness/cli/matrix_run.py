"""nsa-harness matrix run: run the cells of a matrix file and hold each against what was expected of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, cast

import click

from harness.cli import complete
from harness.cli.exit_codes import ExitCode
from harness.cli.foreign import COMMAND, WithCommand
from harness.cli.options import AXES, asking
from harness.core.matrix import MatrixStrategy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.campaign import CampaignSpec
    from harness.settings import Settings

EPILOG = """\b
Examples:
  nsa-harness matrix run matrices/backward_layers.yaml
  nsa-harness matrix run matrices/backward_layers.yaml \\
                         --only 'n_layers>=4' --only attention=nsa --repeat 3
  nsa-harness matrix run matrices/safe_mode.yaml --cell n_layers=4,seq_len=256
  nsa-harness matrix run matrices/backward_layers.yaml::layers
  nsa-harness matrix run --axis layers=1,4,8 --repeat 3 \\
                         -- python train.py {amp:--amp} --layers {layers}
  nsa-harness matrix run --resume
\b
What may stand behind -- is in nsa-harness minimise --help.
\b
Exit codes:
  0    every cell ended as expected (a search: answered and certified)
  1    a cell did not; or a search's answer is not certified
  2    wrong use: unknown option, or an error in the file
  3    inconclusive, or budget used up: the report is partial
  4    baseline not reproduced (searches)
  5    no cell was selected
  6    the machine spoiled trials, or is in the way
  130  interrupted; everything so far is kept, --resume continues
"""


@click.command(
    "run",
    cls=WithCommand,
    epilog=EPILOG,
    options_metavar="[OPTIONS] [-- COMMAND...]",
    short_help="Run the cells of a file, a search beside it, or what is typed.",
)
@click.argument("file", required=False, metavar="[FILE[::SEARCH]]")
@AXES
@click.option(
    "--strategy",
    type=click.Choice([strategy.value for strategy in MatrixStrategy]),
    help="Which cells (default: the file's; full for what is typed).",
)
@click.option("--only", multiple=True, metavar="AXIS=VALUE", help="Only planned cells where this holds.")
@click.option(
    "--cell",
    "cells",
    multiple=True,
    metavar="AXIS=V,..",
    shell_complete=complete.cells,
    help="This cell, also one that is not planned.",
)
@click.option("--gpus", type=click.IntRange(min=0), help="Only cells that occupy so many GPUs.")
@click.option("--shard", metavar="K/N", help="Only the K-th of N equal parts of them.")
@click.option("--tag", "tags", multiple=True, help="Run nothing unless the file has this tag.")
@click.option("--repeat", type=click.IntRange(min=1), help="Run each cell so often (default: the file's passes).")
@click.option("--fail-fast", is_flag=True, help="Stop at the first cell that does not end as expected.")
@asking
@click.pass_context
def run(ctx: click.Context, *, file: str | None, **options: Any) -> None:
    """Run the cells of FILE, or the search named SEARCH beside it; or every combination of what is typed.

    Each cell is run as often as asked, round by round. A cell that would not pass within its limit even if it were
    healthy is skipped and says so: its limit could not tell slow from hung.
    """
    from harness.cli.campaigns import answer
    from harness.cli.questions import question_of_cells

    def question(settings: Settings) -> CampaignSpec:
        spec = question_of_cells(settings, file, options, command=ctx.meta[COMMAND])
        if spec is None:
            click.echo(f"no cell was selected{_why_none(file, options)}", err=True)
            ctx.exit(ExitCode.NOTHING)
        return spec

    answer(ctx, options, question)


def _why_none(file: str | None, options: Mapping[str, Any]) -> str:
    show = f"see cells and tags with: nsa-harness matrix show {shlex.quote(file)}" if file else ""
    choosing: list[str] = []
    for name, option in CHOOSING.items():
        choosing += [f"{option} {value}" for value in _several(options[name])]
    if choosing:
        return f" by {' '.join(choosing)}{show and f'; {show}'}"
    others = ", ".join(strategy for strategy in MatrixStrategy if strategy is not MatrixStrategy.LIST)
    return f": its strategy is list, and it includes none. Choose another with --strategy ({others}), or {show}"


CHOOSING = {"only": "--only", "cells": "--cell", "gpus": "--gpus", "shard": "--shard", "tags": "--tag"}
"""Options that leave cells out."""


def _several(value: object) -> tuple[object, ...]:
    """The values that an option was given, none or one or more."""
    if isinstance(value, tuple):
        return cast("tuple[object, ...]", value)
    return () if value is None else (value,)


def question_in(settings: Settings, file: str) -> CampaignSpec | None:
    """What ``matrix run FILE`` asks; None where its matrix plans no cell."""
    from harness.cli.questions import question_of_cells

    return question_of_cells(settings, file, run.make_context("run", [file]).params)
