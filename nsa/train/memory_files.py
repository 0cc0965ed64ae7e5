"""``mem_boot``, ``mem_step1``, ``mem_step<n>``, as text and as JSON: the memory of this process, not of the device.

What nvidia-smi shows is everybody's memory. On a GPU these are the caching allocator's own numbers; everywhere the
resident memory of the process, and what weights, gradients and optimizer state account for. All in MiB.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from nsa.train.probe import NullProbe

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from nsa.train.probe import TrainingState


class MemoryFiles(NullProbe):
    """The memory when everything is built, after the first step, and every so many steps."""

    def __init__(self, folder: Path, *, rank: int, every: int) -> None:
        self._folder, self._suffix, self._every = folder, f"_rank{rank}" if rank else "", every
        self._state: TrainingState | None = None

    def built(self, state: TrainingState) -> None:
        """What is there before the first step."""
        self._state = state
        self._write("boot")

    def step_done(self, *, step: int, facts: Mapping[str, float]) -> None:
        """What is there after a step; gradients are gone by then."""
        if step == 0 or (step + 1) % self._every == 0:
            self._write(f"step{step + 1}")

    def _write(self, when: str) -> None:
        import torch

        assert self._state is not None, "built comes before every step"
        facts = memory_mib(self._state)
        text = "".join(f"{name}: {value:.1f} MiB\n" for name, value in facts.items())
        record: dict[str, object] = {"unit": "MiB", **facts}
        if torch.cuda.is_initialized():
            text += torch.cuda.memory_summary()
            record["cuda_bytes"] = torch.cuda.memory_stats()
        name = f"mem_{when}{self._suffix}"
        (self._folder / f"{name}.txt").write_text(text, encoding="utf-8")
        (self._folder / f"{name}.json").write_text(json.dumps(record, indent=1), encoding="utf-8")


def memory_mib(state: TrainingState) -> dict[str, float]:
    """This process's memory in MiB, by what holds it.

    A parameter that is spread over ranks counts by this rank's part.
    """
    import torch

    optimizer = state.optimizer
    assert isinstance(optimizer, torch.optim.Optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    moments = [t for values in optimizer.state.values() for t in values.values() if isinstance(t, torch.Tensor)]
    facts = {
        "weights": _mib(parameters),
        "gradients": _mib([p.grad for p in parameters if p.grad is not None]),
        "optimizer_state": _mib(moments),
        **_resident(),
    }
    if torch.cuda.is_initialized():
        facts |= {
            "gpu_allocated": torch.cuda.memory_allocated() / 2**20,
            "gpu_allocated_peak": torch.cuda.max_memory_allocated() / 2**20,
            "gpu_reserved": torch.cuda.memory_reserved() / 2**20,
        }
    return facts


def _mib(tensors: list[torch.Tensor]) -> float:
    from torch.distributed.tensor import DTensor

    mine = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return sum(t.numel() * t.element_size() for t in mine) / 2**20


def _resident() -> dict[str, float]:
    """Resident memory now and at most, as the kernel counts it."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    names = {"resident": "VmRSS", "resident_peak": "VmHWM"}
    return {name: int(status[key].split()[0]) / 1024 for name, key in names.items()}
