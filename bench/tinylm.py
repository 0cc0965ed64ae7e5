"""Times the reports' TinyLM, forward and backward on a CPU, beside the token loop it replaces, in one process.

    python bench/tinylm.py                                       # table on standard output, a minute on a quiet machine
    python bench/tinylm.py --json bench/results/tinylm.json --md bench/results/tinylm.md

12 layers and 128 tokens with the arguments of the original reports, fp32, the same weights and the same tokens for
``nsa`` and ``legacy-sequential``; rounds of the two alternate, on one thread. Each cell is the median of its steps, in
seconds of CPU time (what others do on the machine then counts least) and of the clock. Beside them: nodes of the
autograd graph, and operators that Python hands to torch, a custom operator as one.

Exit status 1 if a bar of the project is missed: at most 3,000 autograd nodes, at least 20 times faster than the token
loop in CPU time, outputs within 1e-5 and gradients within 1e-5 of the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from nsa import TinyLM  # noqa: E402 - found beside this folder

ARGUMENTS = (256, 128, 12, 8, 2, 16, 16, 16, 8, 32, 8, 64)
"""vocab, dim, layers, heads, groups, d_k, d_v, l, d, l_sel, n_sel, w."""
TOKENS = 128
MOST_NODES, LEAST_FACTOR, CLOSE = 3000, 20.0, 1e-5
ATTENTIONS = {"nsa": 7, "legacy-sequential": 1}
"""Name, and steps in a round: of the fast one more, because its median wanders more."""


class Counter(TorchDispatchMode):
    """Counts operators, views and allocations included."""

    n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.n += 1
        return func(*args, **(kwargs or {}))


def built(attention: str) -> TinyLM:
    """The model with the weights of seed 0; gates, phi and their like moved from zero, so that all of it counts."""
    torch.manual_seed(0)
    model = TinyLM(*ARGUMENTS, attention=attention)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("gate.fc2.weight", "phi_k.fc2.weight", "phi_v.fc2.weight", ".pe")):
                parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def step(model: TinyLM, ids: torch.Tensor) -> torch.Tensor:
    """Logits of one forward; the loss's gradients lie in the parameters."""
    model.zero_grad(set_to_none=True)
    logits = model(ids)
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    return logits.detach()


def nodes(model: TinyLM, ids: torch.Tensor) -> int:
    """Nodes of the autograd graph of one forward."""
    seen, waiting = set(), [model(ids).sum().grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(parent for parent, _ in node.next_functions)
    return len(seen)


def timed(models: dict[str, TinyLM], ids: torch.Tensor, *, rounds: int) -> dict[str, dict[str, list[float]]]:
    """CPU and clock seconds of every step; the models take turns."""
    found = {name: {"cpu_s": [], "wall_s": []} for name in models}
    for i in range(rounds):
        for name, model in models.items():
            for _ in range(ATTENTIONS[name]):
                cpu, wall = time.process_time(), time.perf_counter()
                step(model, ids)
                found[name]["cpu_s"].append(time.process_time() - cpu)
                found[name]["wall_s"].append(time.perf_counter() - wall)
            print(f"  round {i + 1} of {rounds}, {name}: {found[name]['cpu_s'][-1]:.3f} s", file=sys.stderr, flush=True)
    return found


def largest_difference(models: dict[str, TinyLM], ids: torch.Tensor) -> dict[str, float]:
    """Outputs, absolute, and gradients, beside the largest gradient of any parameter."""
    a, b = (step(model, ids) for model in models.values())
    pairs = list(zip(*(list(model.parameters()) for model in models.values()), strict=True))
    largest = max(p.grad.abs().max().item() for p, _ in pairs)
    return {
        "output": (a - b).abs().max().item(),
        "gradient": max((p.grad - q.grad).abs().max().item() for p, q in pairs) / largest,
    }


def measured(*, rounds: int) -> dict:
    """Everything the table shows."""
    models = {attention: built(attention) for attention in ATTENTIONS}
    ids = torch.randint(256, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    difference = largest_difference(models, ids)  # which warms both up, too
    seconds = timed(models, ids, rounds=rounds)
    rows = {}
    for name, model in models.items():
        with Counter() as counter:
            step(model, ids)
        rows[name] = {
            **{key: statistics.median(values) for key, values in seconds[name].items()},
            "steps": seconds[name],
            "autograd_nodes": nodes(model, ids),
            "operators": counter.n,
        }
    factor = rows["legacy-sequential"]["cpu_s"] / rows["nsa"]["cpu_s"]
    return {
        "arguments": ARGUMENTS, "tokens": TOKENS, "rows": rows, "factor": factor, "difference": difference,
        "passes": (
            rows["nsa"]["autograd_nodes"] <= MOST_NODES
            and factor >= LEAST_FACTOR
            and max(difference.values()) <= CLOSE
        ),
        "machine": {
            "cpus": os.cpu_count(), "threads": torch.get_num_threads(), "load": os.getloadavg()[0],
            "python": platform.python_version(), "torch": torch.__version__, "commit": commit(),
        },
    }  # fmt: skip


def commit() -> str:
    """The commit that was measured; "+" behind it if files differ from it."""
    git = ["git", "-C", str(ROOT)]
    name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    changed = subprocess.run(
        [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False
    ).stdout
    return (name.strip() or "unknown") + ("+" if changed.strip() else "")


def table(result: dict) -> str:
    """The result for people."""
    machine, difference = result["machine"], result["difference"]
    lines = [
        f"TinyLM, 12 layers, {TOKENS} tokens, forward and backward; torch {machine['torch']}, {machine['threads']} "
        f"threads, load {machine['load']:.1f}, commit {machine['commit']}.",
        "",
        "| attention | CPU s | clock s | autograd nodes | operators |",
        "|:--|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {name} | {row['cpu_s']:.3f} | {row['wall_s']:.3f} | {row['autograd_nodes']:,} | {row['operators']:,} |"
        for name, row in result["rows"].items()
    ]
    lines += [
        "",
        f"nsa is {result['factor']:.1f} times faster (bar {LEAST_FACTOR:.0f}); outputs differ by "
        f"{difference['output']:.1e}, gradients by {difference['gradient']:.1e} of the largest.",
        "Every bar holds." if result["passes"] else "A BAR IS MISSED.",
    ]
    return "\n".join(lines)


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each attention (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write every number here")
    parser.add_argument("--md", type=Path, help="write the table here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)  # threads that wait for work would count as CPU time
    result = measured(rounds=options.rounds)
    print(table(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.md:
        options.md.write_text("# TinyLM beside the token loop\n\n" + table(result) + "\n")
    return 0 if result["passes"] else 1


if __name__ == "__main__":
    sys.exit(main())
