"""Text for a terminal's width: a terminal breaks long lines in the middle of a word, here they break between words.

One place for all commands, of few imports: a list of runs is printed by it, too.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

HANGING = "    "
"""How much further the rest of a broken line stands to the right."""

MORE = " .."
"""In place of the words that a line has no room for."""

_BETWEEN = re.compile(r"(?<!\s)(?=\s)|(?<=,)(?=[^\d\s])")
"""Where a line may be broken: before a blank, and within the settings of a cell, which has none, after a comma."""


def fitting(text: str, *, to: TextIO) -> str:
    """``text`` with its lines broken between words where ``to`` is a terminal; as it is elsewhere."""
    if not to.isatty():
        return text
    columns = _columns()
    return "\n".join(_broken(line, columns) for line in text.split("\n"))


def for_reading(text: str, *, to: TextIO) -> str:
    """The same for what a person reads, and nobody searches line by line: also elsewhere, where COLUMNS is set."""
    from harness.settings import columns_asked_for

    columns = columns_asked_for()
    if columns is None or to.isatty():
        return fitting(text, to=to)
    return "\n".join(_broken(line, columns) for line in text.split("\n"))


def in_one_line(text: str, *, to: TextIO) -> str:
    """``text``, a line, as whole words that fit where ``to`` is a terminal, and `` ..`` for the others."""
    if not to.isatty() or "\n" not in _broken(text, _columns()):
        return text
    return _broken(text, _columns() - len(MORE)).partition("\n")[0] + MORE


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


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
