"""What a launcher says of its ranks."""

from __future__ import annotations

import json

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
