"""The child's own environment: what it was given, and what a forked trial or rank must change in it."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from harness.worker.world import Share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.worker.world import Place


def seen(prefix: str) -> dict[str, str]:
    """The variables of this process whose names start with ``prefix``, sorted."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefix)}


def update(variables: Mapping[str, str]) -> None:
    """Set variables that libraries read later; what the trial was given stays as it is."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def set_launch(place: Place) -> None:
    """Tell this process, and whatever it starts, which rank it is, in the variables that torchrun uses."""
    os.environ |= {
        "RANK": str(place.rank),
        "LOCAL_RANK": str(place.rank - place.first),
        "WORLD_SIZE": str(place.world),
        "LOCAL_WORLD_SIZE": str(place.local or place.world),
        "MASTER_ADDR": place.host,
        "MASTER_PORT": str(place.port),
    }


def share() -> Share:
    """Which part of the ranks is this node's, as its agent told; all of them without one."""
    nodes = int(os.environ.get("NSA_HARNESS_PARTS", "1"))
    if nodes == 1:
        return Share()
    return Share(
        node=int(os.environ["NSA_HARNESS_PART"]),
        nodes=nodes,
        host=os.environ["MASTER_ADDR"],
        port=int(os.environ["MASTER_PORT"]),
    )


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
