"""Reads a trace of torch.profiler: what a GPU did, and on whose behalf.

A kernel belongs to the innermost mark around the call that launched it; in backward, to the mark around the forward
operator that made the node, found by its sequence number; without marks it is told by its name alone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

MARK = "part: "
"""What the name of an annotation begins with that names a part of the model."""

PART_BY_NAME = {
    "kv_major_|combine_slots|sum_items|sum_slots|pair_keys|query_major": "selected",
    "rotate_kernel": "rotary",
    "norm_kernel|norm_backward_kernel|sum_runs_kernel": "norms",
    "flash_fwd|flash_bwd|fmha|cudnn|sdpa": "attention by a library",
    "clean_kernel|forward_kernel|dq_kernel|dkdv_kernel|sum_parts|bits_kernel": "attention over tiles",
    "block_scores|top_blocks": "selection",
    "combine_kernel|combine_backward": "combine",
    "multi_tensor|adam": "optimizer",
    "nll_loss|softmax": "loss",
}
"""Parts of kernels that nobody marked, by a piece of their name; tried in this order."""
KIND_BY_NAME = {
    "flash_|fmha|cudnn|sdpa": "attention",
    "gemm|cutlass|nvjet|xmma|wgmma|splitk": "matrix product",
    "triton_": "fused by the compiler",
    "elementwise|vectorized|copy|catarray|fill|memcpy|memset|unfold|gather|scatter|index": "elementwise, copies",
    "reduce|sort|scan|radix|search|norm|softmax|nll|gammabeta": "reductions, sorts",
    "::": "others of torch",
}
"""Kinds of kernels in the same way; a name that is no C++ name is a kernel of ours."""


@dataclass(frozen=True)
class Launch:
    """Something the GPU did, and on whose behalf."""

    name: str
    start_us: float
    us: float
    part: str
    is_backward: bool


def launches_of(trace: dict) -> list[Launch]:
    """What the GPU did, in its order, each with the part of the model that asked for it."""
    by_thread: dict[object, list[dict]] = defaultdict(list)
    device = []
    for event in trace["traceEvents"]:
        if event.get("ph") != "X":
            continue
        kind = event.get("cat", "")
        if kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            device.append(event)
        elif kind in ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"):
            by_thread[event["tid"]].append(event)
    part_of_call, part_of_forward = {}, {}
    asked_by_backward = {}
    for events in by_thread.values():
        _walk(events, part_of_call, part_of_forward, asked_by_backward)
    found = []
    for event in sorted(device, key=lambda e: e["ts"]):
        call = event.get("args", {}).get("correlation")
        part, is_backward = part_of_call.get(call), False
        if part is None and call in asked_by_backward:
            part, is_backward = part_of_forward.get(asked_by_backward[call]), True
        name = event["name"]
        found.append(
            Launch(
                name=name,
                start_us=event["ts"],
                us=event.get("dur", 0.0),
                part=part or by_name(name, PART_BY_NAME, "gradient sums" if is_backward else "other"),
                is_backward=is_backward,
            )
        )
    return found


def _walk(events: list[dict], part_of_call: dict, part_of_forward: dict, asked_by_backward: dict) -> None:
    """One thread's events, properly nested: note for each launch its innermost mark or its backward node."""
    open_now: list[tuple[float, str | None, int | None]] = []  # end, mark, sequence number of a backward node
    for event in sorted(events, key=lambda e: (e["ts"], -e.get("dur", 0.0))):
        while open_now and open_now[-1][0] <= event["ts"]:
            open_now.pop()
        args, name = event.get("args", {}), event["name"]
        mark = next((m for _, m, _ in reversed(open_now) if m), None)
        node = next((s for _, _, s in reversed(open_now) if s is not None), None)
        if event["cat"] in ("cuda_runtime", "cuda_driver"):
            call = args.get("correlation")
            if mark is not None:
                part_of_call[call] = mark
            elif node is not None:
                asked_by_backward[call] = node
            continue
        number = args.get("Sequence number", -1)
        is_node = name.startswith("autograd::engine::evaluate_function")
        if event["cat"] == "cpu_op" and number >= 0 and mark is not None and node is None:
            part_of_forward[number] = mark  # the last operator with this number made the node
        own = name.removeprefix(MARK) if name.startswith(MARK) else None
        open_now.append((event["ts"] + event.get("dur", 0.0), own, number if is_node else None))


def by_name(name: str, table: dict[str, str], otherwise: str) -> str:
    """The first row of ``table`` of which a piece is in ``name``."""
    low = name.lower()
    return next((what for pieces, what in table.items() if any(p in low for p in pieces.split("|"))), otherwise)


def busy_us(found: list[Launch]) -> float:
    """Time during which the GPU ran something."""
    total = end = 0.0
    for launch in found:
        stop = launch.start_us + launch.us
        total += max(0.0, stop - max(end, launch.start_us))
        end = max(end, stop)
    return total


def host_calls(trace: dict) -> tuple[int, float]:
    """Launches of kernels and copies that the host asked for, and microseconds in which it waited for the device."""
    n, waited = 0, 0.0
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and event.get("cat") in ("cuda_runtime", "cuda_driver"):
            name = event["name"]
            n += any(word in name for word in ("Launch", "Memcpy", "Memset"))
            waited += event.get("dur", 0.0) if "Synchronize" in name else 0.0
    return n, waited
