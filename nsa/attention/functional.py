"""Native Sparse Attention as one function of tensors, for models that make their own queries, keys, values and gates.

Shape letters: B batch, T queries, S keys, H query heads, G key/value heads, D and E head widths, C compression blocks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from nsa.attention.cache import Keys
from nsa.attention.checks import check_heads
from nsa.attention.compress import MeanPhi
from nsa.attention.documents import boundaries, by_length
from nsa.attention.layer import gated_output
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
    n_blocks = layout.n_cmp(S) if cu_seqlens is None else S // d
    lengths = None
    if cu_seqlens is not None:
        cu_seqlens, lengths = boundaries(cu_seqlens, n_rows=B, n_tokens=S, device=q_BTHD.device)
    for name, k, v, length in (("_cmp", k_cmp_BCGD, v_cmp_BCGE, n_blocks), ("_win", k_win_BSGD, v_win_BSGE, S)):
        if k is None and v is None:
            continue
        # Rows of k and v stand in for what is not given: they have the shape of what takes its place.
        k, v = (own[:, :length] if x is None else x for x, own in ((k, k_BSGD), (v, v_BSGE)))
        check_heads(q_BTHD, k, v, name=name)
        if k.shape[1] != length or k.shape[2] != G or v.shape[3] != E:
            raise InputError(
                f"k{name} {tuple(k.shape)} and v{name} {tuple(v.shape)} do not fit; they need {length} rows of {G} "
                f"heads, as wide as k's ({D}) and v's ({E})"
            )
    asked = tuple(sorted((kernels or {}).items()))
    number = _number(asked, q_BTHD.device, q_BTHD.dtype, up_to(S), H, G, D, E, l, d, l_slc, n, w)
    of_tokens = {"q": q_BTHD, "k": k_BSGD, "v": v_BSGE, "gate": gate_BTHC, "k_win": k_win_BSGD, "v_win": v_win_BSGE}
    of_blocks = {"k_cmp": k_cmp_BCGD, "v_cmp": v_cmp_BCGE}
    given: dict[str, Tensor] = {name: x for name, x in (of_tokens | of_blocks).items() if x is not None}
    where: dict[str, Any] = {"offset": S - T, "cu_seqlens": cu_seqlens, "scale": scale}
    attend = partial(_attended, _PREPARED[number], layout, where)
    if lengths is None:
        return attend(**given)
    n_cmp = tuple(layout.n_cmp(n_tokens) for n_tokens in lengths)
    parts = {name: (x, n_cmp if name in of_blocks else lengths) for name, x in given.items()}
    return by_length(lengths, parts, attend)


def _attended(
    kernels: Mapping[str, KernelOnCall],
    layout: BlockLayout,
    where: Mapping[str, Any],
    *,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor,
    k_cmp: Tensor | None = None,
    v_cmp: Tensor | None = None,
    k_win: Tensor | None = None,
    v_win: Tensor | None = None,
) -> Tensor:
    """What ``nsa_attention`` gives, of input that was checked."""
    cu_seqlens = where["cu_seqlens"]
    keys = Keys(
        kc_BCGD=_MEAN(k, layout, cu_seqlens) if k_cmp is None else k_cmp,
        vc_BCGE=_MEAN(v, layout, cu_seqlens) if v_cmp is None else v_cmp,
        k_slc=k,
        v_slc=v,
        k_win=k if k_win is None else k_win,
        v_win=v if v_win is None else v_win,
    )
    return gated_output(kernels, layout, q, keys, gate, where)


_MEAN = MeanPhi()
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
