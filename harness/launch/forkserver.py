"""ForkserverExecutor: trials of our own trainer in hundredths of a second, forked from a process that knows torch."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from harness.clock import WallClock
from harness.core.errors import LaunchError, NoAnswerError
from harness.launch import procs
from harness.launch.handle import LATE, begin, lay_out, readable
from harness.launch.procs import NO_TOKEN, TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.command import Command
    from harness.core.ports import Clock, Handle
    from harness.launch.handle import SupervisedHandle

PRELOAD = (
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch._dynamo",
    "nsa.train.trainer",
    "harness.worker.main",
)
"""What a server imports and never uses (optimizers and DDP import torch._dynamo, 1.5 s, on first use)."""

PRELOAD_LIMIT_S = 180.0
"""How long that may take; measured: 4 s, 10 s without bytecode on a busy machine."""

AT_ONCE_S = 1.0
"""A trial that was not started in this time is not tried again: what it waited for would count as its own time."""

SERVERS = 2
"""How many servers are kept. Each environment has its own: libraries read variables when they are imported."""


class ForkserverExecutor:
    """Forks ``command.entry`` from a warm server. See :class:`harness.core.ports.Executor`.

    A server is started with exactly ``command.env``, because OpenMP, MKL and torch read theirs while they are
    imported; trials with equal environments share one.
    """

    name = "forkserver"

    def __init__(
        self,
        *,
        python: str = sys.executable,
        clock: Clock | None = None,
        preload: tuple[str, ...] = PRELOAD,
        preload_limit_s: float = PRELOAD_LIMIT_S,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._python, self._clock, self._interrupted = python, clock or WallClock(), interrupted
        self._preload, self._preload_limit_s = preload, preload_limit_s
        self._servers: dict[tuple[tuple[str, str], ...], _Server] = {}
        self._handles: list[SupervisedHandle] = []

    def start(self, command: Command) -> Handle:
        """Fork a worker for ``command``; it runs when this returns. The first one waits for the server's imports.

        Raises:
            LaunchError: the command has no entry, the server cannot preload, or the entry does not exist.
            NoAnswerError: nothing answers; the next trial gets a server of its own.
            StoreError: the trial's folder cannot be written.
        """
        if command.entry is None:
            raise LaunchError(f"{command.argv[0]!r} has no entry to fork into; use the executor 'local'")
        started_s = self._clock.now()
        lay_out(command)
        server, began_s = self._server(command.env), self._clock.now()
        try:
            handle = self._begin(server, command, started_s=started_s)
        except LaunchError:
            if server.alive() or self._clock.now() > began_s + AT_ONCE_S:
                raise
            # It died since the last trial: once more, from a new one.
            handle = self._begin(self._server(command.env), command, started_s=started_s)
        self._handles = [h for h in self._handles if not h.stopped]
        self._handles.append(handle)
        return handle

    def prepare(self, command: Command) -> None:
        """Start the server for the command's environment now and wait until it has imported everything."""
        self._server(command.env)

    def close(self) -> None:
        """End every trial that is still running, then the servers."""
        for handle in self._handles:
            handle.stop(grace_s=0.0, clock=self._clock)
        self._handles.clear()
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def _begin(self, server: _Server, command: Command, *, started_s: float) -> SupervisedHandle:
        token = secrets.token_hex(16)
        control = server.fork(token)
        try:
            return begin(
                control,
                command,
                entry=command.entry,
                token=token,
                clock=self._clock,
                started_s=started_s,
                complaint=server.complaint,
            )
        except NoAnswerError:
            # It may be what does not answer, and nothing may be forked from it any more.
            server.close()
            self._servers = {env: other for env, other in self._servers.items() if other is not server}
            procs.end_carrying(token)
            raise

    def _server(self, env: tuple[tuple[str, str], ...]) -> _Server:
        server = self._servers.pop(env, None)
        if server is not None and not server.alive():
            server.close()
            server = None
        if server is None:
            while len(self._servers) >= SERVERS:
                # Its trials go on: a supervisor needs the server only to be born.
                self._servers.pop(next(iter(self._servers))).close()
            server = _Server(self._python, env=env, preload=self._preload, limit_s=self._preload_limit_s)
            try:
                server.await_ready(self._interrupted)
            except BaseException:
                server.close()
                raise
        self._servers[env] = server
        return server


class _Server:
    """One server process with its imports done."""

    def __init__(
        self, python: str, *, env: tuple[tuple[str, str], ...], preload: tuple[str, ...], limit_s: float
    ) -> None:
        self._limit_s, self._preload = limit_s, preload
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._control, theirs = socket.socketpair()
        argv = [python, "-P", "-m", "harness.launch.server", str(theirs.fileno()), str(os.getpid()), str(limit_s)]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*argv, *preload],
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    env={**dict(env), TOKEN: NO_TOKEN},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            self._control.close()
            self._log.close()
            raise LaunchError(f"the fork server's interpreter {python!r} cannot be started: {error}") from error

    def await_ready(self, interrupted: Callable[[], bool]) -> None:
        """Wait for its imports. LaunchError when they fail, take too long, are stopped, or the user asks to stop."""
        clock = WallClock()
        last_s, ran_s = clock.now() + self._limit_s, clock.now()
        ready = False
        while not ready and not interrupted() and clock.now() < min(last_s, ran_s + LATE):
            ready = readable(self._control.fileno(), min(0.2, self._limit_s))
            ran_s = clock.now() if self.alive() else ran_s
        line = self._control.recv(1024) if ready else b""
        if not line:
            why = f" in {self._limit_s:g} s" if clock.now() >= last_s else "" if self.alive() else ", or was stopped"
            what = f"did not import {', '.join(self._preload)}{'' if ready else why}"
            raise LaunchError(f"the fork server {what}; it wrote: {self.complaint() or 'nothing'}")
        self.threads: int = json.loads(line)["threads"]

    def alive(self) -> bool:
        """Whether it can still fork: it is there, and nobody has stopped it."""
        process = procs.read(self._process.pid)
        return self._process.poll() is None and process is not None and process.state not in "Tt"

    def fork(self, token: str) -> socket.socket:
        """Have a supervisor forked; our end of its socket. LaunchError when the server is gone."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [token.encode()], [theirs.fileno()])
            except OSError as error:
                ours.close()
                complaint = self.complaint() or "nothing"
                raise NoAnswerError(f"the fork server is gone: {error}; it wrote: {complaint}") from error
        return ours

    def complaint(self) -> str:
        """What it has written to its output."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()

    def close(self) -> None:
        """End it, also twice. It holds nothing worth a grace."""
        self._process.kill()
        self._process.wait()
        self._control.close()
        self._log.close()
