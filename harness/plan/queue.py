"""Queue: of what a search asks, which questions run, which wait, and which it has stopped asking. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from harness.plan.leases import Demand, Leases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harness.core.point import Point
    from harness.core.ports import CellRequest
    from harness.plan.leases import Lease


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
