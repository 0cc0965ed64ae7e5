"""The command table; a command's module is imported only when it is chosen."""

from __future__ import annotations

import importlib
from typing import Any

import click

from harness import __version__
from harness.cli.streams import doors

COMMANDS = {
    "bisect": ("harness.cli.bisect:bisect", "Find from which value of an axis training fails."),
    "run": ("harness.cli.run:run", "Run any program supervised: progress, verdict, report."),
    "selftest": ("harness.cli.selftest:selftest", "Run every known fault here; expected verdict against got."),
    "matrix": ("harness.cli.matrix:matrix", "Show, check and run matrix files: many cells, each with its expectation."),
    "ci": ("harness.cli.ci:ci", "Write a CI workflow that runs matrix files; print a run as annotations."),
    "minimise": ("harness.cli.minimise:minimise", "Find the settings that a failure needs."),
    "explore": ("harness.cli.explore:explore", "Try every pair of settings; find what each failure needs."),
    "trial": ("harness.cli.trial:trial", "Run one cell; for git bisect run: 0 good, 1 bad, 125 skip."),
    "report": ("harness.cli.report:report", "Write the report of a run again, from its journal."),
    "classify": ("harness.cli.classify:classify", "Judge the recorded evidence of a run again."),
    "watch": ("harness.cli.watch:watch", "Judge a job that is already running: does it hang, where, which rank."),
    "guard": ("harness.cli.guard:guard", "Watch running jobs for weeks; tell once of each hang, with its report."),
    "stacks": ("harness.cli.stacks:stacks", "Where every rank of a running job is, and whether it moves."),
    "recorder": ("harness.cli.recorder:recorder", "Where ranks part, from a folder of flight-recorder dumps."),
    "status": ("harness.cli.journal:status", "Where a run stands and what it asks next."),
    "log": ("harness.cli.journal:log", "Every event of a run."),
    "replay": ("harness.cli.journal:replay", "Play a run's journal through a fresh search; runs nothing."),
    "undo": ("harness.cli.journal:undo", "Take the last answers of a run back."),
    "skip": ("harness.cli.journal:skip", "Leave a cell out of a run."),
    "mark": ("harness.cli.journal:mark", "Say how a cell ends without running it."),
    "graph": ("harness.cli.journal:graph", "The cells that a run tried, as text or for Graphviz."),
    "fsck": ("harness.cli.fsck:fsck", "Prove that a run is as it was written; save what stands of a damaged one."),
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
            from harness.core.errors import suggestion

            raise click.UsageError(f"no such command {args[0]!r}{suggestion(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """As click does, with standard output and error that cannot end a run."""
        with doors() as out:
            try:
                return super().main(*args, **kwargs)
            finally:
                out.flush()
                if out.failure is not None and not isinstance(out.failure, BrokenPipeError):
                    from harness.cli.failures import tell
                    from harness.core.errors import StoreError

                    lost = f"standard output could not be written: {out.failure.strerror}"
                    raise SystemExit(tell(StoreError(lost)))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; whatever ends it becomes a message, the next step, and an exit code that says so."""
        from harness.cli.failures import short, tell  # before the command: when it fails, no file may be left to open

        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if short(error.message) == error.message:
                raise
            raise click.UsageError(short(error.message), error.ctx) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a mistake of ours must not look like an answer
            ctx.exit(tell(error))


EPILOG = """\b
Examples:
  nsa-harness bisect --axis n_layers
  nsa-harness bisect --axis n_layers --fault 'backward-deadlock@n_layers>=5'
  nsa-harness run -- torchrun --nproc-per-node 2 train.py
  nsa-harness selftest
\b
Exit codes are in the --help of each command. The same everywhere: 70 is a
mistake of ours and never an answer, 130 is Ctrl-C.
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
