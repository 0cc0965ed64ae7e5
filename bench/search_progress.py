"""A line on standard error that says how far a long simulation is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


def progressing(results: Iterable[T], *, of: int) -> list[T]:
    """``results`` as they come, counted on the terminal."""
    done: list[T] = []
    for result in results:
        done.append(result)
        sys.stderr.write(f"\r{len(done)} of {of} rows")
        sys.stderr.flush()
    sys.stderr.write("\n")
    return done
