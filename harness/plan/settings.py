"""The settings of a configuration as dotted paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.dotted import leaves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.point import Value


def flatten(config: Mapping[str, object]) -> dict[str, Value]:
    """What has one value, by its path; lists are left out."""
    found = leaves(config)
    return {path: value for path, value in found.items() if value is None or isinstance(value, int | float | str)}
