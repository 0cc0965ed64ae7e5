"""What was run on what: kernels, what was held as it is, the machine; and what people wrote beside it."""

from __future__ import annotations

import json
import re
from itertools import starmap
from typing import TYPE_CHECKING, Any

from harness.core.command_line import PYTHON, composed
from harness.core.point import assignment
from harness.core.ports import Block
from harness.report.claims import lint
from harness.report.clean import clean
from harness.report.text import code, count, details, fence, listed, md, seconds, size, table
from harness.report.words import program_of
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harness.core.record import Machine
    from harness.core.space import Factor
    from harness.core.trial import Trial
    from harness.report.findings import Findings


def notes_section(findings: Findings) -> Block | None:
    """``notes.md`` of the run, as it is; None without one. Words that claim too much are pointed at."""
    path = layout.notes(findings.run_dir)
    if not path.is_file():
        return None
    title, _, body = clean(path.read_text(encoding="utf-8", errors="replace")).strip().partition("\n")
    problems = lint(body)
    if problems:
        body += f"\n\n**These notes claim more than trials can show:** {md(listed(problems, most=5))}."
    return Block(title=title.lstrip("# "), markdown=body.strip())


def kernels_section(findings: Findings) -> Block | None:
    """The resolution tables that were seen, with the trials that had each; None when no trial told."""
    by_rows: dict[str, list[int]] = {}
    silent: list[int] = []
    for trial, evidence in findings.parts:
        rows = evidence.get("kernels")
        if rows:
            by_rows.setdefault(json.dumps(rows, sort_keys=True), []).append(trial.number)
        else:
            silent.append(trial.number)
    if not by_rows:
        return None
    is_alone = len(by_rows) == 1
    warning = "**The trials did not all run the same kernels:** compare them only with care."
    parts = [] if is_alone else [warning]
    parts += (_table(json.loads(rows), trials, alone=is_alone) for rows, trials in by_rows.items())
    if silent:
        parts.append(f"Not told by {count(len(silent), 'trial')}: {listed(silent)}.")
    return Block(title="Kernels", markdown="\n\n".join(parts))


def _table(rows: list[dict[str, Any]], trials: list[int], *, alone: bool) -> str:
    body = table(
        ("operator", "kernel", "why"),
        ((code(row.get("op", "?")), code(row.get("kernel", "?")), md(row.get("reason", "?"))) for row in rows),
    )
    who = f"In {count(len(trials), 'trial')}" + ("" if alone else f" ({listed(trials)})")
    return f"{who}:\n\n{body}"


def fixed_section(findings: Findings) -> Block | None:
    """What was varied over cells, what was held, then requested against effective; of a watched job nothing was."""
    if findings.is_watched:
        return None
    rows = [(md(name), text) for name, text in _settings(findings) if text]
    settings, echoed = table(("setting", "value"), rows), effective(findings)
    if not findings.is_line:
        parts = [_axes(findings), "The same in every cell:", settings, echoed]
        return Block(title="Varied and held", markdown="\n\n".join(filter(None, parts)))
    parts = [settings, echoed, _whole(findings)]
    return Block(title="Held fixed", markdown="\n\n".join(filter(None, parts)))


def _whole(findings: Findings) -> str:
    """The whole configuration of the first trial, folded; empty before there is one."""
    if not findings.trials:
        return ""
    config = json.dumps(findings.trials[0].record.trial.config, indent=1, sort_keys=True)
    varied = f"The whole configuration of trial 1; the search varied only {code(findings.run.axis.path)}"
    return details(varied, fence(config, "json"))


def _settings(findings: Findings) -> Iterator[tuple[str, str]]:
    """Each thing that was the same in every trial; an empty text for what there is nothing to say of."""
    spec, matrix, limits = findings.run.spec, findings.run.spec.matrix, findings.run.spec.matrix.limits
    env = [(f"env {name}", code(value)) for name, value in matrix.base.env]
    bad = md(", ".join(spec.bad_kinds)) if spec.bad_kinds else "the first kind of failure that shows up"
    yield "target", code(matrix.target)
    yield "command", code(" ".join(matrix.command)) if matrix.command else ""
    for name, value in matrix.base.config:
        yield name, code(value)
    yield from () if findings.is_line else env
    yield "planted fault", code(matrix.fault) if matrix.fault else "none"
    yield "counts as failing", bad if findings.is_line else ""
    yield "started by", md(spec.executor)
    yield "seed", str(spec.seed)
    yield from env if findings.is_line else ()
    for name, limit_s in (("startup", limits.startup_s), ("stall", limits.stall_s), ("total", limits.total_s)):
        yield f"{name} limit", "" if limit_s is None else seconds(limit_s)
    for rule in matrix.space.rules:
        yield "rule", md(rule)


def _axes(findings: Findings) -> str:
    """The axes, with what each value does."""
    rows: list[tuple[str, ...]] = []
    for factor in findings.run.spec.matrix.space.factors:
        values = md(listed(factor.axis.values))
        rows.append((code(factor.name), values, md(factor.good), md(factor.bad), _sets(factor)))
    return table(("axis", "values", "baseline", "the other end", "each value sets"), rows) if rows else ""


def _sets(factor: Factor) -> str:
    parts: list[str] = []
    for value, bundle in zip(factor.axis.values, factor.bundles, strict=False):
        words = (*starmap(assignment, (*bundle.config, *bundle.env)), *bundle.args)
        if words:
            parts.append(f"{md(value)}: {listed(map(code, words), most=4)}")
    return listed(parts, most=6) or "-"


def effective(findings: Findings) -> str:
    """Requested against effective, over all trials; only our own trainer says what it runs with."""
    if findings.run.spec.matrix.target != "nsa":
        return ""
    differing: dict[str, list[int]] = {}
    silent: list[int] = []
    agreed = 0
    for trial, evidence in findings.parts:
        differences: list[object] = evidence.get("config_differences") or []
        for difference in differences:
            differing.setdefault(str(difference), []).append(trial.number)
        if not evidence.get("config_seen"):
            silent.append(trial.number)
        elif not differences:
            agreed += 1
    return _echoed(len(findings.trials), agreed, differing, silent) if findings.trials else ""


def _echoed(total: int, agreed: int, differing: dict[str, list[int]], silent: list[int]) -> str:
    lines = [f"Requested against effective: the worker's own echo agrees in {agreed} of {count(total, 'trial')}."]
    if differing:
        lines.append("**It contradicts the request here, so those trials did not answer the question as asked:**\n")
        lines += [f"- {md(text)} (trials {listed(trials)})" for text, trials in differing.items()]
    if silent:
        lines.append(f"No echo was kept of {count(len(silent), 'trial')}: {listed(silent)}.")
    return "\n".join(lines)


_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?")


def machine_section(findings: Findings) -> Block | None:
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
    evidence = findings.readable_evidence_of(record) if record else None
    return dict.fromkeys(look.command for look in evidence.processes) if evidence else {}


def _first_word(trial: Trial) -> tuple[str, ...]:
    """What a trial's command begins with; nothing for a job that was only watched."""
    if trial.python is not None:
        return (trial.python,)
    if not {"command", "argv"} & trial.config.keys():
        return ()
    return composed(trial.config, python=PYTHON, env=trial.env).argv[:1]
