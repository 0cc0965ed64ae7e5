"""stdout-flood: prints without measure, and trains to the end."""

from __future__ import annotations

import sys

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen

FLOOD_BYTES = 24_000_000


def print_without_end(scene: Scene) -> None:
    """Write ``FLOOD_BYTES`` to stdout, line by line in larger pieces."""
    line = "step 1 loss 5.5452 " + "." * 80 + "\n"
    piece = line * 1000
    for _ in range(FLOOD_BYTES // len(piece) + 1):
        sys.stdout.write(piece)
    sys.stdout.flush()


SPECIMEN = Specimen(
    name="stdout-flood",
    strike=print_without_end,
    expect=Kind.PASS,
    imitates="a debug print inside the innermost loop",
)
