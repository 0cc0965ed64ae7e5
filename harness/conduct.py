"""Conduct one trial: launch, watch, classify. The session and the self-test both do it here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.classify.engine import classify
from harness.classify.facts import beyond_pace, watched_out
from harness.core.errors import LaunchError
from harness.core.evidence import Evidence
from harness.core.outcome import Ending, Outcome
from harness.core.verdict import Case, Confidence, Kind, Verdict
from harness.observe.answers import steps_wanted
from harness.observe.devices.table import load_devices
from harness.observe.monitor import watch
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from harness.core.ports import Clock, Executor, StackSources, Target, Watched
    from harness.core.trial import Trial

GRACE_S = 2.0
"""Between TERM and KILL when a trial is ended. Its evidence is already taken; a handler may still save something."""


CONCLUSIVE = frozenset({Confidence.PROOF, Confidence.HIGH})
"""How sure a verdict must be to end a trial that is still being watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The interchangeable parts that a trial needs."""

    target: Target
    executor: Executor
    sources: StackSources
    clock: Clock
    child_env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conducted:
    """One trial, done: how it ended, what was seen, what we conclude, and when it began (UTC)."""

    outcome: Outcome
    evidence: Evidence
    verdict: Verdict
    started_at: str


def conduct(
    trial: Trial,
    *,
    trial_dir: Path,
    parts: Parts,
    watched: Watched | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Conducted:
    """Run ``trial`` to its end, whatever that is; nothing of it is left when this returns.

    A trial that cannot be started is an Outcome too (``never started``), not an exception.
    """
    trial_dir.mkdir(parents=True, exist_ok=True)
    command = parts.target.command(trial, trial_dir=trial_dir, env=parts.child_env)
    started_at, started_s = parts.clock.wall(), parts.clock.now()
    try:
        parts.executor.prepare(command)
        started_at, started_s = parts.clock.wall(), parts.clock.now()
        handle = parts.executor.start(command)
    except LaunchError as error:
        outcome = Outcome(ending=Ending.NEVER_STARTED, why=str(error))
        evidence = Evidence(steps_wanted=steps_wanted(trial))
    else:
        devices = load_devices()
        try:
            outcome, evidence = watch(
                handle=handle,
                trial=trial,
                trial_dir=trial_dir,
                clock=parts.clock,
                sources=parts.sources,
                progress=watched,
                started_s=started_s,
                interrupted=interrupted,
                devices=devices,
                decided=lambda outcome, evidence: decided(Case(trial=trial, outcome=outcome, evidence=evidence)),
            )
        finally:
            handle.stop(grace_s=GRACE_S, clock=parts.clock)
            devices.close()
            for door in layout.doors(trial_dir):
                door.unlink(missing_ok=True)
    verdict = classify(Case(trial=trial, outcome=outcome, evidence=evidence))
    return Conducted(outcome=outcome, evidence=evidence, verdict=verdict, started_at=started_at)


def decided(case: Case) -> str:
    """Why a trial is known to hang, or nothing; what is less than conclusive decides once its watch is over."""
    verdict = classify(case)
    if verdict.kind is not Kind.HANG:
        return ""
    waited = watched_out(case) or beyond_pace(case)
    return verdict.because if verdict.confidence in CONCLUSIVE or waited else ""
