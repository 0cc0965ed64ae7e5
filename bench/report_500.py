"""How long the report of a 500-cell run takes, as wall time of the installed command; the trials are recorded ones.

    python bench/report_500.py [REPEATS]

Prints the wall and the CPU seconds of each rendering (md, html with figures, JSON; the answer on standard output), and
the load of the machine, since another program's work counts in the wall time.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from harness.clock import WallClock
from harness.core.campaign import CampaignAnswer, CampaignSpec, Task
from harness.core.record import Machine, TrialRecord
from harness.core.verdict import FAILURES, Answer
from harness.search.tables import Facts, axis_fits, cell_results, failure_tables
from harness.spec.matrix import parse_matrix
from harness.store.cases import read_cases
from harness.store.run_store import RunStore

RECORDED = Path(__file__).parents[1] / "tests" / "data" / "specimens"
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


def main(repeats: int) -> None:
    """Make the run, render it ``repeats`` times."""
    seen = {found.name.partition(".")[0]: found for found in read_cases(RECORDED)}
    good, bad = seen["clean"], seen["lock-deadlock"]
    with tempfile.TemporaryDirectory() as folder:
        run_dir = _write(Path(folder), good, bad)
        command = [str(Path(sys.executable).with_name("nsa-harness")), "report", str(run_dir)]
        for _ in range(repeats):
            load = os.getloadavg()[0]
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(json.dumps({"wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "load": round(load, 1)}), flush=True)


def _write(runs: Path, good: object, bad: object) -> Path:
    from harness.store.cases import Judged

    assert isinstance(good, Judged)
    assert isinstance(bad, Judged)
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
        facts = Facts(records=tuple(records), names={}, ran={}, predicted_s={}, said={})
        answer = CampaignAnswer(
            cells=cell_results(matrix, tuple(cells), facts, today=dt.datetime.now(tz=dt.UTC).date()),
            failures=failure_tables(matrix.space, facts, certify=2),
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
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
