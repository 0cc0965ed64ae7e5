"""The child's own environment: what it was given, and the one variable that a forked trial must change."""

from __future__ import annotations

import ctypes
import os


def seen(prefix: str) -> dict[str, str]:
    """The variables of this process whose names start with ``prefix``, sorted."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefix)}


def overwrite(name: str, value: str) -> None:
    """Change a variable that this process was started with, also where /proc/PID/environ shows it.

    The kernel shows the memory that exec filled, and a fork without exec inherits that. So the old value is
    written over in place, which needs one of the same length.

    Raises:
        ValueError: the variable is not there, or its value has another length.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(name.encode())
    if address is None or len(ctypes.string_at(address)) != len(value.encode()):
        raise ValueError(f"{name} must be in the environment with a value of {len(value.encode())} bytes")
    ctypes.memmove(address, value.encode(), len(value.encode()))
    os.environ[name] = value
