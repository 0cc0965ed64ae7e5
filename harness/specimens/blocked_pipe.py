"""blocked-pipe: a write into a pipe that nobody reads."""

from __future__ import annotations

import os

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen


def write_into_full_pipe(scene: Scene) -> None:
    """Write until the pipe is full, and wait for a reader that does not come."""
    _reader, writer = os.pipe()
    while True:
        os.write(writer, bytes(65536))


SPECIMEN = Specimen(
    name="blocked-pipe",
    strike=write_into_full_pipe,
    expect=Kind.HANG,
    cause="blocked-pipe",
    expect_frame="write_into_full_pipe",
    imitates="logging into a pipe whose reader is stuck",
)
