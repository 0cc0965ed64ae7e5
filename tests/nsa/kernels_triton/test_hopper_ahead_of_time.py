"""Every kernel for Hopper compiles without a GPU, keeps its numbers in registers, and computes by wgmma."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("triton.experimental.gluon")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

from nsa.kernels.hopper import triton as hopper
from nsa.kernels.hopper import triton_backward, triton_forward, triton_scores, triton_selected, triton_selected_backward
from nsa.kernels.scores import triton_hopper as scores
from nsa.kernels.selected import triton_hopper as selected

TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
SMEM_BYTES = 227 << 10
KINDS = {hopper.WINDOW: (512, 0), hopper.BLOCKS: (32, 16), hopper.FORCED: (2, 1)}
FP32 = {
    "lse_ptr", "s_start_ptr", "dp_start_ptr", "g_start_ptr", "score_ptr", "out_ptr", "delta_ptr", "dk_part_ptr",
    "dv_part_ptr",
}  # fmt: skip
INT32 = {"index_ptr", "pairs", "start", "item_start", "item_bucket"}
FLOATS = {"scale", "qk_scale"}
MULTIPLES_OF_16 = {"n_rows", "part_size"}
"""Numbers that are so for every shape, and whose launch therefore compiles them so."""


def kernels(*, D, kind, group, gated):
    """Name, kernel, constants of the launch, and the box of each descriptor, as ``hopper.triton`` launches them."""
    p1, p2 = KINDS[kind]
    forward, dq, dkdv = hopper.streams(width=D, kind=kind)
    pack = hopper.heads_of_tile(group)
    same = {"H": 4 * group, "G": 4, "GROUP": group, "PACK": pack, "D": D, "KIND": kind, "P1": p1, "P2": p2}
    same |= {"BRANCH": 2 if gated else -1, "ADDS": gated, "GATED": gated}
    rows = (1, 64 // pack, pack, D)

    def boxes(rows_of, box, keys_of, keys):
        return {f"desc_{x}": box for x in rows_of} | {f"desc_{x}": (1, keys, 1, D) for x in keys_of}

    yield (
        "forward", triton_forward.forward_kernel, same | {"BN": forward.size, "STAGES": forward.stages},
        boxes(("q", "o", "cmp", "slc", "sum"), rows, "kv", forward.size),
    )  # fmt: skip
    yield (
        "dq", triton_backward.dq_kernel, same | {"BN": dq.size, "STAGES": dq.stages},
        boxes(("q", "do", "o", "dq"), rows, "kv", dq.size),
    )  # fmt: skip
    yield (
        "dk and dv", triton_backward.dkdv_kernel, same | {"BR": dkdv.size, "STAGES": dkdv.stages},
        boxes(("q", "do"), (1, dkdv.size // pack, pack, D), "kv", 64),
    )  # fmt: skip


def compiled(kernel, constants, boxes, element):
    """Compile for sm_90 with every pointer aligned, as the allocator gives it."""
    signature = {}
    for parameter in kernel.params:
        name = parameter.name
        if parameter.is_constexpr:
            signature[name] = "constexpr"
        elif name in boxes:
            box = boxes[name]
            layout = f"NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank={len(box)})"
            signature[name] = f"tensordesc<{element}[{', '.join(map(str, box))}],{layout}>"
        elif name.endswith("_ptr"):
            signature[name] = "*fp32" if name in FP32 else f"*{element}"
        else:
            signature[name] = "*i32" if name in INT32 else "fp32" if name in FLOATS else "i32"
    source = GluonASTSource(
        kernel,
        signature,
        constexprs={name: constants[name] for name, kind in signature.items() if kind == "constexpr"},
        attrs={
            (i,): [["tt.divisibility", 16]]
            for i, (name, kind) in enumerate(signature.items())
            if kind[0] == "*" or name in MULTIPLES_OF_16
        },
    )
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})


def judged(binary, tmp_path):
    """Stack bytes per thread, machine code, and what the assembler remarks about wgmma."""
    cubin, ptx = tmp_path / "kernel.cubin", tmp_path / "kernel.ptx"
    cubin.write_bytes(binary.asm["cubin"])
    ptx.write_text(binary.asm["ptx"])

    def said(*command):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    stack = int(re.search(r"STACK:(\d+)", said(TOOLS / "cuobjdump", "-res-usage", cubin)).group(1))
    remarks = said(TOOLS / "ptxas", "-arch=sm_90a", "-v", ptx, "-o", tmp_path / "again.cubin")
    return stack, said(TOOLS / "cuobjdump", "-sass", cubin), re.findall(r".*\(C75\d\d\).*", remarks)


def compiled_plain(kernel, constants, boxes, element, *, num_warps, num_stages):
    """As ``compiled``, of a kernel in plain Triton, whose boxes have no layout of their own."""
    signature = {}
    for parameter in kernel.params:
        name = parameter.name
        if parameter.is_constexpr:
            signature[name] = "constexpr"
        elif name in boxes:
            signature[name] = f"tensordesc<{element}[{', '.join(map(str, boxes[name]))}]>"
        elif name.endswith("_ptr"):
            signature[name] = "*fp32" if name in FP32 else "*i32" if name in INT32 else f"*{element}"
        else:
            signature[name] = "fp32" if name in FLOATS else "i32"
    source = ASTSource(
        kernel,
        signature,
        constexprs={name: constants[name] for name, kind in signature.items() if kind == "constexpr"},
        attrs={(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*"},
    )
    options = {"num_warps": num_warps, "num_stages": num_stages}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


CHEAP = [(128, hopper.WINDOW, 16, "bf16"), (64, hopper.BLOCKS, 6, "bf16")]
REST = [
    (128, hopper.BLOCKS, 16, "bf16"), (128, hopper.FORCED, 16, "bf16"),
    (64, hopper.WINDOW, 6, "bf16"), (128, hopper.WINDOW, 4, "fp16"), (128, hopper.BLOCKS, 1, "fp16"),
    (64, hopper.WINDOW, 64, "fp16"), (64, hopper.BLOCKS, 16, "fp16"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("D", "kind", "group", "element"), [*CHEAP, *(pytest.param(*shape, marks=pytest.mark.long) for shape in REST)]
)
@pytest.mark.parametrize("gated", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["forward", "dq", "dk and dv"])
def test_a_hopper_kernel_fits_the_machine_spills_little_and_waits_for_no_product_early(
    name, D, kind, group, element, gated, tmp_path
):
    if name == "forward" and kind != hopper.WINDOW and gated:
        pytest.skip("the window's kernel adds the branches")
    if name != "forward" and kind == hopper.FORCED:
        pytest.skip("their backward is the selected branch's")
    launched = kernels(D=D, kind=kind, group=group, gated=gated)
    kernel, constants, boxes = next(rest for found, *rest in launched if found == name)
    binary = compiled(kernel, constants, boxes, element)
    stack, machine_code, remarks = judged(binary, tmp_path)
    assert binary.metadata.shared <= SMEM_BYTES
    # The last may put up to eight numbers aside, and with gates up to 18, some of them within the loop: by triton 3.7.1
    # 72 bytes for blocks in groups of one head, 40 in groups of 4, and 32 for the window in groups of 4. Triton 3.8.0
    # puts 26 aside for blocks in groups of 16, with gates.
    with_gates = 72 if triton.__version__.startswith("3.7.") else 104
    assert stack <= {"dk and dv": with_gates if gated else 32}.get(name, 0)
    assert remarks == []  # a wait injected, or all products in line
    assert "HGMMA" in machine_code
    assert not re.search(r"\bHMMA", machine_code)
    assert len(re.findall(r"\bSTL", machine_code)) <= stack // 2  # once for each computing group
    assert "UTMALDG" in machine_code
    assert binary.asm["ptx"].count("setmaxnreg.dec.sync.aligned.u32 \t24;") == 1  # the warps that only load


@pytest.mark.parametrize(
    ("group", "heads"), [(1, 1), (2, 2), (3, 1), (6, 2), (12, 4), (16, 16), (48, 16), (64, 64), (128, 64)]
)
def test_a_tile_holds_heads_that_a_box_can_hold_and_the_group_is_made_of(group, heads):
    assert hopper.heads_of_tile(group) == heads


@pytest.mark.parametrize(
    ("n_programs", "n_steps", "parts"),
    [(2048, 8192, 1), (528, 8192, 1), (264, 8192, 2), (64, 8192, 9), (16, 2048, 16), (16, 20, 5), (16, 3, 1)],
)
def test_the_pass_over_keys_is_cut_by_shapes_alone(n_programs, n_steps, parts):
    assert hopper.n_parts(n_programs=n_programs, n_steps=n_steps) == parts


OF_SCORES = {"G": 4, "L": 32, "STRIDE": 16, "L_SLC": 64, "N": 16, "SPILLS": 1, "LOCAL": 2, "INITIAL": 1}


@pytest.mark.parametrize(
    ("D", "group", "element"), [(128, 16, "bf16"), pytest.param(64, 6, "fp16", marks=pytest.mark.slow)]
)
def test_block_scores_of_a_tile_leave_room_for_three_programs_and_add_heads_in_registers(D, group, element, tmp_path):
    sizes = {"D": D, "GROUP": group, "BT": scores.QUERIES, "BC": scores.KEYS}
    boxes = {"desc_q": (scores.QUERIES, D), "desc_k": (scores.KEYS, D)}
    binary = compiled_plain(
        triton_scores.scores_kernel, OF_SCORES | sizes, boxes, element, num_warps=4, num_stages=2
    )  # fmt: skip
    stack, machine_code, remarks = judged(binary, tmp_path)
    assert (stack, remarks) == (0, [])
    assert 3 * (binary.metadata.shared + 1024) <= SMEM_BYTES + 1024
    assert "HGMMA" in machine_code
    assert "UTMALDG" in machine_code
    assert not re.search(r"\bHMMA", machine_code)
    in_the_loop = machine_code[: machine_code.rindex("HGMMA")]
    assert "SHFL" not in in_the_loop.split("HGMMA", 1)[1]  # what crosses threads happens once for all heads


@pytest.mark.parametrize("n_blocks", [512, pytest.param(2048, marks=pytest.mark.long)])
def test_ranking_compares_a_warp_in_one_instruction(n_blocks, tmp_path):
    sizes = OF_SCORES | {"BN": 16, "BJ": n_blocks, "ROWS": 1}
    binary = compiled_plain(triton_scores.choose_kernel, sizes, {}, "fp32", num_warps=1, num_stages=1)
    stack, machine_code, _ = judged(binary, tmp_path)
    assert stack == 0
    # 13 rounds to the last that is taken and as many that read the blocks off, beside those of the way for equal ones.
    assert len(re.findall(r"\bC?REDUX", machine_code)) >= 2 * 13
    assert "BAR.SYNC" not in machine_code


def test_the_lse_is_turned_without_a_spill(tmp_path):
    sizes = {"H": 64, "BT": 64, "BH": 64}
    binary = compiled_plain(triton_scores.lse_by_head_kernel, sizes, {}, "fp32", num_warps=4, num_stages=1)
    assert judged(binary, tmp_path)[0] == 0


@pytest.mark.parametrize(
    ("D", "group", "element"),
    [
        (128, 16, "bf16"),
        *(pytest.param(*shape, marks=pytest.mark.slow) for shape in ((64, 16, "fp16"), (128, 64, "bf16"))),
    ],
)
@pytest.mark.parametrize("forced", [(0, 0), (1, 2)])
def test_a_query_attends_to_its_blocks_without_a_padded_row_or_a_spill_and_leaves_room_for_others(
    D, group, element, forced, tmp_path
):
    pack = hopper.heads_of_tile(group)
    warps = selected.PIPE.warps * pack // selected.HEADS
    sizes = {"D": D, "G": 4, "GROUP": group, "PACK": pack, "L": 64, "N": 16, "BN": 16}
    sizes |= dict(zip(("INITIAL", "LOCAL"), forced, strict=True))
    boxes = {"desc_q": (pack, D), "desc_o": (pack, D), "desc_k": (64, D), "desc_v": (64, D)}
    binary = compiled_plain(
        triton_selected.forward_kernel, sizes, boxes, element, num_warps=warps, num_stages=selected.stages(pack)
    )
    stack, machine_code, remarks = judged(binary, tmp_path)
    assert (stack, remarks) == (0, [])
    assert 6 * (binary.metadata.shared + 1024) <= SMEM_BYTES + 1024  # six programs hide each other's copies
    assert "UTMALDG" in machine_code
    assert "UTMASTG" in machine_code
    # 16 rows are a whole product of a warp's, and a quarter of a warp group's.
    assert bool(re.search(r"\bHGMMA", machine_code)) == (pack == 64)
    assert bool(re.search(r"\bHMMA", machine_code)) == (pack == 16)


@pytest.mark.parametrize(
    ("group", "element", "gated"),
    [
        (16, "bf16", False),
        *(
            pytest.param(*shape, marks=pytest.mark.long)
            for shape in ((16, "bf16", True), (48, "fp16", False), (64, "bf16", True))
        ),
    ],
)
def test_the_backward_of_listed_blocks_keeps_its_sums_in_registers_and_waits_for_no_product_early(
    group, element, gated, tmp_path
):
    pack = hopper.heads_of_tile(group)
    sizes = {"G": 4, "GROUP": group, "PACK": pack, "N": 16, "SEG": 8192 // group, "STAGES": selected.BACKWARD_STAGES}
    sizes |= {"GATED": gated}
    boxes = {f"desc_{x}": (pack, 64) for x in ("q", "do", "slot")} | {f"desc_{x}": (64, 64) for x in "kv"}
    binary = compiled(triton_selected_backward.backward_kernel, sizes, boxes, element)
    stack, machine_code, remarks = judged(binary, tmp_path)
    assert binary.metadata.shared <= SMEM_BYTES
    assert remarks == []
    # Up to 40 numbers may go aside, nearly all of them addresses that never change in the loop, and two pairs within
    # it: 120 bytes by triton 3.7, 160 by 3.6. No sum goes: a thread has 128 numbers of dk and dv.
    assert stack <= 160
    assert len(re.findall(r"\bSTL", machine_code)) <= stack // 2
    assert machine_code.count("HGMMA") == 2 * 5 * 8  # two groups, five products, 128 rows or columns 16 at a time
    assert not re.search(r"\bHMMA", machine_code)
    assert "UTMALDG" in machine_code
    assert "UTMASTG" in machine_code


@pytest.mark.parametrize(
    ("group", "l_slc", "fits"), [(16, 64, True), (48, 64, True), (128, 64, True), (16, 32, False), (1, 64, False)]
)
def test_forced_blocks_are_attended_to_by_tiles_whose_rows_have_one_own_block(group, l_slc, fits):
    assert selected.are_tiles(group=group, l_slc=l_slc) == fits


@pytest.mark.parametrize(
    ("width", "l_slc", "scale", "fits"),
    [(128, 64, 0.1, True), (64, 64, 0.1, False), (128, 32, 0.1, False), (128, 64, 0.0, False), (128, 64, -1.0, False)],
)
def test_only_the_shapes_that_fill_a_warp_groups_products_go_backward_by_wgmma(width, l_slc, scale, fits):
    assert selected.fits_wgmma(width=width, l_slc=l_slc, scale=scale) == fits
