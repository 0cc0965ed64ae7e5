"""segfault: native code reads address zero."""

from __future__ import annotations

import ctypes

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen


def read_address_zero(scene: Scene) -> None:
    """Dereference a null pointer."""
    ctypes.string_at(0)


SPECIMEN = Specimen(
    name="segfault",
    strike=read_address_zero,
    expect=Kind.CRASH,
    cause="SIGSEGV",
    imitates="a kernel that reads outside its tensors",
)
