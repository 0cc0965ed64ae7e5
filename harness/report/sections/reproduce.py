"""Reproduce: the commands, ready to copy."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.command_line import at_commit, composed
from harness.core.ports import Block
from harness.report import own_command
from harness.report.next_steps import give_input, go_on, reproduce
from harness.report.text import code, command, details, fence, md, shell_lines
from harness.report.words import at, lasted, of
from harness.store import layout
from harness.store.redact import redact_text

if TYPE_CHECKING:
    from harness.report.findings import Findings


def section(findings: Findings) -> Block | None:
    """The exact command, what to expect of it, and how to continue this run or render it again."""
    own = own_command.markdown(findings)
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
