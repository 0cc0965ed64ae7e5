"""Which division of a decoding step is the fastest, and how long its parts take.

    python bench/decode_plans.py OUT.json [--tokens 65536] [--batches 1 16] [--warm I N]

``--warm I N`` compiles part I of N and ends; run several side by side first. Every plan's result is compared with the
step in torch. Parts are told from launches that end behind one: the step up to there, and what each adds.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from bench.decode import Case, dense_us, timed
from nsa.kernels.decode import torch as plain
from nsa.kernels.decode import triton as fast

FEW = fast.Plan(splits=32, windows=5, selects=8)
MANY = fast.Plan(splits=6, windows=2, selects=2, stages=3, select_stages=3)
OF_FEW = [
    FEW, *(replace(FEW, **x) for x in (
        {"splits": 16, "stages": 3}, {"keys": 128, "stages": 1}, {"windows": 9}, {"merges": 4}, {"selects": 4},
        {"selects": 16}, {"slice": 64}, {"slice": 256},
    )),
]  # fmt: skip
OF_MANY = [
    MANY, *(replace(MANY, **x) for x in (
        {"selects": 4}, {"splits": 8}, {"splits": 4}, {"windows": 3}, {"stages": 2, "select_stages": 2}, {"slice": 64},
        {"slice": 256}, {"merges": 4}, {"merges": 2},
    )),
]  # fmt: skip


def plans(n_rows: int) -> list[fast.Plan]:
    """What is timed for so many rows of four kv heads; between few and many both."""
    return OF_FEW if n_rows == 1 else OF_MANY if n_rows >= 16 else [*OF_FEW, *OF_MANY]


PARTS = ("phi", "attend", "rank", "select", "merge")


class Shortened:
    """The kernel, launched without its last programs."""

    def __init__(self, n_programs: int) -> None:
        self.n_programs = n_programs

    def __getitem__(self, grid):
        return fast_kernel[(min(self.n_programs, *grid),)]


fast_kernel = fast.step_kernel


def parts_us(case: Case, how: fast.Plan) -> dict[str, float]:
    """Microseconds of a step that ends behind each part; all of them put the counts back by a launch of their own."""
    n_heads = case.n_rows * case.config.n_kv_groups
    n_slices = -(-case.pages.place.table_BM.shape[1] // how.slice)
    n_phi = -(-n_heads // fast.ROWS) * 2 * -(-case.config.d_k // fast.HIDDEN)
    of_head = (how.splits + how.windows, n_slices, how.selects, how.merges)

    def attend(*given):
        o = fast.decode(*given, how=how)
        case.pages.place.arrived.zero_()
        return o

    found = {}
    for i, name in enumerate(PARTS):
        fast.step_kernel = Shortened(n_phi + n_heads * sum(of_head[:i]))
        found[name] = timed(partial(case.sparse, attend), case.config.n_layers, device=torch.device("cuda"))
    fast.step_kernel = fast_kernel
    return found


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
    device = torch.device("cuda")
    if args.warm:
        part, of = args.warm
        for n_rows in args.batches:
            case = Case(n_rows, args.tokens, device=device, dtype=torch.bfloat16, smoke=False, n_layers=1)
            for i, how in enumerate(plans(n_rows)):
                if i % of == part:
                    case.at(args.tokens - 2).sparse(partial(fast.decode, how=how))
            torch.cuda.synchronize()
        return
    rows = []
    for n_rows in args.batches:
        torch.manual_seed(0)
        case = Case(n_rows, args.tokens, device=device, dtype=torch.bfloat16, smoke=False)
        dense = dense_us(case, device=device)
        print(n_rows, dense, flush=True)
        best = None
        for how in plans(n_rows):
            row = {"batch": n_rows, "plan": asdict(how)}
            try:
                row["far"] = far(case.at(args.tokens - 2), how)
                row["equal"] = torch.equal(*(case.sparse(partial(fast.decode, how=how)) for _ in range(2)))
                row["us"] = timed(
                    partial(case.sparse, partial(fast.decode, how=how)), case.config.n_layers, device=device
                )
            except Exception as error:  # noqa: BLE001 - what a plan does not fit is told by its line
                row["why"] = f"{type(error).__name__}: {str(error)[:150]}"
            print(
                n_rows,
                *asdict(how).values(),
                {k: x for k, x in row.items() if k in ("far", "equal", "us", "why")},
                flush=True,
            )
            rows.append(row)
            if "us" in row and (best is None or row["us"] < best["us"]):
                best = row
        args.out.write_text(json.dumps(rows, indent=1))
        how = fast.Plan(**best["plan"])
        best |= {"parts_us": parts_us(case, how)} | dense
        case.at(args.tokens - 1)  # a step that ends a compression block, one in d
        best["block_us"] = timed(
            partial(case.sparse, partial(fast.decode, how=how)), case.config.n_layers, device=device
        )
        best["block_parts_us"] = parts_us(case, how)
        print("best", best, flush=True)
        args.out.write_text(json.dumps(rows, indent=1))
        del case
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
