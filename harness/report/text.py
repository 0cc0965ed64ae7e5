"""Text: numbers with their units, GitHub-flavoured Markdown, and quoting of what other programs said."""

from __future__ import annotations

import re
import textwrap
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from harness.core.point import word_of
from harness.report.clean import clean

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from pathlib import Path

WIDEST, NARROWEST = 80, 24
"""How many columns the text for a terminal fills at most, and what it needs."""

_width: ContextVar[int] = ContextVar("width", default=WIDEST)

_MARKUP = re.compile(r"[\\`*|]|<(?=[A-Za-z/!?])|\[(?=[^\]]*\][(\[])")
_BETWEEN_SETTINGS = re.compile(r"([ \t\n]+|(?<=,)(?=[a-z_]))")
_LIBRARY = re.compile(r"^.*/(?:site-packages|dist-packages|python3\.\d+)/")
_PACKAGE = re.compile(r"^.*/((?:harness|nsa)/.*)$")


def seconds(value: float) -> str:
    """A duration that can be read at a glance: ``0.042 s``, ``7.3 s``, ``2 min 5 s``, ``3 h 4 min``."""
    if value < 0.0995:
        return f"{value:.3f} s"
    if value < 10:
        return f"{value:.1f} s" if value >= 0.995 else f"{value:.2f} s"
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size(value: int) -> str:
    """Bytes in binary units: ``412 MiB``."""
    amount, unit = float(value), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"


def count(number: int, noun: str) -> str:
    """``1 trial``, ``2 trials``, ``2 processes``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}es" if noun.endswith("s") else f"{number} {noun}s"


def listed(items: Iterable[object], *, most: int = 12) -> str:
    """``1, 2, 3``; with more than ``most`` items the rest is counted."""
    texts = list(map(word_of, items))
    head = ", ".join(texts[:most])
    return f"{head} and {len(texts) - most} more" if len(texts) > most else head


def how_many(counts: Iterable[tuple[object, int]]) -> str:
    """``3 PASS, 1 HANG``, from the words with their numbers."""
    return listed(f"{number} {word}" for word, number in counts)


def bullets(texts: Iterable[str]) -> str:
    """A list of ``texts``, which are Markdown already."""
    return "\n".join(f"- {text}" for text in texts)


def ranges(values: Sequence[object]) -> str:
    """Whole numbers with runs folded, ``6..12``; anything else as it is."""
    runs: list[list[int]] = []
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool):
            return listed(values)
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    texts: list[str] = []
    for run in runs:
        texts += [f"{run[0]}..{run[-1]}"] if len(run) > 2 else map(str, run)
    return ", ".join(texts)


def md(text: object) -> str:
    """``text`` as literal Markdown prose, on one line."""
    flat = " ".join(clean(word_of(text)).split())
    return _MARKUP.sub(lambda match: f"\\{match[0]}", flat)


def code(text: object) -> str:
    """``text`` as inline code."""
    flat = " ".join(clean(word_of(text)).split()).replace("|", "\\|")
    ticks = "`" * (1 + max(map(len, re.findall("`+", flat)), default=0))
    return f"{ticks}{flat}{ticks}" if len(ticks) == 1 else f"{ticks} {flat} {ticks}"


def fence(text: str, language: str = "text") -> str:
    """``text`` as a code block that nothing in it can close."""
    body = clean(text).strip("\n")
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", body)), default=0))
    return f"{ticks}{language}\n{body}\n{ticks}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[int] = ()) -> str:
    """A table; the columns numbered in ``right`` are right-aligned. Cells are Markdown already."""
    numeric = set(right)
    lines = [f"| {' | '.join(head)} |"]
    lines.append("|" + "|".join("--:" if i in numeric else ":--" for i in range(len(head))) + "|")
    lines += (f"| {' | '.join(map(str, row))} |".replace("\n", " ") for row in rows)
    return "\n".join(lines)


def details(summary: str, body: str) -> str:
    """A block that GitHub shows folded."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def short_path(path: str) -> str:
    """A source path as one would say it: ``torch/autograd/graph.py``, ``harness/worker/main.py``."""
    own = _PACKAGE.match(path)
    if own:
        return own[1]
    short = _LIBRARY.sub("", path)
    is_binary = ".so" in path or "." not in path.rpartition("/")[2]
    return short.rpartition("/")[2] if is_binary and short == path else short


def line_width() -> int:
    """How many columns a line may fill: 80, or as :func:`lines_of` says."""
    return _width.get()


@contextmanager
def lines_of(columns: int) -> Generator[None]:
    """Text is made in lines of at most so many columns, for a terminal that is narrower than 80."""
    before = _width.set(max(min(columns, WIDEST), NARROWEST))
    try:
        yield
    finally:
        _width.reset(before)


def wrap(text: str, *, width: int | None = None, indent: str = "", more: str | None = None) -> list[str]:
    """``text`` in lines of at most ``width`` columns, words whole; the name of a cell may part after a comma.

    ``more`` is the indent of all lines but the first, where that is another.
    """
    width = width or line_width()
    rest = indent if more is None else more
    wrapper = textwrap.TextWrapper(
        width, initial_indent=indent, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    if max(map(len, text.split()), default=0) > width - len(indent):
        wrapper.wordsep_simple_re = _BETWEEN_SETTINGS
    return wrapper.wrap(text)


def named_path(name: str, path: Path | str, *, width: int | None = None) -> list[str]:
    """``report: runs/x/report.md``, or the path in a line of its own: it cannot be broken and still be used."""
    one = f"{name}: {path}"
    return [one] if len(one) <= (width or line_width()) else [f"{name}:", f"  {path}"]


def command(argv: Sequence[str], *, width: int | None = None, indent: str = "") -> list[str]:
    """A command to copy: shell-quoted, continued with a backslash where it would be too wide."""
    import shlex

    return shell_lines(list(map(shlex.quote, argv)), width=width, indent=indent)


def shell_lines(words: Sequence[str], *, width: int | None = None, indent: str = "") -> list[str]:
    """As :func:`command`, of words that are quoted already."""
    width = width or line_width()
    lines: list[str] = []
    for word in _with_values(list(words)):
        if lines and len(lines[-1]) + 1 + len(word) <= width - 2:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{indent}    {word}" if lines else f"{indent}{word}")
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _with_values(words: list[str]) -> list[str]:
    """``words`` with each ``--option`` joined to the value after it, so that a line never ends between them."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and " " not in joined[-1] and not word.startswith("-"):
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined
