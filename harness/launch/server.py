"""The fork server: a process that has imported what trials need and never used it.

``python -P -m harness.launch.server SOCKET PARENT MODULE...`` imports the modules, says so on the socket, and from
then on forks a supervisor for every descriptor that it is sent. It runs no operator of any library: a fork after
the first multi-threaded operator inherits a thread pool without its threads, and hangs. It dies with the controller.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from harness.launch import prctl
from harness.launch.procs import NO_TOKEN, TOKEN
from harness.launch.supervisor import open_descriptors, supervise

if TYPE_CHECKING:
    from collections.abc import Callable

HANG_DUMP_S = 0.8
"""Share of the time limit after which a preload that is not done prints where it is."""

_PLACES: dict[str, int | None] = {}
"""Where the values of variables lay when they were first written over."""


def main(argv: list[str]) -> int:
    """Preload, then serve until the controller closes the socket. In a forked worker: run the trial."""
    descriptor, parent, limit_s = int(argv[0]), int(argv[1]), float(argv[2])
    prctl.die_with_parent(signal.SIGKILL, parent=parent)
    prctl.set_name("nsa-forkserver")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - positional only
    control = socket.socket(fileno=descriptor)
    faulthandler.dump_traceback_later(limit_s * HANG_DUMP_S)
    for module in argv[3:]:
        importlib.import_module(module)
    faulthandler.cancel_dump_traceback_later()
    gc.collect()
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - one way to list /proc in this package
    control.sendall(json.dumps({"ready": True, "threads": threads}).encode() + b"\n")
    work = _serve(control)
    if work is not None:
        leave(work() or 0)
    return 0


def leave(code: int) -> NoReturn:
    """End a forked worker: join its threads, run its exit handlers, flush; but take no module apart.

    Tearing down every imported module touches all the memory that the fork shares with the server: 0.25 s a trial
    for torch. What hangs in C++ destructors at the very end shows only in a fresh interpreter.
    """
    threading._shutdown()  # pyrefly: ignore[missing-attribute] - what multiprocessing calls in its forks
    atexit._run_exitfuncs()  # likewise
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _serve(control: socket.socket) -> Callable[[], int | None] | None:
    """Fork for every request. None in the server when the controller is gone, the trial's work in a worker."""
    keep = open_descriptors() - {control.fileno()}
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors leave no zombies
    while True:
        token, descriptors, _, _ = socket.recv_fds(control, 1024, 1)
        if not token:
            return None
        sys.stdout.flush()
        sys.stderr.flush()
        overwrite(TOKEN, token.decode())  # before it is born, so that it is never without
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            return supervise(descriptors[0], keep=keep)
        overwrite(TOKEN, NO_TOKEN)
        os.close(descriptors[0])


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


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
