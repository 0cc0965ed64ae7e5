"""ChildPlacement: agents that an engine's own client holds, a child of this process that dies with it.

``srun`` is such a client, and ``harness.cluster.ray_client`` is one for Ray: when it ends, however it does, its engine
ends what it holds. So nothing of an engine runs in the harness's process: no thread, no handler of signals, no fork
that would be unsafe.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

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


class Processes:
    """Processes of this machine that are agents, or hold some: what they write, whether they run, and their end."""

    def __init__(self) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in stop()
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, argv: Sequence[str], *, env: Mapping[str, str]) -> None:
        """Begin one more, with ``env`` on top of what we were started with; OSError where that cannot be."""
        process = subprocess.Popen(
            list(argv),
            env={**dict(surroundings()), **env},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        self.processes.append(process)

    @property
    def is_running(self) -> bool:
        """Whether one of them still runs."""
        return any(process.poll() is None for process in self.processes)

    @property
    def last_line(self) -> str:
        """The last line in the log that says something; empty without one."""
        if self.log.closed:
            return ""
        self.log.seek(0)
        lines = list(filter(str.strip, self.log.read().decode(errors="replace").splitlines()))
        return lines[-1] if lines else ""

    def stop(self) -> None:
        """End all that still run, and with them what they hold."""
        if self.log.closed:
            return
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.log.close()


class ChildPlacement(Processes):
    """What the client ``argv`` holds; it writes one of ``pending`` while it waits. See ``core.ports.Placement``."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], name: str, pending: Sequence[str]) -> None:
        super().__init__()
        self.name, self.pending = name, pending
        self.start([sys.executable, "-I", "-S", "-c", DIE_WITH_US, str(os.getpid()), *argv], env=env)

    def waits_for(self) -> str:
        """The client's last word while it waits for its turn."""
        last = self.last_line
        is_pending = any(word in last for word in self.pending)
        return last.removeprefix(f"{self.name}: ") if is_pending and self.is_running else ""

    def over(self) -> str:
        """How the client ended, with its last line."""
        if self.is_running:
            return ""
        last = self.last_line.removeprefix(f"{self.name}: ")
        return f"{self.name} ended with {self.processes[0].returncode}{f': {last}' if last else ''}"
