"""The tables of ``training.py``: rows as Markdown, beside dense attention, and one GPU beside two."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def report(results: list[dict], out: Path) -> str:
    """The tables as Markdown."""
    machine = json.loads((out / "machine.json").read_text())
    head = (
        "| run | steps | tokens/s | step ms (p10 to p90) | MFU | peak GB per GPU | loss, first and last |",
        "|---" * 7 + "|",
    )
    lines = [", ".join(f"{key} {value}" for key, value in machine.items()) + ".", "", *head]
    for r in results:
        if r["ok"]:
            memory = "" if r["peak_allocated_gb"] is None else f"{r['peak_allocated_gb']:.1f}"
            lines.append(
                f"| {r['row']} | {r['n_steps']}, {r['ended']} | {r['tokens_per_s']:,.0f} | {r['step_ms']:.1f} "
                f"({r['step_ms_p10']:.1f} to {r['step_ms_p90']:.1f}) | {100 * r['mfu']:.1f} % | {memory} | "
                f"{r['loss_first']:.3f}, {r['loss_last']:.3f} |"
            )
        else:
            lines.append(f"| {r['row']} | did not complete: {r['why'].splitlines()[0]} | | | | | |")

    def key(r, **other):
        r = {"compile": "off", "cuda_graphs": "off", "bucket_views": False, "routes": "", **r, **other}
        return (*(r[name] for name in ("gpus", "mode", "checkpointing", "seq_len", "batch_per_gpu")),
                r["attention"] + r["sdpa"], r["routes"], r["compile"], r["cuda_graphs"], r["bucket_views"])  # fmt: skip

    good = {key(r): r for r in results if r["ok"]}
    lines += ["", "| comparison | ratio |", "|---|---|"]

    def compare(r, what, **other):
        beside = good.get(key(r, **other))
        if beside:
            lines.append(f"| {r['row']}: {what} | {r['tokens_per_s'] / beside['tokens_per_s']:.2f} |")

    for r in good.values():
        graphed = " graphed" * (r.get("cuda_graphs", "off") != "off")
        if r["attention"] == "nsa":
            for sdpa in ("", "cudnn"):
                compare(r, f"tokens/s of dense {sdpa}".rstrip() + graphed, attention="dense", sdpa=sdpa, routes="")
        if graphed:
            compare(r, "tokens/s without graphs", cuda_graphs="off")
        if graphed and r["attention"] == "nsa":
            compare(r, "tokens/s of dense without graphs", cuda_graphs="off", attention="dense", sdpa="", routes="")
        if r["gpus"] == 2:
            compare(r, "scaling from one GPU to two", gpus=1, mode="single")
    return "\n".join(lines) + "\n"


def describe(*, smoke: bool, commit: str) -> dict:
    """The machine, in a few words."""
    import torch

    gpu = "none (smoke test on CPUs)" if smoke else f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    return {
        "GPU": gpu, "torch": torch.__version__, "Python": platform.python_version(),
        "commit": commit or "unknown", "configuration": "m7c_125m production (bf16 weights)",
    }  # fmt: skip


def best_of(rows: list[dict]) -> list[dict]:
    """One row of each name: the last that completed all its steps, else the last that completed some."""
    kept: dict[str, dict] = {}
    for row in rows:
        name, ended = row["row"], (row["ok"], row.get("n_steps", 0))
        before = kept.get(name)
        if before is None or ended >= (before["ok"], before.get("n_steps", 0)):
            kept[name] = row
    return list(kept.values())
