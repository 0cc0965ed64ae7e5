"""The command table; a command's module is imported only when it is chosen."""

from __future__ import annotations

import importlib
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from harness import __version__
from harness.cli.front import ABOUT, COMMANDS, EPILOG, help_text
from harness.cli.streams import standing
from harness.settings import completion_instruction

if TYPE_CHECKING:
    from collections.abc import Iterable

ERROR = "Error: "
"""What click puts before the message of a command that is wrongly used."""


INSTEAD = {
    "resume": "an option of the command that began the run, as in: nsa-harness bisect --resume",
    "list": "nsa-harness report --list",
    "index": "nsa-harness report --index",
    "verify": "nsa-harness report --verify",
    "compare": "nsa-harness report RUN --compare OTHER",
    "show": "nsa-harness matrix show",
    "lint": "nsa-harness matrix lint",
}
"""What is no command of its own, and where it is."""

ALIKE = ("--limit", "--total", "--timeout")
"""Names of the longest time that a program may take; each command has one of them at most."""


came: list[int] = []
"""Signals that were raised as interrupts since the command began to run."""


def interrupt(number: int, _: object) -> None:
    """Raise KeyboardInterrupt and note that: what is raised in a callback, such as each import makes, Python drops."""
    came.append(number)
    raise KeyboardInterrupt


HYPHEN = "\u2011"
"""One at which no line is broken, while a help is wrapped."""


class HelpFormatter(click.HelpFormatter):
    """Wraps a help between words only: click breaks an option or a name at its hyphens, too."""

    def write_text(self, text: str) -> None:
        """As click does."""
        super().write_text(text.replace("-", HYPHEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """As click does."""
        super().write_dl([(name, text.replace("-", HYPHEN)) for name, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """What was written, with hyphens as they are."""
        return super().getvalue().replace(HYPHEN, "-")


class HelpContext(click.Context):
    """A context whose help is wrapped between words."""

    formatter_class = HelpFormatter


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
        command = getattr(importlib.import_module(module), name)
        for one in (command, *getattr(command, "commands", {}).values()):
            one.context_class = HelpContext
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does, with the nearest command in the message."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from harness.core.errors import suggestion

            instead = f"; it is {INSTEAD[args[0]]}" if args[0] in INSTEAD else suggestion(args[0], COMMANDS)
            raise click.UsageError(f"no such command {args[0]!r}{instead}", ctx)
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        """The first help, without importing any command."""
        return help_text(shutil.get_terminal_size().columns)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """As click does, with standard output and error that cannot end a run."""
        if instruction := completion_instruction():
            from harness.cli.shells import refuse_others

            refuse_others(instruction)
        with standing():
            return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; whatever ends it becomes a message, the next step, and an exit code that says so.

        From here on, and not before, an interrupt may be raised (``ctx.obj``): click would end of one with 1.
        """
        # Before the command: when it fails, no file may be left to open.
        from harness.cli.exit_codes import short, tell
        from harness.cli.fitting import fitting
        from harness.cli.foreign import INVOCATION

        try:
            if ctx.obj is not None:
                ctx.obj()
            return super().invoke(ctx)
        except click.UsageError as error:
            if isinstance(error, click.NoSuchOption) and (alike := _alike(error)):
                here = f"No such option {error.option_name!r}; here it is {alike[0]}"
                raise click.UsageError(here, error.ctx) from error
            message = fitting(f"{ERROR}{short(error.message)}", to=sys.stderr).removeprefix(ERROR)
            if message == error.message:
                raise
            raise click.UsageError(message, error.ctx) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a mistake of ours must not look like an answer
            ctx.exit(tell(error, invocation=ctx.meta.get(INVOCATION)))


def _alike(error: click.NoSuchOption) -> list[str]:
    """What the command calls an option of ALIKE that it does not have; empty for any other option."""
    if error.ctx is None or error.option_name not in ALIKE:
        return []
    options: set[str] = set()
    for parameter in error.ctx.command.params:
        options.update(parameter.opts)
    return [option for option in ALIKE if option in options]


@click.group(cls=LazyGroup, help=ABOUT, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nsa-harness")
def main() -> None:
    """The command line."""
