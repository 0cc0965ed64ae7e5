"""The JSON Schema of ``report.json``, from the types that reports are made of: it cannot say anything else."""

from __future__ import annotations

import json
from typing import Any

from harness.core.campaign import ForeignJob
from harness.core.record import Run
from harness.report.render.json import SCHEMA, Json

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
