"""How long the report of a 500-cell run takes, as wall time of the installed command; the trials are recorded ones.

    python bench/report_500.py [--pairs N] [--cases CASE ..] [--against TREE]

Each case is one state of the machine that the command meets (CASES); `cold` drops the page cache before every run, for
which it must be root; what another running program has open stays cached. With --against the same is asked of an older
checkout too, turn about, so that both meet the same load. A line of JSON for each pair on standard error, then a table.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import harness
from harness.clock import WallClock
from harness.core.campaign import CampaignAnswer, CampaignSpec, Task
from harness.core.record import Machine, TrialRecord
from harness.core.verdict import FAILURES, Answer
from harness.search.tables import Facts, axis_fits, cell_results, failure_tables
from harness.spec.matrix import parse_matrix
from harness.store.cases import read_cases
from harness.store.run_store import RunStore

TREE = Path(__file__).resolve().parents[1]
RECORDED = Path(harness.__file__).parents[1] / "tests" / "data" / "specimens"
"""Of the tree that writes the run: an older one does not read newer recordings."""
MATRIX = """
version: 1
name: many
description: From which of 25 depths on does training hang, at 20 lengths?
base: {train.steps: 8}
axes:
  n_layers: {type: ordered, range: [1, 25]}
  seq_len: {type: ordered, range: [1, 20], apply: {config: train.seq_len}}
strategy: full
"""
DEEPEST = 25
"""Cells with so many layers hang, the others pass."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the command finds: files in memory, the list of fonts that matplotlib keeps, our modules compiled."""

    cached: bool = True
    fonts: bool = True
    compiled: bool = True


CASES = {
    "warm": Case(),
    "cold": Case(cached=False),
    "no-fonts": Case(fonts=False),
    "not-compiled": Case(compiled=False),
    "installed-now": Case(cached=False, fonts=False, compiled=False),
}


@dataclass(frozen=True, kw_only=True)
class Took:
    """One rendering: seconds on the clock, seconds of processor time of all its processes."""

    wall_s: float
    cpu_s: float


def main() -> None:
    """Make the run, render it in every case, print the table."""
    parser = argparse.ArgumentParser(description="How long the report of a 500-cell run takes.")
    parser.add_argument("--pairs", type=int, default=7, help="renderings of each case and tree")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["warm"])
    parser.add_argument("--against", type=Path, help="an older checkout, to compare with")
    parser.add_argument("--write", type=Path, metavar="RUNS", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.write:
        print(_write(asked.write))
        return
    trees = [TREE, *([asked.against.resolve()] if asked.against else [])]
    with tempfile.TemporaryDirectory() as folder:
        # written by the oldest, whose runs all can read
        environ = dict(os.environ, PYTHONPATH=str(trees[-1]))
        made = [sys.executable, __file__, "--write", folder]
        run_dir = Path(subprocess.run(made, check=True, env=environ, capture_output=True, text=True).stdout.strip())
        rows = [_row(name, trees, run_dir, pairs=asked.pairs) for name in asked.cases]
    head = ["case", "renderings", "median, s", "least to most, s", "processor, s"]
    head += ["older, s", "ratio"] if asked.against else []
    print(f"| {' | '.join(head)} |\n|:--{'|--:' * (len(head) - 1)}|")
    print("\n".join(rows))


def _row(name: str, trees: list[Path], run_dir: Path, *, pairs: int) -> str:
    took: list[list[Took]] = []
    for number in range(pairs + 1):
        order = trees if number % 2 else trees[::-1]  # who comes second finds no more than who comes first
        found = {tree: _render(tree, run_dir, CASES[name]) for tree in order}
        if number:  # the first fills the caches
            took.append([found[tree] for tree in trees])
            said = {
                "case": name,
                "wall_s": [round(t.wall_s, 2) for t in took[-1]],
                "load": round(os.getloadavg()[0], 1),
            }
            print(json.dumps(said), file=sys.stderr, flush=True)
    ours = [pair[0] for pair in took]
    walls = [t.wall_s for t in ours]
    cells = [name, str(len(took)), f"{median(walls):.2f}", f"{min(walls):.2f} to {max(walls):.2f}"]
    cells.append(f"{median(t.cpu_s for t in ours):.2f}")
    if len(trees) > 1:
        cells.append(f"{median(pair[1].wall_s for pair in took):.2f}")
        cells.append(f"{median(pair[0].wall_s / pair[1].wall_s for pair in took):.2f}")
    return f"| {' | '.join(cells)} |"


def _render(tree: Path, run_dir: Path, case: Case) -> Took:
    command = [str(Path(sys.executable).with_name("nsa-harness")), "report", str(run_dir)]
    with tempfile.TemporaryDirectory() as folder:
        environ = dict(os.environ, PYTHONPATH=str(tree))
        if not case.fonts:
            environ["MPLCONFIGDIR"] = str(Path(folder) / "matplotlib")
        if not case.compiled:
            environ |= {"PYTHONPATH": str(_uncompiled(tree, Path(folder))), "PYTHONDONTWRITEBYTECODE": "1"}
        if not case.cached:
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3")
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environ)
        wall_s, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall_s=wall_s, cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _uncompiled(tree: Path, folder: Path) -> Path:
    """A copy of our packages without ``__pycache__``, as a package manager that does not compile leaves them."""
    for package in ("harness", "nsa"):
        shutil.copytree(tree / package, folder / "tree" / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "tree"


def _write(runs: Path) -> Path:
    seen = {found.name.partition(".")[0]: found for found in read_cases(RECORDED)}
    good, bad = seen["clean"], seen["lock-deadlock"]
    matrix = parse_matrix(MATRIX, name="many.yaml").matrix
    cells = [matrix.space.cell({"n_layers": i, "seq_len": j}) for i in range(1, DEEPEST + 1) for j in range(1, 21)]
    records: list[TrialRecord] = []
    spec = CampaignSpec(
        question=matrix.description, task=Task.CELLS, matrix=matrix, file="many.yaml", cells=tuple(cells)
    )
    with RunStore.create(
        runs, spec=spec, machine=_machine(), code="bench",
        argv=("nsa-harness", "matrix", "run", "many.yaml"), clock=WallClock(),
    ) as store:  # fmt: skip
        for cell in cells:
            found = bad if cell.get("n_layers") == DEEPEST else good
            trial = replace(found.case.trial, point=cell, fault=None)
            record = TrialRecord(
                trial=trial, outcome=found.case.outcome, verdict=found.verdict,
                answer=Answer.BAD if found.verdict.kind in FAILURES else Answer.GOOD,
                measurement=found.case.evidence.measurement, started_at="2026-01-02T03:04:05.000Z",
            )  # fmt: skip
            store.write_evidence(trial.key, found.case.evidence)
            store.add_record(record)
            records.append(record)
        facts = Facts(records=tuple(records), names={}, ran={}, predicted_s={}, overrides={})
        answer = CampaignAnswer(
            cells=cell_results(matrix, tuple(cells), facts, today=dt.datetime.now(tz=dt.UTC).date()),
            failures=failure_tables(matrix.space, facts),
            fits=axis_fits(matrix.space, facts.records),
        )
        store.add_end(why="answered", seconds=60.0, answer=answer)
        return store.run_dir


def _machine() -> Machine:
    return Machine(
        python="3",
        torch="",
        platform="Linux",
        kernel="",
        cpu="",
        cores=os.cpu_count() or 1,
        memory_bytes=1,
        packages=(),
    )


if __name__ == "__main__":
    main()
