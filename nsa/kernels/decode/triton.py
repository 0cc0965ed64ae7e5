"""A decoding step in one Triton kernel; ``triton_kernels`` says what its programs do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nsa.attention.compress import MeanPhi, MlpPhi
from nsa.blocks import N_INITIAL, N_LOCAL
from nsa.kernels.decode.triton_kernels import step_kernel
from nsa.kernels.devices import processors
from nsa.kernels.sizes import cdiv, pow2

if TYPE_CHECKING:
    from nsa.blocks import BlockLayout
    from nsa.kernels.decode.op import LayerPages, Place

LOG2E = 1.4426950408889634
HIDDEN = 16
"""Hidden units of phi per program; a matrix product has no fewer columns."""
RING = 128
"""The window's ring is a multiple of this, and this of a tile."""
KEYS = 64
"""Compressed keys, or keys of the window, in a tile."""
SLICE = 128
"""Blocks that a program scores."""
ROWS = 16
"""Rows of phi per program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many programs share a row's kv head, and what each is made of.

    Attributes:
        splits: programs for the compressed keys.
        windows: for the window.
        selects: for the selected blocks; a power of two.
        merges: for the sum of the branches, each with some of the columns; a power of two.
        keys: compressed keys per tile.
        stages: tiles of theirs and of the window's on the way at a time.
        select_stages: selected blocks on the way at a time.
        slice: blocks that a program scores.
        warps: of every program.
    """

    splits: int
    windows: int
    selects: int
    merges: int = 8
    keys: int = KEYS
    stages: int = 2
    select_stages: int = 2
    slice: int = SLICE
    warps: int = 4


def plan(n_heads: int, n_processors: int, *, n_blocks: int) -> Plan:
    """For ``n_heads`` kv heads of all rows together, the fastest of what was timed on an H100 at 65,536 tokens.

    With few heads a tile or two to a program, so that no processor waits; with many few programs, for each begins anew.

    Args:
        n_heads: rows times kv heads.
        n_processors: of the GPU.
        n_blocks: compressed keys that memory has room for.
    """
    most = cdiv(n_blocks, KEYS)
    if 8 * n_heads <= n_processors:
        return Plan(splits=min(most, 32), windows=5, selects=8)
    return Plan(splits=min(most, 6), windows=2, selects=2, stages=3, select_stages=3)


def refuses(layout: BlockLayout, *, dtype: torch.dtype, device: torch.device, d_k: int, group: int) -> str | None:
    """Why these kernels cannot take a decoding step there, if they cannot."""
    if device.type != "cuda":
        return f"Triton compiles for a GPU, and this is a {device.type}"
    if dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return f"the kernels take bf16, fp16 or fp32, not {dtype}"
    per_page = layout.l_slc // layout.d
    if per_page & (per_page - 1) or per_page > 64:
        return f"l_slc / d = {per_page} must be a power of two up to 64"
    if layout.l > KEYS * layout.d:
        return f"l / d = {layout.l // layout.d} must be at most {KEYS}"
    if layout.l_slc > 128 or d_k > 256 or group > 64:
        return "the kernels take l_slc up to 128, heads up to 256 wide and up to 64 query heads per kv head"
    return None


def decode(
    q_BHD: Tensor,
    k_BKD: Tensor,
    v_BKE: Tensor,
    gate_BHC: Tensor,
    pages: LayerPages,
    place: Place,
    phi_k: MeanPhi | MlpPhi,
    phi_v: MeanPhi | MlpPhi,
    layout: BlockLayout,
    *,
    how: Plan | None = None,
) -> Tensor:
    """Contract: ``nsa.kernels.decode.op.DecodeStep``; in bf16, fp16 or fp32, divided as ``how`` says or ``plan``."""
    B, H, D = q_BHD.shape
    G, E = pages.k_slc.shape[1], pages.v_slc.shape[3]
    group = H // G
    if how is None:
        how = plan(B * G, processors(q_BHD.device), n_blocks=pages.kc.shape[2])
    q, k, v, gate = (x.contiguous() for x in (q_BHD, k_BKD, v_BKE, gate_BHC))
    is_mlp = isinstance(phi_k, MlpPhi)
    chunks_k, chunks_v = cdiv(D, HIDDEN), cdiv(E, HIDDEN)
    n_row_pages, per_page = place.table_BM.shape[1], layout.l_slc // layout.d
    tile = max(how.keys, per_page)
    n_parts, rows_of_group = how.splits + how.windows + how.selects, max(16, pow2(group))
    max_tiles = cdiv(pages.kc.shape[2], tile)
    spills = (per_page - 2 + layout.l // layout.d) // per_page
    real = {"dtype": torch.float32}
    part_k = q.new_empty(chunks_k * is_mlp + 1, B * G, D, **real)
    part_v = q.new_empty(chunks_v * is_mlp + 1, B * G, E, **real)
    acc = q.new_empty(B * G, n_parts, rows_of_group, E, **real)
    m, total = q.new_empty(2, B * G, n_parts, rows_of_group, **real)
    sums = q.new_empty(spills + 1, B * G, rows_of_group, (max_tiles + 1) * (tile // per_page), **real)
    bases = q.new_empty(B * G, rows_of_group, max_tiles, **real)
    n_kept = pow2(layout.n)
    ranked = max(how.slice, tile // per_page)
    n_slices = cdiv(n_row_pages, ranked)
    keys = q.new_empty(B * G, n_row_pages, dtype=torch.int32)
    o = q.new_empty(B, H, E)
    widths: dict[str, Any] = {"D": D, "HALF": D // 2, "BHALF": pow2(D // 2), "BD": max(16, pow2(D))}
    widths |= {"E": E, "BE": max(16, pow2(E))}
    heads: dict[str, Any] = {"SHARED": k.shape[1] == G, "G": G, "GROUP": group, "GP": rows_of_group}
    blocks: dict[str, Any] = {"L": layout.l, "BL": pow2(layout.l), "STRIDE": layout.d, "L_SLC": layout.l_slc}
    blocks |= {"BS": max(16, pow2(layout.l_slc)), "WIDTH": layout.w, "RW": pages.k_win.shape[2]}
    blocks |= {"RU": pages.k_raw.shape[2], "R": per_page, "BC": tile, "SPILLS": spills}
    ranks: dict[str, Any] = {"N": layout.n, "BN": n_kept, "JS": ranked, "BP": max(n_kept, pow2(n_row_pages))}
    ranks |= {"INITIAL": N_INITIAL, "LOCAL": N_LOCAL}
    phi: dict[str, Any] = {"BR": ROWS, "HC": HIDDEN, "BK": 256 if q.element_size() == 2 else 64, "MLP": is_mlp}
    phi |= {"CHUNKS_K": chunks_k, "CHUNKS_V": chunks_v, "CHUNKS": pow2(max(chunks_k, chunks_v))}
    merges = min(how.merges, widths["BE"] // 16)
    parts: dict[str, Any] = {"SPLITS": how.splits, "SB": pow2(how.splits), "WINDOWS": how.windows}
    parts |= {"WB": pow2(how.windows), "SELECTS": how.selects, "MERGES": merges, "PARTS": n_parts}
    wide = q.element_size() * max(D, E) > 256  # tiles of which fewer fit
    stages = {"STAGES": how.stages, "SELECT_STAGES": how.select_stages}
    chosen = q.new_empty(B * G, 2, n_kept, dtype=torch.int32)
    per_head = how.splits + how.windows + n_slices + how.selects + merges
    step_kernel[(cdiv(B * G, ROWS) * (chunks_k + chunks_v) + B * G * per_head,)](
        q, k, v, gate, o, place.turn.cos_T1D, place.turn.sin_T1D, place.position_B, place.table_BM,
        pages.k_slc, pages.v_slc, pages.kc, pages.vc, pages.k_win, pages.v_win, pages.k_raw, pages.v_raw,
        *_weights(phi_k, q), *_weights(phi_v, q), part_k, part_v,
        acc, m, total, sums, bases, keys, chosen, place.arrived,
        B * G, n_row_pages, n_slices, pages.kc.shape[2], max_tiles, sums.stride(0),
        place.arrived.numel(), D**-0.5 * LOG2E,
        **heads, **widths, **blocks, **ranks, **phi, **parts,
        **{name: min(n, 2) if wide else n for name, n in stages.items()}, num_warps=how.warps, num_stages=1,
        enable_fp_fusion=False,
    )  # fmt: skip
    return o


def _weights(phi: MeanPhi | MlpPhi, unused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The weights of phi as the kernel takes them; ``unused`` where it has none."""
    return (phi.pe, phi.fc1.weight, phi.fc2.weight) if isinstance(phi, MlpPhi) else (unused, unused, unused)
