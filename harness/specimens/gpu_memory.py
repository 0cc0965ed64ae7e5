"""One GPU: memory that runs out, and memory so short that the allocator starts over at every step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from harness.core.verdict import Kind
from harness.specimens.gpu_kernels import on_one_gpu, slow_on_one_gpu

if TYPE_CHECKING:
    from harness.specimens.catalog import Scene

MIB = 1 << 20
ROOM_BYTES = 2048 * MIB
"""What the process may hold of the GPU's memory: its own limit, so that nobody else's runs out."""

THRASH_S = 1.2


@on_one_gpu(
    expect=Kind.OOM,
    expect_frame="fill_gpu",
    imitates="activations that do not fit on the GPU",
)
def fill_gpu(scene: Scene) -> None:
    """Reserve tensors until torch's allocator refuses.

    Raises:
        torch.OutOfMemoryError: the allocator's own. AssertionError: the limit is not in force.
    """
    import torch

    _limit(scene.device)
    kept = [torch.empty(256 * MIB, dtype=torch.uint8, device=scene.device) for _ in range(ROOM_BYTES // (256 * MIB))]
    kept.append(torch.empty(ROOM_BYTES, dtype=torch.uint8, device=scene.device))
    raise AssertionError(f"reserved {len(kept)} tensors: the memory limit of this trial is not in force")


def odd_sizes() -> tuple[int, ...]:
    """Bytes to ask for in turn: each too large for the block kept of the one before it, and too large beside it.

    All are whole multiples of the 2 MiB that torch's allocator rounds large blocks up to. The largest leaves a quarter
    of the room to the trainer, which holds 66 MiB.
    """
    return tuple(range(ROOM_BYTES // 2, ROOM_BYTES * 3 // 4, 34 * MIB))


@slow_on_one_gpu(
    cause="allocator-thrash",
    imitates="varying lengths close to the memory limit: every allocation frees all that the allocator kept",
)
def allocate_odd_sizes(scene: Scene) -> None:
    """Ask for ever larger tensors with no room to keep the smaller ones: each one empties the allocator's cache first.

    Nothing of it is kept in the cache between two rounds, where the largest block would serve all of the next one, nor
    afterwards: the trainer's own tensors would be cut out of that block, and it could never be given back.
    """
    import torch

    _limit(scene.device)
    end_s = time.monotonic() + THRASH_S
    while time.monotonic() < end_s:
        for size in odd_sizes():
            torch.empty(size, dtype=torch.uint8, device=scene.device).fill_(1)
        torch.cuda.empty_cache()


def _limit(device: str) -> None:
    import torch

    with torch.cuda.device(device):  # by name alone, which has no number, the limit cannot be set
        number = torch.cuda.current_device()
    total = cast("int", torch.cuda.get_device_properties(number).total_memory)  # untyped in torch
    torch.cuda.set_per_process_memory_fraction(ROOM_BYTES / total, number)
