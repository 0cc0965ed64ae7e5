"""SlurmEngine: agents as the tasks of one job step, one a node, started by srun.

``srun`` asks for an allocation of its own, or, inside one (sbatch, salloc), for a step of that. Account, time limit and
everything else that is not said here comes from Slurm's own variables (SBATCH_ACCOUNT, SLURM_TIMELIMIT, ...) and
defaults. It is a child of this process and dies with it; Slurm then ends the step.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from harness.cluster.child import ChildPlacement
from harness.core.errors import LaunchError
from harness.settings import surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PENDING = ("queued and waiting", "job is pending", "Requested nodes are busy", "step creation temporarily disabled")
"""What srun writes while it waits for its turn."""

OPTIONS = (
    "--ntasks-per-node=1", "--job-name=nsa-harness", "--export=ALL", "--input=none", "--unbuffered",
    "--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--mpi=none",
)  # fmt: skip
"""One agent a node; the others live on when one goes."""


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

    def place(self, argv: Sequence[str], *, env: Mapping[str, str], nodes: int) -> ChildPlacement:
        """See :class:`harness.core.ports.Engine`."""
        command = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", *self.options, *argv]
        return ChildPlacement(command, env=env, name="srun", pending=PENDING)
