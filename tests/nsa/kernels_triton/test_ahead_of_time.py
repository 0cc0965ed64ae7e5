"""Every kernel compiles for Ampere and Hopper without a GPU, fits its memory, and does not spill beyond reason."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from on_chip import SMEM_BYTES, stack_bytes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nsa.kernels.block_mean import triton as block_mean
from nsa.kernels.combine import triton as combine
from nsa.kernels.rotary import triton as rotary
from nsa.kernels.scores import triton as scores
from nsa.kernels.selected import triton as selected
from nsa.kernels.selected import triton_csr as csr
from nsa.kernels.selected import triton_kernels as kernels
from nsa.kernels.tiled import triton as tiled
from nsa.kernels.tiled import triton_kernels as tile_kernels

FLOATS = {"scale", "qk_scale"}
FP32 = {
    "lse_ptr", "lse_slot_ptr", "v_scale_ptr", "delta_ptr", "dlse_ptr", "dk_part_ptr", "dv_part_ptr", "part_ptr",
    "acc_ptr", "score_ptr", "taint_ptr", "cos_ptr", "sin_ptr",
}  # fmt: skip
INT32 = {
    "start_ptr", "item_start_ptr", "item_bucket_ptr",
    "index_ptr", "key_ptr", "doc_start_ptr", "doc_block_ptr", "document_ptr", "position_ptr", "first_slot_ptr",
    "pairs", "start", "item_start", "item_bucket", "block_lo", "block_hi", "doc_start", "doc_block",
}  # fmt: skip


def compiled(kernel, capability, tile, constants, element="bf16"):
    """Compile with every pointer aligned, as the allocator gives it."""
    signature = {}
    for parameter in kernel.params:
        name = parameter.name
        if parameter.is_constexpr:
            signature[name] = "constexpr"
        elif name in FP32:
            signature[name] = "*fp32"
        elif name in INT32:
            signature[name] = "*i32"
        elif name == "bits_ptr":
            signature[name] = "*i64"
        elif name == "o_slot_ptr":
            signature[name] = "*fp16" if element == "bf16" else f"*{element}"
        elif name.endswith("_ptr"):
            signature[name] = f"*{element}"
        else:
            signature[name] = "fp32" if name in FLOATS else "i32"
    wanted = {name for name, kind in signature.items() if kind == "constexpr"}
    assert wanted <= constants.keys(), wanted - constants.keys()
    return triton.compile(
        ASTSource(
            kernel,
            signature,
            constexprs={name: constants[name] for name in wanted},
            attrs={(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*"},
        ),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": tile.num_warps, "num_stages": tile.num_stages},
    )


def constants(D, E, L, group, tile, **others):
    pow2 = triton.next_power_of_2
    return {
        "D": D, "E": E, "BD": max(16, pow2(D)), "BE": max(16, pow2(E)), "L": L, "BL": max(16, pow2(L)), "G": 4,
        "GROUP": group, "N": 16, "BN": 16, "SEG": 256, "BM": tile.rows, "BG": tile.rows, "VARLEN": True,
        "GATED": False, "ADDS": False,
    } | others  # fmt: skip


MAIN = {
    "KV-major forward": (kernels.kv_major_forward_kernel, 0),
    "KV-major backward": (kernels.kv_major_backward_kernel, 512),
    "query-major forward": (kernels.query_major_forward_kernel, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("capability", SMEM_BYTES)
@pytest.mark.parametrize(("D", "E", "group"), [(128, 128, 16), pytest.param(192, 128, 6, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", MAIN)
def test_selected_attention_fits_the_machine(name, D, E, group, capability, tmp_path):
    kernel, stack_limit = MAIN[name]
    tile = {
        "KV-major forward": selected.forward_tile(d=D, e=E, l_slc=64, itemsize=2),
        "KV-major backward": selected.backward_tile(d=D, e=E, l_slc=64, itemsize=2, smem_bytes=SMEM_BYTES[capability]),
        "query-major forward": selected.query_tile(d=D, e=E, group=group, itemsize=2),
    }[name]
    binary = compiled(kernel, capability, tile, constants(D, E, 64, group, tile))
    assert binary.metadata.shared <= SMEM_BYTES[capability]
    assert stack_bytes(binary, tmp_path) <= stack_limit
    if capability == 90 and name.startswith("KV-major"):
        assert "wgmma.mma_async" in binary.asm["ptx"]


@pytest.mark.slow
@pytest.mark.parametrize("capability", SMEM_BYTES)
def test_fp32_fits_the_machine_and_rounds_nothing_away(capability):
    sizes = {"d": 32, "e": 32, "l_slc": 32, "itemsize": 4}
    tile = selected.backward_tile(**sizes, smem_bytes=SMEM_BYTES[capability])
    binary = compiled(
        kernels.kv_major_backward_kernel, capability, tile, constants(32, 32, 32, 16, tile), element="fp32"
    )
    assert binary.metadata.shared <= SMEM_BYTES[capability]
    assert "tf32" not in binary.asm["ptx"]
    if capability == 80:
        assert binary.metadata.shared == selected.backward_bytes(tile, **sizes)


def small_kernels():
    tile = selected.Tile(rows=16, num_warps=4, num_stages=3)
    both = constants(128, 128, 64, 16, tile, BLOCK=1024, FIRST=False, PARTS=1, LAST=True)
    score = both | {
        "GP": 16, "BT": 8, "STRIDE": 16, "L": 32, "L_SLC": 64, "R": 4, "RP": 4, "BJ": 16, "SPILLS": 1,
        "INITIAL": 1, "LOCAL": 2,
    }  # fmt: skip
    return {
        "pair keys": (csr.pair_keys_kernel, both),
        "starts of buckets": (csr.starts_kernel, both | {"BLOCK": 256}),
        "starts of items": (csr.item_starts_kernel, both | {"BLOCK": 1024}),
        "buckets of items": (csr.item_buckets_kernel, both | {"BLOCK": 256}),
        "combine slots": (kernels.combine_slots_kernel, both),
        "delta": (kernels.delta_kernel, both | {"HAS_DLSE": True, "GATED": True}),
        "sum items": (kernels.sum_items_kernel, both | {"WIDE": 16}),
        "sum slots": (kernels.sum_slots_kernel, both | {"ADDS": True}),
        "block scores": (scores.block_scores_kernel, score),
        "top blocks": (scores.top_blocks_kernel, score | {"BJ": 1024}),
        "gated sum": (combine.combine_kernel, both),
        "gated sum backward": (combine.combine_backward_kernel, both),
        "clean keys": (tile_kernels.clean_kernel, both | {"BM": 32}),
        "bits of blocks": (tile_kernels.bits_kernel, both | {"BM": 64}),
        "block means": (block_mean.means_kernel, both | {"STRIDE": 16, "L": 32, "BC": 8, "REAL": tl.float32}),
        "block means backward": (
            block_mean.spread_kernel,
            both | {"STRIDE": 16, "L": 32, "BM": 32, "REAL": tl.float32},
        ),
        "rotation": (rotary.rotate_kernel, both | {"H": 12, "G": 6, "HALF": 32, "BHALF": 32, "BM": 64, "SIGN": -1}),
        "sum parts": (tile_kernels.sum_parts_kernel, both | {"PARTS": 9}),
    }


@pytest.mark.slow
@pytest.mark.parametrize("capability", SMEM_BYTES)
@pytest.mark.parametrize("name", small_kernels())
def test_the_smaller_kernels_fit_the_machine(name, capability, tmp_path):
    kernel, values = small_kernels()[name]
    binary = compiled(kernel, capability, selected.Tile(rows=16, num_warps=4, num_stages=2), values)
    assert binary.metadata.shared <= SMEM_BYTES[capability]
    assert stack_bytes(binary, tmp_path) <= 64


TILED = {"forward": tile_kernels.forward_kernel, "dq": tile_kernels.dq_kernel, "dk and dv": tile_kernels.dkdv_kernel}
SIZES = {tiled.WINDOW: (512, 0), tiled.BLOCKS: (32, 16), tiled.BITS: (64, 0)}


@pytest.mark.slow
@pytest.mark.parametrize("capability", SMEM_BYTES)
@pytest.mark.parametrize(("name", "kind", "D"), [("forward", 1, 64), ("dq", 2, 64), ("dk and dv", 2, 64)])
def test_attention_over_tiles_fits_the_machine(name, kind, D, capability, tmp_path):
    tile = tiled.tiles(width=D, itemsize=2, kind=kind)[list(TILED).index(name)]
    p1, p2 = SIZES[kind]
    sizes = {"BN": tile.keys, "KIND": kind, "P1": p1, "P2": p2, "PARTS": 9}
    binary = compiled(TILED[name], capability, tile, constants(D, D, 64, 6, tile, **sizes))
    assert binary.metadata.shared <= SMEM_BYTES[capability]
    assert stack_bytes(binary, tmp_path) <= 64
    if capability == 90:
        assert "wgmma.mma_async" in binary.asm["ptx"]
