"""JSON: the same report for programs. The run is whole, the sections are the Markdown of each."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from harness.core.codec import SCHEMA, to_json
from harness.report.next_steps import next_steps
from harness.report.words import certificate, claim, headline

if TYPE_CHECKING:
    from harness.report.build import Report


def data(report: Report) -> dict[str, Any]:
    """The report as JSON-ready data."""
    run = report.run
    return {
        "schema": SCHEMA,
        "title": report.title,
        "answer": headline(run),
        "claim": claim(run),
        "certificate": certificate(run),
        "next_steps": [{"text": step.text, "command": list(step.command)} for step in next_steps(run)],
        "run": _finite(to_json(run)),
        "sections": [{"name": name, "title": block.title, "markdown": block.markdown} for name, block in report.blocks],
    }


def dump(document: dict[str, Any]) -> str:
    """``document`` as text that every JSON reader accepts; ends in a newline."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    # JSON has no NaN and no infinity, and a loss may be either.
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
