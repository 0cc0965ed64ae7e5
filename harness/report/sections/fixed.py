"""Fixed: what was held as it is, and whether the worker really ran with what was asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.report.facts import is_line, numbered, raw_evidence
from harness.report.text import code, count, details, fence, listed, md, seconds, table

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import Run
    from harness.core.space import Bundle, Factor


def section(run: Run, run_dir: Path) -> Block | None:
    """What was varied over cells, what was held, then requested against effective."""
    rows = [(md(name), text) for name, text in _held(run) if text]
    if not is_line(run):
        parts = [_axes(run), "The same in every cell:", table(("setting", "value"), rows), effective(run, run_dir)]
        return Block(title="Varied and held", markdown="\n\n".join(part for part in parts if part))
    parts = [table(("setting", "value"), rows), effective(run, run_dir)]
    if run.records:
        config = json.dumps(run.records[0].trial.config, indent=1, sort_keys=True)
        varied = f"The whole configuration of trial 1; the search varied only {code(run.axis.path)}"
        parts.append(details(varied, fence(config, "json")))
    return Block(title="Held fixed", markdown="\n\n".join(part for part in parts if part))


def _held(run: Run) -> list[tuple[str, str]]:
    """Each thing that was the same in every trial; an empty text for what there is nothing to say of."""
    spec, matrix, limits = run.spec, run.spec.matrix, run.spec.matrix.limits
    env = [(f"env {name}", code(value)) for name, value in matrix.base.env]
    by_hand = {"startup": limits.startup_s, "stall": limits.stall_s, "total": limits.total_s}
    bad = md(", ".join(spec.bad_kinds)) if spec.bad_kinds else "the first kind of failure that shows up"
    return [
        ("target", code(matrix.target)),
        ("command", code(" ".join(matrix.command)) if matrix.command else ""),
        *((name, code(value)) for name, value in matrix.base.config),
        *(() if is_line(run) else env),
        ("planted fault", code(matrix.fault) if matrix.fault else "none"),
        ("counts as failing", bad if is_line(run) else ""),
        ("started by", md(spec.executor)),
        ("seed", str(spec.seed)),
        *(env if is_line(run) else ()),
        *((f"{name} limit", seconds(value)) for name, value in by_hand.items() if value is not None),
        *(("rule", md(rule)) for rule in matrix.space.rules),
    ]


def _axes(run: Run) -> str:
    """The axes, with what each value does."""
    rows = (
        (code(f.name), md(listed(f.axis.values)), md(f.good), md(f.bad), _sets(f))
        for f in run.spec.matrix.space.factors
    )
    return table(("axis", "values", "baseline", "the other end", "each value sets"), rows)


def _sets(factor: Factor) -> str:
    said = [_bundle(bundle) for bundle in factor.bundles]
    return (
        listed((f"{md(v)}: {text}" for v, text in zip(factor.axis.values, said, strict=False) if text), most=6) or "-"
    )


def _bundle(bundle: Bundle) -> str:
    words = [f"{name}={value}" for name, value in (*bundle.config, *bundle.env)] + list(bundle.args)
    return listed((code(word) for word in words), most=4)


def effective(run: Run, run_dir: Path) -> str:
    """Requested against effective, over all trials."""
    differing: dict[str, list[int]] = {}
    unseen: list[int] = []
    agreed = 0
    for trial in numbered(run):
        evidence = raw_evidence(run_dir, trial.record.trial.key) or {}
        differences = evidence.get("config_differences") or []
        for difference in differences:
            differing.setdefault(str(difference), []).append(trial.number)
        if not evidence.get("config_seen"):
            unseen.append(trial.number)
        elif not differences:
            agreed += 1
    if not run.records:
        return ""
    lines = [
        f"Requested against effective: the worker's own echo agrees in {agreed} of {count(len(run.records), 'trial')}."
    ]
    if differing:
        lines.append("**It contradicts the request here, so those trials did not answer the question as asked:**\n")
        lines += [f"- {md(text)} (trials {listed(trials)})" for text, trials in differing.items()]
    if unseen:
        lines.append(f"No echo was kept of {count(len(unseen), 'trial')}: {listed(unseen)}.")
    return "\n".join(lines)
