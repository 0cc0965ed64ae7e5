"""SlurmEngine: agents as the tasks of one job step, one a node, started by srun.

``srun`` asks for an allocation of its own, or, inside one (sbatch, salloc), for a step of that. Account, time limit and
everything else that is not said here comes from Slurm's own variables (SBATCH_ACCOUNT, SLURM_TIMELIMIT, ...) and
defaults. It is a child of this process and dies with it; Slurm then ends the step.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

from harness.core.errors import LaunchError
from harness.settings import surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STOP_S = 20.0
"""How long srun may take to end its step after SIGTERM; then it is killed, and the agents end for want of a head."""

PENDING = ("queued and waiting", "job is pending", "Requested nodes are busy", "step creation temporarily disabled")
"""What srun writes while it waits for its turn."""

OPTIONS = (
    "--ntasks-per-node=1", "--job-name=nsa-harness", "--export=ALL", "--input=none", "--unbuffered",
    "--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--mpi=none",
)  # fmt: skip
"""One agent a node; the others live on when one goes."""


DIE_WITH_US = """import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Srun gets SIGTERM when this process dies, however it does."""


class SlurmEngine:
    """Starts agents by ``srun``. See :class:`harness.core.ports.Engine`."""

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
            *OPTIONS,
            *([f"--partition={where}"] if where and not inside else []),
            *([f"--gres={resources}"] if resources else []),
            *(["--overlap"] if inside else []),
            *([f"--jobid={job}"] if job else []),
        ]

    def place(self, argv: Sequence[str], *, env: Mapping[str, str], nodes: int) -> SlurmPlacement:
        """See :class:`harness.core.ports.Engine`."""
        return SlurmPlacement(["srun", f"--nodes={nodes}", f"--ntasks={nodes}", *self.options, *argv], env=env)


class SlurmPlacement:
    """A step of agents, by its srun. See :class:`harness.core.ports.Placement`."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str]) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in stop()
        self.srun = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", DIE_WITH_US, str(os.getpid()), *argv],
            env={**dict(surroundings()), **env},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def waits_for(self) -> str:
        """Srun's own last word while the job waits for its turn."""
        said = self._said()
        is_pending = said and any(word in said[-1] for word in PENDING)
        return said[-1].removeprefix("srun: ") if is_pending and self.srun.poll() is None else ""

    def over(self) -> str:
        """How srun ended, with its last line."""
        if self.srun.poll() is None:
            return ""
        said = self._said()
        return f"srun ended with {self.srun.returncode}{f': {said[-1]}' if said else ''}"

    def stop(self) -> None:
        """End the step, and the job where it is ours."""
        if self.log.closed:
            return
        with suppress(ProcessLookupError):
            self.srun.send_signal(signal.SIGTERM)
        try:
            self.srun.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.srun.kill()
            self.srun.wait()
        self.log.close()

    def _said(self) -> list[str]:
        if self.log.closed:
            return []
        self.log.seek(0)
        return [line for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
