"""LocalExecutor: every trial in a fresh process on this machine."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import harness
from harness.clock import WallClock
from harness.launch import procs
from harness.launch.handle import ANSWER_LIMIT_S, begin, lay_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.command import Command
    from harness.core.ports import Clock, Handle
    from harness.launch.handle import SupervisedHandle

# Isolated and without site-packages the supervisor's interpreter is up in 0.02 s. The folder of our own package
# goes last, so that nothing beside it can stand in for a module of the standard library.
BOOT = "import sys; sys.path.append(sys.argv[1]); from harness.launch.supervisor import main; main(int(sys.argv[2]))"
_HOME = str(Path(harness.__file__).parents[1])


class LocalExecutor:
    """Starts ``command.argv``, any program; trials share nothing. See :class:`harness.core.ports.Executor`."""

    name = "local"

    def __init__(
        self,
        *,
        python: str = sys.executable,
        clock: Clock | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """``python`` is not used (``command.argv`` names its program), nor ``interrupted``: nothing here waits long."""
        self._clock = clock or WallClock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._running: list[tuple[SupervisedHandle, subprocess.Popen[bytes]]] = []

    def prepare(self, command: Command) -> None:
        """Nothing: trials share nothing, so nothing can be done once for all."""

    def start(self, command: Command) -> Handle:
        """Start ``command``; it runs when this returns.

        Raises:
            LaunchError: the program is missing or cannot be started.
            StoreError: the trial's folder cannot be written.
        """
        started_s = self._clock.now()
        # Taking the exit status of supervisors that have ended leaves no zombies of them.
        self._running = [(handle, process) for handle, process in self._running if process.poll() is None]
        lay_out(command)
        token = secrets.token_hex(16)
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", BOOT, _HOME, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**dict(command.env), procs.TOKEN: token},
                pass_fds=[theirs.fileno(), *command.descriptors],
                start_new_session=True,
            )
        try:
            handle = begin(
                ours,
                command,
                entry=None,
                token=token,
                clock=self._clock,
                started_s=started_s,
                complaint=self._complaint,
            )
        except BaseException:
            ours.close()  # the supervisor sees the end of its socket, ends what it started and itself
            try:
                process.wait(ANSWER_LIMIT_S)
            except subprocess.TimeoutExpired:  # unless somebody has stopped it
                procs.end_carrying(token)
                process.wait()
            raise
        self._running.append((handle, process))
        return handle

    def close(self) -> None:
        """End every trial that is still running."""
        for handle, process in self._running:
            handle.stop(grace_s=0.0, clock=self._clock)
            process.wait()
        self._running.clear()
        self._log.close()

    def _complaint(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()
