"""Loss against tokens and seconds: NSA beside dense attention, each for the same seconds on one GPU, on real text.

    python bench/curve.py OUT --seed 1                    # three runs of 185 s; OUT/curve-seed1.json
    python bench/curve.py OUT --seed 1 --smoke            # the same on a CPU, tiny, in a minute
    python bench/curve.py OUT --draw OUT/curve-seed*.json # OUT/curve.md and OUT/curve.svg, of all seeds

The text is every Python source of the interpreter that runs this: its standard library and its installed packages,
each file once, in an order drawn from the seed; every fiftieth (by a hash of its content) is held out. Bytes are the
tokens. A run reads the text once from front to back where it is long enough. Seconds are those of optimizer steps, from
the fifth on: compiling kernels and measuring the held-out loss are left out for all alike. The learning rate is
constant after its warm-up, so a curve means the same wherever it is read.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import platform
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ARMS = {
    "NSA, phi mlp": {"model.phi": "mlp"},
    "NSA, phi mean": {"model.phi": "mean"},
    "dense": {"model.attention": "dense"},
}
COLOURS = {"NSA, phi mlp": "#2f78c4", "NSA, phi mean": "#7fb2e5", "dense": "#555555"}
N_WARM = 5
SHAPE = {
    "model.vocab": 256, "model.dim": 768, "model.n_layers": 12, "model.n_heads": 12, "model.n_kv_groups": 2,
    "model.d_k": 64, "model.d_v": 64, "model.l": 32, "model.d": 16, "model.l_slc": 64, "model.n": 16, "model.w": 512,
    "train.device": "cuda", "train.precision": "bf16", "train.precision_mode": "autocast", "train.seq_len": 16384,
    "train.batch_size": 2, "train.lr": 6e-4, "train.warmup_steps": 100, "train.weight_decay": 0.1,
    "train.steps": 1_000_000, "train.eval_every": 100, "train.eval_batches": 4, "train.log_every": 100,
}  # fmt: skip
SMOKE = {
    "model.dim": 64, "model.n_layers": 2, "model.n_heads": 4, "model.d_k": 16, "model.d_v": 16, "train.device": "cpu",
    "train.precision": "fp32", "train.seq_len": 512, "train.eval_every": 10,
}  # fmt: skip


def write_text(folder: Path, *, seed: int, at_least: int) -> dict:
    """``train.txt`` and ``held_out.txt`` in ``folder``; how much of what they hold."""
    places = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    kept, held_out = {}, {}
    for path in sorted(path for place in places for path in place.rglob("*.py")):
        data = path.read_bytes()
        digest = hashlib.sha256(data).digest()
        if data:
            (held_out if digest[0] % 50 == 0 else kept)[digest] = data
    order = sorted(kept)
    random.Random(seed).shuffle(order)
    text = b"".join(kept[digest] for digest in order)
    times_read = -(-at_least // len(text))
    (folder / "train.txt").write_bytes(text * times_read)
    (folder / "held_out.txt").write_bytes(b"".join(held_out[digest] for digest in sorted(held_out)))
    return {"files": len(kept), "bytes": len(text), "files_held_out": len(held_out), "times_in_text": times_read}


def run(arm: str, *, seed: int, seconds: float, text: str, smoke: bool) -> dict:
    """Train one arm in this process for ``seconds`` of steps; its curve."""
    import torch

    from nsa.config import RunConfig
    from nsa.train.probe import NullProbe
    from nsa.train.trainer import train

    class Curve(NullProbe):
        def __init__(self):
            self.steps, self.kernels, self.spent_s = [], {}, 0.0

        def resolved(self, table):
            self.kernels = {row["op"]: row["kernel"] for row in table}

        def step_done(self, *, step, facts):
            self.spent_s += facts["step_s"] if step >= N_WARM else 0.0
            self.steps.append((step, self.spent_s, facts["loss"], facts.get("val_loss")))

    values = SHAPE | (SMOKE if smoke else {}) | ARMS[arm]
    values |= {"train.seed": seed, "train.data": "local", "train.data_path": f"{text}/train.txt"}
    values |= {"train.val_path": f"{text}/held_out.txt"}
    config, curve = RunConfig().with_values(values), Curve()
    result = train(config, [curve], stop_asked=lambda: curve.spent_s >= seconds)
    times = [after[1] - before[1] for before, after in itertools.pairwise(curve.steps[N_WARM:])]
    tokens = config.train.seq_len * config.train.batch_size
    mean_of_10 = [statistics.fmean(row[2] for row in curve.steps[i : i + 10]) for i in range(0, len(curve.steps), 10)]
    return {
        "arm": arm, "seed": seed, "ended": result.ended, "n_parameters": result.n_parameters, "tokens_a_step": tokens,
        "steps": len(curve.steps), "seconds": curve.spent_s, "step_ms": 1e3 * statistics.median(times),
        "loss_mean_of_10_steps": [round(loss, 4) for loss in mean_of_10],
        "held_out": [(step, round(s, 2), round(loss, 4)) for step, s, _, loss in curve.steps if loss is not None],
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else None,
        "kernels": curve.kernels, "settings": values | {"train.data_path": "", "train.val_path": ""},
    }  # fmt: skip


def measure(out: Path, *, seed: int, seconds: float, smoke: bool, arms: list[str]) -> None:
    """Every arm in a process of its own, one after another; what is done is kept after each."""
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU"
    found = {"device": name, "torch": torch.__version__, "python": platform.python_version(), "seed": seed, "arms": []}
    with tempfile.TemporaryDirectory() as folder:
        found["text"] = write_text(Path(folder), seed=seed, at_least=1_000_000 if smoke else 80_000_000)
        for arm in arms:
            print(f"{arm}, seed {seed}, {seconds:g} s of steps", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, str(out), "--arm", arm, "--seed", str(seed)]
            command += ["--seconds", str(seconds), "--text", folder, *["--smoke"] * smoke]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            record = done.stdout.rpartition("CURVE ")[2]
            found["arms"].append(json.loads(record) if record and not done.returncode else {"arm": arm, "failed": True})
            (out / f"curve-seed{seed}.json").write_text(json.dumps(found))
            print(json.dumps({k: v for k, v in found["arms"][-1].items() if k in SHOWN}), flush=True)


SHOWN = ("arm", "ended", "steps", "seconds", "step_ms", "held_out", "peak_gb", "failed")


def loss_at(held_out: list, index: int, at: float) -> float | None:
    """The held-out loss where column ``index`` (0: step, 1: seconds) is ``at``, between two measurements."""
    for before, after in itertools.pairwise(held_out):
        if before[index] <= at <= after[index]:
            share = (at - before[index]) / ((after[index] - before[index]) or 1)
            return before[2] + share * (after[2] - before[2])
    return None


def table(found: list[dict]) -> str:
    """Held-out loss of every arm and seed, at equal seconds and at equal tokens, as Markdown."""
    arms = [arm for part in found for arm in part["arms"] if "failed" not in arm]
    first, sizes = found[0], [arm["n_parameters"] / 1e6 for arm in arms]
    shortest_s = min(arm["held_out"][-1][1] for arm in arms)
    shortest = min(arm["held_out"][-1][0] for arm in arms)
    rows = [
        "# NSA beside dense attention on real text, for the same seconds on one GPU", "",
        f"{first['device']}, torch {first['torch']}, Python {first['python']}; `python bench/curve.py OUT --seed S`.",
        f"{min(sizes):.1f} to {max(sizes):.1f} million parameters, "
        f"{arms[0]['tokens_a_step']} bytes a step; text: {first['text']['bytes'] / 1e6:.0f} MB of Python sources, "
        f"{first['text']['files_held_out']} of "
        f"{first['text']['files'] + first['text']['files_held_out']} files held out. Losses in nats a byte.", "",
        "| arm | seed | step ms | tokens a second | steps | peak GB | held-out loss after "
        f"{shortest_s / 4:.0f} s | {shortest_s / 2:.0f} s | {shortest_s:.0f} s | after {shortest} steps |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    for arm in arms:
        at = [loss_at(arm["held_out"], 1, shortest_s * share) for share in (0.25, 0.5, 1.0)]
        at.append(loss_at(arm["held_out"], 0, shortest))
        losses = " | ".join("" if loss is None else f"{loss:.4f}" for loss in at)
        peak = "" if arm["peak_gb"] is None else f"{arm['peak_gb']:.1f}"
        rate = arm["tokens_a_step"] / arm["step_ms"] * 1e3
        speed = f"{arm['step_ms']:.1f} | {rate:,.0f} | {arm['steps']} | {peak}"
        rows.append(f"| {arm['arm']} | {arm['seed']} | {speed} | {losses} |")
    return "\n".join(rows) + "\n"


def draw(out: Path, found: list[dict]) -> None:
    """``curve.md`` and ``curve.svg``: held-out loss against seconds, and against tokens."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "curve"
    from matplotlib import pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
    arms = [arm for part in found for arm in part["arms"] if "failed" not in arm]
    for arm in arms:
        seeds = sorted({part["seed"] for part in found})
        label, style = f"{arm['arm']}, seed {arm['seed']}", ("-", "--", ":", "-.")[seeds.index(arm["seed"]) % 4]
        step, seconds, loss = zip(*arm["held_out"], strict=True)
        tokens = [arm["tokens_a_step"] * (n + 1) / 1e6 for n in step]
        for axes, xs in ((both[0], seconds), (both[1], tokens)):
            axes.plot(xs, loss, color=COLOURS[arm["arm"]], linestyle=style, linewidth=1.6, label=label)
    both[0].set(xlabel="seconds of optimizer steps", ylabel="held-out loss, nats per byte")
    both[1].set(xlabel="million bytes read")
    both[0].set_ylim(
        top=1.1 * max(arm["held_out"][1][2] for arm in arms)
    )  # the first, in the warm-up, can be twice that
    for axes in both:
        axes.spines[["top", "right"]].set_visible(False)
    both[1].legend(frameon=False)
    figure.savefig(out / "curve.svg", metadata={"Date": None})
    (out / "curve.md").write_text(table(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder of the results")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=185.0, help="of optimizer steps, for each arm")
    parser.add_argument("--smoke", action="store_true", help="tiny, on a CPU")
    parser.add_argument("--draw", type=Path, nargs="+", metavar="JSON", help="draw these again, train nothing")
    parser.add_argument("--only", nargs="+", default=list(ARMS), choices=ARMS, help="these arms, in this order")
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--text", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.draw:
        draw(args.out, [json.loads(path.read_text()) for path in args.draw])
    elif args.arm:
        record = run(args.arm, seed=args.seed, seconds=args.seconds, text=args.text, smoke=args.smoke)
        print("CURVE " + json.dumps(record), flush=True)
    else:
        measure(args.out, seed=args.seed, seconds=args.seconds, smoke=args.smoke, arms=args.only)


if __name__ == "__main__":
    main()
