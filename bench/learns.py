"""Trains the 12-layer byte model on real text, kills it by SIGKILL on the way, continues it, and draws the curves.

    python bench/learns.py bench/results/learns-2026-11-21.svg

Three runs of ``python -m nsa.train`` with the same settings on the standard library's bytes: one from beginning to
end; one that is killed by SIGKILL a few steps behind a checkpoint and continued with ``train.resume``; and the dense
control. The continued run must repeat the first one's losses to the last bit, or the exit status is 1.
Beside the figure is a .json with every number in it.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

SETTINGS = (
    "model.n_layers=12 model.dim=64 model.n_heads=4 model.n_kv_groups=2 model.d_k=16 model.d_v=16 "
    "train.seq_len=128 train.batch_size=4 train.lr=3e-3 train.schedule=cosine train.log_every=1"
)


def start(folder: Path, *, steps: int, more: str = "") -> subprocess.Popen:
    """``python -m nsa.train`` with a line of JSON per step on its standard output."""
    every = steps // 6
    own = f"train.steps={steps} train.warmup_steps={steps // 10} train.save_every={every} train.eval_every={every}"
    override = f"{SETTINGS} {own} train.out_dir={folder} train.tensorboard=false {more}"
    command = [sys.executable, "-m", "nsa.train", "--override", override]
    root = Path(__file__).resolve().parents[1]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=root)


def losses(process: subprocess.Popen, *, kill_at: int | None = None) -> dict[int, float]:
    """Loss by step, as printed; the process is killed when it has printed step ``kill_at``."""
    found = {}
    for line in process.stdout:
        record = json.loads(line)
        if "step" not in record:
            continue
        found[record["step"]] = record["loss"]
        if len(found) % 20 == 0:
            print(f"  step {record['step']}: loss {record['loss']:.3f}", file=sys.stderr, flush=True)
        if record["step"] == kill_at:
            process.kill()
    status = process.wait()
    if status != (-9 if kill_at is not None else 0):
        raise SystemExit(f"a run ended with status {status}")
    return found


def held_out(folder: Path) -> list[tuple[int, float]]:
    """The rows of ``val.csv``: steps done, and the loss on text that is not trained on."""
    rows = [line.split(",") for line in (folder / "val.csv").read_text().splitlines()]
    return [(int(step), float(loss)) for step, loss, _ in rows]


def draw(path: Path, found: dict) -> None:
    """The curves as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "learns"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    n = len(found["whole"])
    axes.plot(range(n), found["dense"], color="#b9b9b9", linewidth=1, label="dense attention")
    axes.plot(range(n), found["whole"], color="#2f78c4", linewidth=2.4, label="NSA, from beginning to end")
    first = found["continued_from"]
    axes.plot(
        range(first, n), found["continued"], color="#d9480f", linewidth=1, linestyle="--",
        label=f"killed by SIGKILL at step {found['killed_after']}, continued from {first}: the same to the last bit",
    )  # fmt: skip
    axes.plot(*zip(*found["held_out"], strict=True), "o", color="#2f78c4", markersize=4, label="NSA, held-out text")
    axes.axvline(found["killed_after"], color="#d9480f", linewidth=0.8, alpha=0.5)
    axes.axhline(math.log(256), color="#555555", linewidth=0.8, linestyle=":")
    axes.annotate("ln 256, all bytes alike", (n, math.log(256)), ha="right", va="bottom", fontsize=8, color="#555555")
    axes.set(xlabel="step", ylabel="loss, nats per byte", title="12 layers learn the standard library's bytes")
    axes.legend(frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1.0, 0.93))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figure", type=Path, help="where the SVG goes; the .json goes beside it")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--draw", type=Path, metavar="JSON", help="draw these numbers again, train nothing")
    args = parser.parse_args()
    if args.draw:
        draw(args.figure, json.loads(args.draw.read_text()))
        return
    kill_at = args.steps // 2 + args.steps // 12  # behind the third of six checkpoints
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("from beginning to end", file=sys.stderr)
        whole = losses(start(folder / "whole", steps=args.steps))
        print(f"killed after step {kill_at}", file=sys.stderr)
        killed = losses(start(folder / "killed", steps=args.steps), kill_at=kill_at)
        print("continued", file=sys.stderr)
        continued = losses(start(folder / "killed", steps=args.steps, more="train.resume=true"))
        print("dense", file=sys.stderr)
        dense = losses(start(folder / "dense", steps=args.steps, more="model.attention=dense"))
        values = {
            "settings": SETTINGS, "whole": list(whole.values()), "killed_after": max(killed),
            "continued_from": min(continued), "continued": list(continued.values()), "dense": list(dense.values()),
            "held_out": held_out(folder / "whole"), "held_out_dense": held_out(folder / "dense"),
        }  # fmt: skip
    both = {**killed, **continued}
    is_same = both == whole and all(killed[step] == whole[step] for step in killed)
    args.figure.with_suffix(".json").write_text(json.dumps({**values, "same_to_the_last_bit": is_same}))
    same = "every loss the same to the last bit" if is_same else "THE LOSSES DIFFER"
    print(
        f"loss {values['whole'][0]:.3f} -> {values['whole'][-1]:.3f} (dense {values['dense'][-1]:.3f}); killed at step "
        f"{max(killed)}, continued from step {min(continued)}: {same}"
    )
    if not is_same:
        sys.exit(1)
    try:
        draw(args.figure, values)
    except ImportError:
        print(f"matplotlib is not installed here; draw it elsewhere with --draw {args.figure.with_suffix('.json')}")


if __name__ == "__main__":
    main()
