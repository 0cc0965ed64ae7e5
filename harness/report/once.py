"""Once: what many sections ask of a run is worked out for the first that asks."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")
T = TypeVar("T")


def once(function: Callable[[R], T]) -> Callable[[R], T]:
    """``function`` of a run, remembered for the last run it was asked of: that very object, nothing is compared.

    For pure functions of a run that does not change, whose value nobody changes; keeps one run alive.
    """
    last: list[tuple[R, T]] = []

    @wraps(function)
    def remembered(run: R) -> T:
        if not last or last[0][0] is not run:
            last[:] = [(run, function(run))]
        return last[0][1]

    return remembered
