"""The contract of a decoding step: what it reads, what it writes, and why it can be replayed.

Nothing in it has a shape that depends on how many tokens there are, and positions are read on the device, so that one
CUDA graph serves every step. What a step writes depends on its tokens and their positions alone and goes where nothing
that counts is: the same step taken again, after an exception or instead of another token, writes the same places again.
Shape letters: B rows, H query heads, G key/value heads, D and E head widths, P pages, M pages of a row, L tokens of a
page (l_slc), R compressed blocks that begin in a page (l_slc / d), W slots of the window's ring, U of the raw tokens'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.attention.compress import MeanPhi, MlpPhi
    from nsa.attention.rope import Angles
    from nsa.blocks import BlockLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPages:
    """Keys and values of one layer.

    Whatever is not finite is kept as a key of NaN with a value of zeros: who sees it gets NaN, nobody else can tell.

    Attributes:
        k_slc: [P, G, L, D]; token p of a row lies in the row's page p // L.
        v_slc: [P, G, L, E].
        kc: [B, G, C, D]; few, and all read in every step, so that they lie in their order, without pages.
        vc: [B, G, C, E].
        k_win: [B, G, W, D]; token p lies at p % W.
        v_win: [B, G, W, E].
        k_raw: [B, G, U, D]; what phi still needs, before rotation and with whatever it holds; token p at p % U.
        v_raw: [B, G, U, E].
    """

    k_slc: Tensor
    v_slc: Tensor
    kc: Tensor
    vc: Tensor
    k_win: Tensor
    v_win: Tensor
    k_raw: Tensor
    v_raw: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        """All of them: those in pages, then those of each row."""
        return (self.k_slc, self.v_slc, self.kc, self.vc, self.k_win, self.v_win, self.k_raw, self.v_raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the layers of a step share.

    Attributes:
        position_B: int32; where each row's new token stands, which is how many tokens the row holds.
        table_BM: int32; the pages of each row.
        turn: angles of every position that a row may come to.
        arrived: int32 zeros [5 * B * G + 1], and zeros again after every step.
    """

    position_B: Tensor
    table_BM: Tensor
    turn: Angles
    arrived: Tensor


class DecodeStep(Protocol):
    """Add one token to every row, and attend to it and all before it."""

    def __call__(
        self,
        q_BHD: Tensor,
        k_BKD: Tensor,
        v_BKE: Tensor,
        gate_BHC: Tensor,
        pages: LayerPages,
        place: Place,
        phi_k: MeanPhi | MlpPhi,
        phi_v: MeanPhi | MlpPhi,
        layout: BlockLayout,
    ) -> Tensor:
        """Three branches, gated and added.

        Args:
            q_BHD: queries of the new tokens, not rotated.
            k_BKD: their keys, not rotated; G heads that all branches share, or 3 G: cmp, slc, win.
            v_BKE: their values likewise.
            gate_BHC: weights of the branches in the order cmp, slc, win.
            pages: the layer's memory, which takes in the new tokens.
            place: where they stand; its positions stay as they are.
            phi_k: how a block of raw keys becomes one.
            phi_v: how a block of values becomes one.
            layout: block geometry.

        Returns:
            o_BHE in q's type.
        """
        ...
