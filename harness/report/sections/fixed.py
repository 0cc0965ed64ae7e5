"""Fixed: what was held as it is, and whether the worker really ran with what was asked."""

from __future__ import annotations

import json
from itertools import starmap
from typing import TYPE_CHECKING

from harness.core.point import assignment
from harness.core.ports import Block
from harness.report.text import code, count, details, fence, listed, md, seconds, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.space import Factor
    from harness.report.findings import Findings


def section(findings: Findings) -> Block | None:
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
