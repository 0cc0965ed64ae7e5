"""Six real hangs on two GPUs, from the raw files that were recorded of them: what every rule makes of every one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.classify.engine import RANK_RULES, classify
from harness.core.verdict import Kind
from harness.reading.desync import Parting, partings
from known_ids import known_ids
from raw_recordings import load_recording

FOLDER = Path(__file__).parents[1] / "data" / "evidence" / "h200"
RECORDED = {folder.name: load_recording(folder) for folder in sorted(FOLDER.iterdir()) if folder.is_dir()}
ONCE = frozenset({"backward_lock", "sigstop", "straggler", "spin_kernel"})
"""Looked at once: whether anything moved between two looks was never asked, so nothing may be claimed."""


@pytest.mark.parametrize("name", sorted(RECORDED.keys() - ONCE))
def test_a_recording_gets_the_verdict_that_its_fault_deserves(name):
    case, expected = RECORDED[name]
    verdict = classify(case)
    assert (verdict.kind.value, verdict.cause, verdict.rank) == (expected["kind"], expected["cause"], expected["rank"])
    assert expected["phase"] in (None, verdict.phase)
    assert set(verdict.cites) <= known_ids(case)


@pytest.mark.parametrize("name", sorted(ONCE))
def test_of_what_was_looked_at_once_only_the_rank_that_is_behind_is_named(name):
    case, _ = RECORDED[name]
    verdict = classify(case)
    assert (verdict.kind, verdict.rank) == (Kind.UNRESOLVED, 1)


@pytest.mark.parametrize("name", RECORDED)
def test_one_rule_fires_and_all_others_are_silent(name):
    case, _ = RECORDED[name]
    verdicts = {rule: RANK_RULES.load(rule)(case) for rule in RANK_RULES}
    fired = {verdict.rule or rule for rule, verdict in verdicts.items() if verdict is not None}
    assert fired - {"unresolved"} == {classify(case).rule} - {"unresolved"}


@pytest.mark.parametrize(
    ("name", "parting", "odd"),
    [
        ("backward_lock", Parting.MISSING, (1,)),
        ("sigstop", Parting.MISSING, (1,)),
        ("skip_collective", Parting.MISSING, (1,)),
        ("straggler", Parting.MISSING, (1,)),
        ("spin_kernel", Parting.TOGETHER, ()),
    ],
)
def test_the_flight_recorders_name_the_rank_that_never_came(name, parting, odd):
    case, _ = RECORDED[name]
    found, *_ = partings(case.evidence.collectives, world=2)
    assert (found.parting, found.odd, found.seq) == (parting, odd, 4)


@pytest.mark.parametrize("name", sorted(ONCE))
def test_without_the_flight_recorders_nothing_is_claimed(name):
    case, _ = RECORDED[name]
    blind = replace(case, evidence=replace(case.evidence, collectives=()))
    assert classify(blind).kind is Kind.UNRESOLVED
