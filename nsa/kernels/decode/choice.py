"""Which decoding step runs where: Triton's kernels on a GPU whose sizes they take, torch's operators elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsa.kernels.decode import torch as plain

if TYPE_CHECKING:
    import torch

    from nsa.config import ModelConfig
    from nsa.kernels.decode.op import DecodeStep


def step_for(config: ModelConfig, *, dtype: torch.dtype, device: torch.device) -> DecodeStep:
    """The step for a model of these sizes, in this type, on this device."""
    if device.type != "cuda":
        return plain.decode
    try:
        from nsa.kernels.decode import triton as fast
    except ImportError:  # a torch for GPUs without Triton
        return plain.decode
    group = config.n_heads // config.n_kv_groups
    refusal = fast.refuses(config.layout, dtype=dtype, device=device, d_k=max(config.d_k, config.d_v), group=group)
    return fast.decode if refusal is None else plain.decode
