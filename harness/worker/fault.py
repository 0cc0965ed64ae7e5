"""The planted fault: calls a specimen at the phase and step where it strikes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from harness.core.dotted import leaves
from harness.specimens.catalog import Scene
from harness.worker.world import Place
from nsa.train.probe import Edge, NullProbe, Phase

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.trial import Trial
    from harness.specimens.catalog import Specimen
    from nsa.train.probe import TrainingState

START = "start"
"""A phase of ours: the rank exists, and has not joined the others."""


class FaultProbe(NullProbe):
    """Strikes when the trainer begins the specimen's phase at its step, on its rank or on all.

    It runs in the trainer's own thread and lets every exception through: to the trainer, the fault is its own.
    Whether the fault belongs at this point was decided by the controller.
    """

    def __init__(self, specimen: Specimen, *, trial: Trial, trial_dir: Path, place: Place | None = None) -> None:
        self.specimen, self.place = specimen, place or Place()
        seed = f"{trial.seed}|{trial.point}|{trial.repeat}"
        self.scene = Scene(
            trial_dir=trial_dir,
            random=random.Random(seed).random,
            rank=self.place.rank,
            world=self.place.world,
            device=_device(trial, self.place),
        )
        self._struck = False

    def start(self) -> None:
        """Strike now if the specimen's phase is ``start``: before this process joins any other."""
        if self.specimen.phase == START and self._here:
            self._strike()

    def built(self, state: TrainingState) -> None:
        """Keep the trainer's state for the specimen."""
        self.scene.state = state

    def mark(self, *, phase: Phase, edge: Edge, step: int | None, detail: str | None = None) -> None:
        """Strike, if it is time."""
        if edge != Edge.BEGIN or phase != self.specimen.phase or not self._due(step):
            return
        self._struck = True
        self.scene.step = step or 0
        if self.specimen.inside_backward and self.scene.state is not None:
            self.scene.state.in_backward(self._strike)
        else:
            self._strike()

    @property
    def _here(self) -> bool:
        return self.specimen.at_rank in (None, self.place.rank)

    def _due(self, step: int | None) -> bool:
        if not self._here:
            return False
        if step is None:  # the build phase has no step, and comes once
            return not self._struck
        return step >= self.specimen.step if self.specimen.every_step else step == self.specimen.step

    def _strike(self) -> None:
        self.specimen.strike(self.scene)


def _device(trial: Trial, place: Place) -> str:
    """Where this rank was asked to compute: ``cpu``, ``cuda``, of several ranks ``cuda:1``."""
    device = str(leaves(trial.config).get("train.device", "cpu"))
    if device == "auto":
        return "cpu"
    return f"{device}:{place.rank}" if device == "cuda" and place.world > 1 else device
