"""Conduct one trial: launch, watch, classify; and attempts, each from the journal's "start" to its record."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.classify.engine import classify
from harness.clock import Attentive
from harness.core.errors import HarnessError, LaunchError, SpoiledError
from harness.core.evidence import Evidence
from harness.core.outcome import ASKED, USER_ASKED, Ending, Outcome, StopReason
from harness.core.record import TrialRecord
from harness.core.verdict import Case, Verdict
from harness.observe.answers import steps_wanted
from harness.observe.devices.table import load_devices
from harness.observe.job import rank_in
from harness.observe.proc import Proc
from harness.observe.runner import GRACE_S, Eyes, Runner
from harness.store import layout
from harness.store.files import naming_full_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from harness.core.outcome import Survivor
    from harness.core.ports import Clock, Elsewhere, Executor, Judge, Screen, StackSources, Target, Watched
    from harness.core.spec import Effort
    from harness.core.trial import Trial
    from harness.core.verdict import Answer
    from harness.store.run_store import RunStore


TIMED = frozenset({StopReason.STARTUP, StopReason.STALL, StopReason.TOTAL})
"""Ends that only a limit has brought about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The interchangeable parts that a trial needs. With ``elsewhere`` it runs there, and the others are not asked.

    ``asked`` says who asked to stop, once somebody has. ``descriptors`` are handed to every trial.
    """

    target: Target
    executor: Executor
    sources: StackSources
    clock: Clock
    child_env: Mapping[str, str]
    elsewhere: Elsewhere | None = None
    asked: Callable[[], str] = lambda: USER_ASKED
    descriptors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conducted:
    """One trial, done: how it ended, what was seen, what we conclude, and when it began (UTC)."""

    outcome: Outcome
    evidence: Evidence
    verdict: Verdict
    started_at: str

    def record(self, trial: Trial, *, answer: Answer) -> TrialRecord:
        """What the journal keeps of it; ``answer`` is what the verdict means to the question."""
        return TrialRecord(
            trial=trial,
            outcome=self.outcome,
            verdict=self.verdict,
            answer=answer,
            measurement=self.evidence.measurement,
            started_at=self.started_at,
        )


def conduct(
    trial: Trial,
    *,
    trial_dir: Path,
    parts: Parts,
    watched: Watched | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    examine: bool = False,
    judge: Judge | None = None,
    begin: Callable[[], float] | None = None,
    called: Callable[[], bool] = lambda: False,
) -> Conducted:
    """Run ``trial`` to its end, whatever that is; nothing of it is left when this returns.

    With ``examine`` (one program, not a search) a silent trial that the user interrupts is looked into before it is
    ended. What the harness did not watch, because it stood still itself, says nothing in a search, and of one program
    nothing about limits.

    Of a trial that runs on several nodes an agent conducts its part: ``judge`` is then who judges the whole, ``begin``
    waits until all parts are prepared and gives the time at which they begin, and ``called`` says once that another
    part is being looked into.
    A trial that cannot be started is an Outcome too (``never started``), not an exception.
    """

    def judged(outcome: Outcome, evidence: Evidence) -> Verdict:
        return classify(Case(trial=trial, outcome=outcome, evidence=evidence))

    trial_dir.mkdir(parents=True, exist_ok=True)
    if parts.elsewhere is not None:
        outcome, evidence, started_at = parts.elsewhere.conduct(
            trial, trial_dir=trial_dir, env=parts.child_env, watched=watched, interrupted=interrupted, examine=examine
        )
        if outcome.stopped_by in ASKED:
            outcome = replace(outcome, why=parts.asked())
        return Conducted(outcome=outcome, evidence=evidence, verdict=judged(outcome, evidence), started_at=started_at)
    command = replace(
        parts.target.command(trial, trial_dir=trial_dir, env=parts.child_env), descriptors=parts.descriptors
    )
    started_at, started_s = parts.clock.wall(), parts.clock.now()
    try:
        parts.executor.prepare(command)
        started_at, started_s = parts.clock.wall(), begin() if begin is not None else parts.clock.now()
        handle = parts.executor.start(command)
    except LaunchError as error:
        stopped_by = StopReason.INTERRUPT if interrupted() else None
        outcome = Outcome(ending=Ending.NEVER_STARTED, stopped_by=stopped_by, why=str(error))
        evidence = Evidence(steps_wanted=steps_wanted(trial))
    else:
        devices, clock = load_devices(), Attentive(parts.clock)
        try:
            outcome, evidence = Runner(
                handle=handle,
                trial=trial,
                trial_dir=trial_dir,
                clock=clock,
                eyes=Eyes(sources=parts.sources, devices=devices, view=Proc()),
                progress=watched,
                started_s=started_s,
                interrupted=interrupted,
                asked=parts.asked,
                examine=examine,
                judge=judge or judged,
                called=called,
                rank=rank_in(dict(command.env)),
            ).run()
            if clock.still_s and (outcome.stopped_by in TIMED if examine else not interrupted()):
                why = f"the harness itself stood still for {clock.still_s:.1f} s, suspended or without a CPU"
                outcome = replace(outcome, ending=Ending.EXITED, exit=None, stopped_by=None, why=why)
        except KeyboardInterrupt:
            handle.stop(grace_s=0.0, clock=parts.clock)
            raise
        except (OSError, SpoiledError) as error:
            if isinstance(error, OSError) and trial_dir.is_dir():
                raise
            cleanup = handle.stop(grace_s=GRACE_S, clock=parts.clock)
            why = str(error) if isinstance(error, SpoiledError) else "its folder was deleted while it ran"
            lasted_s = parts.clock.now() - started_s
            outcome = Outcome(ending=Ending.EXITED, duration_s=lasted_s, cleanup=cleanup, why=why)
            evidence = Evidence(steps_wanted=steps_wanted(trial))
        finally:
            handle.stop(grace_s=GRACE_S, clock=parts.clock)
            devices.close()
            for door in layout.doors(trial_dir):
                door.unlink(missing_ok=True)
    return Conducted(outcome=outcome, evidence=evidence, verdict=judged(outcome, evidence), started_at=started_at)


class Interrupted(HarnessError):
    """The user asked to stop; everything up to the running trial is kept."""

    help = "Continue with --resume."


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A trial that the journal knows to have started."""

    trial: Trial
    number: int
    folder: Path


@dataclass(eq=False, slots=True, kw_only=True)
class Attempts:
    """Runs trials for one run directory; ``answer`` says what a verdict means to the question being asked.

    ``survivors`` are processes of these trials that cannot be ended: whatever ran beside them would not be trustworthy.
    """

    store: RunStore
    parts: Parts
    screen: Screen
    interrupted: Callable[[], bool]
    answer: Callable[[Verdict, Evidence], Answer]
    examine: bool = False
    number: int = field(init=False)
    began_s: float = field(init=False)
    before_s: float = field(init=False)
    survivors: list[Survivor] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.number = len(self.store.records())
        self.began_s = self.parts.clock.now()
        self.before_s = self.store.run().seconds

    def run(self, trial: Trial, *, reason: str) -> TrialRecord:
        """Run ``trial`` to its end and keep everything about it.

        Raises:
            Interrupted: the user stopped it; it is not recorded and will be run again, unless it was examined first, or
                had come to its end.
        """
        begun = self.begin(trial, reason=reason)
        done = self.conduct(begun, parts=self.parts, watched=self.screen.watched)
        record = self.keep(begun, done)
        if self.examine and self.interrupted():
            raise Interrupted("stopped by the user, and recorded")
        return record

    def begin(self, trial: Trial, *, reason: str) -> Begun:
        """Journal that ``trial`` starts and say so."""
        self.number += 1
        folder = self.store.add_start(trial)
        self.screen.started(trial, number=self.number, reason=reason)
        return Begun(trial=trial, number=self.number, folder=folder)

    def conduct(self, begun: Begun, *, parts: Parts, watched: Watched | None) -> Conducted:
        """Run it. Touches neither journal nor screen, so it may happen in any thread."""
        with naming_full_disk(begun.folder, safe="the journal and all finished trials"):
            return conduct(
                begun.trial, trial_dir=begun.folder, parts=parts, watched=watched, interrupted=self.interrupted,
                examine=self.examine,
            )  # fmt: skip

    def keep(self, begun: Begun, done: Conducted) -> TrialRecord:
        """Journal what came of it; when this returns, no crash can lose it."""
        self.survivors += done.outcome.cleanup.survivors
        if done.outcome.stopped_by is StopReason.INTERRUPT:
            raise Interrupted("stopped by the user")
        record = done.record(begun.trial, answer=self.answer(done.verdict, done.evidence))
        self.store.write_evidence(begun.trial.key, done.evidence)
        self.store.add_record(record)
        self.screen.judged(record, number=begun.number)
        return record

    @property
    def seconds(self) -> float:
        """Seconds since this session began."""
        return self.parts.clock.now() - self.began_s

    def is_spent(self, effort: Effort, *, running: int) -> bool:
        """Whether the run has used up a limit of ``effort``, ``running`` trials counted in."""
        return bool(effort.spent(trials=len(self.store.records()) + running, seconds=self.before_s + self.seconds))
