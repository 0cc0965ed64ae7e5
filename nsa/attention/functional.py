"""Native Sparse Attention as one function of tensors, for models that make their own queries, keys, values and gates.

Shape letters: B batch, T queries, S keys, H query heads, G key/value heads, D and E head widths, C compression blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from nsa.attention.cache import Keys
from nsa.attention.checks import check_heads
from nsa.attention.compress import MeanPhi
from nsa.attention.documents import boundaries
from nsa.attention.layer import branch_outputs
from nsa.blocks import BlockLayout
from nsa.config import KernelConfig, RunConfig
from nsa.errors import InputError
from nsa.kernels.on_call import KernelOnCall, up_to
from nsa.kernels.registry import Site, resolve_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


def nsa_attention(
    q_BTHD: Tensor,
    k_BSGD: Tensor,
    v_BSGE: Tensor,
    k_cmp_BCGD: Tensor | None,
    v_cmp_BCGE: Tensor | None,
    gate_BTHC: Tensor,
    *,
    k_win_BSGD: Tensor | None = None,
    v_win_BSGE: Tensor | None = None,
    l: int = 32,  # noqa: E741 - the paper's letter
    d: int = 16,
    l_slc: int = 64,
    n: int = 16,
    w: int = 512,
    scale: float | None = None,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    kernels: Mapping[str, str] | None = None,
) -> Tensor:
    """Attend causally through the three branches of arXiv 2502.11089 and add them by their gates (Eq. 5).

    Differentiable once in every tensor but ``cu_seqlens``; a second derivative is refused. Selection has no gradient.
    Positions are the caller's: rotate queries and keys before, compressed keys after compression.

    Args:
        q_BTHD: queries; query t stands at token S - T + t, so with T = S it is plain causal attention.
        k_BSGD: keys of the slc branch; H is a multiple of G, and D is q's.
        v_BSGE: values of the slc branch.
        k_cmp_BCGD: one key per compression block: block i has tokens i d to i d + l - 1, and only whole blocks count,
            C = (S - l) // d + 1 (0 if S < l). Means of k's blocks if None. With ``cu_seqlens`` C = S // d slots in the
            order of ``nsa.kernels.documents.block_documents``.
        v_cmp_BCGE: their values; means of v's blocks if None.
        gate_BTHC: weights of the branches in the order cmp, slc, win; C = 3; as they are, without a sigmoid.
        k_win_BSGD: keys of the win branch; k if None.
        v_win_BSGE: values of the win branch; v if None.
        l: tokens per compression block, a multiple of d.
        d: stride between compression blocks.
        l_slc: tokens per selection block, a multiple of d.
        n: selection blocks per query, the first and the two local ones among them; at least 3.
        w: keys in the window, the query's own included.
        scale: factor on the scores; 1 / sqrt(D) if None.
        cu_seqlens: boundaries of N documents packed in one row (then B = 1 and T = S), 0 to T; each is attended to by
            itself. N + 1 numbers that the host knows, and each costs what a row costs; or int32 or int64 [N + 1] on
            q's device, and a mask hides the others.
        kernels: backends by operator, ``{"selected": "gather"}``; what is not named is chosen for the place.

    Returns:
        o_BTHE in q's type.

    Raises:
        ConfigError: l, d, l_slc, n and w do not fit together, or no kernel has that name.
        InputError: shapes, types, devices or boundaries that do not fit.
        KernelUnavailable: a kernel asked for by name cannot run here.
    """
    layout = BlockLayout(l=l, d=d, l_slc=l_slc, n=n, w=w)
    check_heads(q_BTHD, k_BSGD, v_BSGE)
    (B, T, H, D), S, (G, E) = q_BTHD.shape, k_BSGD.shape[1], v_BSGE.shape[2:]
    if T > S or (cu_seqlens is not None and T != S):
        raise InputError(f"{T} queries and {S} keys; the last query stands at the last key, and documents need T = S")
    if gate_BTHC.shape != (B, T, H, 3):
        raise InputError(
            f"gates have shape {tuple(gate_BTHC.shape)}; they need {(B, T, H, 3)}, in the order cmp, slc, win"
        )
    lengths = None
    if cu_seqlens is not None:
        cu_seqlens, lengths = boundaries(cu_seqlens, n_rows=B, n_tokens=S, device=q_BTHD.device)
    mean = MeanPhi()
    kc_BCGD = mean(k_BSGD, layout, cu_seqlens) if k_cmp_BCGD is None else k_cmp_BCGD
    vc_BCGE = mean(v_BSGE, layout, cu_seqlens) if v_cmp_BCGE is None else v_cmp_BCGE
    k_win_BSGD = k_BSGD if k_win_BSGD is None else k_win_BSGD
    v_win_BSGE = v_BSGE if v_win_BSGE is None else v_win_BSGE
    n_blocks = layout.n_cmp(S) if cu_seqlens is None else S // d
    for name, k, v, length in (("_cmp", kc_BCGD, vc_BCGE, n_blocks), ("_win", k_win_BSGD, v_win_BSGE, S)):
        check_heads(q_BTHD, k, v, name=name)
        if k.shape[1] != length or k.shape[2] != G or v.shape[3] != E:
            raise InputError(
                f"k{name} {tuple(k.shape)} and v{name} {tuple(v.shape)} do not fit; they need {length} rows of {G} "
                f"heads, as wide as k's ({D}) and v's ({E})"
            )
    keys = Keys(kc_BCGD=kc_BCGD, vc_BCGE=vc_BCGE, k_slc=k_BSGD, v_slc=v_BSGE, k_win=k_win_BSGD, v_win=v_win_BSGE)
    asked = tuple(sorted((kernels or {}).items()))
    number = _number(asked, q_BTHD.device, q_BTHD.dtype, up_to(S), H, G, D, E, l, d, l_slc, n, w)
    where: dict[str, Any] = {"offset": S - T, "cu_seqlens": cu_seqlens, "scale": scale}
    outputs = branch_outputs(_PREPARED[number], layout, q_BTHD, keys, where, lengths=lengths)
    return _PREPARED[number]["combine"](outputs["cmp"], outputs["slc"], outputs["win"], gate_BTHC)


_PREPARED: list[dict[str, KernelOnCall]] = []
"""The operators of every geometry that was asked for; they are resolved where they are called."""
_NUMBERS: dict[tuple[Any, ...], int] = {}


# A compiler asks once while it traces, as in ``nsa.kernels.on_call``.
@torch.compiler.assume_constant_result
def _number(
    asked: tuple[tuple[str, str], ...], device: torch.device, dtype: torch.dtype, seq_len: int, *sizes: int
) -> int:
    """Where the operators of this geometry stand in the list."""
    if (asked, sizes) not in _NUMBERS:
        H, G, D, E, l, d, l_slc, n, w = sizes  # noqa: E741 - the paper's letter
        for op, name in asked:
            RunConfig.path(f"kernels.{op}").checked(name)
        site = Site(
            device=device,
            dtype=dtype,
            seq_len=seq_len,
            n_heads=H,
            n_kv_groups=G,
            d_k=D,
            d_v=E,
            layout=BlockLayout(l=l, d=d, l_slc=l_slc, n=n, w=w),
        )
        resolved = resolve_all(KernelConfig(**dict(asked)), site)
        _PREPARED.append({op: KernelOnCall(resolution) for op, resolution in resolved.items()})
        _NUMBERS[asked, sizes] = len(_PREPARED) - 1
    return _NUMBERS[asked, sizes]
