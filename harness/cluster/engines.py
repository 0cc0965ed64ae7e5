"""The engines: agents as processes of this machine, as tasks of one step of Slurm, or of one placement group of Ray.

The last two are held by the engine's own client (srun, ``harness.cluster.ray_client``), a child of this process that
dies with it: when it ends, however it does, its engine ends what it holds. So nothing of an engine runs in the
harness's process: no thread, no handler of signals, no fork that would be unsafe.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cluster.wire import ORDER
from harness.core.errors import LaunchError
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


class LocalEngine:
    """Starts agents as processes of this machine. See :class:`harness.core.ports.Engine`."""

    name = "local"

    def __init__(self, where: str = "", resources: str = "") -> None:
        """``resources`` are not asked for.

        Raises:
            LaunchError: ``where`` names something; there is only this machine.
        """
        if where or resources:
            raise LaunchError("--on local takes neither a place nor --gres: it has this machine and all that is in it")

    def place(self, argv: Sequence[str], *, env: Mapping[str, str], nodes: int) -> LocalPlacement:
        """See :class:`harness.core.ports.Engine`."""
        return LocalPlacement([self.wrapped(argv, number) for number in range(nodes)], env=env)

    def wrapped(self, argv: Sequence[str], number: int) -> Sequence[str]:
        """How the agent of node ``number`` is started; tests put it into namespaces of its own."""
        return argv


class LocalPlacement(Processes):
    """Processes of this machine. See :class:`harness.core.ports.Placement`."""

    def __init__(self, commands: Sequence[Sequence[str]], *, env: Mapping[str, str]) -> None:
        super().__init__()
        try:
            for number, argv in enumerate(commands):
                self.start(argv, env={**env, ORDER: str(number)})
        except OSError as error:
            self.stop()
            raise LaunchError(f"an agent cannot be started: {error}") from error

    def waits_for(self) -> str:
        """Nothing: they run at once."""
        return ""

    def over(self) -> str:
        """Why none runs any more, by the last line that they wrote."""
        if self.log.closed or self.is_running:
            return ""
        return f"the agents have ended{f': {self.last_line}' if self.last_line else ''}"


QUEUED = ("queued and waiting", "job is pending", "Requested nodes are busy", "step creation temporarily disabled")
"""What srun writes while it waits for its turn."""

SRUN_OPTIONS = (
    "--ntasks-per-node=1", "--job-name=nsa-harness", "--export=ALL", "--input=none", "--unbuffered",
    "--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--mpi=none",
)  # fmt: skip
"""One agent a node; the others live on when one goes."""


class SlurmEngine:
    """Starts agents by ``srun``, one a node. See :class:`harness.core.ports.Engine`.

    ``srun`` asks for an allocation of its own, or, inside one (sbatch, salloc), for a step of that. Account, time limit
    and everything else that is not said here comes from Slurm's own variables (SBATCH_ACCOUNT, SLURM_TIMELIMIT, ...).
    """

    name = "slurm"

    def __init__(self, where: str = "", resources: str = "", *, job: str = "") -> None:
        """``where`` is a partition, ``resources`` what ``--gres`` takes; ``job`` puts the agents into a job that runs.

        Raises:
            LaunchError: there is no srun here.
        """
        if shutil.which("srun") is None:
            raise LaunchError("there is no srun here: run this on a machine from which jobs are submitted")
        inside = job or dict(surroundings()).get("SLURM_JOB_ID", "")
        self.options = [
            *SRUN_OPTIONS,
            *([f"--partition={where}"] if where and not inside else []),
            *([f"--gres={resources}"] if resources else []),
            *(["--overlap"] if inside else []),
            *([f"--jobid={job}"] if job else []),
        ]

    def place(self, argv: Sequence[str], *, env: Mapping[str, str], nodes: int) -> ChildPlacement:
        """See :class:`harness.core.ports.Engine`."""
        command = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", *self.options, *argv]
        return ChildPlacement(command, env=env, name="srun", pending=QUEUED)


USUAL = {"cpu": "CPU", "gpu": "GPU"}
"""Ray's own spelling of what ``--gres`` may name as Slurm does."""


class RayEngine:
    """Starts agents as tasks of Ray. See :class:`harness.core.ports.Engine`.

    Where Ray runs is said by ``--on ray:ADDRESS``, by RAY_ADDRESS, or is found on this machine.
    """

    name = "ray"

    def __init__(self, where: str = "", resources: str = "") -> None:
        """``where`` is an address, ``resources`` what each node must have: ``gpu:1,cpu:4`` or names of one's own.

        Raises:
            LaunchError: there is no package ray here, or ``resources`` is no such list.
        """
        if find_spec("ray") is None:
            raise LaunchError("there is no ray here: pip install 'nsa-harness[cluster]', in the version of the cluster")
        self.where, self.resources = where, {"CPU": 1.0, **_resources(resources)}

    def place(self, argv: Sequence[str], *, env: Mapping[str, str], nodes: int) -> ChildPlacement:
        """See :class:`harness.core.ports.Engine`."""
        order = {
            "address": self.where, "nodes": nodes, "resources": self.resources, "argv": list(argv), "names": list(env),
            "cwd": str(Path.cwd()),
        }  # fmt: skip
        client = [sys.executable, "-P", "-m", "harness.cluster.ray_client", json.dumps(order)]
        return ChildPlacement(client, env=env, name="ray", pending=("waits for",))


def _resources(text: str) -> dict[str, float]:
    resources: dict[str, float] = {}
    for item in filter(None, text.split(",")):
        name, colon, number = item.rpartition(":")
        try:
            resources[USUAL.get(name.lower(), name)] = float(number)
        except ValueError:
            colon = ""
        if not colon:
            raise LaunchError(f"--gres {text!r} of ray is a list of NAME:NUMBER, e.g. gpu:1,cpu:4")
    return resources
