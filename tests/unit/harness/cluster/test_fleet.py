"""What the agents of many nodes saw, joined and judged; what it costs a thousand of them is bench/fleet.py's to say."""

from __future__ import annotations

from bench.fleet import one


def test_of_many_ranks_on_many_nodes_the_one_is_named_that_all_wait_for():
    row = one(6, judge=True)

    assert row["ranks"] == 48
    assert row["said"] == "HANG (deadlock), rank 25 of 25"
    assert row["cut"] > 1.0
