"""Bounded: a list that keeps its beginning and its end, so that a week-long trial fits in memory."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Bounded(Generic[T]):
    """Keeps the first ``first`` and the last ``last`` items; ``total`` counts all that were ever added."""

    def __init__(self, *, first: int, last: int) -> None:
        self.total = 0
        self._first_size = first
        self._first: list[T] = []
        self._last: deque[T] = deque(maxlen=last)

    def add(self, item: T) -> None:
        """Append ``item``, dropping one from the middle when full."""
        self.total += 1
        if len(self._first) < self._first_size:
            self._first.append(item)
        else:
            self._last.append(item)

    def items(self) -> tuple[T, ...]:
        """What was kept, in order."""
        return (*self._first, *self._last)
