"""Option types that several commands share."""

from __future__ import annotations

import re

import click

UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(click.ParamType):
    """Seconds, written 90, 90s, 1.5m or 2h."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of seconds; a usage error with an example otherwise."""
        if isinstance(value, int | float):
            return float(value)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?", value.strip())
        if not match or float(match[1]) <= 0:
            self.fail(f"{value!r} is not a duration; write 90s, 1.5m or 2h", param, ctx)
        return float(match[1]) * UNITS[match[2] or ""]


class Assignment(click.ParamType):
    """``path=value``, kept as text until the target says what type the path has."""

    name = "path=value"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The pair; a usage error with an example otherwise."""
        if isinstance(value, tuple):
            return value
        path, equals, text = value.partition("=")
        if not equals or not path.strip():
            self.fail(f"{value!r} is not path=value; write for example model.dim=256", param, ctx)
        return path.strip(), text.strip()


DURATION = Duration()
ASSIGNMENT = Assignment()
