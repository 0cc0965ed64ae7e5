"""nsa-harness bisect, minimise, explore: from which value on, with which settings, in which combinations it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli import complete
from harness.cli.exit_codes import SEARCH
from harness.cli.fitting import say
from harness.cli.foreign import COMMAND, WithCommand
from harness.cli.matrix_options import BAD, EXIT_CODES, asking, searching
from harness.core.errors import CommandError

BISECT_EXAMPLES = """\b
Examples:
  nsa-harness bisect --axis n_layers
  nsa-harness bisect --axis n_layers=1..24 --attention dense
  nsa-harness bisect --axis n_layers --fault 'backward-deadlock@n_layers>=5'
  nsa-harness bisect --axis n_layers --attention legacy-sequential \\
                     --seq-len 512 --total 20s
  nsa-harness bisect matrices/layers.yaml
  nsa-harness bisect --axis layers=1..12 -- python train.py --layers {layers}
  nsa-harness bisect --axis mode=single,ddp,fsdp --set amp=1 \\
                     -- python train.py --mode {mode} {amp:--amp}
  nsa-harness bisect matrices/backward_layers.yaml::layers
  nsa-harness bisect --axis commit=v1..HEAD -- python train.py
  nsa-harness bisect --axis env:torch=/venv/a/bin/python,/venv/b/bin/python \\
                     -- {python} train.py
  nsa-harness bisect --axis n_layers --on slurm:gpu --nodes 4 --gres gpu:1
  nsa-harness bisect --from-run latest --cell n_layers=8,share=1 \\
                     --axis n_layers
  nsa-harness bisect --resume

"""


def _one_axis(_: click.Context, __: click.Parameter, axes: tuple[str, ...]) -> str | None:
    """The axis that is searched along, if one was named; CommandError where there are several."""
    if len(axes) > 1:
        names = " and ".join(text.partition("=")[0].strip() for text in axes)
        raise CommandError(
            f"bisect takes one --axis, not {names}: hold the others with --set NAME=VALUE, or ask a command that "
            "takes several: minimise (which of them the failure needs), explore (every pair), matrix run (every cell)"
        )
    return axes[0] if axes else None


@click.command(cls=WithCommand, epilog=BISECT_EXAMPLES + SEARCH, options_metavar="[OPTIONS] [-- COMMAND...]")
@click.argument("file", required=False, metavar="[FILE[::SEARCH]]", type=click.Path(path_type=Path))
@click.option(
    "--axis",
    multiple=True,
    callback=_one_axis,
    metavar="NAME[=VALUES]",
    shell_complete=complete.axes,
    help="What to vary, one axis: n_layers, n_layers=1..24, mode=single,ddp,fsdp.",
)
@click.option("--attention", type=click.Choice(["nsa", "dense", "legacy-sequential"]), help="Attention of the model.")
@click.option("--seq-len", type=click.IntRange(min=1), help="Tokens in a sequence.")
@BAD
@click.option("--certify", type=click.IntRange(min=1), help="Passes asked of the last good value (default: by cost).")
@click.option(
    "--soft-limit/--no-soft-limit",
    default=None,
    help="End trials at a few times a pass's time; run only the value that decides to its whole limit.",
)
@click.option("--check-above", type=click.IntRange(min=0), help="Look at so many values above the first failing one.")
@click.option("--control", "controls", multiple=True, help="no-fault, dense or none (default: what fits the question).")
@click.option(
    "--from-run",
    metavar="RUN",
    shell_complete=complete.runs,
    help="Ask about a cell of this run of a matrix; with --cell.",
)
@click.option(
    "--cell",
    metavar="AXIS=V,..",
    shell_complete=complete.cells,
    help="From the good cell to this one, along --axis or what differs.",
)
@asking
@click.option("--list-axes", is_flag=True, help="Every axis there is.")
@click.option("--list-faults", is_flag=True, help="Every fault that can be planted.")
@click.pass_context
def bisect(ctx: click.Context, **options: Any) -> None:
    """Find from which value of an axis on training fails, or that none does.

    Small values first: a pass costs seconds, a hang costs a whole limit. The last passing value must then pass
    often enough to rule out a rare failure, and the failing one is run until it fails again. Limits are learned from
    trials that passed; a limit that ran out is never by itself a hang.

    Trials of earlier runs in the same place count where the question, the code and the machine are the same, and are
    named as such; --fresh runs all anew.

    With COMMAND behind --, any program is asked: the axis is declared with its values, and its {name} stands in the
    command line. Words and flags are searched in the order in which they are given. Progress is seen as for
    "nsa-harness run". Its earlier trials count with --reuse only: whether the program is still the same is not known
    here.
    """
    if options["list_axes"] or options["list_faults"]:
        _print_tables(axes=options["list_axes"], faults=options["list_faults"])
        return
    from harness.cli.campaigns import answer
    from harness.cli.questions import question_of_bisect

    answer(ctx, options, lambda settings: question_of_bisect(settings, options, ctx.meta[COMMAND]))


def _print_tables(*, axes: bool, faults: bool) -> None:
    if axes:
        from harness.spec.axes import AXES

        for axis in AXES.values():
            values = f"{axis.values[0]}..{axis.values[-1]}"
            say(f"{axis.name:<12} {axis.path:<20} {values:<12} {axis.help}")
    if faults:
        from harness.specimens.catalog import SPECIMENS

        for name in SPECIMENS:
            specimen = SPECIMENS.load(name)
            say(f"{name:<18} {specimen.expect:<11} {specimen.imitates}")


EXAMPLES = """\b
Examples:
  nsa-harness minimise matrices/safe_mode.yaml::cause
  nsa-harness minimise matrices/safe_mode.yaml --bad-cell n_layers=12
  nsa-harness minimise --axis n_layers=1..8 --axis seq_len=64..512*2 \\
                       --axis tied_head=false,true \\
                       --fault 'backward-deadlock@n_layers>=5,seq_len>=256'
  nsa-harness minimise -- python train.py {amp:--amp} {overlap:--overlap}
  nsa-harness minimise --axis mode=single,ddp --set amp=1 --total 10m \\
                       -- NCCL_P2P_DISABLE={p2p:1} python train.py \\
                          mode={mode} amp={amp} {compile:model.compile=true}
  nsa-harness minimise --resume
\b
Behind --, a word with {amp:--amp} is there or not, {amp:--amp|--no-amp} is
one or the other, {mode} is a value of --axis mode=.. or --set mode=..
NAME=value in front of the program are variables, as in a shell.

"""


@click.command(cls=WithCommand, epilog=EXAMPLES + EXIT_CODES, options_metavar="[OPTIONS] [-- COMMAND...]")
@click.argument("file", required=False, metavar="[FILE[::SEARCH]]")
@click.option("--good-cell", metavar="AXIS=V,..", help="A cell that passes (default: every good value).")
@click.option("--bad-cell", metavar="AXIS=V,..", help="A cell that fails (default: every bad value).")
@click.option("--all-causes", type=click.IntRange(min=1), metavar="N", help="Look for up to N causes (default: 1).")
@click.option(
    "--explain", type=click.IntRange(min=0), metavar="N", help="Try each cause N times with the rest at random."
)
@searching
@click.pass_context
def minimise(ctx: click.Context, *, file: str | None, **options: Any) -> None:
    """Find the settings that a failure needs, each with a certificate that without it the failure is gone.

    The failing cell is built up from the passing one, since a pass is cheap and a hang is not. Each single step back
    from the answer must then pass often enough to rule out a rare failure.

    With COMMAND behind --, any program is asked, and the answer ends with its own minimal command line, tried twice
    more before it is printed.
    """
    _answer(ctx, file, "minimise", options)


EXPLORE_EXAMPLES = """\b
Examples:
  nsa-harness explore matrices/safe_mode.yaml --strength 2
  nsa-harness explore matrices/safe_mode.yaml --stop-after-first
  nsa-harness explore --axis n_layers=1,4 --axis precision=fp32,bf16
  nsa-harness explore --axis mode=single,ddp \\
                      -- python train.py {amp:--amp} --mode {mode}
\b
What may stand behind -- is in nsa-harness minimise --help.

"""


@click.command(cls=WithCommand, epilog=EXPLORE_EXAMPLES + EXIT_CODES, options_metavar="[OPTIONS] [-- COMMAND...]")
@click.argument("file", required=False, metavar="[FILE[::SEARCH]]")
@click.option("--strength", type=click.IntRange(min=1), help="Try every combination of so many axes (default: 2).")
@click.option("--stop-after-first", is_flag=True, help="End when one cause is found.")
@searching
@click.pass_context
def explore(ctx: click.Context, *, file: str | None, **options: Any) -> None:
    """Cover every combination of so many axes with few cells; a cell that fails is minimised.

    What was found to be a cause is left out of all further cells, so that it neither costs a second hang nor hides
    another one.
    """
    _answer(ctx, file, "explore", options)


def _answer(ctx: click.Context, file: str | None, task: str, options: dict[str, Any]) -> None:
    """Run the search that the command line asks for, or go on with an earlier one."""
    from harness.cli.campaigns import answer
    from harness.cli.questions import question_of_search
    from harness.core.campaign import Task

    command = ctx.meta[COMMAND]
    answer(ctx, options, lambda settings: question_of_search(settings, file, Task(task), options, command=command))
