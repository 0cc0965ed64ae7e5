"""Claims: a linter for the words of reports. Observed, reproduced and isolated are the strongest there are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TOO_STRONG = re.compile(
    r"\b(?P<negated>(?:not|never|cannot be|nothing is|isn't|neither|un)[ -]?(?:yet )?)?"
    r"(?P<word>confirm(?:ed|s|ation|ing)?|definitive(?:ly)?|prove[dns]?|proving"
    r"|root[ -]causes?|culprits?|(?:is|are) (?:not )?caused by"
    r"|fundamental(?:ly)?|undoubted(?:ly)?|certainly|obviously|guarantee[ds]?"
    r"|validat(?:es|ion of) our|exactly as predicted|will always|only viable|only working"
    r"|(?:will never|never|cannot|can't) (?:hang|crash|fail|deadlock|stall)(?:s|es)?(?: again)?)\b",
    re.IGNORECASE,
)
"""Words that a report of trials cannot earn: they name a cause, or leave no room for another explanation.

That something never hangs is one; that it never hung is what was seen.
"""

UNTESTED = re.compile(
    r"needs? (?:a )?(?:re-?test|retesting)|not (?:yet )?(?:tested|tried|reached|measured|collected|run\b)|untested"
    r"|could not be collected|\bnever run\b|\bshould (?:complete|allow|work|proceed)|\bexpected\b[^.]{0,20}[<>]"
    r"|\blikely\b|\bhypothesis\b|\bif (?:this|successful|fsdp|multi-gpu)|\btest (?:with|if|without)\b"
    r"|\bmay (?:have|create|violate)\b|\bmight\b|\bsuspects?\b",
    re.IGNORECASE,
)
"""What a text says when a thing was not tried: a claim beside it rests on less than it says."""

_CAUSAL = re.compile(r"cause|culprit", re.IGNORECASE)
_QUOTED = re.compile(r"(?P<ticks>`+).+?(?P=ticks)")
_TARGET = re.compile(r"(?<=\])\([^()\s]*\)")
"""Where a link leads is a name that somebody gave a file, not a claim."""

_FENCE = re.compile(r"\s*(`{3,}|~{3,})(\w*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A word on a line that claims too much; ``untested_line`` is where the same text says what was not tried."""

    line: int
    word: str
    untested_line: int | None = None
    untested: str = ""

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"

    @property
    def what(self) -> str:
        """It without its line."""
        text = f"{self.word!r} claims too much; say observed, reproduced or isolated"
        if self.untested_line is None:
            return text
        return f"{text} (line {self.untested_line} says: {self.untested!r})"


def lint(text: str) -> list[str]:
    """What ``text`` (Markdown) says more strongly than trials allow; empty when there is nothing.

    Inline code and code blocks with a language are quoted evidence and not looked at. That something is not
    confirmed or not proven may be said; that something is or is not the cause is a claim either way.
    """
    return list(map(str, problems(text)))


def problems(text: str) -> list[Problem]:
    """As :func:`lint`, each with its line and the nearest line that says what was not tried."""
    prose = _prose(text)
    untested = list(_matches(UNTESTED, prose))
    overstatements: list[Problem] = []
    for number, match in _matches(TOO_STRONG, prose):
        if match["negated"] and not _CAUSAL.search(match["word"]):
            continue
        line, near = min(untested, key=lambda item: abs(item[0] - number), default=(None, [""]))
        overstatements.append(Problem(line=number, word=match["word"], untested_line=line, untested=near[0]))
    return overstatements


def _matches(pattern: re.Pattern[str], prose: list[tuple[int, str]]) -> Iterator[tuple[int, re.Match[str]]]:
    for number, line in prose:
        for match in pattern.finditer(line):
            yield number, match


def _prose(text: str) -> list[tuple[int, str]]:
    """The numbered lines outside quoted evidence."""
    lines: list[tuple[int, str]] = []
    fence, quoted = "", False
    for number, line in enumerate(text.splitlines(), start=1):
        opening = _FENCE.match(line)
        if opening and not fence:
            fence, quoted = opening[1], bool(opening[2])
        elif fence and line.strip() == fence:
            fence, quoted = "", False
        elif not quoted:
            lines.append((number, _TARGET.sub("", _QUOTED.sub("", line))))
    return lines
