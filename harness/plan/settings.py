"""The settings that a fault's conditions may name: every setting of the trial, by path and by short name."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.point import Axis, Point, Value


def flatten(config: Mapping[str, object], prefix: str = "") -> dict[str, Value]:
    """Nested configuration to dotted paths: ``{"model": {"dim": 8}}`` becomes ``{"model.dim": 8}``."""
    flat: dict[str, Value] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat.update(flatten(cast("dict[str, object]", value), f"{prefix}{name}."))
        elif value is None or isinstance(value, int | float | str):
            flat[prefix + name] = value
    return flat


def settings_of(config: Mapping[str, object], *, fixed: Point, axis: Axis, value: Value) -> dict[str, Value]:
    """Everything that holds at one trial, by dotted path, by the path's last part where that is unique, and by axis.

    Settings left at their default count too: ``seq_len>=256`` is true of a trial that never mentioned it.
    """
    by_path = {**flatten(config), **dict(fixed), axis.path: value}
    short = Counter(path.rpartition(".")[2] for path in by_path)
    by_name = {name: v for path, v in by_path.items() if short[name := path.rpartition(".")[2]] == 1}
    return {**by_name, **by_path, axis.name: value}
