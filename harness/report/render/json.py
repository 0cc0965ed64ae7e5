"""JSON: the same report for programs. The run is whole, the sections are the Markdown of each.

Its schema is printed by ``nsa-harness report --schema``.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.core.campaign import ForeignJob
from harness.core.codec import to_json
from harness.core.record import Run
from harness.report.asked import answers
from harness.report.tried import kind_counts
from harness.report.words import certificate, how_often_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.report.findings import Findings
    from harness.report.hide import Hider
    from harness.report.tried import Numbered
    from harness.report.write import Report


Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | None"

SCHEMA = 3
"""Version of the document; raised when an old reader would misread a new one."""


def render(report: Report, *, hide: Callable[[str], str] = str, begun: dict[str, Any] | None = None) -> str:
    """The report as one JSON document; ``begun`` is :func:`begin` of it, where that was made before."""
    document = begun or begin(report, hide=hide)
    rows = [{"name": f.name, "title": f.title, "alt": f.alt, "section": f.section} for f in report.figures]
    return dump(document | hidden({"figures": rows}, hide))


def begin(report: Report, *, hide: Callable[[str], str]) -> dict[str, Any]:
    """The document without its figures, which may still be being drawn."""
    sections = [{"name": name, "title": block.title, "markdown": block.markdown} for name, block in report.blocks]
    place = report.summary.place
    line = {"place": place.text if place.is_line else ""}
    return hidden({**first_screen(report), **line, "run": to_json(report.run), "sections": sections}, hide)


def hidden(document: dict[str, Any], hide: Callable[[str], str]) -> dict[str, Any]:
    """``document`` without names, secrets and controls; ``hide`` is a :class:`Hider`'s ``text``, or hides nothing."""
    hider: Hider | None = getattr(hide, "__self__", None)
    return hider.data(document) if hider else document


def first_screen(report: Report) -> dict[str, Any]:
    """The first screen as JSON-ready data."""
    summary, often = report.summary, how_often_in(report.findings)
    return {
        "schema": SCHEMA,
        "kind": summary.kind,
        "title": report.title,
        "verdict": summary.verdict,
        "answer": summary.answer,
        "claim": summary.sure[0] if summary.claim else "",
        "claim_word": summary.claim.lower(),
        "certificate": certificate(report.findings) if report.findings.is_line else "",
        "judged": summary.judged,
        "rank": summary.rank,
        "place": summary.place.text,
        "next_steps": [{"text": step.text, "command": list(step.command)} for step in summary.steps],
        **({"how_often": often} if often else {}),
        **({} if summary.job is None else {"job": to_json(summary.job)}),
    }


def dump(document: dict[str, Any]) -> str:
    """``document`` as text that every JSON reader accepts; ends in a newline.

    A line for each key, and for each entry of a list under it, so that two reports can be compared line by line.
    """
    try:
        return f"{_lines(document, depth=2)}\n"
    except ValueError:  # a number that is none is rare, and looking for one in every place takes time
        return f"{_lines(_finite(document), depth=2)}\n"


def _lines(value: Json, *, depth: int, indent: str = "") -> str:
    """``value`` with its outer ``depth`` levels on lines of their own; what lies deeper is one line."""
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"{indent} {_flat(item)}" for item in value) + f"\n{indent}]"
    if not depth or not isinstance(value, dict) or not value:
        return _flat(value)
    inner = (f"{indent} {_flat(key)}: {_lines(value[key], depth=depth - 1, indent=indent + ' ')}" for key in value)
    return "{\n" + ",\n".join(inner) + f"\n{indent}}}"


def _flat(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _finite(value: Json) -> Json:
    # JSON has no NaN and no infinity, and a loss may be either.
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_finite, value))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def findings_of(report: Report) -> str:
    """``findings.json`` of a bundle, whose records lie in the archive: the answer, and the counts behind it."""
    run, findings = report.run, report.findings
    document = {
        **first_screen(report),
        "schema": 1,
        "answers": list(map(to_json, answers(findings))),
        "run": run.id,
        "code": run.code,
        "started_at": run.started_at,
        "ended": run.ended,
        "seconds": round(run.seconds, 1),
        "counts": dict(sorted(kind_counts(run.records).items())),
        "trials": [_trial(findings, trial) for trial in findings.trials],
        "figures": [{"name": f.name, "alt": f.alt} for f in report.figures],
        "drawn_with": drawn_with(),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _trial(findings: Findings, trial: Numbered) -> dict[str, Any]:
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


TEXT = {"type": "string"}

REQUIRED = ("schema", "kind", "title", "verdict", "answer", "claim", "next_steps", "run", "sections", "figures")


def published() -> str:
    """The schema as ``nsa-harness report --schema`` prints it."""
    from pydantic import TypeAdapter

    run = TypeAdapter(Run).json_schema(mode="serialization", ref_template="#/$defs/{model}")
    parts = run.pop("$defs") | {"Run": run}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nsa-harness report",
        "description": "What nsa-harness report --format json prints. New keys may come; a change of schema breaks.",
        "type": "object",
        "required": REQUIRED,
        "properties": {
            "schema": {"const": SCHEMA},
            "kind": {"enum": ["single", "threshold", "matrix", "minimise", "explore", "comparison"]},
            **dict.fromkeys(("title", "verdict", "answer", "claim", "certificate", "how_often"), TEXT),
            **dict.fromkeys(("judged", "rank", "place"), TEXT),
            "claim_word": {"enum": ["", "observed", "reproduced", "isolated"]},
            "next_steps": _list({"text": TEXT, "command": {"type": "array", "items": TEXT}}),
            "job": {"$ref": f"#/$defs/{ForeignJob.__name__}"},
            "run": {"$ref": "#/$defs/Run"},
            "sections": _list(dict.fromkeys(("name", "title", "markdown"), TEXT)),
            "figures": _list(dict.fromkeys(("name", "title", "alt", "section"), TEXT)),
        },
        "$defs": _bare(parts),
    }
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


def _bare(value: Json) -> Json:
    """Without the types' own prose: a better docstring is no other schema."""
    if isinstance(value, dict):
        return {k: _bare(item) for k, item in value.items() if not (k == "description" and isinstance(item, str))}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _list(properties: dict[str, Any]) -> dict[str, Any]:
    item = {"type": "object", "required": list(properties), "properties": properties}
    return {"type": "array", "items": item}
