"""The profile of training steps as Markdown: an overview, parts side by side where marked, longest kernels."""

from __future__ import annotations

from gpu_trace import KIND_BY_NAME


def report(results: dict[str, dict[str, dict]], machine: dict, skipped: list[str]) -> str:
    """Everything as Markdown: an overview per shape, parts side by side, then kernels."""
    lines = [", ".join(f"{key} {value}" for key, value in machine.items()) + ".", ""]
    if skipped:
        lines += [f"No time was left for: {', '.join(skipped)}.", ""]
    for shape, ways in results.items():
        good = {way: r for way, r in ways.items() if "failed" not in r}
        lines += [f"## S x B = {shape}", "", *_overview(good), ""]
        lines += [f"- {way} did not run: {r['failed']}" for way, r in ways.items() if "failed" in r]
        lines += ["", *_parts(good), ""]
        for way, r in ((way, r) for way, r in good.items() if r["top"]):
            lines += [f"### {way}, {shape}: the {len(r['top'])} longest kernels of a step", ""]
            lines += ["| ms | count | part | kernel |", "|---|---|---|---|"]
            for k in r["top"]:
                part = k["part"] if r["is_marked"] else ""
                lines += [f"| {k['ms']:.3f} | {k['count']:g} | {part} | `{k['kernel'][:110]}` |"]
            lines += [""]
    return "\n".join(lines) + "\n"


def _overview(good: dict[str, dict]) -> list[str]:
    head = (
        *("way", "step ms (least to most)", "tokens/s", "of dense", "GPU ms", "GPU busy"),
        *("host ms under the profiler", "launches", "forward ms", "peak GB", "loss"),
    )
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for way, r in good.items():
        base = good.get("dense")
        ratio = f"{r['tokens_per_s'] / base['tokens_per_s']:.2f}" if base else ""
        peak = "" if r["peak_gb"] is None else f"{r['peak_gb']:.1f}"
        lines.append(
            f"| {way} | {r['step_ms']:.1f} ({r['step_ms_least']:.1f} to {r['step_ms_most']:.1f}) | "
            f"{r['tokens_per_s']:,.0f} | {ratio} | {r['gpu_ms']:.1f} | {100 * r['gpu_busy']:.0f} % | "
            f"{r['host_ms_profiled']:.1f} | {r['launches']:,.0f} | {r['forward_ms']:.1f} | {peak} | {r['loss']:.4f} |"
        )
    return lines


def _parts(good: dict[str, dict]) -> list[str]:
    if not any(r["parts"] for r in good.values()):
        return ["No kernels: nothing ran on a GPU."]
    marked = {way: r for way, r in good.items() if r["is_marked"]}
    names = list(dict.fromkeys(name for r in marked.values() for name in r["parts"]))
    lines = ["Forward + backward, ms of GPU time in a step (launches).", "", "| part | " + " | ".join(marked) + " |"]
    lines += ["|---" * (1 + len(marked)) + "|"]
    for name in names:
        cells = []
        for r in marked.values():
            part = r["parts"].get(name)
            forward, backward = (0, 0) if part is None else (part.get("forward_ms", 0), part.get("backward_ms", 0))
            cells.append("" if part is None else f"{forward:.2f} + {backward:.2f} ({part['launches']:.0f})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    kinds = list(dict.fromkeys([*KIND_BY_NAME.values(), "kernels of ours"]))
    unmarked = ", ".join(way for way in good if way not in marked)
    lines += ["", f"Parts cannot be told apart in {unmarked}: no mark gets into these blocks."] if unmarked else []
    lines += ["", "| kind | " + " | ".join(good) + " |", "|---" * (1 + len(good)) + "|"]
    for kind in kinds:
        sums = [sum(part.get(kind, 0.0) for part in r["parts"].values()) for r in good.values()]
        lines.append(f"| {kind} | " + " | ".join(f"{ms:.2f}" for ms in sums) + " |")
    return lines
