"""Leases: which of the questions that a search asks may start now, and on which GPUs. Pure; the widest first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harness.core.point import Point
    from harness.core.ports import CellRequest

PATIENCE = 16
"""Later trials that may start before an earlier one; then nothing starts before it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A trial that waits: ``id`` rises with its arrival."""

    id: int
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What a trial holds while it runs: ``gpus`` are positions in the list of visible GPUs."""

    need: Demand
    gpus: tuple[int, ...] = ()


class Leases:
    """Gives GPUs, and one of ``slots`` each, to waiting trials.

    The widest trial is served first, the oldest of equals. While it does not fit, what it waits for is reserved: the
    GPUs of those running trials that began first, as many free ones as it then still lacks, and a slot. Narrower
    trials may use the rest. A trial that :data:`PATIENCE` later ones have overtaken is served before all others, so
    that every one is served in the end, whatever else arrives.
    """

    def __init__(self, *, gpus: int, slots: int) -> None:
        self.n_gpus, self.n_slots = gpus, slots
        self.waiting: dict[int, Demand] = {}
        self._overtaken: dict[int, int] = {}
        self.running: list[Lease] = []

    def offer(self, need: Demand) -> None:
        """Let a trial wait.

        Raises:
            LaunchError: it needs more GPUs than there are.
        """
        if need.gpus > self.n_gpus:
            raise LaunchError(f"a cell needs {need.gpus} GPUs, but {self.n_gpus} are visible here (resources: gpus)")
        self.waiting[need.id] = need
        self._overtaken[need.id] = 0

    def withdraw(self, id: int) -> None:
        """Forget a waiting trial."""
        self.waiting.pop(id, None)
        self._overtaken.pop(id, None)

    def grant(self) -> Lease | None:
        """The lease of the trial that may start next; None while no waiting one may."""
        lease = self._next()
        if lease is not None:
            self.withdraw(lease.need.id)
            for id in self.waiting:
                self._overtaken[id] += id < lease.need.id
            self.running.append(lease)
        return lease

    def release(self, lease: Lease) -> None:
        """Take a lease back."""
        self.running.remove(lease)

    def _next(self) -> Lease | None:
        gpus, slots = set(range(self.n_gpus)), self.n_slots - len(self.running)
        for lease in self.running:
            gpus.difference_update(lease.gpus)
        free = sorted(gpus)
        is_reserved = False
        for need in self._in_order():
            if slots > 0 and need.gpus <= len(free):
                return Lease(need=need, gpus=tuple(free[: need.gpus]))
            if self._overtaken[need.id] >= PATIENCE:
                return None
            if not is_reserved:
                is_reserved = True
                free = free[self._reserved_gpus(need, len(free)) :]
                slots -= 1
        return None

    def _in_order(self) -> list[Demand]:
        def rank(need: Demand) -> tuple[bool, int, int]:
            if self._overtaken[need.id] >= PATIENCE:
                return (False, 0, need.id)
            return (True, -need.gpus, need.id)

        return sorted(self.waiting.values(), key=rank)

    def _reserved_gpus(self, need: Demand, free: int) -> int:
        """How many free GPUs must stay free, so that ``need`` fits once the oldest trials it waits for have ended."""
        coming = 0
        for lease in self.running:
            if coming + free >= need.gpus:
                break
            coming += len(lease.gpus)
        return max(need.gpus - coming, 0)


class Queue:
    """Questions waiting for a lease. Call :meth:`want` whenever an answer may have changed what is asked."""

    def __init__(self, leases: Leases, *, gpus_at: Callable[[Point], int]) -> None:
        self.leases = leases
        self.gpus_at = gpus_at
        self._waiting: dict[int, CellRequest] = {}
        self._running: dict[int, CellRequest] = {}
        self._last = 0

    def want(self, requests: Sequence[CellRequest]) -> None:
        """Let wait what is asked and neither waits nor runs yet, and nothing that is no longer asked.

        Raises:
            LaunchError: a cell needs more GPUs than there are.
        """
        missing = _cells(requests) - _cells(self._running.values())
        for id, request in list(self._waiting.items()):
            if missing[request.cell]:
                missing[request.cell] -= 1
            else:
                self.leases.withdraw(id)
                del self._waiting[id]
        for request in requests:
            if missing[request.cell]:
                missing[request.cell] -= 1
                self._last += 1
                self.leases.offer(Demand(id=self._last, gpus=self.gpus_at(request.cell)))
                self._waiting[self._last] = request

    def grant(self) -> tuple[CellRequest, Lease] | None:
        """The next question that may run, with what it holds; None while none may."""
        lease = self.leases.grant()
        if lease is None:
            return None
        request = self._running[lease.need.id] = self._waiting.pop(lease.need.id)
        return request, lease

    def release(self, lease: Lease) -> None:
        """A question no longer runs."""
        self.leases.release(lease)
        del self._running[lease.need.id]

    def put_back(self, lease: Lease) -> None:
        """A question that was granted cannot run now: it waits again, in its old place."""
        self.leases.release(lease)
        self.leases.offer(lease.need)
        self._waiting[lease.need.id] = self._running.pop(lease.need.id)


def _cells(requests: Iterable[CellRequest]) -> Counter[Point]:
    """How often each cell is asked."""
    return Counter(request.cell for request in requests)
