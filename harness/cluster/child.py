"""ChildPlacement: agents that an engine's own client holds, a child of this process that dies with it.

``srun`` is such a client, and ``harness.cluster.ray_client`` is one for Ray: when it ends, however it does, its engine
ends what it holds. So nothing of an engine runs in the harness's process: no thread, no handler of signals, no fork
that would be unsafe.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from harness.settings import surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STOP_S = 20.0
"""How long a client may take to end after SIGTERM; then it is killed, and the agents end for want of a head."""

DIE_WITH_US = """import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""The client gets SIGTERM when this process dies, however it does."""


class ChildPlacement:
    """What the client ``argv`` holds; it writes one of ``pending`` while it waits. See ``core.ports.Placement``."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], name: str, pending: Sequence[str]) -> None:
        self.name, self.pending = name, pending
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in stop()
        self.client = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", DIE_WITH_US, str(os.getpid()), *argv],
            env={**dict(surroundings()), **env},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def waits_for(self) -> str:
        """The client's last word while it waits for its turn."""
        lines = self._lines()
        is_pending = lines and any(word in lines[-1] for word in self.pending)
        return lines[-1].removeprefix(f"{self.name}: ") if is_pending and self.client.poll() is None else ""

    def over(self) -> str:
        """How the client ended, with its last line."""
        if self.client.poll() is None:
            return ""
        lines = self._lines()
        last = lines[-1].removeprefix(f"{self.name}: ") if lines else ""
        return f"{self.name} ended with {self.client.returncode}{f': {last}' if last else ''}"

    def stop(self) -> None:
        """End the client, and with it what it holds."""
        if self.log.closed:
            return
        with suppress(ProcessLookupError):
            self.client.send_signal(signal.SIGTERM)
        ended(self.client)
        self.log.close()

    def _lines(self) -> list[str]:
        return [] if self.log.closed else written_lines(self.log)


def written_lines(log: IO[bytes]) -> list[str]:
    """The lines in ``log`` that say something."""
    log.seek(0)
    return list(filter(str.strip, log.read().decode(errors="replace").splitlines()))


def ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process that was asked to end; kill it if that takes too long."""
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
