"""Competing causes: what else a verdict may be, held against what was seen, and what would decide."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from harness.classify.competing import competing
from harness.classify.engine import classify
from harness.classify.rivals import RIVALS, SLOW
from harness.classify.signs import longer_with_native_frames, ranks_unseen
from harness.core.evidence import Evidence, LogTail, SourceFailure, WorkerResult
from harness.core.outcome import Ending, Exit, Outcome, StopReason
from harness.core.point import Point
from harness.core.trial import NEVER_S, Budget, Limit, Trial
from harness.core.verdict import Case, Confidence, Kind
from recordings import DATA, SPECIMENS, names, raw, raw_names, recorded, specimen

NCCL = DATA / "evidence" / "nccl"

READY_TWICE = (
    "Expected to mark a variable ready only once. This error is caused by one of the following reasons: ... "
    "Parameter at index 17 with name blocks.11.mlp.fc2.weight has been marked as ready twice."
)


def crashed(message: str = "", *, log: str = "", **config: object) -> Case:
    """A trial that raised, or whose output ended with ``log``."""
    limit = Limit(seconds=60.0, source="test")
    trial = Trial(
        target="nsa", point=Point.of({"n_layers": 12}), repeat=0, role="search", config=dict(config), seed=1, code="c",
        machine="m", budget=Budget(startup=limit, stall=limit, total=limit),
    )  # fmt: skip
    result = WorkerResult(id="result", status="raised", steps_done=0, exception="RuntimeError", message=message)
    logs = (LogTail(id="log-stdout", stream="stdout", text=log, size_bytes=len(log)),) if log else ()
    evidence = Evidence(steps_wanted=5, result=result if message else None, logs=logs)
    return Case(trial=trial, outcome=Outcome(ending=Ending.EXITED, exit=Exit(code=1)), evidence=evidence)


def case_of(name: str) -> Case:
    """What was recorded under this name, wherever."""
    if name in raw_names():
        return raw(name)
    return recorded(NCCL if name in names(NCCL) else SPECIMENS)[name].case


@pytest.mark.parametrize("name", [*raw_names(), *names(NCCL), *names(SPECIMENS)])
def test_whatever_is_not_proof_says_what_else_it_may_be_and_how_to_find_out(name):
    verdict = classify(case_of(name))
    if verdict.confidence is Confidence.PROOF:
        return
    assert verdict.alternatives
    for other in verdict.alternatives:
        assert other.cause != verdict.cause
        assert other.because
        assert other.experiment


@pytest.mark.parametrize("name", ["gpu-spin", "nccl-spin", "compile-stall", "page-thrash", "poll-forever"])
def test_what_a_verdict_says_for_slow_its_hypothesis_says_too(name):
    verdict = classify(case_of(name))
    said = re.search(r"for slow: (.*?)(?:; for stuck|; missing|$)", verdict.because)
    (slow,) = [other for other in verdict.alternatives if other.cause == "slow"]
    assert said is not None
    assert ", ".join(slow.supports) == said[1]


def test_what_is_proven_has_no_rivals_unless_they_are_about_why():
    assert classify(crashed("shapes (3, 4) and (5, 6) cannot be multiplied")).alternatives == ()
    assert classify(crashed("CUDA out of memory")).alternatives


def test_an_error_of_a_gpu_may_be_of_an_earlier_call():
    verdict = classify(crashed("CUDA error: device-side assert triggered\nCUDA kernel errors might be reported later"))
    (earlier,) = verdict.alternatives
    assert (str(verdict), verdict.confidence, earlier.cause) == (
        "CRASH (device-assert)",
        Confidence.PROOF,
        "earlier-call",
    )
    assert "an earlier line may be at fault" in verdict.because
    assert "CUDA_LAUNCH_BLOCKING=1" in earlier.experiment


def test_whoever_goes_on_after_a_failure_may_do_so_on_purpose():
    raised = crashed("no infiniband here")
    verdict = classify(replace(raised, outcome=replace(raised.outcome, exit=Exit(code=0))))
    assert [other.cause for other in verdict.alternatives] == ["on-purpose"]


def test_every_rival_has_words_for_a_reader_and_an_experiment():
    for entry in RIVALS:
        assert entry.rivals
        for rival in entry.rivals:
            assert re.fullmatch(r"[a-z][a-z-]+", rival.cause), rival.cause
            assert len(rival.because) > 20
            assert len(rival.test_of(crashed())) > 20


@pytest.mark.parametrize("watched", [False, True])
def test_native_frames_are_asked_for_only_where_none_were_taken(watched):
    case = raw("backward_lock")
    ending = Ending.STILL_RUNNING if watched else Ending.STOPPED_BY_US
    with_native = replace(case.evidence.stacks[0], native=True)
    for stacks, wanted in (((with_native,), False), ((replace(with_native, native=False),), True)):
        seen = replace(case.evidence, stacks=stacks, collectives=())
        advice = longer_with_native_frames(replace(case, evidence=seen, outcome=replace(case.outcome, ending=ending)))
        assert ("native frames" in advice) is wanted
        assert ("stall limit" in advice) is not watched


def test_ready_twice_has_three_causes_and_the_signs_point_to_the_closure():
    """The original report called it a limit of DDP; the name of the parameter says which of three it is."""
    config = {
        "model": {"n_layers": 12, "tied_head": False},
        "train": {"checkpointing": "reentrant"},
        "parallel": {"find_unused_parameters": False},
    }
    first, *others = classify(crashed(READY_TWICE, **config)).alternatives
    assert first.cause == "late-binding-closure"
    assert "blocks.11.mlp.fc2.weight, is in the last of 12 blocks" in first.supports[0]
    assert "train.checkpointing = reentrant" in first.supports
    assert "compare gradients with and without checkpointing" in first.experiment
    by_cause = {other.cause: other for other in others}
    assert by_cause["reentrant-and-find-unused"].against == ("parallel.find_unused_parameters = False",)
    assert by_cause["parameter-reuse"].against == ("model.tied_head = False",)


def test_a_parameter_of_another_block_does_not_speak_for_the_closure():
    config = {"model": {"n_layers": 14}, "train": {"checkpointing": "none"}}
    (closure,) = [a for a in classify(crashed(READY_TWICE, **config)).alternatives if a.cause == "late-binding-closure"]
    assert closure.supports == ()
    assert closure.against == ("train.checkpointing = none",)


def test_an_out_of_memory_error_may_be_somebody_elses_memory():
    verdict = classify(crashed("CUDA out of memory. 3.1 GiB is reserved by PyTorch but unallocated is 2.9 GiB"))
    assert verdict.kind is Kind.OOM
    assert verdict.confidence is Confidence.PROOF
    fragmentation, *others = verdict.alternatives
    assert fragmentation.cause == "fragmentation"
    assert fragmentation.supports == ("2.9 GiB is reserved and not used",)
    assert {other.cause for other in others} == {"too-large", "memory-leak", "foreign-process"}


def test_a_python_stack_in_backward_is_no_proof_of_a_hang():
    """What the original reports showed as one: it looks the same in a healthy backward."""
    case = raw("backward_lock")
    blind = classify(replace(case, evidence=replace(case.evidence, collectives=())))
    assert blind.kind is Kind.UNRESOLVED
    slow = next(other for other in blind.alternatives if other.cause == "slow-backward")
    assert "58 different ones in 79 samples of a healthy backward" in slow.experiment


def test_full_gpus_are_held_against_a_slow_job_only_with_what_else_they_read():
    for case in (recorded(NCCL)["nccl-spin"].case, raw("spin_kernel")):
        verdict = classify(case)
        assert verdict.kind is Kind.UNRESOLVED
        slow = next(other for other in verdict.alternatives if other.cause == "slow")
        assert not any("100 %" in sentence for sentence in slow.supports)


def test_a_warning_about_no_unused_parameters_names_no_cause():
    said = "find_unused_parameters=True was specified, but did not find any unused parameters in the forward pass."
    case = raw("straggler")
    log = LogTail(id="log-x", stream="stderr", text=said, size_bytes=len(said))
    verdict = classify(replace(case, evidence=replace(case.evidence, logs=(log,))))
    assert verdict.alternatives == classify(case).alternatives


ENDLESS = Limit(seconds=NEVER_S, source="none was set")


def with_limits(case: Case, *, stopped_by: StopReason | None, ending: Ending, **limits: Limit) -> Case:
    """``case`` with these limits and no others, ended so."""
    budget = Budget(**{"startup": ENDLESS, "stall": ENDLESS, "total": ENDLESS, **limits})
    outcome = replace(case.outcome, ending=ending, stopped_by=stopped_by)
    return replace(case, trial=replace(case.trial, budget=budget), outcome=outcome)


def test_of_a_watched_job_no_experiment_names_a_limit():
    watched = with_limits(raw("backward_lock"), stopped_by=StopReason.CERTAIN, ending=Ending.STILL_RUNNING)
    for entry in RIVALS:
        for rival in () if entry.limited else entry.rivals:
            assert not re.search(r" limit|--stall|ten times the", rival.test_of(watched)), rival.cause


@pytest.mark.parametrize(
    ("stopped_by", "limits", "wanted"),
    [
        (StopReason.TOTAL, {"total": Limit(seconds=9.0, source="user")}, "ten times the total limit"),
        (StopReason.STALL, {"stall": Limit(seconds=9.0, source="user")}, "ten times the stall limit"),
        (StopReason.STARTUP, {"startup": Limit(seconds=9.0, source="user")}, "ten times the start-up limit"),
        (
            StopReason.TOTAL,
            dict.fromkeys(("total", "startup", "stall"), Limit(seconds=1000.0, source="user")),
            "ten times the total limit",
        ),
        (
            StopReason.TOTAL,
            {
                "total": Limit(seconds=12.0, source="user"),
                "startup": Limit(seconds=120.0, source="default"),
                "stall": Limit(seconds=60.0, source="default"),
            },
            f"a total limit of {math.ceil(raw('backward_lock').outcome.duration_s + 4 * 120)} s, by which a standstill",
        ),
        (StopReason.PACE, {}, "--stall 60s"),
        (StopReason.CERTAIN, {}, "nsa-harness watch PID"),
        (StopReason.TOTAL, {}, "nsa-harness watch PID"),
    ],
)
def test_more_time_is_more_than_the_limit_that_the_trial_had(stopped_by, limits, wanted):
    case = with_limits(raw("backward_lock"), stopped_by=stopped_by, ending=Ending.STOPPED_BY_US, **limits)
    assert wanted in SLOW.test_of(case)


def without_yardstick(case: Case) -> Case:
    """``case`` without all that tells how long what computes is silent in health."""
    evidence = replace(case.evidence, heartbeats=())
    return replace(case, trial=replace(case.trial, prediction=None), evidence=evidence)


def without_stacks(case: Case) -> Case:
    """``case`` as of a program that is no Python."""
    failure = SourceFailure(id="failure-0-py-spy", source="py-spy", reason="no python", no_python=True)
    return replace(case, evidence=replace(case.evidence, stacks=(), failures=(failure,)))


@pytest.mark.parametrize(
    ("name", "without", "why"),
    [
        ("poll-forever", None, "no limit does, as a timer may wake it"),
        ("page-thrash", without_yardstick, "no limit does, as it computes"),
        ("page-thrash", None, ""),
        ("compile-stall", without_stacks, "no limit does, as no stack of it can be read"),
        ("compile-stall", None, ""),
    ],
)
def test_more_time_is_no_experiment_where_no_limit_decides(name, without, why):
    """A run of ``sleep 3000`` got the advice to give it 495 s, then ten times that, and no limit ends that."""
    case = specimen(name) if without is None else without(specimen(name))
    case = replace(case, outcome=replace(case.outcome, stopped_by=StopReason.TOTAL))
    for test in (SLOW.test_of(case), longer_with_native_frames(case)):
        assert test.startswith(why or "run it again with")
        assert ("look at what it does there" in test) is bool(why)
        assert ("--progress" in test) is (bool(why) and not case.evidence.heartbeats)


def test_no_rank_is_missing_where_the_stack_of_every_rank_was_seen():
    sample = raw("backward_lock").evidence.stacks[0]
    both = tuple(replace(sample, rank=rank) for rank in (0, 1))
    case = raw("backward_lock")
    for stacks, wanted in ((both, False), (both[:1], True)):
        assert bool(ranks_unseen(replace(case, evidence=replace(case.evidence, stacks=stacks, world=2)))) is wanted


@pytest.mark.parametrize(("cause", "wanted"), [("collective-mismatch", False), ("deadlock", True)])
def test_of_calls_that_never_meet_it_is_not_said_that_they_are_slow(cause, wanted):
    case = raw("backward_lock")
    verdict = replace(classify(case), kind=Kind.HANG, cause=cause, confidence=Confidence.MEDIUM, alternatives=())
    assert any(other.cause == "slow" for other in competing(case, verdict)) is wanted


def test_what_progresses_under_no_limit_has_no_rivals():
    case = with_limits(raw("backward_lock"), stopped_by=StopReason.CERTAIN, ending=Ending.STILL_RUNNING)
    verdict = replace(classify(case), kind=Kind.SLOW, cause=None, confidence=Confidence.HIGH, alternatives=())
    assert competing(case, verdict) == ()


@pytest.mark.parametrize(
    ("point", "alone", "of_its_size"),
    [
        (
            {"n_layers": 12},
            "run it alone, twice, with a smaller trial between: times that differ",
            "run three smaller sizes and fit their times",
        ),
        ({}, "run it alone, twice: times that differ", "give it more time: a healthy trial comes to its end"),
    ],
)
def test_a_program_with_nothing_varied_is_not_asked_for_smaller_sizes_of_it(point, alone, of_its_size):
    case = with_limits(raw("backward_lock"), stopped_by=StopReason.TOTAL, ending=Ending.STOPPED_BY_US)
    case = replace(case, trial=replace(case.trial, point=Point.of(point)))
    verdict = replace(classify(case), kind=Kind.SLOW, cause=None, confidence=Confidence.LOW, alternatives=())
    experiments = {other.cause: other.experiment for other in competing(case, verdict)}
    assert experiments["shared-machine"].startswith(alone)
    assert experiments["limit-too-short"].startswith(of_its_size)
