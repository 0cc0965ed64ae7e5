"""What the commands that take a stranger's command line have in common."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from harness.core.errors import SpecError
from harness.core.invocation import Invocation
from harness.core.point import as_typed
from harness.store.redact import redact_argv, remember, secret_settings, secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.core.point import Value
    from harness.store.run_store import RunStore


COMMAND, INVOCATION = "harness.cli.foreign.command", "harness.cli.foreign.invocation"


class RepeatableCommand(click.Command):
    """A command that can be asked again: ``ctx.meta[INVOCATION]`` holds what was typed, in its parts."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note the parts, then as click does."""
        ctx.meta[INVOCATION] = invocation_of(self, ctx, args)
        return super().parse_args(ctx, args)


class WithCommand(click.Command):
    """A command that takes a stranger's command line behind ``--``; ``ctx.meta[COMMAND]`` holds it, empty without."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Part our own arguments from the stranger's, and note both."""
        cut = args.index("--") if "--" in args else len(args)
        ours, theirs = args[:cut], args[cut + 1 :]
        ctx.meta[COMMAND] = tuple(theirs)
        ctx.meta[INVOCATION] = replace(invocation_of(self, ctx, ours), command=redact_argv(theirs))
        return super().parse_args(ctx, ours)


def invocation_of(command: click.Command, ctx: click.Context, args: Sequence[str]) -> Invocation:
    """``args`` in their parts, by the options that ``command`` declares; values that look secret are hidden."""
    values, _, order = command.make_parser(ctx).parse_args(args=list(args))
    remaining: dict[str, list[object]] = {name: list(_many(value)) for name, value in values.items() if _many(value)}
    options: list[tuple[str, str | None]] = []
    operands: list[str] = []
    for parameter in order:
        name = parameter.name
        if isinstance(parameter, click.Argument):
            operands += _words(values.get(name))
        if not isinstance(parameter, click.Option):
            continue
        if parameter.is_bool_flag:
            pair = (parameter.opts if values[name] else parameter.secondary_opts)[-1], None
        else:
            value = remaining[name].pop(0) if name in remaining else values[name]
            pair = parameter.opts[0], value if isinstance(value, str) else None
        if pair not in options or parameter.multiple:
            options.append(_hidden(*pair))
    # Where options end at the first argument, the arguments are a stranger's command line.
    invocation = Invocation(verb=_verb(ctx), options=tuple(options))
    if ctx.allow_interspersed_args:
        return replace(invocation, operands=redact_argv(operands))
    return replace(invocation, command=redact_argv(operands))


def _words(value: object) -> list[str]:
    """What was given for an argument: nothing, a word or several."""
    return [word for word in (_many(value) or [value]) if isinstance(word, str)]


def _hidden(name: str, value: str | None) -> tuple[str, str | None]:
    return (name, None) if value is None else (name, redact_argv((name, value))[1])


def _verb(ctx: click.Context) -> tuple[str, ...]:
    if ctx.parent is None or ctx.parent.parent is None:
        return (str(ctx.info_name),)
    return (*_verb(ctx.parent), str(ctx.info_name))


def command_line() -> tuple[str, ...]:
    """What was typed, ready to be shown and run again; values of secret-looking variables are hidden."""
    return redact_argv(("nsa-harness", *sys.argv[1:]))


def write_report(store: RunStore) -> None:
    """Write the report of an answer that is given; where that fails, a warning: the answer and its exit code hold."""
    from harness.core.errors import StoreError
    from harness.report.write import write

    try:
        write(store.run(), store.run_dir)
    except StoreError as error:
        click.echo(f"warning: the report is missing: {error.what or error}", err=True)
        click.echo(f"  next: {error.remedy}; then nsa-harness report {shlex.quote(str(store.run_dir))}", err=True)


def settings_of(command: Sequence[str], options: Mapping[str, Any]) -> dict[str, Value]:
    """The settings of a command line and of the options ``--steps``, ``--progress``, ``--progress-file`` and ``--set``.

    Raises:
        SpecError: a pattern that is no regular expression.
    """
    settings: dict[str, object] = {
        "command": shlex.join(command),
        "directory": str(Path.cwd()),
        "steps": options["steps"],
        "progress.pattern": pattern(options["progress"], option="--progress"),
        "progress.file": options["progress_file"],
    }
    plain: dict[str, Value] = {name: value for name, value in settings.items() if isinstance(value, int | str)}
    return plain | {f"args.{name}": value for name, value in pairs(options["values"]).items()}


def pattern(text: str | None, *, option: str) -> str | None:
    """``text`` when it is a regular expression, None when it is not given; SpecError with the reason otherwise."""
    try:
        re.compile(text or "")
    except re.error as error:
        raise SpecError(f"{option} {text!r} is no regular expression: {error}") from error
    return text


def patterns(texts: Sequence[str], *, option: str) -> tuple[str, ...]:
    """All of ``texts``, each checked."""
    for text in texts:
        pattern(text, option=option)
    return tuple(texts)


def pairs(assignments: Iterable[tuple[str, str]]) -> dict[str, Value]:
    """``--set`` options, each value as it was typed; what looks like a secret is shown nowhere."""
    entries = tuple(assignments)
    remember(secret_settings(entries))
    return {name: as_typed(text) for name, text in entries}


def variables(assignments: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """``--env`` options; what looks like a secret among them is shown and written nowhere."""
    entries = tuple(assignments)
    remember(secrets(entries))
    return entries


def _many(value: object) -> tuple[object, ...]:
    """The parts of a value that has some, as click gives them."""
    return tuple(cast("Sequence[object]", value)) if isinstance(value, list | tuple) else ()
