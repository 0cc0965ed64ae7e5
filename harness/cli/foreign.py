"""What the commands that take a stranger's command line have in common."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.core.errors import SpecError
from harness.store.redact import redact_argv

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.core.point import Value


COMMAND = "harness.cli.foreign.command"


class WithCommand(click.Command):
    """A command that takes a stranger's command line behind ``--``; ``ctx.meta[COMMAND]`` holds it, empty without."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Part our own arguments from the stranger's."""
        ours, theirs = args, []
        if "--" in args:
            cut = args.index("--")
            ours, theirs = args[:cut], args[cut + 1 :]
        ctx.meta[COMMAND] = tuple(theirs)
        return super().parse_args(ctx, ours)


def command_line() -> tuple[str, ...]:
    """What was typed, ready to be shown and run again; values of secret-looking variables are hidden."""
    return redact_argv(("nsa-harness", *sys.argv[1:]))


def settings_of(command: Sequence[str], options: Mapping[str, object]) -> dict[str, Value]:
    """The settings of a command line and of the options ``--steps``, ``--progress``, ``--progress-file`` and ``--set``.

    Raises:
        SpecError: a pattern that is no regular expression.
    """
    given: dict[str, object] = {
        "command": shlex.join(command),
        "directory": str(Path.cwd()),
        "steps": options["steps"],
        "progress.pattern": pattern(options["progress"], option="--progress"),
        "progress.file": options["progress_file"],
    }
    plain: dict[str, Value] = {name: value for name, value in given.items() if isinstance(value, int | str)}
    return plain | {f"args.{name}": value for name, value in pairs(options["values"]).items()}


def pattern(text: object, *, option: str) -> str | None:
    """``text`` when it is a regular expression, None when it is not given; SpecError with the reason otherwise."""
    if text is None:
        return None
    try:
        re.compile(str(text))
    except re.error as error:
        raise SpecError(f"{option} {str(text)!r} is no regular expression: {error}") from error
    return str(text)


def patterns(texts: object, *, option: str) -> tuple[str, ...]:
    """All of ``texts``, each checked."""
    checked = (pattern(text, option=option) for text in _many(texts))
    return tuple(text for text in checked if text is not None)


def pairs(assignments: object) -> dict[str, Value]:
    """``--set`` options: numbers become numbers, anything else stays text."""
    return {name: value_of(text) for name, text in _pairs(assignments)}


def variables(assignments: object) -> tuple[tuple[str, str], ...]:
    """``--env`` options."""
    return tuple(_pairs(assignments))


def value_of(text: str) -> Value:
    """A value as one types it: a whole number, a number, or text."""
    for kind in (int, float):
        if re.fullmatch(r"[+-]?(\d+|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)", text) and (kind is float or text.isdigit()):
            return kind(text)
    return text


def _pairs(assignments: object) -> Iterable[tuple[str, str]]:
    for pair in _many(assignments):
        if isinstance(pair, tuple) and len(pair) == 2:
            yield str(pair[0]), str(pair[1])


def _many(texts: object) -> tuple[object, ...]:
    return texts if isinstance(texts, tuple) else ()
