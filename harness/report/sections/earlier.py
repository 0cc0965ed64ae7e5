"""Earlier: what reports beside this one said about the same question or failure, and where they contradict it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from harness.core.boundary import Finding
from harness.core.campaign import FOREIGN
from harness.core.codec import to_json
from harness.core.ports import Block
from harness.report.findings import object_at
from harness.report.over_cells import brief_of, headline
from harness.report.text import code, md, table
from harness.report.tried import verdicts
from harness.store import layout

if TYPE_CHECKING:
    from harness.report.findings import Findings

MOST = 12

HOW = frozenset({"question", "effort", "executor", "seed", "controls", "reuse", "file", "passes", "explain"})
"""Parts that say how hard a question is tried, by what, and what it is called: two that differ in them ask alike.

What a question is called counts where nothing else says what it asks about: of something that others started.
"""

DECIDED = frozenset({Finding.THRESHOLD.value, Finding.ALL_FAIL.value, Finding.NO_FAILURE.value})
"""Findings that can contradict each other; one that did not come to an answer contradicts nothing."""


def earlier_section(findings: Findings) -> Block | None:
    """A row per earlier report that shares a signature or the question; None when there is none."""
    mine = claims_of(findings)
    reports = related(findings)
    if not reports:
        return None
    rows: list[tuple[str, ...]] = []
    for folder, other in sorted(reports, key=lambda item: item[1].get("started_at", ""), reverse=True)[:MOST]:
        when = other.get("started_at", "")[:16].replace("T", " ")
        rows.append((code(folder), md(when), md(other.get("answer", "")), _differs(mine, other)))
    return Block(title="Earlier reports", markdown=table(("run", "when", "what it said", "against this report"), rows))


def related(findings: Findings) -> list[tuple[str, dict[str, Any]]]:
    """What reports beside this one said before it that can be compared with it, by their folders.

    Never this run itself, nor a copy of it. A bundle holds what it was compared with when it was made, and is compared
    with nothing else.
    """
    run_dir = findings.run_dir
    path = layout.earlier(run_dir)
    if path.is_file():
        return [(folder, other) for folder, other in json.loads(path.read_text(encoding="utf-8"))]
    mine = claims_of(findings)
    reports: list[tuple[str, dict[str, Any]]] = []
    for beside in sorted(run_dir.parent.glob(f"*/{layout.report(run_dir, 'claims.json').name}")):
        other = object_at(beside)
        is_before = other.get("id") != mine["id"] and other.get("started_at", "") <= mine["started_at"]
        shared = set(other.get("signatures") or ()) & set(mine["signatures"])
        is_like_it = other.get("asked") == mine["asked"] or shared
        if beside.parent != run_dir and is_before and is_like_it:
            reports.append((beside.parent.name, other))
    return reports


def claims_of(findings: Findings) -> dict[str, Any]:
    """What a report of ``run`` says, in the few words that a later one compares with its own.

    ``asked`` is a checksum of the whole question: what is run, every setting that is held, the fault and the limits.
    ``taken_from`` are runs whose trials count in this one. The list of runs shows ``brief``, while ``ended`` and
    ``trials`` are those of the run.
    """
    run = findings.run
    boundary = run.boundary
    every = run.records
    signatures = {record.verdict.signature for record in every if record.verdict.signature}
    taken_from = {record.run for record in every if record.run}
    answer = headline(findings)
    counts = verdicts(every)
    aside = HOW - {"question"} if run.spec.matrix.target == FOREIGN else HOW
    question = {name: value for name, value in to_json(run.spec).items() if name not in aside}
    return {
        "schema": 2,
        "id": run.id,
        "started_at": run.started_at,
        "question": run.spec.question,
        "asked": hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:16],
        "answer": answer,
        "brief": brief_of(findings),
        "ended": run.ended,
        "trials": len(every),
        "code": run.code.partition(" (")[0],
        "machine": run.machine.fingerprint,
        "axis": boundary.axis if boundary else "",
        "finding": boundary.finding.value if boundary else "",
        "last_good": boundary.last_good if boundary else None,
        "first_bad": boundary.first_bad if boundary else None,
        "signatures": sorted(signatures),
        "kinds": sorted(counts),
        "taken_from": sorted(taken_from),
    }


def _differs(mine: dict[str, Any], other: dict[str, Any]) -> str:
    """Whether the two agree on the whole same question; and what else differs between them."""
    parts: list[str] = []
    if other.get("id") in mine["taken_from"]:
        parts.append("its trials count in this run: neither for nor against it")
    elif other.get("asked") != mine["asked"]:
        parts.append("the same failure, of another question")
    elif not {other.get("finding"), mine["finding"]} <= DECIDED:
        parts.append("the same question")
    elif (other.get("finding"), other.get("first_bad")) == (mine["finding"], mine["first_bad"]):
        parts.append("agrees")
    else:
        parts.append(f"**contradicts it:** {md(_finding(other))} there, {md(_finding(mine))} here")
    if other.get("code") != mine["code"]:
        parts.append("other code")
    if other.get("machine") != mine["machine"]:
        parts.append("another machine")
    return "; ".join(parts)


def _finding(claims: dict[str, Any]) -> str:
    if claims["finding"] == Finding.THRESHOLD:
        return f"{claims['axis']}={claims['first_bad']} is the first that fails"
    return str(claims["finding"] or "no answer")
