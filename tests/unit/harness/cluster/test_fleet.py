"""What the agents of many nodes saw, joined and judged; what it costs a thousand of them is bench/fleet.py's to say."""

from __future__ import annotations

import math

from bench.fleet import one


def test_of_many_ranks_on_many_nodes_the_one_is_named_that_all_wait_for():
    row = one(6, judge=True)

    assert row["ranks"] == 48
    assert row["said"] == "HANG (deadlock), rank 25 of 25"
    assert row["cut"] > 1.0


def test_judging_many_ranks_grows_no_faster_than_n_log_n():
    """By CPU seconds, the least of two: it was 11 times as much for four times the ranks when each met each."""
    few, many = (min(one(nodes, judge=True)["judge"] for _ in range(2)) for nodes in (8, 32))

    assert many / few <= 1.3 * (256 * math.log2(256)) / (64 * math.log2(64))
