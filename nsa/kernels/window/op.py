"""The contract of the window branch: attention over exactly the last w keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class WindowAttention(Protocol):
    """Attend over the last w keys; differentiable in q, k and v."""

    def __call__(
        self,
        q_BTHD: Tensor,
        k_BSGD: Tensor,
        v_BSGE: Tensor,
        *,
        w: int,
        scale: float | None = None,
        offset: int = 0,
        k_offset: int = 0,
        cu_seqlens: Tensor | None = None,
    ) -> Tensor:
        """Attend over keys at distance 0 .. w - 1.

        Args:
            q_BTHD: queries; query t stands at position offset + t.
            k_BSGD: keys; key s stands at position k_offset + s, so a cache may hold the last w keys only.
            v_BSGE: values.
            w: keys a query sees, its own included.
            scale: factor on the scores; 1 / sqrt(D) if None.
            offset: position of the first query.
            k_offset: position of the first key.
            cu_seqlens: document boundaries of a packed row (then B is 1 and both offsets are 0).

        Returns:
            o_BTHE in q's type.
        """
        ...
