"""Earlier: what reports beside this one said about the same question or failure, and where they contradict it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from harness.core.ports import Block
from harness.core.record import Run
from harness.report.text import code, md, table
from harness.store import layout

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import CampaignRun

MOST = 12


def section(run: Run | CampaignRun, run_dir: Path) -> Block | None:
    """A row per earlier report that shares a signature or the question; None when there is none."""
    mine = said(run)
    found = [(folder, other) for folder, other in _others(run_dir) if _related(mine, other)]
    if not found:
        return None
    rows = [
        (code(folder), md(other.get("started_at", "")[:16]), md(other.get("answer", "")), _differs(mine, other))
        for folder, other in sorted(found, key=lambda item: item[1].get("started_at", ""), reverse=True)[:MOST]
    ]
    return Block(title="Earlier reports", markdown=table(("run", "when", "what it said", "against this report"), rows))


def said(run: Run | CampaignRun) -> dict[str, Any]:
    """What a report of ``run`` says, in the few words that a later one compares with its own."""
    boundary = run.boundary if isinstance(run, Run) else run.answer.boundary if run.answer else None
    return {
        "schema": 1,
        "id": run.id,
        "started_at": run.started_at,
        "question": run.spec.question,
        "code": run.code.partition(" (")[0],
        "machine": run.machine.fingerprint,
        "fault": str((run.spec.fault if isinstance(run, Run) else run.spec.matrix.fault) or ""),
        "axis": boundary.axis if boundary else "",
        "finding": boundary.finding.value if boundary else "",
        "last_good": boundary.last_good if boundary else None,
        "first_bad": boundary.first_bad if boundary else None,
        "signatures": sorted({r.verdict.signature for r in run.records if r.verdict.signature}),
        "kinds": sorted({str(r.verdict) for r in run.records}),
    }


def _others(run_dir: Path) -> list[tuple[str, dict[str, Any]]]:
    beside = sorted(run_dir.parent.glob(f"*/{layout.report(run_dir, 'claims.json').name}"))
    return [(path.parent.name, _read(path)) for path in beside if path.parent != run_dir]


def _read(path: Path) -> dict[str, Any]:
    """What an earlier report said; one that cannot be read says nothing, for or against."""
    data: object = None
    with suppress(OSError, ValueError):
        data = json.loads(path.read_text(encoding="utf-8"))
    return data if isinstance(data, dict) else {}


def _related(mine: dict[str, Any], other: dict[str, Any]) -> bool:
    same_question = other.get("question") == mine["question"] and other.get("fault") == mine["fault"]
    return same_question or bool(set(other.get("signatures") or ()) & set(mine["signatures"]))


def _differs(mine: dict[str, Any], other: dict[str, Any]) -> str:
    """What the two say about the same thing that cannot both hold here; and what else differs between them."""
    parts: list[str] = []
    same_axis = mine["axis"] and other.get("axis") == mine["axis"] and other.get("fault") == mine["fault"]
    if same_axis and (other.get("finding"), other.get("first_bad")) != (mine["finding"], mine["first_bad"]):
        there = _finding(other)
        parts.append(f"**contradicts it:** {md(there)} there, {md(_finding(mine))} here")
    elif same_axis:
        parts.append("agrees")
    else:
        shared = set(other.get("signatures") or ()) & set(mine["signatures"])
        parts.append("the same failure" if shared else "the same question")
    if other.get("code") != mine["code"]:
        parts.append("other code")
    if other.get("machine") != mine["machine"]:
        parts.append("another machine")
    return "; ".join(parts)


def _finding(claims: dict[str, Any]) -> str:
    if claims["finding"] == "threshold":
        return f"{claims['axis']}={claims['first_bad']} is the first that fails"
    return str(claims["finding"] or "no answer")
