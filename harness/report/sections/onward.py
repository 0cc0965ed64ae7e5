"""What to do with a report: what this run cannot say, and the commands, ready to copy."""

from __future__ import annotations

import itertools
import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.cause import AxisFinding
from harness.core.command_line import at_commit, composed
from harness.core.dotted import leaves
from harness.core.point import assignment
from harness.core.ports import Block
from harness.report.clean import clean
from harness.report.findings import steps_of
from harness.report.next_steps import give_input, go_on, reproduce
from harness.report.summary import steps_of as next_of
from harness.report.text import bullets, code, command, count, details, fence, listed, md, ranges, shell_lines, wrap
from harness.report.words import at, certificate, lasted, not_searched, of, what_passes_miss
from harness.store import layout
from harness.store.redact import redact_text

if TYPE_CHECKING:
    from harness.core.campaign import OwnCommand, Variant
    from harness.report.findings import Findings
    from harness.report.words import NextStep


def own_commands_on_terminal(findings: Findings) -> list[str]:
    """What a terminal ends with; nothing where no command of a stranger failed."""
    lines: list[str] = []
    for own in findings.answer.commands:
        lines += ["", *wrap(f"{_head(own)}:")]
        lines += shell_lines(own.line, indent="  ")
        for variant in own.next_to:
            lines += wrap(clean(_next_to(variant, own)), indent="    ")
    return lines


def own_commands(findings: Findings) -> str:
    """The same for a page; empty where no command of a stranger failed."""
    parts: list[str] = []
    for own in findings.answer.commands:
        head = _head(own)
        lines = "\n".join(shell_lines(own.line))
        parts.append(f"{md(head[:1].upper() + head[1:])}:\n\n{fence(lines, 'bash')}")
        parts.append(bullets(md(_next_to(variant, own)) for variant in own.next_to))
    return "\n\n".join(filter(None, parts))


def _head(own: OwnCommand) -> str:
    count = own.count
    total = count.good + count.bad + count.unresolved
    again = f", {own.failed_again} of {own.tried_again} when tried again" if own.tried_again else ""
    return f"the program's own command line that fails, {own.verdict}, {count.bad} of {total}{again}"


def _next_to(variant: Variant, own: OwnCommand) -> str:
    count = variant.count
    total = count.good + count.bad + count.unresolved
    if count.bad:
        return f"fails less often {variant.change}: {count.bad} of {total}"
    return f"passes {variant.change}: {count.good} of {total}{what_passes_miss(count, failing=own.count)}"


MOST_COMBINATIONS = 10_000
"""Combinations that are held against the rules one by one."""


def not_tested_section(findings: Findings) -> Block | None:
    """Gaps first, then what would close them."""
    steps = next_of(findings)
    gaps = _gaps(findings) if findings.is_line else gaps_of_cells(findings)
    parts = [
        bullets(gaps),
        _never_varied(findings) if findings.is_line else "",
        "**What would decide next:**" if steps or findings.is_line else "",
        listed_steps(steps),
    ]
    return Block(title="Not tested", markdown="\n\n".join(filter(None, parts)))


def _gaps(findings: Findings) -> list[str]:
    run = findings.run
    name, values = md(run.axis.name), run.axis.values
    gaps: list[str] = []
    untried = not_searched(findings)
    if untried:
        gaps.append(f"{name} {md(ranges(untried))}: no trial. Nothing is claimed about them.")
    gaps.append(f"{name} below {values[0]} or above {values[-1]}: not asked for.")
    boundary = run.boundary
    once = [cell.value for cell in findings.along if len(cell) == 1]
    if once and certificate(findings) and boundary is not None:
        once = [value for value in once if values.index(value) < values.index(boundary.last_good)]
        rests = f"for a rare failure they rest on the passes at {boundary.last_good}"
        gaps += [f"{name} {md(ranges(once))}: one trial each; {rests}."] if once else []
    elif once:
        gaps.append(f"{name} {md(ranges(once))}: one trial each, so a rare failure there could have been missed.")
    if boundary is not None and boundary.excluded_rate and certificate(findings):
        rate = math.ceil(boundary.excluded_rate * 100 - 1e-9)
        gaps.append(f"{name} <= {boundary.last_good}: a failure in fewer than {rate} % of the runs is not ruled out.")
    steps = max(map(steps_of, run.records), default=0)
    if steps:
        gaps.append(f"Anything after step {steps}: the longest trial ended there.")
    gaps.append("Other machines, versions and seeds than those below.")
    return gaps


def _never_varied(findings: Findings) -> str:
    run = findings.run
    if not run.records:
        return ""
    config = leaves(run.records[0].trial.config)
    others = [assignment(name, value) for name, value in sorted(config.items()) if name != run.axis.path]
    if not others:
        return ""
    summary = f"{count(len(others), 'other setting')} had one value only; whether they matter is not known"
    return details(summary, listed(map(code, others), most=200))


def listed_steps(steps: tuple[NextStep, ...]) -> str:
    """The steps as a numbered list, each with its command."""
    items: list[str] = []
    for number, step in enumerate(steps, start=1):
        block = fence("\n".join(command(step.command)), "bash") if step.command else ""
        indented = "".join(f"\n   {line}" for line in block.splitlines())
        items.append(f"{number}. {md(step.text)}{indented}")
    return "\n".join(items)


def _coverage(findings: Findings, *, cells: int) -> str:
    """How many of the combinations were tried; those that the matrix's own rules forbid are no gap."""
    space = findings.run.spec.matrix.space
    along = [factor.axis.values for factor in space.factors]
    product = math.prod(map(len, along))
    if space.rules and product <= MOST_COMBINATIONS:
        allowed = 0
        for values in itertools.product(*along):
            allowed += space.broken(zip(space.names, values, strict=True)) is None
        if allowed == cells:
            return (
                f"All {count(cells, 'cell')} that the rules allow were tried; they forbid {product - allowed} others."
            )
    return f"{count(cells, 'cell')} of {product:,} combinations were tried; nothing is claimed about others."


def _single_trials(findings: Findings) -> list[str]:
    """That what was run only once says nothing of how often it fails."""
    once = list(map(len, findings.by_cell.values())).count(1)
    if not once:
        return []
    if findings.is_single:
        return ["It was run once: how often it fails is not known."]
    had = "1 cell had one trial" if once == 1 else f"{once} cells had one trial each"
    return [f"{had}, so a rare failure there could have been missed."]


def gaps_of_cells(findings: Findings) -> list[str]:
    """What a run over cells cannot say, a sentence each."""
    run = findings.run
    if findings.is_watched:
        return [f"It was watched for {lasted(run)}: what it did before and does since is not known."]
    gaps: list[str] = []
    if not findings.is_single:
        gaps.append(_coverage(findings, cells=len(findings.by_cell)))
    if findings.not_run:
        names = listed((result.name for result in findings.not_run), most=6)
        gaps.append(f"Asked for and not run: {md(names)}.")
    undecided = findings.axes_with(AxisFinding.UNTESTED)
    if undecided:
        gaps.append(f"Whether the failure depends on {md(listed(sorted(undecided)))} is not known (Hypotheses).")
    gaps += _single_trials(findings)
    steps = max(map(steps_of, run.records), default=0)
    if steps:
        gaps.append(f"Anything after step {steps}: the longest trial ended there.")
    gaps.append("Other machines, versions and seeds than those named here.")
    return gaps


def reproduce_section(findings: Findings) -> Block | None:
    """The exact command, what to expect of it, and how to continue this run or render it again."""
    own = own_commands(findings)
    again = fence("\n".join(command(reproduce(findings))), "bash")
    outside = "" if own else minimal(findings)
    parts = [own, again, expect(findings), outside, onward(findings)]
    return Block(title="Reproduce", markdown="\n\n".join(filter(None, parts)))


def onward(findings: Findings) -> str:
    """How to continue an unfinished run and render it again; of a bundle, how to check it in its folder."""
    run = findings.run
    where = folder_of(findings)
    if findings.is_passed_on:
        lines = [
            "# in this folder: compute every number and sentence of this page again from the evidence beside it",
            "nsa-harness report --verify .",
            "# judge the evidence again by the rules of today",
            "nsa-harness classify .",
        ]
        return fence("\n".join(lines), "bash")
    resume = ["# continue this run; finished trials are not run again", *command(go_on(findings).command)]
    lines = [
        *([] if run.is_whole or findings.is_single else resume),
        "# write this report again from the recorded evidence",
        *command(("nsa-harness", "report", where)),
    ]
    return fence("\n".join(lines), "bash")


def folder_of(findings: Findings) -> str:
    """The folder of a run, and its name without one; of a watched job as whoever finds the report must name it."""
    run = findings.run
    if not run.directory:
        return run.id
    return str(Path(run.directory).absolute()) if findings.answer.job is not None else run.directory


def minimal(findings: Findings) -> str:
    """The script that shows the failure without the harness and how often it did, or why there is none."""
    run = findings.run
    record = findings.subject
    if record is None:
        return "No trial failed, so there is no failure to show outside the harness." if run.records else ""
    if "watched" in record.trial.config:
        return "The job was watched, not started by the harness; how it was started is for whoever started it to know."
    if record.trial.target != "nsa":
        line = composed(record.trial.config, python=record.trial.python or "python", env=record.trial.env)
        words = at_commit(line, record.trial.commit)
        own = "\n".join(shell_lines(list(map(redact_text, words))))
        empty = ", with an empty standard input (`< /dev/null`)" if give_input(record) else ""
        return f"Outside the harness, the program's own command is the reproduction{empty}:\n\n{fence(own, 'bash')}"
    script, outcome = layout.repro(findings.run_dir), layout.repro(findings.run_dir, "json")
    if not (script.is_file() and outcome.is_file()) and findings.is_passed_on:
        return "The failure was not tried outside the harness."
    if not script.is_file() or not outcome.is_file():
        again = code(shlex.join(("nsa-harness", "report", folder_of(findings), "--repro")))
        return f"The failure was not tried outside the harness. {again} makes a script of it, and tries it twice."
    report = json.loads(outcome.read_text(encoding="utf-8"))
    text = f"**{md(report['sentence'][:1].upper() + report['sentence'][1:])}**"
    if findings.is_passed_on:  # it lies beside the page
        return f"{text} The script is [{code(script.name)}]({script.name})."
    return f"{text}\n\n{details(f'The script, {script.name}', fence(script.read_text(encoding='utf-8'), 'python'))}"


def expect(findings: Findings) -> str:
    """How long it took here, and how often the failure showed."""
    run = findings.run
    if findings.is_watched:
        return f"It was watched for {lasted(run)} here."
    text = f"It took {lasted(run)} here, with seed {run.spec.seed}."
    group = findings.failing if findings.is_line else None
    if group is not None:
        here = findings.at_value(group.value)
        text += f" At {md(at(findings, group.value))} the failure showed in {of(here.bad, len(here))}."
    return text
