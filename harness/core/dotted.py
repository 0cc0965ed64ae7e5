"""A nested configuration as dotted paths."""

from __future__ import annotations

from typing import Any, cast


def leaves(data: Any, prefix: str = "") -> dict[str, Any]:
    """``{"model": {"dim": 8}}`` as ``{"model.dim": 8}``, in the same order; what holds nothing has no path."""
    if not isinstance(data, dict):
        return {prefix: data}
    found: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", data).items():
        found.update(leaves(value, f"{prefix}.{key}" if prefix else str(key)))
    return found
