"""What reaches the driver of every launch of the Hopper kernels, without a GPU: all is compiled, nothing runs."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from nsa.kernels import prepared
from nsa.kernels.block_mean import triton as block_mean
from nsa.kernels.hopper import triton_whole as whole
from nsa.kernels.tiled import triton as tiled


@dataclass
class Seen:
    """One launch: what was compiled, over which grid, and its arguments."""

    name: str
    compiled_as: int
    grid: tuple
    arguments: tuple


@dataclass
class Recorder:
    """A driver of one GPU of compute capability 9.0 that writes down what it is asked to launch."""

    seen: list[Seen] = field(default_factory=list)
    loaded: int = 0

    def __post_init__(self):
        self.utils = self

    def get_current_device(self):
        return 0

    def get_current_stream(self, _device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_device_properties(self, _device):
        return {"max_shared_mem": 227 << 10}

    def load_binary(self, *_):
        self.loaded += 1
        return self.loaded, self.loaded, 64, 0, 1024

    def launcher_cls(self, source, metadata):
        def launch(*given):
            x, y, z, _, function, _, _, _, _, *arguments = given
            told = tuple(map(plain, arguments, source.signature.values()))
            self.seen.append(Seen(metadata.name, function, (x, y, z), told))

        return launch


def plain(argument, kind):
    """What of an argument a kernel is told, but where tensors lie; what it was compiled for says of which types."""
    if kind.startswith("*"):
        return (argument.data_ptr() if isinstance(argument, torch.Tensor) else argument) % 16
    if hasattr(argument, "block_shape"):
        return tuple(argument.shape), tuple(argument.strides), tuple(argument.block_shape), argument.base.dtype
    return argument


@pytest.fixture
def recorder():
    made = Recorder()
    driver.set_active(made)
    return made


def shift(x):
    """The same numbers at a place that is no multiple of 16 bytes."""
    return torch.empty(x.numel() + 1, dtype=x.dtype)[1:].view(x.shape).copy_(x)


def attend(T, H, *, uneven=(), gates=torch.bfloat16):
    """Forward and backward of all branches: by Hopper's kernels as one operator, and by tiles; then block means."""
    gen = torch.Generator().manual_seed(T)
    C = (T - 32) // 16 + 1
    sizes = [(1, T, H, 128), *((1, S, 4, 128) for S in (C, C, T, T, T, T))]
    given = [torch.randn(size, generator=gen).bfloat16() for size in sizes]
    given.append(torch.rand(1, T, H, 3, generator=gen).to(gates))
    given = [shift(x) if i in uneven else x for i, x in enumerate(given)]
    leaves = [x.requires_grad_() for x in given]
    by_tma = H == 64
    o = whole.attention(*leaves, 32, 16, 64, 4, 100, 0.1, by_tma, by_tma)[0]
    torch.autograd.grad(o, leaves, torch.ones_like(o))
    q, _, _, k, v, *_ = leaves
    o, _ = tiled.attend(q, k, v, kind=tiled.WINDOW, sizes=(100, 0), scale=0.1, offset=0)
    torch.autograd.grad(o, (q, k, v), torch.ones_like(o))
    block_mean.spread(block_mean.means(k.detach(), 32, 16), 32, 16, T)


CALLS = (
    {"T": 700, "H": 16}, {"T": 704, "H": 16}, {"T": 700, "H": 16, "gates": torch.float32},
    {"T": 700, "H": 16, "uneven": (3, 7)}, {"T": 700, "H": 16, "uneven": (0, 4)}, {"T": 500, "H": 64},
)  # fmt: skip


def test_a_launch_that_was_kept_says_what_tritons_own_says(recorder, monkeypatch):
    kept = []
    for _ in range(2):
        recorder.seen = []
        for call in CALLS:
            attend(**call)
        kept.append(recorder.seen)

    def triton_own(self, *tensors):
        self._kernel[self._grid](*tensors, *self._numbers, **self._constants)

    monkeypatch.setattr(prepared.Prepared, "__call__", triton_own)
    recorder.seen = []
    for call in CALLS:
        attend(**call)
    assert len(kept[1]) > 20 * len(CALLS)
    assert kept[0] == kept[1] == recorder.seen
