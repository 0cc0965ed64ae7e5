"""prctl(2): three per-process switches that the standard library has no call for."""

from __future__ import annotations

import ctypes
import os

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    zero = ctypes.c_ulong(0)
    if libc.prctl(option, argument, zero, zero, zero) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")


def become_subreaper() -> None:
    """Orphaned descendants become our children instead of init's: none leaves the tree."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int, *, parent: int) -> None:
    """Have the kernel send us ``number`` when ``parent`` dies; end at once if it is dead already."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(128 + number)


def set_name(name: str) -> None:
    """The name that ps and /proc show; at most 15 bytes count."""
    _prctl(_PR_SET_NAME, name.encode())
