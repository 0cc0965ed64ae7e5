"""WORKLOADS: the training programs that the worker runs in its own process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from harness.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nsa.train.probe import Probe


class Workload(Protocol):
    """A training program, built from a trial's configuration; a row of WORKLOADS names such a class."""

    def effective(self) -> Mapping[str, object]:
        """The whole configuration as the program itself understood it, not as it was asked for."""
        ...

    def train(self, probes: Sequence[Probe]) -> None:
        """Run all steps, telling ``probes`` at every phase; returns only when all are done."""
        ...


WORKLOADS = Registry("workload", {"nsa": "harness.worker.nsa:NsaWorkload"}, group="nsa_harness.workloads")
