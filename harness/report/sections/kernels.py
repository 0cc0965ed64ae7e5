"""Kernels: which implementation ran each operator, and why it was chosen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harness.core.ports import Block
from harness.report.text import code, count, listed, md, table

if TYPE_CHECKING:
    from harness.report.findings import Findings


def section(findings: Findings) -> Block | None:
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
