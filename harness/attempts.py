"""Attempts: one trial from the journal's "start" to its record, the same for every kind of session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.conduct import conduct
from harness.core.errors import CleanupError, HarnessError
from harness.core.outcome import StopReason
from harness.store.files import naming_full_disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.conduct import Conducted, Parts
    from harness.core.evidence import Evidence
    from harness.core.ports import Screen, Watched
    from harness.core.record import TrialRecord
    from harness.core.spec import Effort
    from harness.core.trial import Trial
    from harness.core.verdict import Answer, Verdict
    from harness.store.run_store import RunStore


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
    """Runs trials for one run directory; ``answer`` says what a verdict means to the question being asked."""

    store: RunStore
    parts: Parts
    screen: Screen
    interrupted: Callable[[], bool]
    answer: Callable[[Verdict, Evidence], Answer]
    examine: bool = False
    number: int = field(init=False)
    began_s: float = field(init=False)
    before_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.number = len(self.store.records())
        self.began_s = self.parts.clock.now()
        self.before_s = self.store.run().seconds

    def run(self, trial: Trial, *, reason: str) -> TrialRecord:
        """Run ``trial`` to its end and keep everything about it.

        Raises:
            Interrupted: the user stopped it; it is not recorded and will be run again, unless it was examined first, or
                had come to its end.
            CleanupError: a process of it could not be ended.
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
        if done.outcome.stopped_by is StopReason.INTERRUPT:
            raise Interrupted("stopped by the user")
        survivors = done.outcome.cleanup.survivors
        if survivors:
            names = "; ".join(f"PID {one.pid} in state {one.state}: {one.command}" for one in survivors)
            raise CleanupError(f"a trial left processes that cannot be ended: {names}")
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
