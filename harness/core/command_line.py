"""A program's own command line, with places for what is varied in it.

``{layers}`` becomes a value. A word with ``{amp:--amp}`` is there when ``amp`` is on and missing when it is off;
``{amp:--amp|--no-amp}`` is one or the other. ``NAME=value`` in front of the program are variables, as in a shell, and
follow the same rules. ``{{name}}`` is a plain ``{name}``; any other brace stays as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain, takewhile
from typing import cast

from harness.core.errors import CommandError
from harness.core.point import Value, word_of

PYTHON = "python"
"""``{python}`` is the interpreter of the trial; no axis can be called so."""

_NAME = r"[A-Za-z_]\w*"
_PLACEHOLDER = re.compile(
    rf"\{{\{{(?P<literal>{_NAME}(?::[^{{}}]*)?)\}}\}}"
    rf"|\{{(?P<name>{_NAME})(?::(?P<on>[^{{}}|]+)(?P<both>\|(?P<off>[^{{}}|]*))?)?\}}"
)
_NEARLY = re.compile(rf"(?<!\{{)\{{\s*({_NAME})\s*:\s*(--[\w-]+)\s*(?:\}}|$)")
"""What was meant for a flag's place and is none: ``{fast :--fast}``, ``{fast:--fast``."""

_THREE_WORDS = re.compile(rf"(?<!\{{)\{{({_NAME}):([^{{}}|]+\|[^{{}}|]*\|[^{{}}]*)\}}(?!\}})")
"""A place for a flag, which is on or off, with three words or more."""

_VARIABLE = re.compile(rf"{_NAME}=")
_OPTION = re.compile(r"--?[A-Za-z]")
_FLAGS = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A place in a command line: of a value, or of a flag that is there or not."""

    name: str
    is_flag: bool


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What is started: variables that are set for it, and its words."""

    variables: tuple[tuple[str, str], ...]
    argv: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Variables and words as a shell takes them, each quoted where it must be."""
        return (*(f"{name}={shlex.quote(value)}" for name, value in self.variables), *map(shlex.quote, self.argv))

    def __str__(self) -> str:
        return " ".join(self.words)


def placeholders(words: Iterable[str]) -> tuple[Placeholder, ...]:
    """The places in ``words``, in order, each name once.

    Raises:
        CommandError: one name is a value here and a flag there, or something is nearly a flag's place, or a flag has
            more words than one for on and one for off.
    """
    places: dict[str, Placeholder] = {}
    matches: list[re.Match[str]] = []
    for word in words:
        if several := _THREE_WORDS.search(word):
            raise CommandError(_three_words(several))
        nearly = _NEARLY.search(_PLACEHOLDER.sub("", word))
        if nearly is not None:
            raise CommandError(
                f"{nearly[0].strip()!r} is no place for a flag as it stands; write {{{nearly[1]}:{nearly[2]}}}"
            )
        matches += _PLACEHOLDER.finditer(word)
    for match in matches:
        name = match["name"]
        is_flag = match["on"] is not None
        if match["literal"] is not None or (name == PYTHON and not is_flag):
            continue
        place = Placeholder(name, is_flag=is_flag)
        if places.setdefault(name, place) != place:
            raise CommandError(
                f"{{{name}}} is a value in one place and a flag in another; give one of them another name"
            )
    return tuple(places.values())


def starts_interpreter(words: Iterable[str]) -> bool:
    """Whether ``words`` have the place ``{python}``, without which no interpreter that a trial names is ever run."""
    for match in chain.from_iterable(map(_PLACEHOLDER.finditer, words)):
        if match["name"] == PYTHON and match["on"] is None:
            return True
    return False


def variables_before(words: Iterable[str]) -> tuple[str, ...]:
    """The names of the variables in front of the program; they win over any that a trial sets besides."""
    return tuple(word.partition("=")[0] for word in takewhile(_VARIABLE.match, words))


def removable_variables(words: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Variables in front of the program that a flag leaves out when it is off, each with the flag's name."""
    variables: list[tuple[str, str]] = []
    for word in words:
        if not _VARIABLE.match(word):
            break
        places = _PLACEHOLDER.finditer(word)
        variables += [(word.partition("=")[0], m["name"]) for m in places if m["on"] is not None and m["both"] is None]
    return tuple(variables)


def flag(name: str, value: Value) -> bool:
    """Whether a flag is on, by a value as one types it; CommandError for any other."""
    word = str(value).lower()
    if word not in _FLAGS:
        raise CommandError(f"{name} is a flag, there or not, and cannot be {value!r}; give {name}=1 or {name}=0")
    return _FLAGS[word]


def composed(config: Mapping[str, object], *, python: str, env: Sequence[tuple[str, str]] = ()) -> CommandLine:
    """The command line of a trial's configuration: its ``command`` with the ``args`` put in, ``more`` behind it.

    ``env`` are variables that the trial sets besides; those in the command line win.
    """
    values = cast("Mapping[str, Value]", config.get("args") or {})
    if "argv" in config:  # a trial of an older version
        words = [python if word == "{python}" else str(word) for word in cast("Sequence[object]", config["argv"])]
    else:
        words: list[str] = []
        for word in shlex.split(str(config["command"])):
            words += _filled(word, values, python)
    assignments = list(takewhile(_VARIABLE.match, words))
    own = dict(word.split("=", 1) for word in assignments)
    more = map(str, cast("Sequence[object]", config.get("more") or ()))
    return CommandLine(variables=tuple({**dict(env), **own}.items()), argv=(*words[len(assignments) :], *more))


def difference(line: CommandLine, other: CommandLine) -> str:
    """What ``other`` has in place of what ``line`` has: ``without --overlap``, ``with --layers 4``.

    Empty where the two are alike, and where what differs is a bare word, of which nobody sees what it is for.
    """
    before, after = line.words, other.words
    parts: list[str] = []
    for change, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if change == "equal":
            continue
        words = before[i:j] if change == "delete" else after[k:m]
        option = after[k - 1] if change == "replace" and k else ""
        if _OPTION.match(option) and "=" not in option:
            words = (option, *words)
        if not _OPTION.match(words[0]) and "=" not in words[0]:
            return ""
        parts.append(f"{'without' if change == 'delete' else 'with'} {' '.join(words)}")
    return " and ".join(parts)


def at_commit(line: CommandLine, commit: str | None) -> tuple[str, ...]:
    """The words of ``line`` for a shell; with ``commit`` in a new worktree of it, the caller's own files untouched."""
    if commit is None:
        return line.words
    place = ("(d=$(mktemp -d)", "&&", "git", "worktree", "add", "--detach", '"$d"', shlex.quote(commit))
    return (*place, "&&", "cd", '"$d"', "&&", *line.words[:-1], f"{line.words[-1]})")


def _three_words(match: re.Match[str]) -> str:
    name, words = match[1], match[2].split("|")
    return (
        f"{match[0]!r} has {len(words)} words, and a flag has two, one for on and one for off; write {{{name}}} where "
        f"the value belongs and give the values with --axis {name}=FIRST,SECOND,THIRD; for a literal {match[0]} write "
        f"{{{match[0]}}}"
    )


def _filled(word: str, values: Mapping[str, Value], python: str) -> list[str]:
    """The words that one word becomes: one, none where its flag is off, several where a flag is a few words."""
    flags: list[re.Match[str]] = []
    for match in _PLACEHOLDER.finditer(word):
        if match["on"] is None:
            continue
        if match["both"] is None and not flag(match["name"], values[match["name"]]):
            return []
        flags.append(match)

    def put(match: re.Match[str]) -> str:
        name = match["name"]
        if match["literal"] is not None:
            return f"{{{match['literal']}}}"
        if match["on"] is not None:
            return match["on"] if flag(name, values[name]) else match["off"]
        return python if name == PYTHON else word_of(values[name])

    text = _PLACEHOLDER.sub(put, word)
    is_whole = len(flags) == 1 and flags[0].span() == (0, len(word))
    return shlex.split(text) if is_whole else [text]
