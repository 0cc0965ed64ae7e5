"""How long every kind of hang takes to be told: each specimen that must be called HANG and needs no GPU.

    python bench/hang_latency_specimens.py --no-limits --rounds 3 --md specimens.md --json specimens.jsonl

Seconds from the last sign of life to the verdict, as the self-test measures them. With --no-limits nobody knows the
trainer beforehand: no limit is declared or learned, the defaults hold (30 s of silence, 120 s for start-up), and how
long a silence is out of proportion is told by the trial's own pace. Without it, limits are learned from healthy runs
of the same trainer first, and a few specimens declare theirs. One trial at a time, unless --jobs says more.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

BAR_S = 10.0
_LIMIT = re.compile(r"\((?:stall|start-up) limit ([^()]*)\)")


def hangs() -> list[str]:
    """The specimens whose verdict must be HANG and that need no GPU, in the table's order."""
    from harness.core.verdict import Kind
    from harness.specimens.catalog import SPECIMENS, Needs

    every = [SPECIMENS.load(name) for name in SPECIMENS]
    return [s.name for s in every if s.expect is Kind.HANG and s.needs in (Needs.CPU, Needs.GLOO) and not s.flaky]


def measure(names: list[str], *, rounds: int, jobs: int, blind: bool) -> list[dict]:
    """Every trial of the self-test, as it says them."""
    argv = [sys.executable, "-m", "harness", "selftest", *names, "--json", "--rounds", str(rounds), "--jobs", str(jobs)]
    argv += ["--no-limits"] if blind else []
    rows: list[dict] = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        for line in test.stdout:
            rows.append(json.loads(line))
            row = rows[-1]
            told = "-" if row["to_verdict_s"] is None else f"{row['to_verdict_s']:.1f} s"
            print(
                f"[{len(rows)}/{len(names) * rounds}] {row['specimen']:<20} {row['verdict']['kind']} {told}", flush=True
            )
    return rows


def limit(row: dict) -> str:
    """The limit that the verdict names, ``4.0 s`` or ``4.0 s, not waited for``."""
    found = _LIMIT.search(row["verdict"]["because"])
    return found[1] if found else "-"


def markdown(rows: list[dict], *, about: str) -> str:
    """The table, the slowest first, and in words which are above the bar."""
    by_name: dict[str, list[dict]] = {}
    for row in rows:
        by_name.setdefault(row["specimen"], []).append(row)
    lines = [
        "# Seconds from a stall to its verdict, by kind of hang",
        "",
        f"{about} Made by `python bench/hang_latency_specimens.py`. Median (least to most).",
        "",
        "| specimen | cause | seconds | told by rule | limit | right |",
        "|:--|:--|--:|:--|:--|--:|",
    ]
    table = sorted(by_name.items(), key=lambda item: -_middle(item[1]))
    for name, found in table:
        took = _took(found)
        spread = f"{statistics.median(took):.1f} ({min(took):.1f} to {max(took):.1f})" if took else "-"
        right = sum(not row["score"]["wrong"] for row in found)
        rules = ", ".join(dict.fromkeys(row["verdict"]["rule"] for row in found))
        limits = ", ".join(dict.fromkeys(map(limit, found)))
        cause = found[0]["expected"]["cause"]
        lines.append(f"| {name} | {cause} | {spread} | {rules} | {limits} | {right} of {len(found)} |")
    every = [seconds for found in by_name.values() for seconds in _took(found)]
    above = [f"{name} {_middle(found):.1f} s" for name, found in table if _middle(found) > BAR_S]
    lines += [
        "",
        f"{len(every)} verdicts, median {statistics.median(every):.1f} s, {sum(s <= BAR_S for s in every)} within "
        f"{BAR_S:g} s."
        if every
        else "No hang was told.",
        f"Median above {BAR_S:g} s: {', '.join(above) or 'none'}.",
    ]
    return "\n".join(lines) + "\n"


def _took(found: list[dict]) -> list[float]:
    return [row["to_verdict_s"] for row in found if row["to_verdict_s"] is not None]


def _middle(found: list[dict]) -> float:
    return statistics.median(_took(found) or [0.0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these specimens")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--no-limits", action="store_true", help="declare and learn none: the defaults hold")
    parser.add_argument("--note", default="", help="what else a reader must know of the machine")
    parser.add_argument("--json", type=Path, help="every trial, one object a line")
    parser.add_argument("--md", type=Path)
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    rows = measure(asked.names or hangs(), rounds=asked.rounds, jobs=asked.jobs, blind=asked.no_limits)
    at_once = f"{asked.jobs} trials at a time, " if asked.jobs > 1 else ""
    limits = "default limits, nothing learned or declared; " if asked.no_limits else ""
    about = f"{os.cpu_count()} cores, {at_once}{limits}load {load:.1f} when begun, {os.getloadavg()[0]:.1f} at the end."
    text = markdown(rows, about=f"{about} {asked.note}".rstrip())
    if asked.json:
        asked.json.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    if asked.md:
        asked.md.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
