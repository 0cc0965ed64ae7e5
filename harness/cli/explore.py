"""nsa-harness explore: nothing is known to fail yet; try every pair of settings, then find what a failure needs."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.foreign import WithCommand
from harness.cli.matrix_options import EXIT_CODES, searching

EXAMPLES = """\b
Examples:
  nsa-harness explore matrices/safe_mode.yaml --strength 2
  nsa-harness explore matrices/safe_mode.yaml --stop-after-first
  nsa-harness explore --axis n_layers=1,4 --axis precision=fp32,bf16
  nsa-harness explore --axis mode=single,ddp \\
                      -- python train.py {amp:--amp} --mode {mode}
\b
What may stand behind -- is in nsa-harness minimise --help.

"""


@click.command(cls=WithCommand, epilog=EXAMPLES + EXIT_CODES, options_metavar="[OPTIONS] [-- COMMAND...]")
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
    from harness.cli.searches import EXPLORE, run_search

    run_search(ctx, file, EXPLORE, options)
