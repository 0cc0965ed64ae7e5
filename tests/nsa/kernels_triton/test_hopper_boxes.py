"""What a launch tells the copy engine of a tensor is what Triton would have told it, for less."""

from __future__ import annotations

import timeit

import pytest

pytest.importorskip("triton.experimental.gluon")

import torch
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from nsa.kernels.hopper.triton_boxes import boxes, for_copies
from nsa.kernels.hopper.triton_names import gl

BOX = (1, 4, 16, 128)
FIELDS = tuple(TensorDescriptor.__dataclass_fields__)


def of_triton(x, box):
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=len(box))
    return TensorDescriptor(x, list(x.shape), list(x.stride()), list(box), layout)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("shape", "box"), [((2, 9, 32, 128), BOX), ((1, 300, 4, 64), (1, 64, 1, 64))])
def test_a_box_says_what_tritons_own_says(dtype, shape, box):
    x = torch.zeros(shape, dtype=dtype)
    own, ours = of_triton(x, box), boxes(x, box)
    assert type(ours) is type(own)
    assert ours.base is x
    for name in set(FIELDS) - {"base", "layout"}:
        assert (
            tuple(getattr(ours, name)) == tuple(getattr(own, name))
            if name in vars(ours)
            else (getattr(ours, name) == getattr(own, name))
        )
    assert repr(ours.layout) == repr(own.layout)
    assert isinstance(ours.layout, gl.NVMMASharedLayout)


def test_a_box_is_found_by_the_same_text():
    specialized = pytest.importorskip("triton._C.libtriton")
    if not hasattr(specialized, "native_specialize_impl"):
        pytest.skip("this triton does not tell types apart in C++")
    from triton.backends.nvidia.compiler import CUDABackend

    x = torch.zeros(2, 9, 32, 128, dtype=torch.bfloat16)
    own, ours = (
        specialized.native_specialize_impl(CUDABackend, made, False, True, True)
        for made in (of_triton(x, BOX), boxes(x, BOX))
    )
    assert own == ours


def test_a_box_takes_less_than_half_of_the_time_of_tritons_own():
    x = torch.zeros(2, 9, 32, 128, dtype=torch.bfloat16)

    def fastest(make):
        return min(timeit.repeat(lambda: repr(make(x, BOX).layout), number=200, repeat=20))

    assert fastest(boxes) < 0.5 * fastest(of_triton)


def test_what_the_copy_engine_can_read_is_passed_on_and_anything_else_copied():
    x = torch.randn(2, 8, 6, 64).half()
    assert for_copies(x) is x
    inner = x[:, 1:, 2:4]
    assert for_copies(inner) is inner  # strides and start are multiples of 16 bytes
    odd = torch.empty(x.numel() + 1, dtype=x.dtype)[1:].view(x.shape).copy_(x)
    for refused in (x.transpose(2, 3), odd, x[:, :, :, ::2], x[:, :1].expand(2, 8, 6, 64)):
        made = for_copies(refused)
        assert made is not refused
        assert made.is_contiguous()
        assert made.data_ptr() % 16 == 0
        assert torch.equal(made, refused)
