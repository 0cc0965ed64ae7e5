"""Schema: the JSON Schema of ``report.json``, published in the package beside this file."""

from __future__ import annotations

from importlib.resources import files

PLACE = "schemas/report.schema.json"


def published() -> str:
    """The schema as it was published with this version."""
    return (files("harness.report") / PLACE).read_text(encoding="utf-8")
