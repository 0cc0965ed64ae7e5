"""Rotary position embedding, per head: the product of a query and a key depends on their distance only.

Angles depend on positions alone, so a model computes them once per pass and every layer turns its heads by them.
Shape letters: T rows, C compression blocks, D head width (even).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nsa.kernels.documents import block_documents, token_documents
from nsa.kernels.rotary.op import rotate_heads

if TYPE_CHECKING:
    from nsa.blocks import BlockLayout
    from nsa.config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Angles:
    """Cosine and sine of each row's angles, as wide as a head, in fp32 (fp64 for fp64).

    ``sin_T1D`` carries the signs of a rotation: minus in the first half of a head, plus in the second.
    """

    cos_T1D: Tensor
    sin_T1D: Tensor

    def every(self, step: int, *, first: int) -> Angles:
        """Those of rows ``first``, ``first + step``, ...; views."""
        return Angles(cos_T1D=self.cos_T1D[first::step], sin_T1D=self.sin_T1D[first::step])


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Angles of a pass's tokens, and of the compression blocks among them; behind a cache the latter are of no use.

    Where the host was told the ``lengths`` of packed documents, these are the angles of the longest, whose rows all
    documents begin with.

    Not a tuple or a mapping: what wraps a block, such as FSDP's mixed precision, must not find and round the tensors.
    """

    tokens: Angles
    blocks: Angles
    lengths: tuple[int, ...] | None = None

    def of_row(self, n_tokens: int, layout: BlockLayout) -> Turns:
        """Those of a row of so many tokens; views."""
        tokens = Angles(cos_T1D=self.tokens.cos_T1D[:n_tokens], sin_T1D=self.tokens.sin_T1D[:n_tokens])
        return Turns(tokens=tokens, blocks=tokens.every(layout.d, first=layout.l - 1))


def angles(position_T: Tensor, width: int, *, base: float, scale: float = 1.0, like: Tensor) -> Angles:
    """Angles proportional to the position, in fp32 (fp64 if ``like`` is fp64).

    Args:
        position_T: position of each row in its document (any real type).
        width: head width D.
        base: base of the frequencies, base^(-2i/D).
        scale: positions are divided by this (linear position interpolation).
        like: a tensor of the type and on the device of what will be turned.
    """
    real = torch.float64 if like.dtype == torch.float64 else torch.float32
    half = width // 2
    frequency_F = base ** (-torch.arange(half, device=like.device, dtype=real) / half)
    angle_T1F = (position_T.to(real) / scale)[:, None, None] * frequency_F
    cos, sin = angle_T1F.cos(), angle_T1F.sin()
    return Angles(cos_T1D=torch.cat((cos, cos), -1), sin_T1D=torch.cat((-sin, sin), -1))


def turns(
    config: ModelConfig,
    like_BTX: Tensor,
    *,
    first: int = 0,
    cu_seqlens: Tensor | None = None,
    lengths: tuple[int, ...] | None = None,
) -> Turns:
    """Angles for the tokens of ``like_BTX``, the first of which stands at position ``first`` of its document.

    With document boundaries or lengths (then ``first`` is 0) positions start anew in each.
    """
    T = like_BTX.shape[1] if lengths is None else max(lengths)
    device, layout = like_BTX.device, config.layout
    how: dict[str, Any] = {"base": config.rope_base, "scale": config.rope_scale, "like": like_BTX}
    if cu_seqlens is None:
        tokens = angles(torch.arange(first, first + T, device=device), config.d_k, **how)
        return Turns(tokens=tokens, blocks=tokens.every(layout.d, first=layout.l - 1), lengths=lengths)
    tokens = angles(token_documents(cu_seqlens, T).position_S, config.d_k, **how)
    last_C = block_documents(cu_seqlens, T, layout).number_C * layout.d + layout.l - 1
    return Turns(tokens=tokens, blocks=angles(last_C, config.d_k, **how))


def rotate(x_BTHD: Tensor, by: Angles) -> Tensor:
    """Turn pairs (i, i + D/2) of every head by their row's angle: in the angles' type, rounded once to x's."""
    none_BT0D = x_BTHD.new_empty((*x_BTHD.shape[:2], 0, x_BTHD.shape[3]))
    return rotate_heads(x_BTHD, none_BT0D, by.cos_T1D, by.sin_T1D)[0]


def rotate_both(q_BTHD: Tensor, k_BTGD: Tensor, by: Angles, *, n_plain: int = 0) -> tuple[Tensor, Tensor]:
    """``rotate`` queries and keys of the same rows at once; the first ``n_plain`` key heads stay as they are."""
    return rotate_heads(q_BTHD, k_BTGD, by.cos_T1D, by.sin_T1D, n_plain=n_plain)
