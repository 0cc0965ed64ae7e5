"""One GPU: an endless kernel, a host that cannot feed it, a long compilation, memory that runs out or short."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, cast

from harness.core.verdict import Kind
from harness.specimens.catalog import LATER, Needs, Scene, specimen

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


ENDLESS_CYCLES = 1 << 62
"""Clock cycles that a kernel waits for: 70 years at 2 GHz."""

HOST: tuple[tuple[str, bool | int | str], ...] = (
    ("model.attention", "dense"),
    ("train.steps", 60),
)
"""The trainer that all specimens on one GPU are planted in: the same, so that its healthy runs are run once.

Dense, because the first run with kernels of our own waits for their compilation.
"""

FEEDING_S = 1.5
"""How long the host keeps a step waiting with operations too small for the GPU to notice."""

THINKING = 2000
"""Numbers that it turns round for each of them, a tenth of a millisecond."""

COMPILE_S = 12.0
"""Longer than its stall limit, and a first compilation on a fresh machine still far from four times that limit."""

on_one_gpu = partial(specimen, needs=Needs.GPU, settings=HOST)
slow_on_one_gpu = partial(on_one_gpu, expect=Kind.SLOW, every_step=True, step=0, total_s=25.0, look_alike=True)


@on_one_gpu(
    expect=Kind.HANG,
    cause="gpu-spin",
    step=LATER,
    imitates="a kernel with a loop whose end never comes: the GPU reads 100 % busy and works on nothing",
)
def launch_endless(scene: Scene) -> None:
    """Put a kernel on the GPU that does not end; the host goes on until it wants to know a result."""
    import torch

    with torch.cuda.device(scene.device):
        torch.cuda._sleep(ENDLESS_CYCLES)  # torch's own test kernel; an endless loop in Triton looks the same


@slow_on_one_gpu(
    cause="host-bound",
    imitates="attention as a Python loop over tokens: thousands of small kernels, and a GPU that waits for the host",
)
def feed_one_by_one(scene: Scene) -> None:
    """One tiny operation after the other from Python, as a loop over tokens does."""
    import torch

    end_s = time.monotonic() + FEEDING_S
    row = torch.zeros(64, device=scene.device, requires_grad=True)
    while time.monotonic() < end_s:
        for _ in range(50):
            row = torch.nn.functional.normalize(row.roll(1) + 0.5, dim=0)
            sorted(range(THINKING), reverse=True)  # what the loop itself costs in Python
        row = row.detach().requires_grad_()


@on_one_gpu(
    expect=Kind.PASS,
    stall_s=10.0,
    look_alike=True,
    imitates="torch.compile of a new shape in the middle of training: a long silence of a healthy program",
)
def compile_for_long(scene: Scene) -> None:
    """Compile one new function after the other with torch.compile, for ``COMPILE_S`` seconds at least."""
    import torch

    end_s = time.monotonic() + COMPILE_S
    width = 32
    while time.monotonic() < end_s:
        torch.compiler.reset()
        compiled = torch.compile(_function_of_width(width), dynamic=False)
        compiled(torch.ones(width, width, device=scene.device))
        width += 8


def _function_of_width(width: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def layers(x_DD: torch.Tensor) -> torch.Tensor:
        for scale in range(1, 6):
            x_DD = (x_DD @ x_DD).softmax(dim=-1) * scale + width
        return x_DD.sum()

    return layers


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
