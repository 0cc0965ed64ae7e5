"""Findings: the answer of a bundle and the counts behind it, for programs; its records lie in the archive beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harness.core.codec import to_json
from harness.report.asked import answers
from harness.report.render.json import first_screen
from harness.report.tried import kind_counts

if TYPE_CHECKING:
    from harness.report.build import Report
    from harness.report.findings import Findings
    from harness.report.tried import Numbered

SCHEMA = 1


def render(report: Report) -> str:
    """The findings as one JSON document: the answer, counts by verdict, a row for each trial, figures."""
    run, findings = report.run, report.findings
    document = {
        **first_screen(report),
        "schema": SCHEMA,
        "answers": list(map(to_json, answers(findings))),
        "run": run.id,
        "code": run.code,
        "started_at": run.started_at,
        "ended": run.ended,
        "seconds": round(run.seconds, 1),
        "counts": dict(sorted(kind_counts(run.records).items())),
        "trials": [_row(findings, trial) for trial in findings.trials],
        "figures": [{"name": f.name, "alt": f.alt} for f in report.figures],
        "drawn_with": drawn_with(),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _row(findings: Findings, trial: Numbered) -> dict[str, Any]:
    record = trial.record
    return {
        "number": trial.number,
        "key": record.trial.key,
        "cell": findings.run.spec.matrix.space.name_of(trial.cell),
        "role": record.trial.role,
        "verdict": str(record.verdict),
        "rank": record.verdict.rank,
        "phase": record.verdict.phase,
        "seconds": round(record.outcome.duration_s, 2),
        "evidence": findings.has_evidence_of(record),
    }


def drawn_with() -> str:
    """The library that draws figures here, with its version; empty without one."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"matplotlib {version('matplotlib')}"
    except PackageNotFoundError:
        return ""
