"""The contract of the compressed branch: dense attention over complete compression blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.blocks import BlockLayout


class CompressedAttention(Protocol):
    """Attend over compressed keys; o is differentiable once in q, k and v.

    lse is there to rank blocks: lse has a gradient in masked only, so do not differentiate it.
    """

    def __call__(
        self,
        q_BTHD: Tensor,
        kc_BCGD: Tensor,
        vc_BCGE: Tensor,
        layout: BlockLayout,
        *,
        scale: float | None = None,
        offset: int = 0,
        cu_seqlens: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend over the blocks that are complete at each query.

        Args:
            q_BTHD: queries; query t stands at position offset + t of its document.
            kc_BCGD: compressed keys, C = layout.n_cmp(tokens); with cu_seqlens the S // d slots of
                ``nsa.kernels.documents.block_documents``.
            vc_BCGE: compressed values.
            layout: block geometry; block i ends with token i d + l - 1 and is visible from there on.
            scale: factor on the scores; 1 / sqrt(D) if None.
            offset: position of the first query, for decoding behind a cache.
            cu_seqlens: document boundaries of a packed row (then B is 1 and offset 0).

        Returns:
            o_BTHE in q's type, and lse_BTH: natural log of the softmax sum, fp32. A query that sees no block
            gets o = 0, lse = -inf and zero gradients.
        """
        ...
