"""A configuration as dotted paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.point import Value


def flatten(config: Mapping[str, object], prefix: str = "") -> dict[str, Value]:
    """Nested configuration to dotted paths: ``{"model": {"dim": 8}}`` becomes ``{"model.dim": 8}``."""
    flat: dict[str, Value] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat.update(flatten(cast("dict[str, object]", value), f"{prefix}{name}."))
        elif value is None or isinstance(value, int | float | str):
            flat[prefix + name] = value
    return flat
