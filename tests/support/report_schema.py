"""The JSON Schema of ``report.json``, from the types that reports are made of; a test holds the published file to it.

python tests/support/report_schema.py      publishes it
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.report.render import json as json_form


def generate() -> dict[str, Any]:
    """The schema, from the types that reports are made of."""
    from pydantic import TypeAdapter

    from harness.core import campaign, cause, devices, evidence, matrix, outcome, record, spec, trial, verdict

    names = {}
    for module in (campaign, cause, devices, evidence, matrix, outcome, spec, trial, verdict):
        names |= vars(module)
    parts: dict[str, Any] = {}
    adapter = TypeAdapter(record.Run)
    adapter.rebuild(_types_namespace={**names, **vars(record)}, force=True)
    made = adapter.json_schema(mode="serialization", ref_template="#/$defs/{model}")
    parts |= made.pop("$defs", {})
    parts["Run"] = made
    text = {"type": "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nsa-harness report",
        "description": "What nsa-harness report --format json prints. New keys may come; a change of schema breaks.",
        "type": "object",
        "required": [
            "schema",
            "kind",
            "title",
            "verdict",
            "answer",
            "claim",
            "next_steps",
            "run",
            "sections",
            "figures",
        ],
        "properties": {
            "schema": {"const": json_form.SCHEMA},
            "kind": {"enum": ["single", "threshold", "matrix", "minimise", "explore", "comparison"]},
            **dict.fromkeys(("title", "verdict", "answer", "claim", "certificate", "judged", "rank", "place"), text),
            "claim_word": {"enum": ["", "observed", "reproduced", "isolated"]},
            "next_steps": _list({"text": text, "command": {"type": "array", "items": text}}),
            "run": {"$ref": "#/$defs/Run"},
            "sections": _list({"name": text, "title": text, "markdown": text}),
            "figures": _list({"name": text, "title": text, "alt": text, "section": text}),
        },
        "$defs": _bare(parts),
    }


def _bare(value: Any) -> Any:
    """Without the types' own prose: a better docstring is no other schema."""
    if isinstance(value, dict):
        return {k: _bare(item) for k, item in value.items() if not (k == "description" and isinstance(item, str))}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _list(properties: dict[str, Any]) -> dict[str, Any]:
    item = {"type": "object", "required": list(properties), "properties": properties}
    return {"type": "array", "items": item}


def dump() -> str:
    """The generated schema as the file holds it."""
    return json.dumps(generate(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    (Path(json_form.__file__).parents[1] / "schemas" / "report.schema.json").write_text(dump())
