"""The options that every command shares that runs a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.cli.options import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

REUSE = "Count trials of earlier runs, or none (default: searches of our trainer or of commits do)."

SHARED = (
    click.option("--budget", type=DURATION, help="End after this time, with a partial report."),
    click.option("--max-trials", type=click.IntRange(min=1), help="End after this many."),
    click.option("--jobs", type=click.IntRange(min=1), help="Trials at once (default: what the GPUs allow, else 1)."),
    click.option("--executor", metavar="NAME", help="How trials start: forkserver (default) or local."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything random."),
    click.option(
        "--resume", is_flag=False, flag_value="latest", metavar="[RUN]", help="Continue the last run, or RUN."
    ),
    click.option("--reuse/--fresh", default=None, help=REUSE),
    click.option("--runs", metavar="DIR", help="Where runs go (default: ./runs, or NSA_HARNESS_RUNS)."),
    click.option("--json", "as_json", is_flag=True, help="The whole run as JSON on standard output."),
)

SEARCHING = (
    click.option("--axis", "axes", multiple=True, metavar="NAME=V,..", help="Without FILE: an axis, good value first."),
    click.option("--fault", metavar="NAME[@COND,..]", help="Without FILE: plant a known fault."),
    click.option("--set", "held", multiple=True, metavar="PATH=V", help="Without FILE: hold a setting of the trainer."),
    click.option("--signature", metavar="NAME", help="Follow only the failure that the file calls NAME."),
    click.option("--bad", "bad_kinds", multiple=True, metavar="KIND", help="Follow any hang, crash, oom, ..."),
    click.option("--certify", type=click.IntRange(min=1), help="Passes of a certificate (default: by cost, 18 to 44)."),
    click.option("--dry-run", is_flag=True, help="Print the plan and its cost, run nothing."),
)


def shared(command: F) -> F:
    """``command`` with the options that say how trials are run."""
    return _with(command, SHARED)


def searching(command: F) -> F:
    """``command`` with the options that say what is searched, and how trials are run."""
    return _with(command, (*SEARCHING, *SHARED))


def _with(command: F, options: tuple[Callable[[F], F], ...]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


EXIT_CODES = """\b
Exit codes:
  0    answered and certified
  1    answered, but not certified
  2    wrong use: unknown option, axis or value, or an error in the file
  3    budget used up: the report is partial
  4    baseline not reproduced: the good corner fails, or the bad one passes
  6    the machine or the run directory is in the way
  130  interrupted; everything so far is kept, --resume continues
"""
