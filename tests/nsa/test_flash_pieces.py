"""Around the flash kernel: the windowed backward in pieces, and marks on what is not finite.

Pieces must give the gradients of the whole; masked attention in fp64 is the kernel here.
"""

import pytest
import torch

from nsa.kernels import flash
from nsa.kernels.masked import masked_attention_backward
from nsa.kernels.quarantine import finite, quarantined, tainted
from nsa.kernels.visibility import win_visible
from nsa.kernels.window.reference import window

MANY_PROCESSORS = 24


@pytest.fixture
def calls(monkeypatch):
    """Attention of each listed piece by masked attention, as the kernel's variable-length form defines it."""
    seen = []

    def backward(do, q, k, v, o, lse, state, first_q, first_k, longest, scale, w):
        seen.append(longest)
        grads = []
        bounds_q, bounds_k = first_q.tolist(), first_k.tolist()
        for i in range(len(bounds_q) - 1):
            a, b, c, d = bounds_q[i], bounds_q[i + 1], bounds_k[i], bounds_k[i + 1]
            assert b - a <= longest[0]
            assert d - c <= longest[1]
            if a == b:
                grads.append((q[:0], torch.full_like(k[c:d], torch.nan), torch.full_like(v[c:d], torch.nan)))
                continue
            n_q, n_k, shift = b - a, d - c, (d - c) - (b - a)
            visible = win_visible(n_q, n_k, w, device=q.device, offset=shift, k_offset=0, cu_seqlens=None)
            rows = (x[None, a:b] for x in (do, torch.zeros_like(o[..., 0]), q))
            found = masked_attention_backward(*rows, k[None, c:d], v[None, c:d], visible, o[None, a:b], scale)
            grads.append([g[0] for g in found])
        return tuple(torch.cat(parts) for parts in zip(*grads, strict=True))

    class Properties:
        multi_processor_count = MANY_PROCESSORS

    monkeypatch.setattr(flash, "_backward", backward)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    return seen


@pytest.mark.parametrize(
    ("rows", "heads", "n", "w"), [(1, 4, 700, 100), (2, 4, 640, 128), (1, 8, 513, 1), (1, 2, 900, 77)]
)
def test_pieces_give_the_gradients_of_the_whole(calls, rows, heads, n, w):
    shapes = ((rows, n, heads, 8), (rows, n, 2, 8), (rows, n, 2, 8))
    q, k, v = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes)
    o = window(q, k, v, w=w, scale=0.3)
    do = torch.randn_like(o)
    want = torch.autograd.grad(o, (q, k, v), do)
    lse, state = torch.zeros(rows, heads, n), torch.zeros(2)
    got = flash.flash_attention_backward(do, q.detach(), k.detach(), v.detach(), o.detach(), lse, state, None, 0.3, w)
    assert len(calls) == 1
    assert calls[0][0] < n, "it was not cut"
    for name, a, b in zip("qkv", got, want, strict=True):
        torch.testing.assert_close(a, b, msg=name)


@pytest.mark.parametrize(
    ("heads", "n", "w"), [(8 * MANY_PROCESSORS, 700, 100), (4, 700, 0), (4, 300, 300), (4, 100, 10)]
)
def test_a_full_gpu_no_window_and_short_rows_are_left_whole(calls, heads, n, w):
    assert flash._piece_size(n, heads, w, torch.device("cpu")) == n


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_row_that_is_not_finite_is_marked_in_its_key_and_gone_from_its_value(dtype):
    k, v = (torch.randn(2, 7, 3, 8).to(dtype) for _ in range(2))
    k[0, 1, 2, 4], k[1, 3, 0, 0], v[0, 5, 1, 7], v[1, 6, 2, 1] = torch.nan, -torch.inf, torch.inf, torch.nan
    k[0, 0, 0], v[0, 0, 0] = torch.finfo(dtype).max, torch.finfo(dtype).min  # large is not infinite
    bad = torch.zeros(2, 7, 3, dtype=torch.bool)
    bad[0, 1, 2] = bad[1, 3, 0] = bad[0, 5, 1] = bad[1, 6, 2] = True
    marked, cleaned = tainted(k, v)
    assert marked[bad].isnan().all()
    assert torch.equal(marked[~bad], k[~bad])
    assert cleaned.isfinite().all()
    assert torch.equal(cleaned[~bad], v[~bad])
    assert torch.equal(quarantined(k, v)[2], bad)
    assert torch.equal(finite(k)[~bad], k[~bad])
    assert finite(k).isfinite().all()
