"""Which division of a decoding step is the fastest: each kernel's time under several plans, then the best together.

    python bench/decode_plans.py OUT.json [--tokens 65536] [--batches 1 16] [--warm I N]

``--warm I N`` compiles part I of N and ends; run several side by side first. Every plan's result is compared with the
step in torch.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch.profiler import ProfilerActivity, profile

from bench.decode import Case, dense_us, timed
from nsa.kernels.decode import torch as plain
from nsa.kernels.decode import triton as fast

BASE = fast.Plan(splits=16, windows=5, selects=4)
COMPRESSED = [
    {"splits": s, "windows": w, "keys": k, "warps": n, "stages": st}
    for s, w, k, n, st in (
        (32, 5, 128, 8, 1), (32, 5, 128, 4, 1), (32, 5, 128, 4, 2), (16, 5, 128, 8, 1), (16, 5, 128, 4, 2),
        (16, 5, 64, 4, 3), (16, 5, 128, 8, 2), (8, 5, 128, 4, 2), (8, 3, 64, 4, 3), (8, 3, 64, 2, 3), (4, 1, 64, 4, 3),
        (4, 1, 128, 4, 2), (32, 8, 64, 4, 2),
    )
]  # fmt: skip
RANK = [{"rank_warps": n} for n in (4, 8, 2)]
SELECTED = [
    {"selects": n, "select_warps": w, "select_stages": st}
    for n, w, st in ((4, 4, 3), (4, 2, 4), (8, 4, 2), (2, 4, 3), (2, 8, 4), (4, 8, 3), (4, 4, 4), (2, 4, 5), (1, 4, 4))
]
OF_KERNEL = {"compressed_kernel": COMPRESSED, "rank_kernel": RANK, "selected_kernel": SELECTED}


def kernel_us(case: Case, how: fast.Plan) -> dict[str, float]:
    """Microseconds of each kernel in one layer."""
    step = partial(case.sparse, partial(fast.decode, how=how))
    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    took: dict[str, list[float]] = collections.defaultdict(list)
    for event in seen.events():
        if event.name.endswith("_kernel"):
            took[event.name].append(event.device_time)
    return {name: sorted(us)[len(us) // 2] for name, us in took.items()}


def far(case: Case, how: fast.Plan) -> float:
    """The result's relative distance from that of the step in torch."""
    want = case.sparse(plain.decode).double()
    return ((case.sparse(partial(fast.decode, how=how)).double() - want).norm() / want.norm()).item()


@torch.no_grad()
def main() -> None:
    """Print a line for every plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--warm", type=int, nargs=2)
    args = parser.parse_args()
    plans = [(kernel, change) for kernel, changes in OF_KERNEL.items() for change in changes]
    if args.warm:
        case = Case(1, args.tokens, device=torch.device("cuda"), dtype=torch.bfloat16, smoke=False)
        case.at(args.tokens - 2)
        part, of = args.warm
        for i, (_, change) in enumerate(plans):
            if i % of == part:
                case.sparse(partial(fast.decode, how=replace(BASE, **change)))
        torch.cuda.synchronize()
        return
    rows = []
    for n_rows in args.batches:
        torch.manual_seed(0)
        case = Case(n_rows, args.tokens, device=torch.device("cuda"), dtype=torch.bfloat16, smoke=False)
        case.at(args.tokens - 2)
        best: dict[str, tuple[float, dict]] = {}
        for kernel, change in plans:
            try:
                us = kernel_us(case, replace(BASE, **change))
            except Exception as error:  # noqa: BLE001 - what a plan does not fit is told by its line
                print(n_rows, change, f"{type(error).__name__}: {str(error)[:150]}", flush=True)
                continue
            rows.append({"batch": n_rows, "kernel": kernel, "change": change, "us": us})
            print(n_rows, change, {name[:4]: round(t, 1) for name, t in us.items()}, flush=True)
            # What the number of parts costs the kernel that adds them counts, too.
            cost = us[kernel] + (us["rank_kernel"] if kernel == "compressed_kernel" else 0.0)
            best[kernel] = min(best.get(kernel, (cost, change)), (cost, change), key=lambda pair: pair[0])
        how = BASE
        for _, change in best.values():
            how = replace(how, **change)
        step = partial(case.sparse, partial(fast.decode, how=how))
        us = timed(step, case.config.n_layers, device=torch.device("cuda"))
        case.at(args.tokens - 1)  # a step that ends a compression block, one in d
        due = timed(step, case.config.n_layers, device=torch.device("cuda"))
        row = {"batch": n_rows, "plan": asdict(how), "us": us, "block_us": due}
        row |= {"far": far(case.at(args.tokens - 2), how)} | dense_us(case, device=torch.device("cuda"))
        rows.append(row)
        print(
            n_rows, "together", asdict(how), f"{us:.1f} us, {due:.1f} where a block ends, dense {row['dense_us']:.1f} "
            f"by {row['dense_by']}, {row['far']:.1e} from torch", flush=True,
        )  # fmt: skip
        args.out.write_text(json.dumps(rows, indent=1))
        del case, step
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
