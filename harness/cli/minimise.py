"""nsa-harness minimise, explore: what does a failure need of all that differs; what fails where nothing is known to?"""

from __future__ import annotations

from typing import Any

import click

from harness.cli.foreign import COMMAND, WithCommand
from harness.cli.options import EXIT_CODES, searching

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
