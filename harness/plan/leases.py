"""Leases: which of the questions that a search asks may start now, and on which GPUs. Pure; the widest first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.core.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harness.core.point import Point
    from harness.core.ports import CellRequest

PATIENCE = 16
"""Later trials that may start before an earlier one; then nothing starts before it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A question in the queue, and what it holds while it runs.

    ``id`` rises with its arrival, ``need`` is how many GPUs it needs, and ``gpus`` are the positions in the list of
    visible GPUs of those that it has; none while it waits.
    """

    id: int
    request: CellRequest
    need: int
    gpus: tuple[int, ...] = ()


class Queue:
    """Gives GPUs, and one of ``slots`` each, to waiting questions. Call :meth:`want` whenever others may be asked.

    The widest is served first, the oldest of equals. While it does not fit, what it waits for is reserved: the GPUs of
    those running that began first, as many free ones as it then still lacks, and a slot. Narrower ones may use the
    rest. One that :data:`PATIENCE` later ones have overtaken is served before all others, so that every one is served
    in the end, whatever else arrives.
    """

    def __init__(self, *, gpus: int, slots: int, gpus_at: Callable[[Point], int]) -> None:
        self.n_gpus, self.n_slots, self.gpus_at = gpus, slots, gpus_at
        self.waiting: dict[int, Lease] = {}
        self.running: list[Lease] = []
        self._overtaken: dict[int, int] = {}
        self._last = 0

    def want(self, requests: Sequence[CellRequest]) -> None:
        """Let wait what is asked and neither waits nor runs yet, and nothing that is no longer asked.

        Raises:
            LaunchError: a cell needs more GPUs than there are.
        """
        running = _cells(lease.request for lease in self.running)
        missing = _cells(requests) - running
        for lease in list(self.waiting.values()):
            if missing[lease.request.cell]:
                missing[lease.request.cell] -= 1
            else:
                self._withdraw(lease)
        # Of those that ask one cell the first run or wait already: the next pass is the one behind these.
        there = running + _cells(lease.request for lease in self.waiting.values())
        for request in requests:
            if there[request.cell]:
                there[request.cell] -= 1
            else:
                self.offer(request)

    def offer(self, request: CellRequest) -> None:
        """Let one question wait.

        Raises:
            LaunchError: it needs more GPUs than there are.
        """
        need = self.gpus_at(request.cell)
        if need > self.n_gpus:
            raise LaunchError(f"a cell needs {need} GPUs, but {self.n_gpus} are visible here (resources: gpus)")
        self._last += 1
        self._wait(Lease(id=self._last, request=request, need=need))

    def grant(self) -> Lease | None:
        """The next question that may run, with what it holds; None while none may."""
        lease = self._next()
        if lease is not None:
            self._withdraw(lease)
            for id in self.waiting:
                self._overtaken[id] += id < lease.id
            self.running.append(lease)
        return lease

    def release(self, lease: Lease) -> None:
        """A question no longer runs."""
        self.running.remove(lease)

    def put_back(self, lease: Lease) -> None:
        """A question that was granted cannot run now: it waits again, in its old place."""
        self.release(lease)
        self._wait(replace(lease, gpus=()))

    def _wait(self, lease: Lease) -> None:
        self.waiting[lease.id] = lease
        self._overtaken[lease.id] = 0

    def _withdraw(self, lease: Lease) -> None:
        del self.waiting[lease.id], self._overtaken[lease.id]

    def _next(self) -> Lease | None:
        gpus, slots = set(range(self.n_gpus)), self.n_slots - len(self.running)
        for lease in self.running:
            gpus.difference_update(lease.gpus)
        free = sorted(gpus)
        is_reserved = False
        for lease in sorted(self.waiting.values(), key=self._rank):
            if slots > 0 and lease.need <= len(free):
                return replace(lease, gpus=tuple(free[: lease.need]))
            if self._overtaken[lease.id] >= PATIENCE:
                return None
            if not is_reserved:
                is_reserved = True
                free = free[self._reserved_gpus(lease.need, len(free)) :]
                slots -= 1
        return None

    def _rank(self, lease: Lease) -> tuple[bool, int, int]:
        if self._overtaken[lease.id] >= PATIENCE:
            return (False, 0, lease.id)
        return (True, -lease.need, lease.id)

    def _reserved_gpus(self, need: int, free: int) -> int:
        """How many free GPUs must stay free, so that ``need`` fit once the oldest trials it waits for have ended."""
        coming = 0
        for lease in self.running:
            if coming + free >= need:
                break
            coming += len(lease.gpus)
        return max(need - coming, 0)


def _cells(requests: Iterable[CellRequest]) -> Counter[Point]:
    """How often each cell is asked."""
    return Counter(request.cell for request in requests)
