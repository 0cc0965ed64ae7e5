"""The specimens that ran on two H200 with NCCL: what was seen of them then, judged by the rules of today."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.classify.engine import classify
from harness.classify.signs import gpus_of
from harness.core.devices import GpuActivity, GpuSample
from harness.core.verdict import Case, Kind
from harness.specimens.catalog import SPECIMENS, score
from harness.store.cases import Judged
from known_ids import known_ids
from recordings import DATA, names, recorded

NCCL, SHARED, LAW = (DATA / "evidence" / folder for folder in ("nccl", "nccl-shared", "law"))
"""Of the second: three specimens at a time on two H100, what was judged otherwise than declared when it ran."""
KERNELS = ("gpu-spin", "nccl-spin")
"""Recorded for a few seconds, when a kernel that works on nothing was given no more."""


def for_long(case: Case) -> Case:
    """The same, seen for as long as a kernel of the program's own is given now."""
    began_s = case.evidence.processes[0].t_s
    gpus = tuple(replace(gpu, t_s=began_s + 20.0 * (gpu.t_s - began_s)) for gpu in case.evidence.gpus)
    return replace(case, evidence=replace(case.evidence, gpus=gpus))


def early(name: str) -> Case:
    """A kernel as it was recorded."""
    return recorded(NCCL)[name].case


def nccl(name: str) -> Judged:
    """A recording, of a kernel as one sees it today."""
    judged = recorded(NCCL)[name]
    return replace(judged, case=for_long(judged.case)) if name in KERNELS else judged


BESIDE = {"gpu-host-bound": {"slow"}, "gpu-thrash": {"slow"}}


@pytest.fixture(params=sorted([*names(NCCL), *(f"{name}, shared" for name in names(SHARED))]))
def recording(request: pytest.FixtureRequest) -> Judged:
    name = request.param.removesuffix(", shared")
    return nccl(name) if name == request.param else recorded(SHARED)[name]


def test_a_recording_gets_the_verdict_that_its_specimen_declares(recording: Judged):
    verdict = classify(recording.case)
    assert score(SPECIMENS.load(recording.name), verdict, recording.case.outcome).wrong == ()
    assert set(verdict.cites) <= known_ids(recording.case)


def test_its_rule_fires_and_the_others_are_silent(recording: Judged):
    verdict = classify(recording.case)
    assert set(verdict.also) == BESIDE.get(recording.name, set())


def test_full_gpus_never_make_progress_of_a_hang(recording: Judged):
    """All cards at 100 %, whatever they read when it was recorded: no HANG becomes anything else."""
    case = recording.case
    if classify(case).kind is not Kind.HANG:
        return
    full = tuple(replace(gpu, utilisation=100) for gpu in case.evidence.gpus)
    assert classify(replace(case, evidence=replace(case.evidence, gpus=full))).kind is Kind.HANG


def test_a_spinning_kernel_is_told_from_the_rank_that_waits_for_it():
    """Both GPUs read full; one has a kernel that works on nothing, which is not one of NCCL's."""
    case = nccl("nccl-spin").case
    assert {percent for gpu in gpus_of(case) for percent in gpu.utilisations} == {100}
    verdict = classify(case)
    assert (verdict.kind, verdict.cause, verdict.rank) == (Kind.HANG, "gpu-spin", 1)
    assert "utilisation 100 %, memory traffic 0 %" in verdict.because
    busy = tuple(replace(gpu, memory_utilisation=35, power_w=600.0) for gpu in case.evidence.gpus)
    assert classify(replace(case, evidence=replace(case.evidence, gpus=busy))).cause != "gpu-spin"


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_given_more_than_the_seconds_for_which_these_were_recorded(name):
    assert classify(early(name)).kind is Kind.UNRESOLVED


POLLS = GpuActivity(floating=0.0, integer=1.9, memory=0.0)
"""What an H200 counts of 528 programs that poll one flag."""


def doing(case: Case, activity: GpuActivity, *, seconds: float) -> Case:
    """The same with what the units of its cards did, over so many seconds."""
    began_s = case.evidence.processes[0].t_s
    times = [gpu.t_s for gpu in case.evidence.gpus if gpu.utilisation == 100]
    stretch = seconds / (times[-1] - times[0])
    gpus = tuple(
        replace(gpu, t_s=began_s + stretch * (gpu.t_s - began_s), activity=activity) for gpu in case.evidence.gpus
    )
    return replace(case, evidence=replace(case.evidence, gpus=gpus))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    ("activity", "seconds", "kind"),
    [
        (POLLS, 13, Kind.HANG),
        (POLLS, 11, Kind.UNRESOLVED),
        (replace(POLLS, floating=0.1), 30, Kind.UNRESOLVED),  # one program that computes
        (replace(POLLS, floating=0.1), 42, Kind.HANG),
        (replace(POLLS, memory=0.005), 30, Kind.UNRESOLVED),  # one that follows pointers
        (replace(POLLS, floating=12.0), 300, Kind.UNRESOLVED),  # a card that computes, whatever it draws
        (replace(POLLS, integer=86.0), 300, Kind.UNRESOLVED),
    ],
    ids=["polls", "too short", "computes alone", "and does so for long", "pointers", "floats", "hashes"],
)
def test_a_kernel_that_only_polls_is_given_less_and_one_that_computes_all_it_wants(name, activity, seconds, kind):
    assert classify(doing(early(name), activity, seconds=seconds)).kind is kind


@pytest.mark.parametrize("name", KERNELS)
def test_looks_too_close_to_count_what_was_done_between_them_are_covered_by_the_next(name):
    case = doing(early(name), POLLS, seconds=13)
    gpus: list[GpuSample] = []
    for gpu in case.evidence.gpus:
        gpus += [replace(gpu, t_s=gpu.t_s - 0.06), replace(gpu, activity=None)]
    assert classify(replace(case, evidence=replace(case.evidence, gpus=tuple(gpus)))).kind is Kind.HANG


def test_nccls_own_count_stands_beside_the_recorders():
    verdict = classify(nccl("nccl-skip").case)
    assert "NCCL itself counts as launched: rank 0 5, rank 1 4" in verdict.because
    assert any(cited.startswith("ras-") for cited in verdict.cites)


def test_what_is_only_slow_stays_slow_whatever_its_gpus_read():
    """Both ranks wait in NCCL or for their host at 100 %; a healthy 12-layer trainer does too."""
    case = nccl("nccl-slow").case
    for utilisation in (0, 100):
        seen = tuple(replace(gpu, utilisation=utilisation) for gpu in case.evidence.gpus)
        verdict = classify(replace(case, evidence=replace(case.evidence, gpus=seen)))
        assert (verdict.kind, verdict.rank) == (Kind.SLOW, None)


def test_the_case_of_the_reports_is_slow_with_its_graph_and_its_predicted_step_in_the_first_sentence():
    """12 layers, 2048 tokens, a limit of 60 s: what was called a hang. The law said 98 s a step."""
    verdict = classify(recorded(LAW)["law-12x2048"].case)
    assert (verdict.kind, verdict.cause) == (Kind.SLOW, "host-bound")
    assert verdict.because.startswith(
        "host-bound: GPU hardly used, 2760 autograd nodes per token (230 in each of 12 layers); "
        "a step should take 98 s (predicted from 5 sizes up to 1536 layers x tokens), the limit was 60 s; "
    )


def test_autograd_nodes_foretell_the_step_that_layers_times_tokens_did_not():
    """The same case in another run, with the seconds a node; in a third the step came to its end, in 193 s."""
    verdict = classify(recorded(LAW)["law-12x2048-nodes"].case)
    assert (verdict.kind, verdict.cause) == (Kind.SLOW, "host-bound")
    assert verdict.because.startswith(
        "host-bound: GPU hardly used, 2760 autograd nodes per token (230 in each of 12 layers); "
        "a step should take about 191 s (5653069 autograd nodes at 33.8 us each, as in 6 sizes up to 3072 layers x "
        "tokens; this is 8 times beyond, where time may grow faster), the limit was 60 s; "
    )


def test_a_line_so_far_beyond_its_sizes_is_said_to_be_a_lower_bound():
    case = recorded(LAW)["law-12x2048-nodes"].case
    assert case.trial.prediction is not None
    uncounted = replace(case.trial, prediction=replace(case.trial.prediction, node_s=None))
    assert (
        "a step should take at least about 98 s (predicted from 6 sizes up to 3072 layers x tokens; this is 8 times "
        "beyond, where time may grow faster), the limit was 60 s; "
    ) in classify(replace(case, trial=uncounted)).because
