"""Claims: a linter for the words of reports. Observed, reproduced and isolated are the strongest there are."""

from __future__ import annotations

import re

TOO_STRONG = re.compile(
    r"\b(confirm(?:ed|s|ation)?|definitive(?:ly)?|prove[dns]?|root[ -]causes?|fundamental(?:ly)?|undoubted(?:ly)?"
    r"|certainly|obviously|guarantee[ds]?)\b",
    re.IGNORECASE,
)
"""Words that a report of trials cannot earn: they name a cause, or leave no room for another explanation."""

_QUOTED = re.compile(r"(?P<ticks>`+).+?(?P=ticks)")


def lint(text: str) -> list[str]:
    """What ``text`` (Markdown) says more strongly than trials allow; empty when there is nothing.

    Code, inline or fenced, is quoted evidence and not looked at.
    """
    problems: list[str] = []
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        opening = re.match(r"\s*(`{3,}|~{3,})", line)
        if opening and not fence:
            fence = opening[1]
        elif fence:
            fence = "" if line.strip() == fence else fence
        else:
            problems += [
                f"line {number}: {match[0]!r} claims too much; say observed, reproduced or isolated"
                for match in TOO_STRONG.finditer(_QUOTED.sub("", line))
            ]
    return problems
