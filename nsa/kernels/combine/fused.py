"""The gated sum on Hopper GPUs in the last store of the window's kernel: the three branches and it are one operator.

There it costs no pass of its own, forward or backward (see ``nsa.kernels.hopper.triton_whole``). That needs the
branches to be by Hopper's kernels, too, a whole row of tokens and a positive scale; elsewhere the branches run one by
one and the sum is that of the ``triton`` backend.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import torch

from nsa.kernels.devices import is_hopper
from nsa.kernels.hopper_sites import yields
from nsa.kernels.scale import scale_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from nsa.blocks import BlockLayout
    from nsa.kernels.registry import Site

__all__ = ["attend", "combine", "refuses", "serves", "yields"]

PARTS = {
    "compressed": ("hopper",),
    "scores": ("triton", "hopper"),
    "selected": ("triton", "hopper"),
    "window": ("hopper",),
    "combine": ("fused",),
}
"""Of each operator, the backends that the fused one is made of."""


def refuses(site: Site) -> str | None:
    """Why it cannot serve this site, if it cannot."""
    if not is_hopper(site.device):
        return "these kernels are for a GPU of compute capability 9.0 (H100, H200)"
    return importlib.import_module("nsa.kernels.hopper.triton").refuses(site)


def combine(cmp_BTHE: Tensor, slc_BTHE: Tensor, win_BTHE: Tensor, gate_BTHC: Tensor) -> Tensor:
    """Contract: ``nsa.kernels.combine.op.CombineBranches``, of branches that ran one by one."""
    return importlib.import_module("nsa.kernels.combine.triton").combine(cmp_BTHE, slc_BTHE, win_BTHE, gate_BTHC)


def serves(names: Mapping[str, str]) -> bool:
    """Whether one operator may stand for these backends, by operator."""
    return all(names.get(op) in parts for op, parts in PARTS.items())


def attend(
    q_BTHD: Tensor,
    keys: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
    gate_BTHC: Tensor,
    layout: BlockLayout,
    names: Mapping[str, str],
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend through the three branches and add them by their gates (Eq. 5); differentiable once in every tensor.

    Args:
        q_BTHD: queries, bf16 or fp16; query t stands at token t.
        keys: keys and values of cmp [B, C, G, D], of slc and of win [B, T, G, D], in q's type.
        gate_BTHC: weights of the branches in the order cmp, slc, win; C = 3.
        layout: block geometry.
        names: backends by operator, that ``serves`` agreed to.
        scale: factor on the scores, positive; 1 / sqrt(D) if None.

    Returns:
        o_BTHD in q's type, and the blocks that the scores chose, index_BTGN.

    Raises:
        ValueError: shapes or types that do not fit together.
    """
    _load()
    sizes = (layout.l, layout.d, layout.l_slc, layout.n, layout.w)
    by_tma = (names["scores"] == "hopper", names["selected"] == "hopper")
    attention = torch.ops.nsa.hopper_whole.default
    o_BTHD, *_, index_BTGN, _ = attention(q_BTHD, *keys, gate_BTHC, *sizes, scale_of(q_BTHD, scale), *by_tma)
    return o_BTHD, index_BTGN


# A compiler imports nothing while it traces; it calls this instead, once.
@torch.compiler.assume_constant_result
def _load() -> bool:
    """Register the operator."""
    importlib.import_module("nsa.kernels.hopper.triton_whole")
    return True
