"""A fleet on paper: what N nodes of 8 ranks saw of one hung trial goes through the head's joining.

    python bench/fleet.py                        125, 250, 500 and 1,000 nodes, each in a process of its own
    python bench/fleet.py --judge                the same, and the judge after it
    python bench/fleet.py --nodes 16 --judge     one row of them

The evidence is a recording of two ranks of which one takes a lock twice in its backward pass, with its stacks, looks
and marks: that rank is one in the middle of the fleet, all others are copies of the one that waits for it. Every part
is what an agent sends, its PIDs numbered by its node. *read* is what the head does with the text of each part,
*join* puts them together and asks for the moment in which all stood still, *judge* are the rules over the whole.

Bars for 1,000 nodes: 10 s and 1 GB, and a time that grows no faster than n log n.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.classify.engine import classify
from harness.core.codec import from_json, to_json
from harness.core.columns import from_columns, to_columns
from harness.core.evidence import Evidence
from harness.core.node import PIDS, Node
from harness.core.outcome import Outcome
from harness.core.verdict import Case
from harness.reading.join import cut_s, join

RECORDED = Path(__file__).resolve().parents[1] / "tests" / "data" / "specimens" / "rank-backward-lock.json.gz"
EACH = 8
"""Ranks of a node."""

APART = 2000
"""PIDs of two ranks of a node lie so far apart, more than those of the recording do."""

ROWS = ("heartbeats", "stacks", "processes", "collectives", "ranks")
"""Of evidence what carries a rank's number."""

PLACE = re.compile(r'"<(rank|pid) (\d+)>"|<(node)>')


class Fleet:
    """Makes the parts of a trial on ``nodes`` nodes from the recording, as text with places for a node's numbers."""

    def __init__(self, nodes: int) -> None:
        self.case = from_json(Case, json.loads(gzip.decompress(RECORDED.read_bytes()))["case"])
        self.world = nodes * EACH
        self.stuck = self.world // 2 + 1
        self.evidence = to_json(self.case.evidence)
        self.whole = self._text(odd=None)
        self.odd = self._text(odd=self.stuck % EACH)

    def part(self, node: int) -> str:
        """What the agent of ``node`` says of its eight ranks."""

        def place(found: re.Match[str]) -> str:
            kind, number = found[1], int(found[2] or 0)
            if kind == "rank":
                return str(node * EACH + number)
            return str(node * PIDS + number) if kind == "pid" else str(node)

        return PLACE.sub(place, self.odd if node == self.stuck // EACH else self.whole)

    def _text(self, *, odd: int | None) -> str:
        rows: dict[str, list[Any]] = {name: [] for name in ROWS}
        for by in range(EACH):
            for name in ROWS:
                found = [row for row in self.evidence[name] if row["rank"] == int(by == odd)]
                rows[name] += self._of(found, by)
        for name in ROWS[:3]:
            rows[name].sort(key=lambda row: row["t_s"])
        told = {"heartbeats_total": len(rows["heartbeats"]), "world": self.world}
        evidence = from_json(Evidence, {**self.evidence, **rows, **told})
        columns = to_columns(evidence, change=to_be_placed)
        return json.dumps({"outcome": to_json(self.case.outcome), "evidence": columns})

    def _of(self, data: Any, by: int) -> Any:
        """Rows of the recording as those of the node's rank ``by``."""
        if isinstance(data, list):
            return [self._of(item, by) for item in data]
        if not isinstance(data, dict):
            return data
        found = {key: self._of(value, by) for key, value in data.items()}
        for key in found.keys() & {"pid", "tid", "parent"}:
            found[key] = found[key] + by * APART if found[key] else found[key]
        if "holders" in found:
            found["holders"] = [pid + by * APART for pid in found["holders"]]
        for key in found.keys() & {"id", "undisturbed_since"}:
            found[key] = f"{found[key]}.{by}" if found[key] else found[key]
        if "rank" in found:
            found["rank"] = by
        return found


def to_be_placed(name: str, value: Any) -> Any:
    """A field of evidence, with places for its node's numbers."""
    if name in ("pid", "tid", "parent", "main"):
        return f"<pid {value}>" if value else value
    if name == "holders":
        return [f"<pid {pid}>" for pid in value]
    if name in ("id", "undisturbed_since"):
        return f"{value}.n<node>" if value else value
    return f"<rank {value}>" if name == "rank" else value


def one(nodes: int, *, judge: bool) -> dict[str, Any]:
    """One trial on so many nodes: CPU seconds of every stage, memory, and what was said of it."""
    fleet = Fleet(nodes)
    size, times, parts = 0, {"read": 0.0, "join": 0.0, "judge": 0.0}, []
    for number in range(nodes):
        text = fleet.part(number)
        began_s = time.process_time()
        data = json.loads(text)
        node = Node(number=number, host=f"n{number}", clock=f"c{number}", error_s=0.0002)
        parts.append((node, from_json(Outcome, data["outcome"]), from_columns(Evidence, data["evidence"])))
        times["read"] += time.process_time() - began_s
        size += len(text)
    began_s = time.process_time()
    evidence, cut = join(parts), cut_s((node, seen) for node, _, seen in parts)
    times["join"] = time.process_time() - began_s
    said = ""
    if judge:
        began_s = time.process_time()
        trial = replace(fleet.case.trial, config={**fleet.case.trial.config, "parallel": {"world": fleet.world}})
        verdict = classify(Case(trial=trial, outcome=fleet.case.outcome, evidence=evidence))
        times["judge"] = time.process_time() - began_s
        said = f"{verdict.kind} ({verdict.cause}), rank {verdict.rank} of {fleet.stuck}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {
        "nodes": nodes,
        "ranks": len(evidence.ranks),
        "bytes": size,
        **times,
        "cut": cut,
        "peak": peak,
        "said": said,
    }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--judge", action="store_true")
    args = parser.parse_args()
    if args.nodes:
        print(json.dumps(one(args.nodes, judge=args.judge)))
        return 0
    print(
        "| nodes | ranks | evidence | read, CPU s | join, CPU s | both by n log n | peak memory | judge, CPU s | said |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|--:|---|")
    first = 0.0
    for nodes in (125, 250, 500, 1000):
        command = [sys.executable, __file__, "--nodes", str(nodes), *(["--judge"] if args.judge else [])]
        row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        share = (row["read"] + row["join"]) / (nodes * math.log2(nodes))
        first = first or share
        print(
            f"| {nodes} | {row['ranks']} | {row['bytes'] / 1e6:.0f} MB | {row['read']:.1f} | {row['join']:.2f} "
            f"| {share / first:.2f} | {row['peak'] / 1e6:.0f} MB | {row['judge']:.1f} | {row['said']} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
