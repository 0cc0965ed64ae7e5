"""The contract of block selection: from compressed probabilities to the block numbers each query reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.blocks import BlockLayout


class SelectBlocks(Protocol):
    """Choose n blocks per query and key/value head; not differentiable."""

    def __call__(
        self,
        q_BTHD: Tensor,
        kc_BCGD: Tensor,
        lse_BTH: Tensor,
        layout: BlockLayout,
        *,
        scale: float | None = None,
        offset: int = 0,
        cu_seqlens: Tensor | None = None,
    ) -> Tensor:
        """Score selection blocks by the compressed branch's own probabilities and keep the best n.

        p_cmp = exp(scale q.k - lse) over visible blocks (Eq. 8); p_slc = p_cmp M with M the overlap in strides
        (Eq. 9, ``BlockLayout.overlap``); summed over the heads of a group (Eq. 10); ranked in fp32, the lower
        block number first among equals (Eq. 11). The initial block and the two local ones are always taken
        and count towards n.

        Args:
            q_BTHD: queries, as given to the compressed branch.
            kc_BCGD: compressed keys, as given to the compressed branch.
            lse_BTH: the compressed branch's lse.
            layout: block geometry.
            scale: factor on the scores; 1 / sqrt(D) if None.
            offset: position of the first query.
            cu_seqlens: document boundaries of a packed row.

        Returns:
            index_BTGN: int32, ascending, padded with -1 at the end; block numbers count from the start of the
            document. Query at position p gets min(n, p // l_slc + 1) blocks, none ahead of its own.
        """
        ...
