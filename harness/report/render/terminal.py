"""Terminal: the answer in a few lines of at most 80 columns, without colour; whoever prints may add it by role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.report.campaign import own_command
from harness.report.campaign.next_steps import next_steps
from harness.report.clean import clean
from harness.report.facts import failing, is_line
from harness.report.sections import strip
from harness.report.summary import COMPARISON, notes_of
from harness.report.text import command, wrap
from harness.report.words import at, certificate, claim, grows, headline, planted, taken_over, tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.core.record import Run
    from harness.report.build import Report

WIDTH = 80


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text; ``role`` is answer, claim, strip, fact, next, path, command or blank."""

    role: str
    text: str


def lines(run: Run, report_path: Path, *, width: int = WIDTH) -> tuple[Line, ...]:
    """Answer, claim, strip, counts, scaling, what next, the report's path, the command to reproduce.

    Only a path or a single word of a command can be wider than ``width``: neither can be broken and still be used.
    """
    found = [Line("answer", text) for text in wrap(clean(headline(run)), width=width)]
    for sentence in (planted(run), claim(run), taken_over(run), certificate(run)):
        found += [Line("claim", text) for text in wrap(clean(sentence), width=width, indent="  ")]
    group = failing(run)
    if group is not None:
        story = f"{at(run, group.value)}, trial {group.first.number}: {clean(group.first.verdict.because)}"
        found += [Line("fact", text) for text in wrap(story, width=width, indent="  ")]
    found.append(Line("blank", ""))
    if run.records:
        found += [Line("strip", f"  {text}") for text in strip.text(run, width=width - 2).splitlines()]
        found += [Line("fact", text) for text in wrap(strip.legend(run).replace("`", ""), width=width, indent="  ")]
        found.append(Line("blank", ""))
    found += [Line("fact", text) for text in wrap(tally(run), width=width, indent="  ")]
    if run.boundary and run.boundary.fit and grows(run, run.boundary.fit) not in headline(run):
        found += [Line("fact", text) for text in wrap(grows(run, run.boundary.fit), width=width, indent="  ")]
    for note in notes_of(run):
        found += [Line("fact", text) for text in wrap(f"note: {clean(note)}", width=width, indent="  ")]
    for step in next_steps(run)[:1]:
        found += [Line("next", text) for text in wrap(f"next: {step.text}", width=width, indent="  ")]
        found += [Line("command", f"    {text}") for text in command(step.command, width=width - 4)]
    found += [Line("blank", ""), *_place("report", str(report_path), width)]
    return (
        *found,
        Line("fact", "reproduce:"),
        *(Line("command", f"  {t}") for t in command(run.argv, width=width - 2)),
    )


def of_report(report: Report, *, hide: Callable[[str], str] = lambda text: text) -> str:
    """Any report as a terminal shows it, hidden names and all."""
    from pathlib import Path

    run = report.run
    path = Path(run.directory) / "report.md"
    return hide(text(report, path)) + "\n"


def text(report: Report, report_path: Path, *, width: int = WIDTH) -> str:
    """The answer of a run in a few lines of at most ``width`` columns."""
    told, run = report.summary, report.run
    own = own_command.terminal(run, width=width)
    if is_line(run) and told.kind != COMPARISON:
        return "\n".join([*(line.text for line in lines(run, report_path, width=width)), *own])
    is_enough = told.is_said or told.tone == "good"
    found = wrap(clean(told.answer if is_enough else f"{told.verdict}. {told.answer}"), width=width)
    for sentence in (told.planted, *told.sure, told.judged):
        found += wrap(clean(sentence), width=width, indent="  ") if sentence not in told.answer else []
    for sentence in told.happened:
        found += wrap(clean(sentence), width=width, indent="  ")
    if run.records:
        found += wrap(f"{told.rank}, {clean(told.place)}", width=width, indent="  ")
    found += ["", *wrap(clean(told.tally), width=width, indent="  ")]
    for note in told.notes:
        found += wrap(f"note: {clean(note)}", width=width, indent="  ")
    for step in told.steps[:1]:
        found += wrap(f"next: {step.text}", width=width, indent="  ")
        found += [f"    {line}" for line in command(step.command, width=width - 4)]
    found += ["", *(line.text for line in _place("report", str(report_path), width)), "reproduce:"]
    return "\n".join([*found, *(f"  {line}" for line in command(run.argv, width=width - 2)), *own])


def _place(name: str, path: str, width: int) -> list[Line]:
    one = f"{name}: {path}"
    if len(one) <= width:
        return [Line("path", one)]
    return [Line("fact", f"{name}:"), Line("path", f"  {path}")]
