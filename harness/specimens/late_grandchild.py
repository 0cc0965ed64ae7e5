"""late-grandchild: trains to the end, but leaves a detached process behind."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen
from harness.specimens.family import detach_grandchild


def leave_a_grandchild(scene: Scene) -> None:
    """Start something that outlives the training."""
    detach_grandchild(scene.trial_dir)


SPECIMEN = Specimen(
    name="late-grandchild",
    strike=leave_a_grandchild,
    expect=Kind.PASS,
    leaves_processes=True,
    imitates="a helper process that is never shut down and keeps the output pipe open",
)
