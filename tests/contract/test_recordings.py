"""Recorded evidence of the specimens, and what every rule makes of every recording: a full square.

The recordings are made by ``python tests/support/record_specimens.py``; nothing runs here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.classify.engine import RANK_RULES, RULES, classify
from harness.core.outcome import StopReason
from harness.core.verdict import Kind
from harness.specimens.catalog import SPECIMENS, Needs, score
from harness.store.cases import Judged, read_cases
from known_ids import known_ids
from record_specimens import write_recording
from recordings import SPECIMENS as FOLDER
from recordings import names, recorded

RECORDED = names(FOLDER)

ALWAYS = frozenset({"unresolved"})

BESIDE: dict[str, set[str]] = {
    "infra": {"crashed"},  # a full disk is also an exception
    "memory_leak": {"oom"},
}
"""Later rules that may fire on the recordings of a rule, and agree with it."""

UNSHOWN = frozenset(
    {
        "interrupted",
        "misconfigured",
        "nonfinite_loss",
        "below_target",
        "gradients_wrong",
        "xid",
        "foreign_device",
        "own_limit",
        "slow_why",
    }
)
"""Rules of one process whose evidence no specimen without a GPU gives; ``test_rules`` has canned evidence of them."""


@pytest.fixture(params=RECORDED)
def recording(request: pytest.FixtureRequest) -> Judged:
    return recorded(FOLDER)[request.param]


def test_every_specimen_that_needs_no_gpu_is_recorded():
    wanted = {name for name in SPECIMENS if SPECIMENS.load(name).needs in (Needs.CPU, Needs.GLOO)}
    assert set(RECORDED) <= wanted
    assert not wanted - set(RECORDED), "make them: python tests/support/record_specimens.py"


def test_a_recording_still_gets_the_verdict_that_its_specimen_declares(recording: Judged):
    verdict = classify(recording.case)
    assert score(SPECIMENS.load(recording.name), verdict, recording.case.outcome).wrong == ()
    assert set(verdict.cites) <= known_ids(recording.case)


def test_a_rule_fires_on_its_own_recordings_and_is_silent_on_all_others(recording: Judged):
    rules = RANK_RULES if recording.case.evidence.ranks else RULES
    verdicts = {name: rules.load(name)(recording.case) for name in rules}
    fired = {verdict.rule or name for name, verdict in verdicts.items() if verdict is not None} - ALWAYS
    own = classify(recording.case).rule
    assert {own} - ALWAYS <= fired <= {own} | BESIDE.get(own, set())


def test_every_rule_of_one_process_has_a_recording():
    shown = {classify(recording.case).rule for recording in recorded(FOLDER).values()}
    assert set(RULES) - shown <= UNSHOWN


def test_nothing_that_was_recorded_is_a_hang_while_it_moves(recording: Judged):
    """The same evidence with a mark at the very end."""
    case = recording.case
    if case.evidence.ranks or case.outcome.stopped_by is StopReason.CERTAIN:
        return
    assert classify(replace(case, evidence=replace(case.evidence, silence_s=0.0))).kind is not Kind.HANG


def test_a_recording_names_no_place_of_the_machine_it_was_made_on(recording: Judged, tmp_path: Path):
    path = write_recording(tmp_path, recording.name, recording.case, recording.verdict, hidden={})
    (again,) = read_cases(tmp_path)
    assert again == recording, path
    for place in ("/home/", "/root/", "/opt/", "/tmp/"):
        assert place not in repr(recording), place
