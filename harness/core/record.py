"""TrialRecord, Machine and Run: what is kept, and what a report is made from."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.boundary import Boundary
from harness.core.campaign import CampaignAnswer, CampaignSpec, ShardProgram
from harness.core.evidence import Measurement
from harness.core.invocation import Invocation
from harness.core.outcome import Outcome, StopReason, Survivor
from harness.core.point import Axis
from harness.core.trial import Trial
from harness.core.verdict import Answer, Verdict

BUDGET_USED_UP = "budget used up"
"""How a run ended that has spent what it may."""

SURVIVED = "a trial left processes that cannot be ended"
"""How a run ended beside whose survivors no further trial was begun."""


WHOLE = ("answered", "finished")
"""How a run ended that came to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a run took place: enough to know whether another observation may be counted with it.

    ``environment`` is a hash of the variables that trials inherit and that change what they do, empty for none.
    """

    python: str
    torch: str
    platform: str
    kernel: str
    cpu: str
    cores: int
    memory_bytes: int
    gpus: tuple[str, ...] = ()
    packages: tuple[tuple[str, str], ...] = ()
    environment: str = ""

    @property
    def fingerprint(self) -> str:
        """A short text that differs when a timing or a race might."""
        return f"{self.cpu}|{self.cores}|{self.torch}|{self.python}|{self.kernel}|{','.join(self.gpus)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One finished trial: as asked, how it ended, what we concluded. Its evidence lies in the trial's folder.

    ``run`` names the earlier run that it was taken over from; empty for a trial of this run.
    """

    trial: Trial
    outcome: Outcome
    verdict: Verdict
    answer: Answer
    measurement: Measurement
    started_at: str
    run: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether a soft limit ended it before it said anything."""
        ran_out = self.trial.budget.soft and self.outcome.stopped_by is StopReason.TOTAL
        return ran_out and self.answer is Answer.UNRESOLVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that a report may use. ``answer`` is None when nothing was concluded (``ended`` says why).

    ``records`` are all trials that count: those of this run first, then those taken over from earlier ones.
    ``invocation`` is ``argv`` as its parts; None for a run of an older version. ``program`` is the commit of the
    program when it was begun, where that was recorded; ``programs`` what each shard ran, where a merge has several.
    ``asked`` says who asked to stop, of one that was interrupted.
    """

    id: str
    spec: CampaignSpec
    machine: Machine
    code: str
    argv: tuple[str, ...]
    started_at: str
    invocation: Invocation | None = None
    records: tuple[TrialRecord, ...] = ()
    answer: CampaignAnswer | None = None
    ended: str = "not finished"
    asked: str = ""
    survivors: tuple[Survivor, ...] = ()
    seconds: float = 0.0
    directory: str = ""
    notes: tuple[str, ...] = ()
    program: str = ""
    programs: tuple[ShardProgram, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it came to its end: neither interrupted, nor stopped by its budget or by a surprise."""
        return self.ended in WHOLE

    @property
    def spent_s(self) -> float:
        """Seconds that count against its budget: of its sessions, or of its trials where those ran side by side."""
        return max(self.seconds, sum(record.outcome.duration_s for record in self.own))

    @property
    def own(self) -> tuple[TrialRecord, ...]:
        """The trials that this run made itself."""
        return tuple(record for record in self.records if not record.run)

    @property
    def reused(self) -> tuple[TrialRecord, ...]:
        """The trials of earlier runs that counted here."""
        return tuple(record for record in self.records if record.run)

    @property
    def axis(self) -> Axis:
        """The axis that a threshold search followed; SpecError for any other question."""
        return self.spec.line

    @property
    def boundary(self) -> Boundary | None:
        """What a threshold search found; None for any other question, and while there is no answer."""
        return self.answer.boundary if self.answer else None
