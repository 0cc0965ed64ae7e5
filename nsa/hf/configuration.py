"""The model's configuration in transformers' words, and how it becomes ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import AutoConfig, PreTrainedConfig

from nsa.config import ModelConfig, RunConfig

if TYPE_CHECKING:
    from typing import Any

OURS = {
    "vocab_size": "vocab",
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_groups",
    "head_dim": "d_k",
    "v_head_dim": "d_v",
    "rope_theta": "rope_base",
    "rope_scale": "rope_scale",
    "tie_word_embeddings": "tied_head",
    "decoder_kind": "decoder",
    **{name: name for name in ("l", "d", "l_slc", "n", "w", "attention", "phi", "branches", "gate")},
    **{name: name for name in ("gate_grad", "share_kv")},
}
"""transformers' name of every setting of ``nsa.config.ModelConfig``."""


class NSAConfig(PreTrainedConfig):
    """Sizes of an ``NSAForCausalLM``; l, d, l_slc, n and w default to the paper's.

    Attributes:
        vocab_size: number of token ids.
        hidden_size: width of the residual stream.
        num_hidden_layers: decoder blocks.
        num_attention_heads: query heads.
        num_key_value_heads: key/value heads, a divisor of ``num_attention_heads``.
        head_dim: width of a query or key head, even; hidden_size / num_attention_heads if None.
        v_head_dim: width of a value head; ``head_dim`` if None.
        l: tokens per compression block, a multiple of d.
        d: stride between compression blocks.
        l_slc: tokens per selection block, a multiple of d.
        n: selection blocks per query, the first and the two local ones among them.
        w: keys in the window, the query's own included.
        decoder_kind: "modern" for SwiGLU, "tiny" for fc1-SiLU-fc2.
        attention: "nsa", or "dense" for the control.
        phi: "mlp", learned, or "mean": how a block becomes one key.
        branches: "all", or the only branch that is built.
        gate: "learned", "uniform", or the branch that is listened to alone.
        gate_grad: whether gradients reach the gate.
        share_kv: one key/value projection for the three branches, not one each.
        rope_theta: base of the rotary frequencies.
        rope_scale: positions are divided by this before rotation.
    """

    model_type = "nsa"
    keys_to_ignore_at_inference = ("past_key_values", "cache")

    vocab_size: int = 32000
    hidden_size: int = 1024
    num_hidden_layers: int = 12
    num_attention_heads: int = 16
    num_key_value_heads: int = 4
    head_dim: int | None = None
    v_head_dim: int | None = None
    l: int = 32  # noqa: E741 - the paper's letter
    d: int = 16
    l_slc: int = 64
    n: int = 16
    w: int = 512
    decoder_kind: str = "modern"
    attention: str = "nsa"
    phi: str = "mlp"
    branches: str = "all"
    gate: str = "learned"
    gate_grad: bool = True
    share_kv: bool = False
    rope_theta: float = 10000.0
    rope_scale: float = 1.0
    use_cache: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        """Fill in the head widths; the rest is transformers'."""
        if self.head_dim is None:
            self.head_dim = self.hidden_size // max(1, self.num_attention_heads)
        if self.v_head_dim is None:
            self.v_head_dim = self.head_dim
        super().__post_init__(**kwargs)

    @property
    def sizes(self) -> ModelConfig:
        """The same sizes as this package names them.

        Raises:
            ConfigError: a value out of its range, or sizes that do not fit together.
        """
        return RunConfig.from_mapping({"model": {ours: getattr(self, theirs) for theirs, ours in OURS.items()}}).model

    @classmethod
    def of(cls, model: ModelConfig, **more: Any) -> NSAConfig:
        """The configuration of a model of this package.

        Args:
            model: its sizes.
            more: what else transformers should know, such as ``eos_token_id``.
        """
        return cls(**{theirs: getattr(model, ours) for theirs, ours in OURS.items()}, **more)


AutoConfig.register("nsa", NSAConfig)
