"""Neighbours: who else is on a GPU. What runs beside a stranger is no evidence about the program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.ports import WatchedJob
from harness.observe.devices.nvml import Nvml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DRIVER = Path("/proc/driver/nvidia/gpus")
VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus(env: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs that a program with this environment sees, each by the name that CUDA_VISIBLE_DEVICES has for it.

    As CUDA does, the list ends at the first entry that is empty or negative; without the variable all are visible.
    """
    if VISIBLE not in env:
        return tuple(map(str, range(len(list(DRIVER.glob("*"))))))
    names: list[str] = []
    for name in map(str.strip, env[VISIBLE].split(",")):
        if not name or name.startswith("-"):
            break
        names.append(name)
    return tuple(names)


def identity(name: str, uuids: Sequence[str]) -> str:
    """What a GPU's name in CUDA_VISIBLE_DEVICES stands for: its UUID where the driver tells ``uuids``, by number."""
    if name.isdigit() and int(name) < len(uuids):
        return uuids[int(name)] or name
    if not name.startswith("GPU-"):
        return name
    matches = [uuid for uuid in uuids if uuid.startswith(name)]
    return matches[0] if len(matches) == 1 else name


class Neighbours:
    """Looks for processes on GPUs of which nothing of ours should run now."""

    def __init__(self, nvml: Nvml | None = None) -> None:
        self._nvml = nvml or Nvml()

    def on(self, gpus: Sequence[str]) -> str:
        """Who is on these GPUs, in words; empty when nobody is, or when it cannot be told.

        GPUs that are named by something other than their number are not looked at: NVML does not know those names.
        """
        numbers = {int(name) for name in gpus if name.isdigit()}
        if not numbers:
            return ""
        devices = self._nvml.see(WatchedJob(ranks={}, pids=frozenset(), world=0, trial_dir=Path(), t_s=0.0))
        strangers: list[str] = []
        for sample in devices.gpus:
            if sample.index not in numbers:
                continue
            for process in sample.processes:
                memory = f" ({process.memory_bytes / 1e9:.1f} GB)" if process.memory_bytes else ""
                strangers.append(f"PID {process.pid} on GPU {sample.index}{memory}")
        return ", ".join(strangers)
