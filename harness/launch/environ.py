"""A variable of a process, changed where the kernel shows it: a forked trial has its own token there."""

from __future__ import annotations

import ctypes
import os

_PLACES: dict[str, int | None] = {}
"""Where the values of variables lay when they were first written over."""


def overwrite(name: str, value: str) -> None:
    """Change a variable that this process was started with, also where /proc/PID/environ shows it.

    The kernel shows the memory that exec filled, and a fork without exec inherits that. So the old value is
    written over in place, which needs one of the same length.

    Raises:
        ValueError: the variable is not there, or its value has another length.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    # The second time getenv would give the copy that putenv has made.
    address = _PLACES.setdefault(name, libc.getenv(name.encode()))
    if address is None or len(ctypes.string_at(address)) != len(value.encode()):
        raise ValueError(f"{name} must be in the environment with a value of {len(value.encode())} bytes")
    ctypes.memmove(address, value.encode(), len(value.encode()))
    os.environ[name] = value
