"""A nested configuration as dotted paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from harness.core.point import Value


def leaves(data: Any, prefix: str = "") -> dict[str, Any]:
    """``{"model": {"dim": 8}}`` as ``{"model.dim": 8}``, in the same order; what holds nothing has no path."""
    if not isinstance(data, dict):
        return {prefix: data}
    paths: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", data).items():
        paths.update(leaves(value, f"{prefix}.{key}" if prefix else key))
    return paths


def flatten(config: Mapping[str, object]) -> dict[str, Value]:
    """What has one value in a configuration, by its path; lists are left out."""
    paths = leaves(config)
    return {path: value for path, value in paths.items() if value is None or isinstance(value, int | float | str)}
