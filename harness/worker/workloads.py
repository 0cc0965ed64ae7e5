"""WORKLOADS: the training programs that the worker runs in its own process; our own trainer is one."""

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


class NsaWorkload:
    """``nsa.train.trainer`` with a configuration that it has checked itself."""

    def __init__(self, config: Mapping[str, object]) -> None:
        from nsa.config import RunConfig  # of an old commit it may not even be importable, and that is a result

        self._config = RunConfig.from_mapping(config)

    def effective(self) -> Mapping[str, object]:
        """Every setting after parsing, defaults spelled out."""
        return self._config.to_mapping()

    def train(self, probes: Sequence[Probe]) -> None:
        """Train to the last step."""
        from nsa.train.trainer import train

        train(self._config, probes)


WORKLOADS = Registry("workload", {"nsa": "harness.worker.workloads:NsaWorkload"}, group="nsa_harness.workloads")
