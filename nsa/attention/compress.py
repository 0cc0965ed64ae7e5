"""phi of Eq. 7: a block of l keys (or values) becomes one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nsa.kernels.block_mean.op import block_mean
from nsa.kernels.documents import block_documents

if TYPE_CHECKING:
    from nsa.blocks import BlockLayout


class MeanPhi(nn.Module):
    """The mean of the block."""

    def forward(self, x_BSGD: Tensor, layout: BlockLayout, cu_seqlens: Tensor | None = None) -> Tensor:
        """Rows [B, S, G, D] to blocks [B, C, G, D], as ``blocks_of`` cuts them."""
        if cu_seqlens is None:
            return block_mean(x_BSGD, layout.l, layout.d)
        return blocks_of(x_BSGD, layout, cu_seqlens).mean(3)


class MlpPhi(nn.Module):
    """The mean of the block plus a learned correction, both with an intra-block position encoding.

    The last layer starts at zero, so training starts from mean pooling and selection ranks something
    meaningful from the first step. One phi serves all key/value heads.
    """

    def __init__(self, *, l: int, width: int) -> None:  # noqa: E741 - the paper's letter
        super().__init__()
        self.pe = nn.Parameter(torch.zeros(l, width))
        self.fc1 = nn.Linear(l * width, width, bias=False)
        self.fc2 = nn.Linear(width, width, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Zero what starts at zero: the encoding and the last layer."""
        nn.init.zeros_(self.pe)
        nn.init.zeros_(self.fc2.weight)

    def forward(self, x_BSGD: Tensor, layout: BlockLayout, cu_seqlens: Tensor | None = None) -> Tensor:
        """Rows [B, S, G, D] to blocks [B, C, G, D], as ``blocks_of`` cuts them."""
        placed_BCGLD = blocks_of(x_BSGD, layout, cu_seqlens) + self.pe
        hidden = nn.functional.silu(self.fc1(placed_BCGLD.flatten(3)))
        # Under autocast the encoding is fp32 and keys are not: one type for all keys of the attention.
        return (placed_BCGLD.mean(3) + self.fc2(hidden)).to(x_BSGD.dtype)


def make_phi(kind: str, *, l: int, width: int) -> MeanPhi | MlpPhi:  # noqa: E741 - the paper's letter
    """The compression called ``kind`` in the configuration."""
    return MlpPhi(l=l, width=width) if kind == "mlp" else MeanPhi()


def blocks_of(x_BSGD: Tensor, layout: BlockLayout, cu_seqlens: Tensor | None = None) -> Tensor:
    """Cut rows into overlapping compression blocks: [B, S, G, D] to [B, C, G, l, D].

    Only complete blocks. With ``cu_seqlens`` no block crosses a document; unused slots repeat the first block
    and are hidden by the masks of ``nsa.kernels.visibility``.
    """
    B, S, G, D = x_BSGD.shape
    if cu_seqlens is None:
        if layout.l > S:
            # Still a view of x, so that every parameter before it gets a gradient (zero), whatever the length.
            return x_BSGD[:, :0].unsqueeze(3).expand(B, 0, G, layout.l, D)
        return x_BSGD.unfold(1, layout.l, layout.d).transpose(3, 4)
    start_C = block_documents(cu_seqlens, S, layout).start_C
    within_L = torch.arange(layout.l, device=x_BSGD.device)
    token_CL = (start_C[:, None] + within_L).clamp(max=S - 1)
    return x_BSGD[:, token_CL].transpose(2, 3)
