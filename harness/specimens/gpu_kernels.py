"""One GPU: a kernel that never ends, a host that cannot feed the GPU, a compilation that takes its time."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

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
