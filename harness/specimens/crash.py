"""crash: the forward pass raises."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen


def raise_value_error(scene: Scene) -> None:
    """Complain about a shape, as torch's own checks do."""
    raise ValueError(f"planted: shapes (3, 4) and (5, 6) cannot be multiplied at step {scene.step}")


SPECIMEN = Specimen(
    name="crash",
    strike=raise_value_error,
    expect=Kind.CRASH,
    cause="ValueError",
    expect_frame="raise_value_error",
    imitates="a shape error",
)
