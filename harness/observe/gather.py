"""Everything that was seen of a trial, put together from those who saw it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.evidence import Evidence, Measurement, RankFacts, SourceFailure
from harness.core.outcome import Exit
from harness.observe.answers import read_answers
from harness.observe.asked import ignored_by_make
from harness.observe.logs import log_tails
from harness.observe.ranks import torchrun_ends

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.core.evidence import WorkerResult
    from harness.observe.heartbeat import Heartbeats
    from harness.observe.runner import Runner


def gather(
    run: Runner,
    *,
    silence_s: float,
    duration_s: float,
    words: Mapping[int, WorkerResult | None],
    sizes: Mapping[str, int] | None = None,
) -> Evidence:
    """The evidence as it stands now.

    Where we ended the trial, ``words`` are the results that its ranks had written before, ``sizes`` its output's.
    """
    beats, sampler, devices, world = run.beats, run.sampler, run.eyes.devices, run.world()
    numbers = sorted({*beats.ranks, *run.ranks.pids, *run.ranks.ended})
    answers = read_answers(run.trial_dir, requested=run.trial.config, ranks=numbers)
    logs = log_tails(run.trial_dir, sizes)
    output = "\n".join(log.text for log in logs)
    alone = _own(answers.result, run, output)
    results = {number: _own(result, run, output) for number, result in (answers.results | dict(words)).items()}
    ends = torchrun_ends(output) if run.ranks.pids else {}
    facts = tuple(
        _rank_facts(run, number, result=results.get(number), until_s=duration_s, ended_by_us=number in words, ends=ends)
        for number in numbers
    )
    several = len(facts) > 1 or (len(facts) == 1 and world > 1)
    return Evidence(
        steps_wanted=run.steps_wanted,
        steps_done=beats.steps_done,
        heartbeats=beats.marks.items(),
        heartbeats_total=beats.marks.total,
        silence_s=silence_s,
        stacks=sampler.all_stacks(),
        processes=sampler.all_looks(),
        failures=(*sampler.failures(), *answers.failures, *devices.failures, *_unreadable(beats)),
        logs=logs,
        kernels=answers.kernels,
        config_seen=answers.config_seen,
        config_differences=answers.config_differences,
        result=_first_result(facts) if several else _alone(alone, words, goes_on=run.exit is None),
        gpus=devices.gpus,
        collectives=devices.collectives,
        ras=devices.ras,
        memory_limit_hits=run.oom_kills.since_start(),
        measurement=Measurement(
            startup_s=beats.first_step_t_s,
            step_s=beats.step_s.items(),
            longest_silence_s=beats.longest_silence_s,
            peak_rss_bytes=run.peak_rss_bytes,
            facts=tuple(sorted(beats.facts.items())),
            memory=beats.memory.items(),
        ),
        ranks=facts if several else (),
        gradients=answers.gradients,
        pace=beats.pace(),
        world=world if several else 0,
        main=next(iter(run.living().values()), run.handle.pid),
        dealt_with=_dealt_with(answers.result, output),
    )


def _own(result: WorkerResult | None, run: Runner, output: str) -> WorkerResult | None:
    """What was said, but for an exception that the program went on without: of a process that Python of its own began.

    So of one whose reader had what it wanted (``| head``). Where the whole did not end with status 0, it is why; but
    for that of a program whose failure had been asked for.
    """
    if _dealt_with(result, output):
        return None
    if result is None or run.exit is None or run.exit.code != 0:
        return result
    return None if result.begun_by_python or result.bare == "BrokenPipeError" else result


def _dealt_with(result: WorkerResult | None, output: str) -> str:
    """That the program which raised came before the work: it had made no step, it was asked for, another followed."""
    if result is None or result.status != "raised" or result.steps_done or not result.followed:
        return ""
    asked = result.asked or ignored_by_make(output)
    message = next(iter((result.message or "").splitlines()), "")
    return f"an earlier program ended with {result.bare}: {message[:200]}, and {asked}" if asked else ""


def _alone(
    result: WorkerResult | None, words: Mapping[int, WorkerResult | None], *, goes_on: bool
) -> WorkerResult | None:
    """What a program of one process has said: what it said before we ended it, where we did.

    Where it ``goes_on`` it has not ended of an exception in a process that Python of its own began.
    """
    word = next(iter(words.values())) if words else result
    if word is None or (goes_on and word.begun_by_python):
        return None
    return replace(word, id="result")


def word_of(rank: int, *, trial_dir: Path) -> WorkerResult | None:
    """What a rank of several has said by now."""
    return read_answers(trial_dir, requested={}, ranks=(rank,)).results.get(rank)


def _rank_facts(
    run: Runner,
    number: int,
    *,
    result: WorkerResult | None,
    until_s: float,
    ended_by_us: bool,
    ends: Mapping[int, Exit],
) -> RankFacts:
    """What is known of one rank by itself; what it did because we ended it is not its own ending."""
    marks, end = run.beats.ranks.get(number), None if ended_by_us else run.ranks.ended.get(number)
    last_t_s = marks.last_t_s if marks else 0.0
    pid = run.ranks.pids.get(number) or (marks.pid if marks else 0) or None
    # torchrun speaks of the PID that the rank called itself by.
    own_pid = marks.inner if marks else pid
    exit_ = None if ended_by_us or own_pid is None else ends.get(own_pid)
    if end is not None and (exit_ is None or end.exit != Exit()):
        exit_ = end.exit
    return RankFacts(
        id=f"rank-{number}",
        rank=number,
        pid=pid,
        steps_done=marks.steps_done if marks else 0,
        heartbeats=marks.marks.items() if marks else (),
        heartbeats_total=marks.marks.total if marks else 0,
        silence_s=max((end.t_s if end else until_s) - last_t_s, 0.0),
        result=result,
        exit=exit_,
        ended_s=end.t_s if end else None,
        limits_s=tuple(sorted(run.ranks.limits_s.get(number, ()))),
    )


def _first_result(ranks: Sequence[RankFacts]) -> WorkerResult | None:
    """The result of the first rank that raised, else rank 0's."""
    raised = [rank for rank in ranks if rank.result is not None and rank.result.status == "raised"]
    first = min(raised, key=lambda rank: math.inf if rank.ended_s is None else rank.ended_s, default=None)
    return (first or ranks[0]).result


def _unreadable(beats: Heartbeats) -> tuple[SourceFailure, ...]:
    if not beats.unreadable:
        return ()
    reason = f"{beats.unreadable} lines are no marks and were skipped"
    return (SourceFailure(id="failure-heartbeat", source="heartbeat", reason=reason),)
