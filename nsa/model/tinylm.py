"""TinyLM: the model of the original incident reports, with their argument order and parameter names.

The reports speak of "parameter at index 192, blocks.11.mlp.fc2.weight" of a 12-layer model. nsa-vibe had 16
parameters per block: norm1, W_Q, W_K and W_V of three branches, out, a gate with biases (4), norm2, fc1, fc2 and
an average for phi. Ours has 16 as well, and phi is learned as in the paper:

======  =====================================================================================
norms   norm1.weight, norm2.weight
attn    q_proj, k_proj, v_proj (each stacks the three branches' own projections), o_proj
gate    gate.fc1, gate.fc2 (no biases: a gate starts at one half because fc2 starts at zero)
phi     phi_k.pe, phi_k.fc1, phi_k.fc2, phi_v.pe, phi_v.fc1, phi_v.fc2
mlp     mlp.fc1, mlp.fc2
======  =====================================================================================

With embed first and norm_f and lm_head last, 12 layers have 195 parameters and index 192 is the same name.
"""

from __future__ import annotations

from nsa.config import RunConfig
from nsa.kernels.registry import resolve_all
from nsa.model.build import site_of
from nsa.model.transformer import Decoder


class TinyLM(Decoder):
    """``TinyLM(vocab, dim, n_layers, n_heads, n_kv_groups, d_k, d_v, l, d, l_sel, n_sel, w)``."""

    def __init__(
        self,
        vocab: int,
        dim: int,
        n_layers: int,
        n_heads: int,
        n_kv_groups: int,
        d_k: int,
        d_v: int,
        l: int,  # noqa: E741 - the paper's letter
        d: int,
        l_sel: int,
        n_sel: int,
        w: int,
        grad_checkpointing: bool = False,  # noqa: FBT001, FBT002 - the reports pass it by position
        *,
        attention: str = "nsa",
        device: str | None = None,
    ) -> None:
        """Build the reports' model.

        Args:
            vocab: number of token ids.
            dim: width of the residual stream.
            n_layers: number of blocks.
            n_heads: query heads.
            n_kv_groups: key/value heads.
            d_k: width of a key head.
            d_v: width of a value head.
            l: tokens per compression block.
            d: stride between compression blocks.
            l_sel: tokens per selection block.
            n_sel: selected blocks per query.
            w: keys in the window.
            grad_checkpointing: recompute each block in backward.
            attention: "nsa", "dense", or "legacy-sequential" for the token loop that the reports ran.
            device: where the weights are; where torch puts new tensors if None. The model may be moved afterwards.

        Raises:
            ConfigError: the sizes do not fit together.
        """
        sizes = {
            "vocab": vocab,
            "dim": dim,
            "n_layers": n_layers,
            "n_heads": n_heads,
            "n_kv_groups": n_kv_groups,
            "d_k": d_k,
            "d_v": d_v,
            "l": l,
            "d": d,
            "l_slc": l_sel,
            "n": n_sel,
            "w": w,
            "attention": attention,
        }
        config = RunConfig.from_mapping({"model": sizes, "train": {"device": device or "cpu"}})
        kernels = resolve_all(config.kernels, site_of(config)) if attention == "nsa" else {}
        super().__init__(config.model, kernels, has_checkpointing=grad_checkpointing)
        if device is not None:
            self.to(device)
