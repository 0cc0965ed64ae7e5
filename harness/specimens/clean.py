"""clean: nothing is planted; the control that must pass."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen


def do_nothing(scene: Scene) -> None:
    """Leave the trainer alone."""


SPECIMEN = Specimen(name="clean", strike=do_nothing, expect=Kind.PASS, imitates="a healthy training run")
