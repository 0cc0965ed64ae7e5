"""How the optional flash-attn package is called, against a stand-in that keeps its documented meaning.

The stand-in is masked attention with flash-attn's own words: causal is aligned to the last query and key, and
window_size = (left, right) lets a query see ``left`` keys before its own place and ``right`` after it.
"""

import sys
import types
from itertools import pairwise

import pytest
import torch

from nsa.kernels import registry
from nsa.kernels.compressed.reference import compressed as compressed_reference
from nsa.kernels.masked import masked_attention
from nsa.kernels.samples import BY_NAME, boundaries, tensors
from nsa.kernels.window.reference import window as window_reference


def flash_attn_func(q, k, v, *, softmax_scale, causal, window_size=(-1, -1), return_attn_probs=False):
    assert q.shape[-1] == k.shape[-1] == v.shape[-1]
    assert q.shape[-1] % 8 == 0
    assert causal
    shift = k.shape[1] - q.shape[1]
    distance = torch.arange(q.shape[1])[:, None] + shift - torch.arange(k.shape[1])
    visible = distance >= 0
    if window_size[0] >= 0:
        visible &= distance <= window_size[0]
    o, lse = masked_attention(q, k, v, visible[None, None], softmax_scale)
    return (o, lse.transpose(1, 2), None) if return_attn_probs else o


def flash_attn_varlen_func(q, k, v, cu_q, cu_k, max_q, max_k, **how):
    assert torch.equal(cu_q, cu_k)
    assert cu_q.dtype == torch.int32
    bounds = cu_q.tolist()
    parts = [flash_attn_func(q[None, a:b], k[None, a:b], v[None, a:b], **how)[0] for a, b in pairwise(bounds)]
    return torch.cat(parts)


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch):
    package = types.ModuleType("flash_attn")
    package.__spec__ = types.SimpleNamespace(name="flash_attn")
    package.flash_attn_func, package.flash_attn_varlen_func = flash_attn_func, flash_attn_varlen_func
    monkeypatch.setitem(sys.modules, "flash_attn", package)


CASES = ["plain", "ragged-prime", "wide-values", "window-not-a-tile", "behind-a-cache", "documents"]


@pytest.mark.parametrize("case", [BY_NAME[name] for name in CASES], ids=lambda c: c.name)
def test_the_window_is_asked_for_w_keys_and_no_more(case):
    x = tensors(case)
    where = {"offset": case.offset, "cu_seqlens": boundaries(case)}
    o = registry.load("window", "flash-attn")(x["q"], x["k"], x["v"], w=case.w, **where)
    want = window_reference(x["q"], x["k"], x["v"], w=case.w, **where)
    torch.testing.assert_close(o.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", [BY_NAME[name] for name in CASES], ids=lambda c: c.name)
def test_the_compressed_branch_goes_through_the_packed_identity(case):
    x = tensors(case)
    where = {"offset": case.offset, "cu_seqlens": boundaries(case)}
    o, lse = registry.load("compressed", "flash-attn")(x["q"], x["kc"], x["vc"], case.layout, **where)
    want, lse_want = compressed_reference(x["q"], x["kc"], x["vc"], case.layout, **where)
    torch.testing.assert_close(o.double(), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse.double(), lse_want, rtol=1e-5, atol=1e-5)


def test_keys_beyond_the_last_query_are_refused():
    x = tensors(BY_NAME["plain"])
    with pytest.raises(ValueError, match="queries end at 40 and keys at 48"):
        registry.load("window", "flash-attn")(x["q"][:, :40], x["k"], x["v"], w=8)


def test_an_installed_package_is_still_refused_on_a_cpu_with_the_reason():
    assert registry.refusal_of("window", "flash-attn", BY_NAME["plain"].site()) == "flash-attn runs on a GPU only"
