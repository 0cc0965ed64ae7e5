"""What the Hopper kernels are given of keys and values, under Triton's interpreter; started by test_interpreted.py."""

from __future__ import annotations

import pytest
import torch
from interpreted import nan_filled

from nsa.kernels.hopper.triton_quarantine import quarantine_kernel
from nsa.kernels.sizes import cdiv

__all__ = ["nan_filled"]


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_key_that_is_not_finite_or_whose_value_is_not_cannot_leak(is_marked):
    B, S, G, D = 2, 37, 3, 64
    gen = torch.Generator().manual_seed(0)
    k, v = (torch.randn(B, S, 2 * G, D, generator=gen).half()[:, :, G:] for _ in range(2))
    k[0, 5, 1, 7], k[1, 36, 2, 0], v[0, 9, 0, 63], v[1, 0, 0, 3] = torch.inf, torch.nan, -torch.inf, torch.nan
    is_bad = ~(k.isfinite().all(-1) & v.isfinite().all(-1))
    k_out, v_out = k.new_empty(k.shape), v.new_empty(v.shape)
    n_rows = B * S * G
    quarantine_kernel[(cdiv(n_rows, 32),)](
        k, v, k_out, v_out, n_rows, S, *k.stride()[:3], *v.stride()[:3], D=D, G=G, BM=32, IS_MARKED=is_marked
    )
    assert is_bad.sum() == 4
    assert torch.equal(k_out[~is_bad], k[~is_bad])
    assert torch.equal(v_out[~is_bad], v[~is_bad])
    assert (k_out[is_bad].isnan() if is_marked else k_out[is_bad] == 0).all()
    assert (v_out[is_bad] == 0).all()
