"""Launcher: what torch's launcher prints beside its ranks: none of it is where a rank failed."""

from __future__ import annotations

import re

LAUNCHER = re.compile(r"(?:[IWEF]\d{4} \S+ +\d+ |[A-Z]+:)torch[./]distributed[./](?:elastic|run)\b")
"""How a line begins that torch's launcher prints; behind the one that names an exit status it only says so again."""


def before_launcher(text: str) -> list[str]:
    """The lines of what a program printed, without those of torch's launcher and its closing report of who failed."""
    lines: list[str] = []
    for line in text.splitlines():
        if not LAUNCHER.match(line):
            lines.append(line)
        elif "failed (exitcode" in line:
            break
    return lines
