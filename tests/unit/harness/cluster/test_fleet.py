"""What the agents of many nodes saw, joined and judged; what it costs a thousand of them is bench/fleet.py's to say."""

from __future__ import annotations

import math
import sys

import bench.fleet
from bench.fleet import one


def test_of_many_ranks_on_many_nodes_the_one_is_named_that_all_wait_for():
    row = one(6, judge=True)

    assert row["ranks"] == 48
    assert row["said"] == "HANG (deadlock), rank 25 of 25"
    assert row["cut"] > 1.0


def test_judging_many_ranks_grows_no_faster_than_n_log_n(monkeypatch):
    """By the functions that are called: on a busy machine seconds say nothing."""
    judge, calls = bench.fleet.classify, 0

    def counted(case):
        def call(frame, event, arg):
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(call)
        try:
            return judge(case)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(bench.fleet, "classify", counted)
    shares = []
    for nodes in (4, 16):
        calls = 0
        row = one(nodes, judge=True)
        shares.append(calls / (row["ranks"] * math.log2(row["ranks"])))

    assert shares[1] <= 1.1 * shares[0]
