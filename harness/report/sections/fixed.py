"""Fixed: what was held as it is, and whether the worker really ran with what was asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.report.facts import numbered, raw_evidence
from harness.report.text import code, count, details, fence, listed, md, seconds, table

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import CampaignRun, Run


def section(run: Run, run_dir: Path) -> Block | None:
    """What the user set, then everything else, then requested against effective."""
    spec = run.spec
    limits = spec.limits
    set_by_hand = {"startup": limits.startup_s, "stall": limits.stall_s, "total": limits.total_s}
    rows: list[tuple[str, str]] = [
        ("target", code(spec.target)),
        *((md(name), code(value)) for name, value in spec.fixed),
        ("planted fault", code(spec.fault) if spec.fault else "none"),
        ("counts as failing", md(", ".join(spec.bad)) if spec.bad else "the first kind of failure that shows up"),
        ("started by", md(spec.executor)),
        ("seed", str(spec.seed)),
        *((f"env {md(name)}", code(value)) for name, value in spec.env),
        *((f"{name} limit", seconds(value)) for name, value in set_by_hand.items() if value is not None),
    ]
    parts = [table(("setting", "value"), rows), effective(run, run_dir)]
    if run.records:
        config = json.dumps(run.records[0].trial.config, indent=1, sort_keys=True)
        varied = f"The whole configuration of trial 1; the search varied only {code(spec.axis.path)}"
        parts.append(details(varied, fence(config, "json")))
    return Block(title="Held fixed", markdown="\n\n".join(part for part in parts if part))


def effective(run: Run | CampaignRun, run_dir: Path) -> str:
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
