"""gil-wait: C code waits for ever and keeps the GIL, so that no Python thread can run, watchdogs included."""

from __future__ import annotations

import ctypes

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen

MUTEX_BYTES = 64
"""At least sizeof(pthread_mutex_t) on every Linux ABI; all zeros is PTHREAD_MUTEX_INITIALIZER."""


def lock_mutex_twice_with_gil(scene: Scene) -> None:
    """Lock a C mutex twice through PyDLL, which does not release the GIL around the call."""
    libc = ctypes.PyDLL(None)
    mutex = ctypes.create_string_buffer(MUTEX_BYTES)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


SPECIMEN = Specimen(
    name="gil-wait",
    strike=lock_mutex_twice_with_gil,
    expect=Kind.HANG,
    cause="gil-held",
    expect_frame="lock_mutex_twice_with_gil",
    imitates="an extension that blocks without releasing the GIL",
)
