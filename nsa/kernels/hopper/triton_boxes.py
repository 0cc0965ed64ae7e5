"""What the copy engine (TMA) is told of a tensor, made at every launch and therefore cheaply.

Triton's own constructor checks on the host what ``for_copies`` sees to, and writes the layout out as text at every
launch: 8 us for each of a launch's four to six tensors on a core where the same takes 3 us through this module.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor as PlainTensorDescriptor

from nsa.kernels.hopper.triton_names import gl

if TYPE_CHECKING:
    from torch import Tensor


class _Layout(gl.NVMMASharedLayout):
    """A layout that keeps its text, by which a launch finds what was compiled for it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _text(self.rank)


@cache
def _layout(rank: int) -> _Layout:
    return _Layout(swizzle_byte_width=128, element_bitwidth=16, rank=rank)


@cache
def _text(rank: int) -> str:
    return repr(gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=rank))


@cache
def _sides(box: tuple[int, ...]) -> list[int]:
    return list(box)


def boxes(x: Tensor, box: tuple[int, ...]) -> Any:
    """What the copy engine needs to move a box of a tensor of ``for_copies`` at once.

    Args:
        x: bf16 or fp16, not empty.
        box: elements along each axis: powers of two, 256 at most, 64 or more along the last.
    """
    made: Any = object.__new__(TensorDescriptor)
    made.base, made.shape, made.strides, made.block_shape = x, x.shape, x.stride(), _sides(box)
    made.layout = _layout(len(box))
    return made


def plain_boxes(x: Tensor, box: tuple[int, ...]) -> Any:
    """``boxes`` for kernels in plain Triton, where the compiler chooses how a box lies in shared memory."""
    made: Any = object.__new__(PlainTensorDescriptor)
    made.base, made.shape, made.strides, made.block_shape = x, x.shape, x.stride(), _sides(box)
    return made


def for_copies(x: Tensor) -> Tensor:
    """The tensor where the copy engine can read it: whole rows, all strides and its start multiples of 16 bytes."""
    step = 16 // x.element_size()
    *outer, last = x.stride()
    if last == 1 and x.data_ptr() % 16 == 0 and all(s > 0 and s % step == 0 for s in outer):
        return x
    return x.clone(memory_format=torch.contiguous_format)
