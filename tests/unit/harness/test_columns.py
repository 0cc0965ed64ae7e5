"""Evidence as columns: whole after the way, each part of it once, and refused where it is something else."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path

import pytest

from harness.core.codec import from_json, to_json
from harness.core.columns import from_columns, to_columns
from harness.core.errors import JournalError
from harness.core.evidence import Evidence, Heartbeat
from harness.core.node import PIDS
from harness.core.verdict import Case
from harness.reading.join import numbered

SPECIMENS = Path(__file__).parents[2] / "data" / "specimens"
NAMES = ("rank-backward-lock", "rank-loader-stuck", "backward-deadlock", "crash")


def evidence(name):
    return from_json(Case, json.loads(gzip.decompress((SPECIMENS / f"{name}.json.gz").read_bytes()))["case"]).evidence


def sent(value, **how):
    return json.loads(json.dumps(to_columns(value, **how)))


@pytest.mark.parametrize("name", NAMES)
def test_evidence_is_the_same_after_the_way_and_smaller(name):
    seen = evidence(name)
    columns = sent(seen)

    assert from_columns(Evidence, columns) == seen
    assert len(json.dumps(columns)) < len(json.dumps(to_json(seen)))


def test_equal_parts_are_one_object():
    seen = from_columns(Evidence, sent(evidence("rank-backward-lock")))

    frames = [frame for sample in seen.stacks for thread in sample.threads for frame in thread.frames]
    assert len({id(frame) for frame in frames}) == len(set(frames)) < len(frames) / 2


def test_another_node_gets_pids_and_ids_of_its_own_on_the_way():
    here = evidence("rank-backward-lock")
    there = from_columns(Evidence, sent(here, change=partial(numbered, node=2)))

    assert [look.pid for look in there.processes] == [look.pid + 2 * PIDS for look in here.processes]
    assert [t.holders for p in there.processes for t in p.threads] == [
        tuple(pid + 2 * PIDS for pid in t.holders) for p in here.processes for t in p.threads
    ]
    assert all(look.id.endswith(".n2") for look in there.processes)
    assert [facts.id for facts in there.ranks] == [facts.id for facts in here.ranks]


def test_a_number_of_the_wrong_type_is_made_right_or_refused():
    mark = Heartbeat(seq=1, t_s=2.0, rank=0, pid=7, phase="forward", edge="begin")
    columns = sent(mark)

    columns["Heartbeat"]["t_s"] = [2]
    assert type(from_columns(Heartbeat, columns).t_s) is float
    columns["Heartbeat"]["pid"] = [True]
    with pytest.raises(JournalError, match="a whole number"):
        from_columns(Heartbeat, columns)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda columns: columns["Evidence"].pop("silence_s"),
        lambda columns: columns["Evidence"].update(later=[1]),
        lambda columns: columns["Heartbeat"]["pid"].pop(),
        lambda columns: columns["Evidence"]["result"].__setitem__(0, 99),
        lambda columns: columns.pop("Evidence"),
    ],
    ids=["a field less", "a field more", "a row less", "a part that is not there", "no whole"],
)
def test_what_is_not_whole_is_refused(spoil):
    columns = sent(evidence("crash"))
    spoil(columns)

    with pytest.raises(JournalError, match="no columns of Evidence"):
        from_columns(Evidence, columns)
