"""Lock: at most one controller works in a run directory."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from harness.core.errors import RunBusyError
from harness.store import layout
from harness.store.files import write_failed

if TYPE_CHECKING:
    from pathlib import Path


def hold(run_dir: Path) -> int:
    """A descriptor that holds the run until it is closed.

    Raises:
        RunBusyError: another controller holds it; the message names its PID.
        StoreError: the folder may not be written to.
    """
    # flock belongs to the open file, not to the process: it ends with the last descriptor, so it must not reach a
    # child (O_CLOEXEC; executors start children through exec).
    path = layout.lock(run_dir)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise write_failed(path, error, safe="nothing was changed") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        who = f"PID {holder}" if holder else "another controller"
        raise RunBusyError(f"{run_dir} is in use by {who}") from error
    except OSError as error:
        os.close(descriptor)
        raise write_failed(path, error, safe="nothing was changed") from error
    return descriptor
