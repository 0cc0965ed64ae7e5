"""The benchmark of ways to search, in a small size: it runs, it is repeatable, and ours is what it is said to be."""

from __future__ import annotations

import importlib
import sys
from argparse import Namespace
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[4] / "bench"


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(BENCH))
    try:
        yield {name: importlib.import_module(name) for name in ("search_simulation",)}
    finally:
        sys.path.remove(str(BENCH))
        for name in [name for name in sys.modules if name.startswith("search_")]:
            del sys.modules[name]


def test_the_quick_comparison_is_repeatable_and_ours_is_the_cheapest_at_its_error_or_the_row_says_why(bench):
    simulation = bench["search_simulation"]
    ours = ("ours", "linear, 1 run", "binary, 1 run", "binary, 10 runs", "drop one from bad")
    jobs = [job for job in simulation.jobs(Namespace(quick=True, share=1.0, seed=0)) if job.way in ours]
    scores = [job.run() for job in jobs]
    assert [job.run() for job in jobs[:6]] == scores[:6]
    told = simulation.verdicts(scores)
    assert all("wrong in" in verdict or verdict == "ours is cheapest" for verdict in told.values())
    assert told["N=12 T=60 0.1"] == told["N=12 T=60 0.1 to 0.9"] == "ours is cheapest"
    assert {v for row, v in told.items() if row.startswith("rate")} == {"ours is cheapest"}
    errors = {s.row: s.error for s in scores if s.way == "ours"}
    assert max(errors.values()) <= 0.1
    by_hand = {s.row: s.error for s in scores if s.way == "linear, 1 run"}
    assert by_hand["N=12 T=60 0.3"] > 0.4
    assert told["N=12 T=60 1"] in simulation.table(scores, told)


def test_a_way_that_is_cheaper_and_never_worse_would_be_reported(bench):
    simulation = bench["search_simulation"]

    def score(way: str, row: str, seconds: float, wrong: float, confirm_s: float = 0.0):
        return simulation.Score("threshold", row, way, 10, 1, 1, seconds, wrong, 0.0, confirm_s)

    rows = ("N=12 T=60 1", "N=12 T=60 0.1")
    fair = [score("ours", row, 100, 0.0) for row in rows] + [score("other", row, 30, 0.0) for row in rows]
    assert simulation.verdicts(fair)[rows[0]] == "other is cheaper"
    dearer = [*(score("ours", row, 100, 0.0, 60) for row in rows), *(score("other", row, 50, 0.0) for row in rows)]
    assert "to see the failure again (60 s)" in simulation.verdicts(dearer)[rows[0]]
    worse = [*fair[:3], score("other", rows[1], 30, 0.5)]
    assert simulation.verdicts(worse) == {
        rows[0]: "other is cheaper here, and wrong in 50 % at 0.1",
        rows[1]: "ours is cheapest",
    }
    bolder = [score("ours", rows[0], 30, 0.2), score("other", rows[0], 100, 0.1)]
    assert simulation.verdicts(bolder)[rows[0]] == (
        "ours is cheapest; other is dearer, with 1 error in 10 to our 2 errors in 10"
    )
