"""Activation checkpointing: decoder blocks that are run again in backward instead of being remembered.

A block is recomputed inside its own ``forward``: hooks and sharding wrappers sit outside and see one forward. Each
recomputation is bound to its block's method when it is installed. A function that looked the block up later, by
a loop's variable, would recompute the last block for every one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from nsa.config import layer_range
from nsa.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from nsa.config import RunConfig
    from nsa.kernels.registry import Resolution

KEPT = (
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_fused_attention_overrideable",
    "nsa::",
)
"""Operators whose results ``selective`` keeps, by the beginning of their name: torch's attention, and our own
operators (block selection, masked, gathered and Triton attention)."""
RECOMPUTED = ("nsa::rotate", "nsa::block_mean", "nsa::norm", "nsa::add_norm")
"""Operators of ours that are cheap to run again and whose results would be as large as what they are made from."""

_NO_RANDOM: dict[str, Any] = {"preserve_rng_state": False}
"""A block draws no random numbers, so there is no random state to keep for its second run; on a GPU keeping it takes
the host longer than launching the block."""

NOT_OPERATORS = {"flex": "torch's flex attention", "flash-attn": "the flash-attn package"}
"""Kernels that ``selective`` cannot keep results of, because torch does not show them as operators."""


def install(config: RunConfig, blocks: Sequence[nn.Module], kernels: Sequence[Resolution]) -> None:
    """Make the blocks of ``train.checkpoint_layers`` recompute themselves as ``train.checkpointing`` says.

    Raises:
        ConfigError: ``selective`` with a kernel whose results it could not keep.
    """
    kind = config.train.checkpointing
    if kind == "none":
        return
    if kind == "selective":
        _check_selective(config, kernels)
    for i in layer_range(config):
        blocks[i].forward = partial(_recomputed, blocks[i].forward, kind)


def compile_blocks(config: RunConfig, blocks: Sequence[nn.Module]) -> None:
    """Compile each block's own ``forward`` as ``train.compile`` says, before ``install``: hooks stay outside of it.

    A block is one graph (``fullgraph``): where it cannot be, torch says which line is in the way.
    """
    if config.train.compile != "off":
        for block in blocks:
            block.forward = torch.compile(block.forward, backend=config.train.compile, fullgraph=True, dynamic=False)


def _recomputed(forward: Callable[..., Tensor], kind: str, x_BTX: Tensor, **kwargs: Any) -> Tensor:
    """``forward(x_BTX)``, remembered by its input alone."""
    if not torch.is_grad_enabled():
        return forward(x_BTX, **kwargs)
    bound = partial(forward, **kwargs)
    if kind == "reentrant":
        return _tensor(checkpoint(bound, x_BTX, use_reentrant=True, **_NO_RANDOM))
    if kind == "selective":
        contexts = partial(create_selective_checkpoint_contexts, _keep_attention)
        return _tensor(checkpoint(bound, x_BTX, use_reentrant=False, context_fn=contexts, **_NO_RANDOM))
    return _tensor(checkpoint(bound, x_BTX, use_reentrant=False, **_NO_RANDOM))


def _tensor(output: object) -> Tensor:
    if not isinstance(output, torch.Tensor):
        raise TypeError(f"a decoder block returned {type(output).__name__}, not a tensor")
    return output


def _keep_attention(_context: object, operator: torch._ops.OpOverload, *_args: object, **_kwargs: object) -> Any:
    name = operator.name().partition(".")[0]
    is_kept = name.startswith(KEPT) and name not in RECOMPUTED
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE


def _check_selective(config: RunConfig, kernels: Sequence[Resolution]) -> None:
    if config.model.attention != "nsa":
        raise ConfigError(
            f"train.checkpointing = 'selective' keeps the results of sparse attention, and model.attention = "
            f"{config.model.attention!r} has none; use nonreentrant"
        )
    for resolution in kernels:
        if resolution.kernel in NOT_OPERATORS:
            raise ConfigError(
                f"train.checkpointing = 'selective' cannot keep what {NOT_OPERATORS[resolution.kernel]} computes for "
                f"the {resolution.op} branch; name another kernels.{resolution.op}, or use nonreentrant"
            )
