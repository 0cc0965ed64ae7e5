"""Marks in a model that torch.profiler keeps in its trace."""

from __future__ import annotations

import contextlib

from gpu_trace import MARK


def is_opaque(state) -> bool:
    """Whether blocks have a forward of their own, compiled or replayed, which no mark gets into."""
    return "forward" in vars(state.blocks[0])


@contextlib.contextmanager
def marked(model):
    """Mark what belongs to which part, until the context ends; the innermost mark counts."""
    import nsa.attention.layer
    import nsa.model.dense
    import nsa.model.transformer
    import nsa.train.run
    from nsa.kernels.combine import fused

    undo = contextlib.ExitStack()

    def patch(owner, name, part):
        if not hasattr(owner, name):
            return
        was_own, call = name in vars(owner), getattr(owner, name)
        setattr(owner, name, in_part(part, call))
        undo.callback(setattr, owner, name, call) if was_own else undo.callback(delattr, owner, name)

    patch(nsa.train.run, "next_token_loss", "loss")
    patch(nsa.model.dense, "_causal", "attention by a library")
    for module in (nsa.model.dense, nsa.attention.layer):
        for name in ("rotate", "rotate_both"):
            patch(module, name, "rotary")
    patch(nsa.model.transformer, "turns", "rotary")
    modules = {"embed": "embedding, head", "lm_head": "embedding, head", "norm_f": "norms"}
    for name, part in modules.items():
        patch(getattr(model, name), "forward", part)
    is_one = False
    for block in model.blocks:
        patch(block, "forward", "residual sums")
        patch(block.norm1, "forward", "norms")
        patch(block.norm2, "forward", "norms")
        patch(block.mlp, "forward", "MLP")
        attention = block.attn
        patch(attention, "forward", "layout around attention")
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            patch(getattr(attention, name), "forward", "projections")
        patch(getattr(attention, "gate", None), "forward", "gate")
        for name in ("compressed_keys", "compressed_values"):
            patch(attention, name, "phi")
        kernels = getattr(attention, "kernels", None)
        if kernels is None:
            continue
        if fused.serves({op: kernel.built.kernel for op, kernel in kernels.items()}):
            # Marked operators would be functions of somebody else's to the layer, which then takes them one by one.
            if not is_one:
                patch(nsa.attention.layer, "gated_output", "sparse attention")
                is_one = True
        else:
            attention.kernels = {
                op: in_part("selection" if op == "scores" else op, call) for op, call in kernels.items()
            }
            undo.callback(setattr, attention, "kernels", kernels)
    with undo:
        yield


def in_part(part: str, call):
    """``call`` under a mark."""
    import torch

    def inside(*args, **kwargs):
        with torch.profiler.record_function(MARK + part):
            return call(*args, **kwargs)

    return inside
