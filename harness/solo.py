"""Solo: one program, supervised, once or a few times; limits are learned from the runs that passed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.conduct import Attempts, Interrupted
from harness.core.campaign import FOREIGN, CampaignAnswer, CampaignSpec, Task
from harness.core.matrix import Matrix
from harness.core.point import Point
from harness.core.record import SURVIVED
from harness.core.space import Space
from harness.core.success import Success
from harness.core.trial import NEVER_S, Budget, Limit, Prediction, Trial
from harness.core.verdict import Answer, Kind
from harness.plan.cells import Starts
from harness.plan.predict import INSIDE, budget, longest_silence_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.conduct import Parts
    from harness.core.ports import Screen
    from harness.core.record import TrialRecord
    from harness.core.spec import Limits
    from harness.core.verdict import Verdict
    from harness.store.run_store import RunStore

WHOLE = Space(factors=())
"""The space of a program that is run as it is: one cell."""

TARGET = "command"

STALL_S = 120.0
"""Longest silence of a program of which nothing is known; a standstill is told within seconds all the same."""


def question(*, command: Sequence[str], limits: Limits, success: Success, repeats: int) -> CampaignSpec:
    """The question that ``run`` asks: does this program finish?"""
    words = " ".join(command)
    matrix = Matrix(
        name="run", space=WHOLE, target=TARGET, command=tuple(command), limits=limits, success=success, passes=repeats
    )
    return CampaignSpec(
        question=f"Does it finish: {words}",
        task=Task.CELLS,
        matrix=matrix,
        cells=(Point(),),
        passes=repeats,
        executor="local",
    )


def foreign_question(*, name: str, question: str) -> CampaignSpec:
    """A question about something that somebody else started; ``name`` is what its runs are called by."""
    matrix = Matrix(name=name, space=WHOLE, target=FOREIGN)
    return CampaignSpec(question=question, task=Task.CELLS, matrix=matrix, cells=(Point(),), executor="")


def foreign_trial(
    watched: str, *, code: str, machine: str, why: str, stall: Limit | None = None, repeat: int = 0
) -> Trial:
    """One look at it, which has no limit that would end it, because of ``why``; ``watched`` is what was looked at."""
    none = Limit(seconds=NEVER_S, source=why)
    return Trial(
        target=FOREIGN,
        point=Point(),
        repeat=repeat,
        role="search",
        config={"watched": watched},
        seed=0,
        code=code,
        machine=machine,
        budget=Budget(startup=stall or none, stall=stall or none, total=none),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Solo:
    """Runs the program of ``store``'s question with ``config``; ``point`` names its values for a reader."""

    store: RunStore
    parts: Parts
    screen: Screen
    interrupted: Callable[[], bool]
    config: Mapping[str, object]
    point: Point
    env: tuple[tuple[str, str], ...]
    until_fail: bool

    def run(self) -> None:
        """Run it as often as asked, until it fails or never starts."""
        ended, asked, starts, passes = "answered", "", Starts(), self.store.spec.matrix.passes
        attempts = Attempts(
            store=self.store,
            parts=self.parts,
            screen=self.screen,
            interrupted=self.interrupted,
            answer=lambda verdict, _: _answer(verdict),
            examine=True,
        )
        try:
            for repeat in range(passes):
                trial = self.trial(repeat)
                if starts.why_not(trial):
                    break
                record = attempts.run(trial, reason=f"run {repeat + 1} of {passes}")
                starts.note(record)
                if attempts.survivors or (self.until_fail and _answer(record.verdict) is Answer.BAD):
                    break
        except (Interrupted, KeyboardInterrupt):
            ended, asked = "interrupted", self.parts.asked()
        self.store.add_end(
            why=SURVIVED if attempts.survivors and not asked else ended,
            seconds=attempts.seconds,
            answer=CampaignAnswer(),
            asked=asked,
            survivors=attempts.survivors,
        )

    def trial(self, repeat: int) -> Trial:
        """The trial of one run, with limits from those before it that passed."""
        prediction, matrix = predict_again(self.store.records()), self.store.spec.matrix
        return Trial(
            target=matrix.target,
            point=self.point,
            repeat=repeat,
            role="search",
            config=dict(self.config),
            seed=repeat,
            code=self.store.identity.code,
            machine=self.store.identity.machine.fingerprint,
            env=self.env,
            budget=limits_of(matrix.limits, prediction),
            prediction=prediction,
            success=None if matrix.success == Success() else matrix.success,
        )


def limits_of(limits: Limits, prediction: Prediction | None) -> Budget:
    """The limits of one run: what the user set, else what passed runs teach; a run that progresses is not ended."""
    learned = budget(limits, prediction)
    if limits.total_s is None:
        learned = replace(learned, total=Limit(seconds=NEVER_S, source="none was set"))
    if limits.stall_s is None and prediction is None:
        source = "default: no run of this program has passed yet"
        learned = replace(learned, stall=Limit(seconds=STALL_S, source=source))
    return learned


def predict_again(records: Sequence[TrialRecord]) -> Prediction | None:
    """What the next run of the same program should take, from those that passed; None when none has."""
    passed = [record for record in records if record.verdict.kind is Kind.PASS]
    if not passed:
        return None
    totals = [record.outcome.duration_s for record in passed]
    silences = list(map(longest_silence_s, passed))
    total_s, silence_s = sum(totals) / len(totals), sum(silences) / len(silences)
    return Prediction(
        total_s=total_s,
        total_high_s=max(INSIDE * total_s, *totals),
        silence_s=silence_s,
        silence_high_s=max(INSIDE * silence_s, *silences),
        basis=f"{len(passed)} passed run{'s' if len(passed) > 1 else ''} of the same program",
    )


def _answer(verdict: Verdict) -> Answer:
    if verdict.kind is Kind.PASS:
        return Answer.GOOD
    return Answer.UNRESOLVED if verdict.kind in (Kind.SLOW, Kind.INFRA, Kind.UNRESOLVED) else Answer.BAD
