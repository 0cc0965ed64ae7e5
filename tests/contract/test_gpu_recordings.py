"""The specimens that ran on two H200 with NCCL: what was seen of them then, judged by the rules of today."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.classify.engine import RANK_RULES, RULES, classify
from harness.classify.facts import known_ids
from harness.core.verdict import Kind
from harness.specimens.catalog import SPECIMENS
from harness.specimens.expect import judge
from harness.store.cases import Judged, read_cases

FOLDER = Path(__file__).parents[1] / "data" / "evidence" / "nccl"
RECORDED = {judged.name: judged for judged in read_cases(FOLDER)}
ALWAYS = {"unresolved", "ranks_unresolved"}
BESIDE = {"gpu-host-bound": {"slow"}}


@pytest.fixture(params=sorted(RECORDED))
def recording(request: pytest.FixtureRequest) -> Judged:
    return RECORDED[request.param]


def test_a_recording_gets_the_verdict_that_its_specimen_declares(recording: Judged):
    verdict = classify(recording.case)
    assert judge(SPECIMENS.load(recording.name), verdict, recording.case.outcome) == []
    assert set(verdict.cites) <= known_ids(recording.case)


def test_its_rule_fires_and_the_others_are_silent(recording: Judged):
    rules = RANK_RULES if recording.case.evidence.ranks else RULES
    verdict = classify(recording.case)
    assert set(verdict.also) == BESIDE.get(recording.name, set())
    assert verdict.rule in rules


def test_full_gpus_never_make_progress_of_a_hang(recording: Judged):
    """All cards at 100 %, whatever they read when it was recorded: no HANG becomes anything else."""
    case = recording.case
    if classify(case).kind is not Kind.HANG:
        return
    full = tuple(replace(gpu, utilisation=100) for gpu in case.evidence.gpus)
    assert classify(replace(case, evidence=replace(case.evidence, gpus=full))).kind is Kind.HANG


def test_a_spinning_kernel_is_told_from_the_rank_that_waits_for_it():
    """Both GPUs read the same; only the recorder knows on which one the operation has begun."""
    case = RECORDED["nccl-spin"].case
    assert {gpu.utilisation for gpu in case.evidence.gpus} == {100}
    verdict = classify(case)
    assert (verdict.cause, verdict.rank) == ("gpu-spin", 1)
    assert "it began on rank 0, but not on the GPU of rank 1" in verdict.because
    untimed = tuple(
        replace(state, collectives=tuple(replace(op, state="scheduled") for op in state.collectives))
        for state in case.evidence.collectives
    )
    assert classify(replace(case, evidence=replace(case.evidence, collectives=untimed))).cause != "gpu-spin"


def test_nccls_own_count_stands_beside_the_recorders():
    verdict = classify(RECORDED["nccl-skip"].case)
    assert "NCCL itself counts as launched: rank 0 5, rank 1 4" in verdict.because
    assert any(cited.startswith("ras-") for cited in verdict.cites)
