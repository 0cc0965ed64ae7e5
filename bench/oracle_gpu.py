"""Compares every route of the attention with an fp64 oracle: forward, all gradients, and the blocks that were chosen.

    python bench/oracle_gpu.py                          # on the GPU in bf16; exit status 1 on a miss; under 90 s
    python bench/oracle_gpu.py --dtype float32 --width 128
    python bench/oracle_gpu.py --device cpu             # in fp32, the routes that a CPU has
    python bench/oracle_gpu.py --only selected:tiles --here

The oracle is written from the equations of arXiv 2502.11089 with dense masks, and uses none of the code under test. A
route is ``auto``, or one kernel by name in place of what ``auto`` takes. Of each, once with two whole rows and once
with packed documents:

- *operator*: its kernel alone on random queries, keys and values, against the oracle on the same rounded numbers;
- *model*: ``TinyLM`` with two layers, built on the CPU and moved by ``.to(dtype)`` and ``.cuda()``: logits and the
  gradient of every parameter, against the oracle with the same rounded weights and the blocks that the model chose;
- *choice*: rows whose blocks differ from the oracle's, of all; allowed where their scores are as good as equal.

Errors are distances in the 2-norm, relative to what is wanted; of gradients the worst stands in the table. On a GPU
routes run side by side in processes of their own, so that one failure loses only itself.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

G, L_CMP, D_CMP, L_SLC, N, W = 2, 32, 16, 64, 5, 100
"""Groups and blocks that every kernel takes; two selection blocks beside the three forced."""
HEADS, N_TOKENS = {"cuda": 32, "cpu": 8}, {"cuda": 600, "cpu": 330}
"""Query heads, and tokens of a row: Hopper's kernels want 16 heads a group, cuDNN 32 blocks, and a CPU less to do."""
COMPILED = ("flex", "hopper", "tiles", "triton")
"""Kernels that take their time before they run."""
TOLERANCE = {
    "bfloat16": {"o": 4e-3, "grad": 8e-3, "logits": 2e-2, "model grad": 6e-2, "choice": 6e-2},
    "float16": {"o": 1e-3, "grad": 2e-3, "logits": 4e-3, "model grad": 1e-2, "choice": 1e-2},
    "float32": {"o": 1e-5, "grad": 1e-5, "logits": 1e-4, "model grad": 1e-3, "choice": 1e-4},
}
"""Of an operator as in tests/nsa/test_kernels.py; of the model, rounded after every layer, several times as much."""


# The oracle. Shape letters: B batch, T tokens, C compression blocks, J selection blocks, H heads, G groups.


def places(bounds, device):
    """Of every token its document and its place there; of every compression block these two and its first token."""
    token = [(i, t - a) for i, (a, b) in enumerate(pairwise(bounds)) for t in range(a, b)]
    block = [(i, s - a, s) for i, (a, b) in enumerate(pairwise(bounds)) for s in range(a, b - L_CMP + 1, D_CMP)]
    (doc, place), (block_doc, block_place, start) = (torch.tensor(x, device=device).T for x in (token, block))
    return SimpleNamespace(doc=doc, place=place, block_doc=block_doc, block_place=block_place, start=start)


def softmax_attention(q, k, v, mask):
    """Output and probabilities [B, H, T, S]; q [B, T, H, D], k and v [B, S, G, D], mask [B or 1, G or 1, T, S]."""
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    mask = mask.repeat_interleave(q.shape[2] // mask.shape[1], 1)
    scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
    weight = (scores - scores.masked_fill(~mask, -1e300).amax(-1, keepdim=True)).clamp(max=0).exp() * mask
    p = weight / weight.sum(-1, keepdim=True).clamp(min=1e-300)
    lse = scores.masked_fill(~mask, -math.inf).logsumexp(-1).transpose(1, 2)
    return torch.einsum("bhts,bshe->bthe", p, v), p, lse


def sees_cmp(at):
    whole = at.block_place[None] + L_CMP - 1 <= at.place[:, None]
    return (whole & (at.block_doc[None] == at.doc[:, None]))[None, None]


def sees_win(at):
    back = at.place[:, None] - at.place[None]
    return ((at.doc[:, None] == at.doc[None]) & (back >= 0) & (back < W))[None, None]


def sees_slc(at, index):
    """[B, G, T, S] of chosen blocks [B, T, G, n], padded with -1."""
    listed = (index.long()[..., None] == (at.place // L_SLC)).any(3).transpose(1, 2)
    return listed & (at.doc[:, None] == at.doc[None]) & (at.place[None] <= at.place[:, None])


def block_scores(p, at):
    """Eq. 9 and 10, [B, T, G, J]: how many strides compression and selection block share; -inf ahead of the query."""
    first = torch.arange(-(-len(at.place) // L_SLC), device=p.device) * L_SLC
    cmp = at.block_place[:, None]
    shared = (torch.minimum(cmp + L_CMP, first + L_SLC) - torch.maximum(cmp, first)).clamp(min=0) // D_CMP
    scores = torch.einsum("bgtc,cj->btgj", p.unflatten(1, (G, -1)).sum(2), shared.to(p.dtype))
    return scores.masked_fill((first > at.place[:, None])[None, :, None], -math.inf)


def chosen(scores, at):
    """Eq. 11 as a mask [B, T, G, J]: the first block, the own one and the one before it, and the best of the others."""
    own, block = (at.place // L_SLC)[:, None], torch.arange(scores.shape[-1], device=scores.device)
    forced = (block == 0) | (block == own) | (block == own - 1)
    order = scores.masked_fill(forced[None, :, None], 1e9).sort(dim=-1, descending=True, stable=True).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, order[..., :N], value=True) & scores.isfinite()


def compare_choice(index, scores, at):
    """Rows that differ, all rows, and the worst loss of a row's score by it, relative to the row's best block."""
    want, got = chosen(scores, at), torch.zeros_like(scores, dtype=torch.int64)
    got = F.pad(got, (0, 1)).scatter_add_(-1, index.long() % (scores.shape[-1] + 1), torch.ones_like(index).long())
    got = got[..., :-1]
    assert (got <= 1).all(), "a block is listed twice"
    assert torch.equal(got.sum(-1), want.sum(-1)), "a row has another number of blocks"
    differs = (got.bool() != want).any(-1)
    finite = scores.masked_fill(scores.isinf(), 0)
    lost = ((finite * want).sum(-1) - (finite * got).sum(-1)) / finite.amax(-1).clamp(min=1e-300)
    return int(differs.sum()), differs.numel(), float(lost.abs().masked_fill(~differs, 0).max())


def rotated(x, place):
    half = x.shape[-1] // 2
    angle = place.double()[:, None] * 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x.split(half, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def phi(x, p, name, at):
    blocks = x[:, at.start[:, None] + torch.arange(L_CMP, device=x.device)].transpose(2, 3) + p[name + ".pe"]
    hidden = F.silu(blocks.flatten(3) @ p[name + ".fc1.weight"].T)
    return blocks.mean(3) + hidden @ p[name + ".fc2.weight"].T


def norm(x, weight):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def oracle(p, ids, bounds, choices):
    """Logits of the whole model, and of every layer how the model's blocks compare with those of Eq. 8 to 11."""
    at, compared = places(bounds, ids.device), []
    x = p["embed.weight"][ids]
    for layer, index in enumerate(choices):
        mine = {name.partition(f"blocks.{layer}.")[2]: w for name, w in p.items() if f"blocks.{layer}." in name}
        a = {name.removeprefix("attn."): w for name, w in mine.items()}
        y = norm(x, mine["norm1.weight"])
        q = rotated((y @ a["q_proj.weight"].T).unflatten(-1, (-1, a["phi_k.pe"].shape[1])), at.place)
        k, v = ((y @ a[name].T).unflatten(-1, (3, G, -1)).unbind(2) for name in ("k_proj.weight", "v_proj.weight"))
        kc = rotated(phi(k[0], a, "phi_k", at), at.block_place + L_CMP - 1)
        o_cmp, prob, _ = softmax_attention(q, kc, phi(v[0], a, "phi_v", at), sees_cmp(at))
        compared.append(compare_choice(index, block_scores(prob.detach(), at), at))
        o_slc = softmax_attention(q, rotated(k[1], at.place), v[1], sees_slc(at, index))[0]
        o_win = softmax_attention(q, rotated(k[2], at.place), v[2], sees_win(at))[0]
        gate = (F.silu(y @ a["gate.fc1.weight"].T) @ a["gate.fc2.weight"].T).sigmoid().unflatten(-1, (-1, 3))
        o = sum(gate[..., i, None] * part for i, part in enumerate((o_cmp, o_slc, o_win)))
        x = x + o.flatten(2) @ a["o_proj.weight"].T
        x = x + F.silu(norm(x, mine["norm2.weight"]) @ mine["mlp.fc1.weight"].T) @ mine["mlp.fc2.weight"].T
    return norm(x, p["norm_f.weight"]) @ p["lm_head.weight"].T, compared


# The routes.


def n_rows(bounds):
    """Two whole rows, or one of packed documents."""
    return 2 if len(bounds) == 2 else 1


def on_device(bounds, device):
    """What ``cu_seqlens`` is."""
    return None if len(bounds) == 2 else torch.tensor(bounds, device=device)


def far(got, want):
    """Distance in the 2-norm relative to what is wanted; a number that is not finite is infinitely far."""
    distance = (got.detach().double() - want.detach()).norm() / want.detach().norm().clamp(min=1e-9)
    return float(distance.nan_to_num(nan=math.inf))


def moved_model(op, name, dtype, device, width, n_tokens):
    """TinyLM built on the CPU and moved, one operator by name, and the list its choices of blocks go to."""
    from nsa import TinyLM
    from nsa.kernels import registry
    from nsa.kernels.on_call import KernelOnCall

    torch.manual_seed(0)
    model = TinyLM(256, 128, 2, HEADS[device], G, width, width, L_CMP, D_CMP, L_SLC, N, W)
    with torch.no_grad():
        for parameter_name, w in model.named_parameters():
            if parameter_name.endswith((".pe", "gate.fc2.weight", "phi_k.fc2.weight", "phi_v.fc2.weight")):
                w.normal_(std=0.5 * w.shape[-1] ** -0.5)  # they start at zero, which hides what is behind them
            elif parameter_name.endswith(("q_proj.weight", "k_proj.weight")):
                w.mul_(1.5)
    model = model.to(dtype)
    model = model.cuda() if device == "cuda" else model
    choices, names = [], {}
    for block in model.blocks:
        kernels = block.attn.kernels
        site = kernels["window"].at(model.embed.weight.device, dtype, n_tokens).site
        if name != "auto":
            refusal = registry.refusal_of(op, name, site)
            if refusal is not None:
                return None, refusal, None
            kernels[op] = KernelOnCall(registry.resolve(op, choice=name, policy="exact", site=site))
        names = {k: kernel.at(model.embed.weight.device, dtype, n_tokens).kernel for k, kernel in kernels.items()}
        select = kernels["scores"]
        kernels["scores"] = lambda *args, select=select, **where: choices.append(select(*args, **where)) or choices[-1]
    return model, names, choices


def of_model(model, choices, bounds):
    """Errors of logits and of the worst gradient with its name, and how the choices compare."""
    device, dtype = model.embed.weight.device, model.embed.weight.dtype
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(256, (n_rows(bounds), bounds[-1]), generator=draw).to(device)
    dy = torch.randn(*ids.shape, 256, generator=draw).to(device, dtype)
    choices.clear()
    model.zero_grad()
    logits = model(ids, cu_seqlens=on_device(bounds, device))
    logits.backward(dy)
    p = {name: w.detach().double().requires_grad_() for name, w in model.named_parameters()}
    want, compared = oracle(p, ids, bounds, choices)
    want.backward(dy.double())
    errors = {name: far(w.grad, p[name].grad) for name, w in model.named_parameters()}
    worst = max(errors, key=errors.__getitem__)
    rows, of, lost = (f(x) for f, x in zip((sum, sum, max), zip(*compared, strict=True), strict=True))
    return {"logits": far(logits, want), "model grad": errors[worst], "of": worst, "rows": [rows, of], "choice": lost}


def of_operator(op, call, layout, bounds, dtype, device, width):
    """Errors of one kernel's output and of its worst gradient; of block selection, how the choice compares."""
    draw, at = torch.Generator().manual_seed(2), places(bounds, device)

    def drawn(*shape):
        x = torch.randn(*shape, generator=draw, dtype=torch.float64).to(device, dtype)
        return x.requires_grad_(), x.detach().double().requires_grad_()

    B, T, H = n_rows(bounds), bounds[-1], HEADS[device]
    n_slots = T // D_CMP if B == 1 else len(at.start)
    where = {"cu_seqlens": on_device(bounds, device)}
    if op == "combine":
        mine, theirs = zip(*(drawn(B, T, H, width) for _ in range(3)), drawn(B, T, H, 3), strict=True)
        got, want = call(*mine), sum(theirs[3][..., i, None] * theirs[i] for i in range(3))
    else:
        n_keys = n_slots if op in ("compressed", "scores") else T
        mine, theirs = zip(*(drawn(B, n, h, width) for n, h in ((T, H), (n_keys, G), (n_keys, G))), strict=True)
        q, k, v = (theirs[0], *(x[:, : len(at.start)] for x in theirs[1:])) if n_keys != T else theirs
        if op == "scores":
            _, prob, lse = softmax_attention(q, k, v, sees_cmp(at))
            with torch.no_grad():
                index = call(*mine[:2], lse.float().contiguous(), layout, **where)
            rows, of, lost = compare_choice(index, block_scores(prob.detach(), at), at)
            return {"rows": [rows, of], "choice": lost}
        if op == "compressed":
            got, _ = call(*mine, layout, **where)
            want = softmax_attention(q, k, v, sees_cmp(at))[0]
        elif op == "selected":
            rand = torch.rand(B, T, G, -(-T // L_SLC), generator=draw).to(device).double()
            is_ahead = torch.arange(rand.shape[-1], device=device) * L_SLC > at.place[:, None]
            mask = chosen(rand.masked_fill(is_ahead[:, None], -math.inf), at)
            number = torch.arange(mask.shape[-1], device=device).expand_as(mask).masked_fill(~mask, mask.shape[-1])
            index = number.sort(-1).values[..., :N]
            index = index.masked_fill(index == mask.shape[-1], -1).int()
            got, _ = call(*mine, index, l_slc=L_SLC, **where)
            want = softmax_attention(q, k, v, sees_slc(at, index))[0]
        else:
            got = call(*mine, w=W, **where)
            want = softmax_attention(q, k, v, sees_win(at))[0]
    do = torch.randn(got.shape, generator=draw, dtype=torch.float64).to(device, dtype)
    got.backward(do)
    want.backward(do.double())
    return {"o": far(got, want), "grad": max(far(a.grad, b.grad) for a, b in zip(mine, theirs, strict=True))}


def measure(route, dtype, device, width):
    """Everything about one route: errors with rows and with documents, or why it does not run here."""
    start, (op, _, name) = time.monotonic(), route.partition(":")
    kind, T = getattr(torch, dtype), N_TOKENS[device]
    model, names, choices = moved_model(op, name or "auto", kind, device, width, T)
    if model is None:
        return {"refused": names}
    found = {"kernels": names, "rows": {}, "documents": {}}
    for label, bounds in (("rows", (0, T)), ("documents", (0, T // 4, T // 4, T // 4 + 21, T))):
        if name:
            attention = model.blocks[0].attn
            alone = of_operator(op, attention.kernels[op], attention.layout, bounds, kind, device, width)
            found[label] |= {f"operator {key}": value for key, value in alone.items()}
        found[label] |= of_model(model, choices, bounds)
    return found | {"seconds": time.monotonic() - start}


def misses(found, dtype):
    """What is beyond its tolerance, in words; what is not a number is beyond every one."""
    if "error" in found:
        return [found["error"]]
    limits = TOLERANCE[dtype]
    limits = limits | {f"operator {key}": limits[key] for key in ("o", "grad", "choice")}
    return [
        f"{label}: {key} is off by {found[label][key]:.1e}, more than {limit}"
        for label in ("rows", "documents")
        for key, limit in limits.items()
        if key in found.get(label, {}) and not found[label][key] <= limit
    ]


def table(results, args):
    """One line a route and kind of input; then what was not run, and the misses."""
    lines = [
        "| route | input | operator: o | gradients | choice differs | model: logits | worst gradient | choice differs |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")

    def shown(x, key, rows):
        if key in x:
            return f"{x[key]:.1e}"
        return f"{x[rows][0]} of {x[rows][1]}" if rows in x else ""

    for route, found in results.items():
        for label in ("rows", "documents") if "rows" in found else ():
            x = found[label]
            cells = [shown(x, f"operator {key}", "") for key in ("o", "grad")] + [shown(x, "", "operator rows")]
            cells += [f"{x['logits']:.1e}", f"{x['model grad']:.1e} {x['of']}", shown(x, "", "rows")]
            lines.append(f"| {route} | {label} | {' | '.join(cells)} |")
    lines.append("")
    auto = results.get("auto", {}).get("kernels")
    lines += [f"auto is {', '.join(f'{op} {name}' for op, name in auto.items())}."] if auto else []
    lines += [
        f"{route} does not run here: {found['refused']}." for route, found in results.items() if "refused" in found
    ]
    missed = {route: misses(found, args.dtype) for route, found in results.items()}
    lines += [f"MISS {route}: {miss}" for route, those in missed.items() for miss in those]
    n_run = sum("kernels" in found for found in results.values())
    n_missed = sum(bool(those) for those in missed.values())
    lines.append(f"{n_run} routes ran, {n_missed} missed; limits {TOLERANCE[args.dtype]}")
    return lines, n_missed > 0 or n_run == 0


def apart(route, args):
    """The same in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--only", route, "--here", "--json", "-"]
    command += ["--device", args.device, "--dtype", args.dtype, "--width", str(args.width)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=args.limit_s)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {args.limit_s} s"}
    said = ran.stdout.strip().splitlines()
    if said and said[-1].startswith("{"):
        return json.loads(said[-1])
    return {"error": f"status {ran.returncode}: {(ran.stderr.strip().splitlines() or ['nothing said'])[-1][:300]}"}


def main():
    from nsa.kernels.registry import KERNELS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dtype", choices=list(TOLERANCE), help="bfloat16 on a GPU, float32 on a CPU")
    parser.add_argument("--width", type=int, default=64, choices=[64, 128], help="of a head")
    parser.add_argument("--only", nargs="*", metavar="OPERATOR:KERNEL", help="these routes, or auto")
    parser.add_argument(
        "--jobs", type=int, default=max(1, min(12, (os.cpu_count() or 2) * 3 // 4)), help="processes at once"
    )
    parser.add_argument("--limit-s", type=float, default=600, help="of one route's process")
    parser.add_argument("--here", action="store_true", help="in this process, one after the other, as on a CPU")
    parser.add_argument("--json", metavar="FILE", help="everything measured; '-': print it in one line, no table")
    args = parser.parse_args()
    args.dtype = args.dtype or ("bfloat16" if args.device == "cuda" else "float32")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device; --device cpu compares what a CPU has")
    torch.set_num_threads(max(1, min(4, (os.cpu_count() or 2) // args.jobs)))
    start, routes = time.monotonic(), ["auto", *(f"{op}:{name}" for op in KERNELS for name in KERNELS[op])]
    routes = args.only or routes
    if args.here or args.device == "cpu":
        results = {route: measure(route, args.dtype, args.device, args.width) for route in routes}
    else:
        compiled_first = sorted(routes, key=lambda route: not route.endswith(COMPILED))
        with ThreadPoolExecutor(args.jobs) as pool:
            found = dict(zip(compiled_first, pool.map(partial(apart, args=args), compiled_first), strict=True))
        results = {route: found[route] for route in routes}
    if args.json == "-":
        print(json.dumps(results[routes[0]]))
        return
    lines, is_missed = table(results, args)
    name = torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or "CPU"
    print(f"{name}, torch {torch.__version__}, {args.dtype}, heads of {args.width}, {time.monotonic() - start:.0f} s\n")
    print("\n".join(lines))
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(1 if is_missed else 0)


if __name__ == "__main__":
    main()
