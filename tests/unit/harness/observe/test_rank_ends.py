"""What a launcher says of its ranks."""

from __future__ import annotations

import json

import pytest

from harness.observe.ranks import Ranks
from harness.store import layout


def test_a_rank_that_its_launcher_began_anew_has_not_ended(tmp_path):
    path = layout.ranks(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"event": "started", "rank": 1, "pid": 7, "t": 101.0},
        {"event": "ended", "rank": 1, "code": 3, "t": 105.0},
        {"event": "started", "rank": 1, "pid": 8, "t": 106.0},
    ]
    ranks = Ranks(tmp_path, started_s=100.0)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    ranks.read()
    assert [(rank, end.exit.code) for rank, end in ranks.ended.items()] == [(1, 3)]
    with path.open("a") as file:
        file.write(json.dumps(rows[2]) + "\n")
    ranks.read()
    assert (ranks.ended, ranks.begun_s, ranks.pids) == ({}, {1: 6.0}, {1: 8})
    ranks.close()


@pytest.mark.parametrize("at_once", [True, False], ids=["read at once", "read as it comes"])
def test_a_process_that_took_itself_for_rank_0_gives_it_back_when_it_joins_as_another(at_once, tmp_path):
    """Ranks of a launcher that sets no variable: by ``ranks.jsonl`` both were the later one, wherever it stood."""
    path = layout.ranks(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    ranks = Ranks(tmp_path, started_s=0.0)
    for rank, pid in ((0, 7), (0, 8), (1, 8)):
        with path.open("a") as file:
            file.write(json.dumps({"event": "started", "rank": rank, "pid": pid, "t": 1.0}) + "\n")
        if not at_once:
            ranks.read()
    ranks.read()
    assert (ranks.pids, ranks.world) == ({0: 7, 1: 8}, 2)
    ranks.close()


def test_ranks_of_the_group_that_are_not_here_count(tmp_path):
    path = layout.ranks(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    began = {"event": "started", "rank": 0, "pid": 8, "world": 0, "t": 1.0}
    joined = {"event": "world", "rank": 0, "pid": 8, "world": 3, "t": 2.0}
    path.write_text("".join(json.dumps(row) + "\n" for row in (began, joined)))
    ranks = Ranks(tmp_path, started_s=0.0)
    ranks.read()
    assert (ranks.pids, ranks.world) == ({0: 8}, 3)
    ranks.close()


def test_the_time_limits_of_a_ranks_groups_are_its_own_until_it_begins_anew(tmp_path):
    path = layout.ranks(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    ranks = Ranks(tmp_path, started_s=0.0)
    began = {"event": "started", "rank": 1, "pid": 8, "t": 1.0}
    limits = [{"event": "gives_up", "rank": 1, "pid": 8, "t": 2.0, "seconds": seconds} for seconds in (38.0, 2.5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in (began, *limits)))
    ranks.read()
    assert ranks.limits_s == {1: {38.0, 2.5}}
    with path.open("a") as file:
        file.write(json.dumps(began) + "\n")
    ranks.read()
    assert ranks.limits_s == {}
    ranks.close()


def test_a_rank_that_nobody_has_any_more_has_no_process(tmp_path):
    path = layout.ranks(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    ranks = Ranks(tmp_path, started_s=0.0)
    for rank in (0, 2):
        with path.open("a") as file:
            file.write(json.dumps({"event": "started", "rank": rank, "pid": 8, "t": 1.0}) + "\n")
        ranks.read()
    assert ranks.pids == {2: 8}
    ranks.close()
