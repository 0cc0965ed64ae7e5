"""From a configuration to a model, with its kernels resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nsa.kernels.registry import Resolution, Site, resolve_all
from nsa.model.transformer import Decoder

if TYPE_CHECKING:
    from nsa.config import RunConfig


def build_model(config: RunConfig) -> tuple[Decoder, tuple[Resolution, ...]]:
    """Build the decoder on its device, or on the meta device where that is torch's default.

    Returns:
        The model, and which kernel runs each operator and why (empty when the attention uses none).

    Raises:
        KernelUnavailable: a kernel that was asked for by name cannot run here.
    """
    kernels = resolve_all(config.kernels, site_of(config)) if config.model.attention == "nsa" else {}
    decoder = Decoder(config.model, kernels, has_checkpointing=config.train.checkpointing == "block")
    is_meta = decoder.embed.weight.is_meta
    return decoder if is_meta else decoder.to(config.train.device), tuple(kernels.values())


def site_of(config: RunConfig) -> Site:
    """Where and on what this run's operators will work."""
    model = config.model
    return Site(
        device=torch.device(config.train.device),
        dtype={"bf16": torch.bfloat16, "fp16": torch.float16}.get(config.train.precision, torch.float32),
        seq_len=config.train.seq_len,
        n_heads=model.n_heads,
        n_kv_groups=model.n_kv_groups,
        d_k=model.d_k,
        d_v=model.d_v,
        layout=model.layout,
        sdpa=config.kernels.sdpa,
    )
