"""The command table; a command's module is imported only when it is chosen."""

from __future__ import annotations

import importlib
import shutil
import sys
import textwrap
from typing import Any

import click

from harness import __version__
from harness.core.errors import CleanupError, HarnessError, LaunchError, StoreError, suggestion

COMMANDS = {
    "bisect": ("harness.cli.bisect:bisect", "Find from which value of an axis training fails."),
    "run": ("harness.cli.run:run", "Run any program supervised: progress, verdict, report."),
    "selftest": ("harness.cli.selftest:selftest", "Run every known fault here; expected verdict against got."),
    "matrix": ("harness.cli.matrix:matrix", "Show, check and run matrix files: many cells, each with its expectation."),
    "minimise": ("harness.cli.minimise:minimise", "Find the settings that a failure needs."),
    "explore": ("harness.cli.explore:explore", "Try every pair of settings; find what each failure needs."),
    "trial": ("harness.cli.trial:trial", "Run one cell; for git bisect run: 0 good, 1 bad, 125 skip."),
    "report": ("harness.cli.report:report", "Write the report of a run again, from its journal."),
    "classify": ("harness.cli.classify:classify", "Judge the recorded evidence of a run again."),
    "watch": ("harness.cli.watch:watch", "Judge a job that is already running: does it hang, where, which rank."),
    "stacks": ("harness.cli.stacks:stacks", "Where every rank of a running job is, and whether it moves."),
    "status": ("harness.cli.journal:status", "Where a run stands and what it asks next."),
    "log": ("harness.cli.journal:log", "Every event of a run."),
    "replay": ("harness.cli.journal:replay", "Play a run's journal through a fresh search; runs nothing."),
    "undo": ("harness.cli.journal:undo", "Take the last answers of a run back."),
    "skip": ("harness.cli.journal:skip", "Leave a cell out of a run."),
    "mark": ("harness.cli.journal:mark", "Say how a cell ends without running it."),
    "graph": ("harness.cli.journal:graph", "The cells that a run tried, as text or for Graphviz."),
    "doctor": ("harness.cli.doctor:doctor", "Check this machine: py-spy, ptrace, bytecode, leftovers."),
}


class LazyGroup(click.Group):
    """A group whose commands live in modules of their own, named in COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the chosen command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does, with the nearest command in the message."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no such command {args[0]!r}{suggestion(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; our own errors become a message, the next step, and an exit code."""
        try:
            return super().invoke(ctx)
        except HarnessError as error:
            click.echo(_fitting(f"nsa-harness: {error}\n  next: {error.help}"), err=True)
            ctx.exit(6 if isinstance(error, StoreError | LaunchError | CleanupError) else 2)


def _fitting(text: str) -> str:
    """``text`` with its lines broken between words where a terminal would break words; for a pipe as it is."""
    if not sys.stderr.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, columns, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )


EPILOG = """\b
Examples:
  nsa-harness bisect --axis n_layers
  nsa-harness bisect --axis n_layers --fault 'backward-deadlock@n_layers>=5'
  nsa-harness run -- torchrun --nproc-per-node 2 train.py
  nsa-harness selftest
\b
Shell completion, for this shell:
  eval "$(_NSA_HARNESS_COMPLETE=bash_source nsa-harness)"
"""


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nsa-harness")
def main() -> None:
    """Tell hung from slow from crashed, with evidence, and find where it begins.

    Runs training as supervised trials on this machine, captures the stacks before anything is ended, and answers
    no more strongly than the evidence carries. Needs no network and no GPU.
    """
