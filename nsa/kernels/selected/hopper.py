"""Selected branch on Hopper GPUs in Triton with TMA: one query and 16 heads of a group to a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsa.kernels.devices import is_hopper
from nsa.kernels.scale import scale_of
from nsa.kernels.selected.triton import selected_attention
from nsa.kernels.selected.triton_hopper import HALF_TYPES, WIDTHS, attend, uneven

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.kernels.registry import Site


TIMED_WIDTH, TIMED_BLOCK = 128, 64
"""Where they were timed, and faster: bench/results/hopper-selected-h200-2026-11-23.md."""


def refuses(site: Site) -> str | None:
    """Why these kernels cannot serve this site, if they cannot."""
    if not is_hopper(site.device):
        return "these kernels are for a GPU of compute capability 9.0 (H100, H200)"
    if site.dtype not in HALF_TYPES:
        return f"the kernels take bf16 or fp16, not {site.dtype}"
    if site.d_k != site.d_v or site.d_k not in WIDTHS:
        return f"the kernels take one head width, 64 or 128, not {site.d_k} and {site.d_v}"
    return uneven(group=site.group, l_slc=site.layout.l_slc)


def yields(site: Site) -> str | None:
    """Why ``auto`` passes these kernels over here, though they could run."""
    if site.d_k != TIMED_WIDTH or site.layout.l_slc != TIMED_BLOCK:
        return f"timed at head width {TIMED_WIDTH} and blocks of {TIMED_BLOCK} tokens alone"
    return None


def selected(
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
    """Contract: ``nsa.kernels.selected.op.SelectedAttention`` (Eq. 1-2 over the blocks of Eq. 11-12).

    q, k and v in bf16 or fp16, heads of 64 or 128, groups of a multiple of 16 heads, blocks of 16, 32 or 64 keys.
    Packed documents run as in the ``triton`` backend.

    Raises:
        ValueError: shapes, types or sizes that do not fit together or the kernels.
    """
    scale = scale_of(q_BTHD, scale)
    if cu_seqlens is not None:
        where = {"offset": offset, "cu_seqlens": cu_seqlens}
        return selected_attention(q_BTHD, k_BSGD, v_BSGE, index_BTGN, l_slc=l_slc, scale=scale, **where)
    return attend(q_BTHD, k_BSGD, v_BSGE, index_BTGN, l_slc=l_slc, scale=scale, offset=offset)
