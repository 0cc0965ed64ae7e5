"""RayEngine: agents as the tasks of one placement group, one a node, held by a Ray driver of their own.

The driver is a child of this process (``harness.cluster.ray_client``) and dies with it; Ray then ends its tasks and
gives the group back. Where Ray runs is said by ``--on ray:ADDRESS``, by RAY_ADDRESS, or is found on this machine.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cluster.child import ChildPlacement
from harness.core.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PENDING = ("waits for",)
"""What the driver writes while it waits for its turn."""

USUAL = {"cpu": "CPU", "gpu": "GPU"}
"""Ray's own spelling of what ``--gres`` may name as Slurm does."""


class RayEngine:
    """Starts agents as tasks of Ray. See :class:`harness.core.ports.Engine`."""

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
        return ChildPlacement(client, env=env, name="ray", pending=PENDING)


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
