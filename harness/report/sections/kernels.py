"""Kernels: which implementation ran each operator, and why it was chosen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harness.core.ports import Block
from harness.report.facts import numbered, raw_evidence
from harness.report.text import code, count, listed, md, table

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import Run


def section(run: Run, run_dir: Path) -> Block | None:
    """The resolution tables that were seen, with the trials that had each; None when no trial told."""
    seen: dict[str, list[int]] = {}
    silent: list[int] = []
    for trial in numbered(run):
        rows = (raw_evidence(run_dir, trial.record.trial.key) or {}).get("kernels") or []
        if rows:
            seen.setdefault(json.dumps(rows, sort_keys=True), []).append(trial.number)
        else:
            silent.append(trial.number)
    if not seen:
        return None
    parts = [_table(json.loads(rows), trials, alone=len(seen) == 1) for rows, trials in seen.items()]
    if len(seen) > 1:
        parts.insert(0, "**The trials did not all run the same kernels:** compare them only with care.")
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
