"""Text for a terminal's width: a terminal breaks long lines in the middle of a word, here they break between words.

What is made in lines is made at that width; a single line is broken here. One place for all commands, of few imports:
a list of runs is printed by it, too.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

HANGING = "    "
"""How much further the rest of a broken line stands to the right."""

CONTINUED = " \\"
"""At the end of a line of a shell's command that goes on in the next one."""

MORE = " .."
"""In place of the words that a line has no room for."""

_BETWEEN = re.compile(r"(?<!\s)(?=\s)|(?<=,)(?=[^\d\s])")
"""Where a line may be broken: before a blank, and within the settings of a cell, which has none, after a comma."""


def fitting(text: str, *, to: TextIO) -> str:
    """``text`` with its lines broken between words where ``to`` is a terminal; as it is elsewhere."""
    return _fitting(text, _columns()) if to.isatty() else text


def for_reading(make: Callable[[], str], *, to: TextIO) -> str:
    """What ``make`` returns for a person to read, made at the width of ``to``, or of COLUMNS where that is no terminal.

    Nobody searches it line by line.
    """
    from harness.report.text import lines_of
    from harness.settings import columns_asked_for

    columns = _columns() if to.isatty() else columns_asked_for()
    if columns is None:
        return make()
    with lines_of(columns):
        return _fitting(make(), columns)


def in_one_line(text: str, *, to: TextIO) -> str:
    """``text``, a line, as whole words that fit where ``to`` is a terminal, and `` ..`` for the others."""
    if not to.isatty() or "\n" not in _broken(text, _columns()):
        return text
    return _broken(text, _columns() - len(MORE)).partition("\n")[0] + MORE


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _fitting(text: str, columns: int) -> str:
    """``text`` with its lines broken, but for those of a command: it was made in lines, and runs only as it is."""
    lines: list[str] = []
    goes_on = False
    for line in text.split("\n"):
        is_command, goes_on = goes_on or line.endswith(CONTINUED), line.endswith(CONTINUED)
        lines.append(line if is_command else _broken(line, columns))
    return "\n".join(lines)


def _broken(line: str, columns: int) -> str:
    indent = line[: len(line) - len(line.lstrip())] + HANGING
    text, current = "", ""
    for piece in _BETWEEN.split(line):
        if current.strip() and len(current) + len(piece) > columns:
            text += f"{current}\n"
            current = indent + piece.lstrip()
        else:
            current += piece
    return text + current


def say(text: str) -> None:
    """``text`` on standard output, in lines that fit where it is a terminal."""
    import click

    click.echo(fitting(text, to=sys.stdout))
