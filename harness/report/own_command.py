"""The program's own command lines that fail, and what they are next to, for every form of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.clean import clean
from harness.report.text import bullets, fence, md, shell_lines, wrap
from harness.report.words import what_passes_miss

if TYPE_CHECKING:
    from harness.core.campaign import OwnCommand, Variant
    from harness.report.findings import Findings


def terminal(findings: Findings, *, width: int) -> list[str]:
    """What a terminal ends with; nothing where no command of a stranger failed."""
    lines: list[str] = []
    for command in findings.answer.commands:
        lines += ["", *wrap(f"{_head(command)}:", width=width)]
        lines += shell_lines(command.line, width=width, indent="  ")
        for variant in command.next_to:
            lines += wrap(clean(_next_to(variant, command)), width=width, indent="    ")
    return lines


def markdown(findings: Findings) -> str:
    """The same for a page; empty where no command of a stranger failed."""
    parts: list[str] = []
    for command in findings.answer.commands:
        head = _head(command)
        lines = "\n".join(shell_lines(command.line))
        parts.append(f"{md(head[:1].upper() + head[1:])}:\n\n{fence(lines, 'bash')}")
        parts.append(bullets(md(_next_to(variant, command)) for variant in command.next_to))
    return "\n\n".join(filter(None, parts))


def _head(command: OwnCommand) -> str:
    count = command.count
    total = count.good + count.bad + count.unresolved
    again = f", {command.failed_again} of {command.tried_again} when tried again" if command.tried_again else ""
    return f"the program's own command line that fails, {command.verdict}, {count.bad} of {total}{again}"


def _next_to(variant: Variant, command: OwnCommand) -> str:
    count = variant.count
    total = count.good + count.bad + count.unresolved
    if count.bad:
        return f"fails less often {variant.change}: {count.bad} of {total}"
    return f"passes {variant.change}: {count.good} of {total}{what_passes_miss(count, failing=command.count)}"
