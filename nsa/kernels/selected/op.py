"""The contract of the selected branch: attention over the blocks that selection listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class SelectedAttention(Protocol):
    """Attend over listed blocks; o is differentiable once in q, k and v.

    lse has a gradient in masked, gather and triton only, so do not differentiate it where the kernel may change.
    """

    def __call__(
        self,
        q_BTHD: Tensor,
        k_BSGD: Tensor,
        v_BSGE: Tensor,
        index_BTGN: Tensor,
        *,
        l_slc: int,
        scale: float | None = None,
        offset: int = 0,
        cu_seqlens: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend over the keys of the listed blocks, up to the query itself.

        Args:
            q_BTHD: queries; query t stands at position offset + t of its document. H = G * group.
            k_BSGD: keys; key s stands at position s (of its document with cu_seqlens).
            v_BSGE: values; E may differ from D.
            index_BTGN: int32 block numbers, ascending, each once, -1 at the end; relative to the document's
                start when cu_seqlens is given.
            l_slc: tokens per block.
            scale: factor on the scores; 1 / sqrt(D) if None.
            offset: position of the first query.
            cu_seqlens: document boundaries of a packed row (then B is 1, T equals S and offset is 0).

        Returns:
            o_BTHE in q's type, and lse_BTH (fp32, natural log). A row with no key gets o = 0, lse = -inf and
            zero gradients.
        """
        ...
