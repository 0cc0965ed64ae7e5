"""Machine: where this was seen. Another machine may answer otherwise."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from harness.core.command_line import PYTHON, composed
from harness.core.errors import StoreError
from harness.core.ports import Block
from harness.report.text import code, listed, md, size, table
from harness.report.words import program_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.record import Machine
    from harness.core.trial import Trial
    from harness.report.findings import Findings

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?")


def section(findings: Findings) -> Block | None:
    """Hardware and versions; no host or user names."""
    run = findings.run
    machine = run.machine
    rows = [
        ("CPU", f"{md(machine.cpu)}, {machine.cores} cores usable"),
        ("memory", size(machine.memory_bytes)),
        ("GPU", md(", ".join(machine.gpus)) or "none"),
        ("system", f"{md(machine.platform)}, kernel {md(machine.kernel)}"),
        *_programs(findings),
        *(_shared(machine) if _is_shared(findings) else _apart(findings)),
        ("nsa-harness", code(run.code)),
    ]
    return Block(title="Machine", markdown=table(("", "version"), rows))


def _programs(findings: Findings) -> list[tuple[str, str]]:
    """The commit of the program, of each shard where they ran several; nothing where none was recorded."""
    run = findings.run
    if run.programs:
        return [(f"{md(shard.name)} ran", md(program_of(shard.program))) for shard in run.programs]
    return [("the program", md(program_of(run.program)))] if run.program else []


def _is_shared(findings: Findings) -> bool:
    """Whether all trials ran under the interpreter of the harness, so that its versions are theirs."""
    bundles = (findings.run.spec.matrix.base, *findings.run.spec.matrix.space.bundles)
    return findings.run.spec.matrix.target == "nsa" and not any(bundle.python for bundle in bundles)


def _shared(machine: Machine) -> list[tuple[str, str]]:
    packages = [(md(name), md(version)) for name, version in machine.packages if name != "torch"]
    return [("Python", md(machine.python)), ("torch", md(machine.torch)), *packages]


def _apart(findings: Findings) -> list[tuple[str, str]]:
    """What runs the program, as far as that is known, and beside it the versions that are only the harness's own."""
    machine = findings.run.machine
    own = ", ".join(f"{name} {version}" for name, version in (("Python", machine.python), *machine.packages))
    names = listed(map(code, _interpreters(findings)))
    program = f"{names}; its version and packages were not asked" if names else "not known"
    return [("the program's interpreter", program), ("the harness's own versions", md(own))]


def _interpreters(findings: Findings) -> list[str]:
    """What the commands of the trials begin with, where that is a Python; else the Pythons among the processes."""
    words: dict[str, None] = {}
    for trial in findings.trials:
        words |= dict.fromkeys(_first_word(trial.record.trial))
    return _pythons(words) or _pythons(_processes(findings))


def _pythons(words: Iterable[str]) -> list[str]:
    return [word for word in words if _PYTHON.fullmatch(word.rpartition("/")[2])]


def _processes(findings: Findings) -> dict[str, None]:
    """The names of the processes that were looked at in the trial that is told about, or in the last one."""
    record = findings.subject or next((trial.record for trial in reversed(findings.trials)), None)
    with suppress(StoreError):
        evidence = findings.evidence_of(record) if record else None
        return dict.fromkeys(look.command for look in evidence.processes) if evidence else {}
    return {}


def _first_word(trial: Trial) -> tuple[str, ...]:
    """What a trial's command begins with; nothing for a job that was only watched."""
    if trial.python is not None:
        return (trial.python,)
    if not {"command", "argv"} & trial.config.keys():
        return ()
    return composed(trial.config, python=PYTHON, env=trial.env).argv[:1]
