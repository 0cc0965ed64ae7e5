"""How many parameters a model has (exactly) and how much memory training takes (about), without building it.

Memory is counted for the kernels that ``auto`` takes on a CPU: packed and sdpa. What is counted is what autograd
keeps between forward and backward; short-lived buffers inside an operator are not. In half precision norms, softmax
sums and the loss stay fp32; autocast also keeps a half copy of every matrix and of every product's input.
Letters: X model width, T tokens in the batch, H, G heads, D, E head widths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsa.config import ModelConfig, RunConfig

FP32, HALF = 4, 2
RECOMPUTED = ("block", "nonreentrant", "reentrant")
"""Kinds of ``train.checkpointing`` that keep a block's input alone; ``selective`` is counted as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a run will need.

    Attributes:
        n_parameters: exact number of parameters.
        state_bytes: weights, gradients and AdamW's two moments.
        kept_bytes: activations that wait for backward.
    """

    n_parameters: int
    state_bytes: int
    kept_bytes: int

    @property
    def total_bytes(self) -> int:
        """State and activations together."""
        return self.state_bytes + self.kept_bytes


def estimate(config: RunConfig) -> Estimate:
    """Count parameters and estimate training memory for one process."""
    n = n_parameters(config.model)
    of_state = _itemsize(config) if config.train.precision_mode == "pure" else FP32
    return Estimate(n_parameters=n, state_bytes=4 * of_state * n, kept_bytes=kept_bytes(config))


def n_parameters(model: ModelConfig) -> int:
    """Parameters of the decoder, as ``sum(p.numel() for p in model.parameters())`` would say."""
    X, hidden = model.dim, _hidden(model)
    mlp = X * hidden * (2 if model.decoder == "tiny" else 3)
    block = 2 * X + mlp + _attention_parameters(model)
    heads = model.vocab * X * (1 if model.tied_head else 2)
    return model.n_layers * block + heads + X


def kept_bytes(config: RunConfig) -> int:
    """Bytes that autograd keeps for backward; within a few percent on the CPU kernels."""
    model, T, size = config.model, config.train.batch_size * config.train.seq_len, _itemsize(config)
    X, hidden, is_autocast = model.dim, _hidden(model), size < FP32 and config.train.precision_mode == "autocast"
    block = T * (6 * X + 2 + (2 if model.decoder == "tiny" else 4) * hidden) + _attention_elements(config)
    in_fp32 = T * (4 * X + 2 + (1 if model.attention == "dense" else 3) * model.n_heads)
    block_bytes = FP32 * in_fp32 + size * (block - in_fp32 + (T * X * _casts(model) if is_autocast else 0))
    ends = FP32 * T * (2 * X + 1 + model.vocab) + size * T * X + 16 * T
    if is_autocast:
        ends += size * (n_parameters(model) - X * (2 * model.n_layers + 1 + model.vocab))
    if config.train.checkpointing in RECOMPUTED:
        return model.n_layers * (FP32 if is_autocast else size) * T * X + block_bytes + ends
    return model.n_layers * block_bytes + ends


def _itemsize(config: RunConfig) -> int:
    return FP32 if config.train.precision == "fp32" else HALF


def _casts(model: ModelConfig) -> int:
    """How often more than once autocast keeps a norm's output: for each of the products that read it."""
    products = 3 + (model.attention != "dense" and model.branches == "all") + (1 if model.decoder == "tiny" else 2)
    return products - 2


def _hidden(model: ModelConfig) -> int:
    return 4 * model.dim if model.decoder == "tiny" else -(-8 * model.dim // 24) * 8


def _attention_parameters(model: ModelConfig) -> int:
    X, H, G, D, E = model.dim, model.n_heads, model.n_kv_groups, model.d_k, model.d_v
    n_k, n_v = {"all": (3, 3), "slc": (2, 1)}.get(model.branches, (1, 1))
    if model.share_kv or model.attention == "dense":
        n_k = n_v = 1
    total = X * (H * D + n_k * G * D + n_v * G * E) + H * E * X
    if model.attention == "dense":
        return total
    if model.branches == "all":
        gate_hidden = max(8, X // 4)
        total += X * gate_hidden + gate_hidden * 3 * H
    if model.phi == "mlp" and model.branches in ("all", "cmp"):
        total += sum(model.l * width + model.l * width * width + width * width for width in (D, E))
    return total


def _attention_elements(config: RunConfig) -> int:
    """What one attention layer keeps: the three branches with their gate, or full attention."""
    model, B, S = config.model, config.train.batch_size, config.train.seq_len
    T = B * S
    H, G, D, E = model.n_heads, model.n_kv_groups, model.d_k, model.d_v
    rotations = 2 * S * (D // 2)
    if model.attention == "dense":
        return 2 * rotations + T * (H * D + G * D + G * E + 2 * H * E)
    chunk = min(max(model.w, 32), S)
    reach = (chunk + model.w - 1) / chunk  # window keys beside a chunk of queries, per query
    n_blocks = B * model.layout.n_cmp(S)
    width = max(D, E)
    phi = n_blocks * G * (model.l * (D + E) + 2 * (D + E)) if model.phi == "mlp" else 0
    compressed = T * H * 4 * width + T * H
    turned = (H + 2 * G) * D if width == D else (H + G) * width  # one tensor, or its padded copies
    selected = T * (turned + 3 * G * E + H * width + H + H // 4) + G * B * S * S
    window = T * (2 * H * width + H + reach * 2 * G * width) + S * reach * chunk
    gate = T * (2 * max(8, model.dim // 4) + 3 * H)
    combined = T * 2 * H * E
    quarantined = T * (G * D + 3 * H * E)  # keys without what is not finite, and outputs spoiled by it
    return int(2 * rotations + phi + compressed + selected + window + gate + combined + quarantined)
