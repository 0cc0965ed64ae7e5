"""Six real hangs on two GPUs, from the raw files that were recorded of them: what every rule makes of every one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.classify.engine import RANK_RULES, classify
from harness.classify.facts import known_ids
from harness.core.collectives import Parting, diverges
from harness.core.verdict import Confidence, Kind
from harness.testing.raw_recordings import load_recording

FOLDER = Path(__file__).parents[1] / "data" / "evidence" / "h200"
RECORDED = {folder.name: load_recording(folder) for folder in sorted(FOLDER.iterdir()) if folder.is_dir()}
ALWAYS = {"ranks_unresolved"}


@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_gets_the_verdict_that_its_fault_deserves(name):
    case, expected = RECORDED[name]
    verdict = classify(case)
    assert (verdict.kind.value, verdict.cause, verdict.rank) == (expected["kind"], expected["cause"], expected["rank"])
    assert expected["phase"] in (None, verdict.phase)
    assert set(verdict.cites) <= known_ids(case)


@pytest.mark.parametrize("name", RECORDED)
def test_one_rule_fires_and_all_others_are_silent(name):
    case, _ = RECORDED[name]
    fired = {rule for rule in RANK_RULES if RANK_RULES.load(rule)(case) is not None} - ALWAYS
    assert fired == {classify(case).rule}


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
    found = diverges(case.evidence.collectives, world=2)
    assert found is not None
    assert (found.parting, found.odd, found.seq) == (parting, odd, 4)


def test_both_gpus_of_a_spinning_kernel_read_full_and_that_decides_nothing():
    """With utilisation swapped for idle the evidence is another one, but 100 % alone never makes it progress."""
    case, _ = RECORDED["spin_kernel"]
    assert [gpu.utilisation for gpu in case.evidence.gpus] == [100, 100]
    assert classify(case).kind is Kind.HANG
    busy = tuple(replace(gpu, memory_utilisation=35, power_w=600.0) for gpu in case.evidence.gpus)
    working = replace(case, evidence=replace(case.evidence, gpus=busy))
    assert classify(working).kind is Kind.UNRESOLVED


@pytest.mark.parametrize("name", ["backward_lock", "sigstop", "straggler", "spin_kernel"])
def test_what_was_looked_at_once_is_never_more_than_likely(name):
    case, _ = RECORDED[name]
    assert classify(case).confidence is Confidence.MEDIUM


@pytest.mark.parametrize("name", ["backward_lock", "sigstop", "straggler", "spin_kernel"])
def test_without_the_flight_recorders_nothing_is_claimed(name):
    case, _ = RECORDED[name]
    blind = replace(case, evidence=replace(case.evidence, collectives=()))
    assert classify(blind).kind is Kind.UNRESOLVED
