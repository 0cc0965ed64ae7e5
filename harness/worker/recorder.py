"""Lets the flight recorder of this rank be read from outside while it hangs."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Any

from harness.store import layout
from harness.store.recording import recorder_environment
from harness.worker import environment

if TYPE_CHECKING:
    from pathlib import Path

_servers: list[Any] = []


def serve(folder: Path, rank: int) -> str:
    """Start torch's own C++ server on a socket in ``folder``; why it could not be started, or nothing.

    It answers without Python, so also while the GIL is held. Call it before the process group is made, which reads the
    recorder's variables from the environment; nothing may fork afterwards.
    """
    environment.update(recorder_environment(folder))
    try:
        from torch._C._distributed_c10d import (
            _WorkerServer,  # private, Linux
        )
    except ImportError as error:
        return f"this torch has no server for the flight recorder: {error}"
    path = layout.recorder_socket(folder, rank)
    path.unlink(missing_ok=True)
    # A socket's name has room for 107 bytes; a descriptor of the folder makes any path short. It stays open.
    parent = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        server = _WorkerServer(f"/proc/self/fd/{parent}/{path.name}")
    except RuntimeError as error:
        os.close(parent)
        return f"the flight recorder cannot be read from outside: {str(error).splitlines()[0]}"
    _servers.append(server)
    atexit.register(server.shutdown)
    return ""
