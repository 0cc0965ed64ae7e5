"""The attention layer for models of one's own: plain arguments in, a ``torch.nn.Module`` out."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

from nsa.attention.cache import LayerCache
from nsa.attention.layer import NsaAttention
from nsa.config import RunConfig
from nsa.kernels.registry import resolve_all
from nsa.model.build import site_of

if TYPE_CHECKING:
    from collections.abc import Mapping


class NSAAttention(NsaAttention):
    """Native Sparse Attention over rows [B, T, dim]: projections, rotary embedding, three branches, gate, output.

    ``y = NSAAttention(512, 8, 2)(x)``. ``forward(x, *, cu_seqlens=None, cache=None)`` is causal, so padding on the
    right needs no mask; packed documents are divided by ``cu_seqlens`` (int32 or int64 [N + 1], batch size 1), and
    ``cache`` from ``new_cache`` goes on behind earlier tokens. The layer may be moved, cast, compiled and built on the
    meta device (then ``to_empty`` and ``reset_parameters``); its kernels are chosen where its input is.
    """

    def __init__(
        self,
        dim: int,
        n_heads: int,
        n_kv_groups: int | None = None,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        l: int = 32,  # noqa: E741 - the paper's letter
        d: int = 16,
        l_slc: int = 64,
        n: int = 16,
        w: int = 512,
        phi: str = "mlp",
        gate: str = "learned",
        branches: str = "all",
        share_kv: bool = False,
        rope_base: float = 10000.0,
        rope_scale: float = 1.0,
        kernels: Mapping[str, str] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Build the layer; the defaults of l, d, l_slc, n and w are the paper's.

        Args:
            dim: width of the rows.
            n_heads: query heads.
            n_kv_groups: key/value heads, a divisor of ``n_heads``; as many as query heads if None.
            d_k: width of a query or key head, even; dim / n_heads if None.
            d_v: width of a value head; d_k if None.
            l: tokens per compression block, a multiple of d.
            d: stride between compression blocks.
            l_slc: tokens per selection block, a multiple of d.
            n: selection blocks per query, the first and the two local ones among them; at least 3.
            w: keys in the window, the query's own included.
            phi: how a block becomes one key: "mlp", learned, or "mean".
            gate: "learned" sigmoids, "uniform" thirds, or one branch alone: "cmp", "slc" or "win".
            branches: "all", or the only branch to build: "cmp", "slc" or "win".
            share_kv: one key/value projection for the three branches, not one each.
            rope_base: base of the rotary frequencies.
            rope_scale: positions are divided by this before rotation.
            kernels: backends by operator, ``{"selected": "gather"}``; what is not named is chosen for the place.
            device: where the weights are; where torch puts new tensors if None.
            dtype: their type; torch's default if None.

        Raises:
            ConfigError: a value out of its range, or sizes that do not fit together.
            KernelUnavailable: a kernel asked for by name cannot run on this device.
        """
        width = dim // n_heads if d_k is None and n_heads > 0 else d_k
        sizes = {"dim": dim, "n_heads": n_heads, "n_kv_groups": n_heads if n_kv_groups is None else n_kv_groups}
        sizes |= {"d_k": width, "d_v": width if d_v is None else d_v, "l": l, "d": d, "l_slc": l_slc, "n": n, "w": w}
        kinds = {"phi": phi, "gate": gate, "branches": branches, "share_kv": share_kv}
        rope = {"rope_base": rope_base, "rope_scale": rope_scale}
        tree = {"model": {**sizes, **kinds, **rope}, "kernels": dict(kernels or {})}
        on_gpu = device is not None and torch.device(device).type == "cuda"
        config = RunConfig.from_mapping({**tree, "train": {"device": "cuda" if on_gpu else "cpu"}})
        with nullcontext() if device is None else torch.device(device):
            super().__init__(config.model, resolve_all(config.kernels, site_of(config)))
        if dtype is not None:
            self.to(dtype)

    def new_cache(self, max_tokens: int | None = None, *, rollback: int = 0) -> LayerCache:
        """An empty cache, of which the last ``rollback`` tokens may be taken back.

        Args:
            max_tokens: most tokens it can hold, in memory taken once; None: memory grows with the text.
            rollback: how many of the newest tokens ``LayerCache.roll_back`` may take back.
        """
        return LayerCache(layout=self.layout, max_tokens=max_tokens, rollback=rollback)
