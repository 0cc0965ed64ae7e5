"""Numbers to look at: what the gates prefer and what the selector picks, per layer, off the hot path.

Nothing is collected unless ``watch_attention`` is active, and then only detached copies of the gates and the
indices; the numbers are computed when they are read.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from nsa.attention.gate import BRANCHES
from nsa.attention.layer import NsaAttention

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from nsa.blocks import BlockLayout


@dataclass(slots=True, kw_only=True)
class LayerWatch:
    """The last forward pass of one attention layer."""

    layout: BlockLayout
    gate_BTHC: Tensor | None = None
    index_BTGN: Tensor | None = None
    offset: int = 0

    def gate_facts(self) -> dict[str, float]:
        """Mean gate per branch, and the entropy (nats) of the branches' shares; ln 3 = 1.0986 when even."""
        if self.gate_BTHC is None:
            return {}
        gate = self.gate_BTHC.double()
        share = gate / gate.sum(-1, keepdim=True).clamp(min=1e-12)
        entropy = -(share * share.clamp(min=1e-12).log()).sum(-1)
        means = {f"gate_{name}": mean for name, mean in zip(BRANCHES, gate.mean((0, 1, 2)).tolist(), strict=True)}
        return {**means, "gate_entropy_mean": entropy.mean().item(), "gate_entropy_min": entropy.min().item()}

    def selection_facts(self) -> dict[str, float]:
        """Selected blocks: how many, how far back, and how alike from one token to the next.

        Returns:
            k_mean, k_max: blocks per row; rows: rows seen; pct_at_max: percent of rows with n blocks;
            overlap: mean share of a row's blocks that the row before also had (nan for one token);
            distance: mean blocks between the query's own block and those it chose freely (nan if none).
        """
        if self.index_BTGN is None:
            return {}
        index_BTGN = self.index_BTGN
        is_real = index_BTGN >= 0
        k_BTG = is_real.sum(-1).double()
        is_kept = (index_BTGN[:, 1:, :, :, None] == index_BTGN[:, :-1, :, None, :]).any(-1) & is_real[:, 1:]
        overlap = (is_kept.sum(-1) / k_BTG[:, 1:]).mean().item() if k_BTG.shape[1] > 1 else math.nan
        position_T = torch.arange(self.offset, self.offset + k_BTG.shape[1], device=index_BTGN.device)
        own_T = position_T // self.layout.l_slc
        distance = own_T[:, None, None] - index_BTGN
        is_free = is_real & (index_BTGN > 0) & (distance > 1)
        return {
            "k_mean": k_BTG.mean().item(),
            "k_max": k_BTG.max().item(),
            "rows": float(k_BTG.numel()),
            "pct_at_max": 100.0 * (k_BTG == self.layout.n).double().mean().item(),
            "overlap": overlap,
            "distance": distance[is_free].double().mean().item(),
        }

    def tokens_read(self, position: int) -> int:
        """Keys that the last decoding step really read per group, to hold against ``BlockLayout.tokens_read``.

        Raises:
            ValueError: nothing was recorded, or more than one token.
        """
        if self.index_BTGN is None or self.index_BTGN.shape[1] != 1:
            raise ValueError("tokens_read needs the record of a single decoding step")
        blocks = [j for j in self.index_BTGN[0, 0, 0].tolist() if j >= 0]
        selected = sum(min(self.layout.l_slc, position + 1 - j * self.layout.l_slc) for j in blocks)
        return self.layout.n_cmp(position + 1) + selected + min(self.layout.w, position + 1)


@dataclass(slots=True)
class AttentionWatch:
    """One ``LayerWatch`` per sparse attention layer, in order."""

    layers: list[LayerWatch] = field(default_factory=list)

    def facts(self) -> dict[str, float]:
        """Everything as plain floats, named ``layer<i>.<number>``."""
        return {
            f"layer{i}.{name}": value
            for i, layer in enumerate(self.layers)
            for name, value in {**layer.gate_facts(), **layer.selection_facts()}.items()
        }


@contextmanager
def watch_attention(model: nn.Module) -> Iterator[AttentionWatch]:
    """Record gates and selections of every forward pass inside the ``with`` block."""
    watch = AttentionWatch()
    undo: list[Any] = []
    for module in model.modules():
        if isinstance(module, NsaAttention):
            layer = LayerWatch(layout=module.layout)
            watch.layers.append(layer)
            undo.append(_watch_selection(module, layer))
            if hasattr(module, "gate"):
                undo.append(module.gate.register_forward_hook(_gate_recorder(layer)).remove)
    try:
        yield watch
    finally:
        for restore in undo:
            restore()


@dataclass(slots=True, kw_only=True)
class _Recorded:
    """In the place of a layer's ``scores``: keeps what it chooses, also where it is a part of another operator."""

    select: Any
    layer: LayerWatch

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        index_BTGN = self.select(*args, **kwargs)
        self.layer.index_BTGN, self.layer.offset = index_BTGN, kwargs.get("offset", 0)
        return index_BTGN

    def name_for(self, x_BTHX: Tensor) -> str:
        """The backend's name; a function that somebody put in its place has none."""
        return self.select.name_for(x_BTHX) if hasattr(self.select, "name_for") else ""

    def note(self, index_BTGN: Tensor) -> None:
        """Keep what was chosen of a whole sequence; whoever watches too is told."""
        self.layer.index_BTGN, self.layer.offset = index_BTGN, 0
        if hasattr(self.select, "note"):
            self.select.note(index_BTGN)


def _watch_selection(module: NsaAttention, layer: LayerWatch) -> Any:
    select = module.kernels["scores"]
    module.kernels["scores"] = _Recorded(select=select, layer=layer)
    return lambda: module.kernels.update(scores=select)


def _gate_recorder(layer: LayerWatch) -> Any:
    def record(_module: nn.Module, _inputs: object, gate_BTHC: Tensor) -> None:
        layer.gate_BTHC = gate_BTHC.detach()

    return record
