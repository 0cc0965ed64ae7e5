"""Findings: the answer of a bundle and the counts behind it, for programs; its records lie in the archive beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harness.core.codec import to_json
from harness.report.asked import answers
from harness.report.render.json import first_screen
from harness.report.tried import kind_counts
from harness.store import layout

if TYPE_CHECKING:
    from pathlib import Path

    from harness.report.build import Report

SCHEMA = 1


def render(report: Report, run_dir: Path) -> str:
    """The findings as one JSON document; ``run_dir`` is the evidence they rest on."""
    return json.dumps(data(report, run_dir), indent=1, ensure_ascii=False) + "\n"


def data(report: Report, run_dir: Path) -> dict[str, Any]:
    """The findings as JSON-ready data: the answer, counts by verdict, a row for each trial, figures."""
    run, trials = report.run, report.findings.trials

    return {
        **first_screen(report),
        "schema": SCHEMA,
        "answers": list(map(to_json, answers(report.findings))),
        "run": run.id,
        "code": run.code,
        "started_at": run.started_at,
        "ended": run.ended,
        "seconds": round(run.seconds, 1),
        "counts": dict(sorted(kind_counts(run.records).items())),
        "trials": [_row(trial.number, trial.record, run, run_dir) for trial in trials],
        "figures": [{"name": f.name, "alt": f.alt} for f in report.figures],
        "drawn_with": drawn_with(),
    }


def _row(number: int, record: Any, run: Any, run_dir: Path) -> dict[str, Any]:
    point = record.trial.point
    return {
        "number": number,
        "key": record.trial.key,
        "cell": run.spec.matrix.space.name_of(point),
        "role": record.trial.role,
        "verdict": str(record.verdict),
        "rank": record.verdict.rank,
        "phase": record.verdict.phase,
        "seconds": round(record.outcome.duration_s, 2),
        "evidence": layout.evidence(layout.trial(run_dir, record.trial.key)).is_file(),
    }


def drawn_with() -> str:
    """The library that draws figures here, with its version; empty without one."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"matplotlib {version('matplotlib')}"
    except PackageNotFoundError:
        return ""
