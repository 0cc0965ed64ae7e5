"""Whether whoever began a program had asked how it ends: then its failure is an answer, with which the rest went on.

``if python -c 'import x' 2>/dev/null; then`` asks, and so does ``python probe.py || true``. ``python train.py; echo``
does not, nor does a pipe, whose status is that of its last command.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.observe.proc import script_of
from harness.observe.procfs import Files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ASKING = frozenset({"if", "elif", "while", "until"})
_BEGIN = frozenset({"then", "do", "else", "{", "(", "time"})
_END = frozenset({"\n", ";", ";;", "&", "&&", "|", "||", "|&", ")"})
"""What stands between two commands of a shell."""

_IGNORED = re.compile(r"^make(\[\d+\])?: \[.*\] Error \d+ \(ignored\)$", re.MULTILINE)
"""What make says of a command behind ``-``."""

THROWN_AWAY = "its standard error was thrown away (2>/dev/null)"
OF_MAKE = "make ignored it (`-` before the command)"


class _Command(NamedTuple):
    """One command of a script: its words, the operator behind it, and the word that asks for its status, if any."""

    words: tuple[str, ...]
    behind: str
    asking: str


def how_asked(begun: Mapping[str, Any]) -> str:
    """What shows that the failure of a program had been asked for, by what its process wrote of its beginning.

    Empty where nothing does, and where no program came behind it: what failed was the work then.
    """
    if not begun.get("followed"):
        return ""
    shell, words = begun.get("shell") or (), begun.get("words") or ()
    folder = Path(begun.get("folder") or "/")
    script = script_of(shell, lambda file: Files("/").script(str(folder / file)))
    word = asks_for(script, words) if words else ""
    if word:
        return f"its shell asks for its status (`{word}`)"
    return THROWN_AWAY if begun.get("unheard") else ""


def ignored_by_make(output: str) -> str:
    """That make said of a failure that it goes on; empty where it did not."""
    return OF_MAKE if _IGNORED.search(output) else ""


def asks_for(script: str, words: Sequence[str]) -> str:
    """The word by which a shell's script asks for the status of every command that ends in ``words``; else empty."""
    asking = ""
    for command in _commands(script):
        if not _holds(command.words, words):
            continue
        asking = command.asking or ("||" if command.behind == "||" else "")
        if not asking or command.behind in ("|", "|&", "&"):
            return ""
    return asking


def _holds(command: Sequence[str], words: Sequence[str]) -> bool:
    """Whether ``words`` stand in ``command`` one behind the other."""
    return any(tuple(command[at : at + len(words)]) == tuple(words) for at in range(len(command)))


def _commands(script: str) -> list[_Command]:
    commands: list[_Command] = []
    words: list[str] = []
    asking = ""
    for token in _tokens(script):
        if token in _END:
            negated = words[:1] == ["!"]
            if words:
                commands.append(_Command(tuple(words), token, "!" if negated else asking))
            words = []
        elif not words and token in _ASKING:
            asking = token
        elif not words and token in _BEGIN:
            asking = ""
        else:
            words.append(token)
    return commands


def _tokens(script: str) -> list[str]:
    """The words and operators of a script; a line that ends within quotes is read together with the next."""
    tokens: list[str] = []
    lines = ""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(f"{lines}{line}", posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        try:
            tokens += [*lexer, "\n"]
        except ValueError:
            lines += f"{line}\n"
        else:
            lines = ""
    return tokens
