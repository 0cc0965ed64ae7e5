"""THE LOOP: ask, plan, launch, watch, classify, record, tell; then controls, and what it all says together.

Read this after core/.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.named import matches
from harness.conduct import Attempts, Interrupted, Parts
from harness.core.campaign import CampaignAnswer, CellStatus, Override, Task, programs_by_cell
from harness.core.errors import SpecError
from harness.core.evidence import Evidence
from harness.core.record import BUDGET_USED_UP, SURVIVED
from harness.core.trial import DENSE
from harness.core.verdict import FAILURES, NEVER_ENDED_WELL, Answer, Kind
from harness.earlier import Earlier, earlier_trials, words
from harness.lanes import Lanes
from harness.observe.ran import fingerprint
from harness.plan.cells import CellPlanner, Starts
from harness.plan.leases import Queue
from harness.plan.predict import budget, guess_cell, predict_cell
from harness.replay import beyond
from harness.search.afterwards import next_control, once_more, own_commands, with_controls
from harness.search.blame import with_refusal
from harness.search.forecast import within
from harness.search.oracle import Oracle, not_followed
from harness.search.scaling import fits_along, scaling_of
from harness.search.strategies import Hearing, Search
from harness.search.tables import Facts, axis_fits, cell_results, cell_status, failure_tables, in_force
from harness.search.threshold import ThresholdSearch
from harness.store.history import read_evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.core.campaign import CampaignSpec
    from harness.core.point import Point
    from harness.core.ports import CellRequest, Screen
    from harness.core.record import Run, TrialRecord
    from harness.core.trial import Trial
    from harness.core.verdict import Verdict
    from harness.launch.claims import Claims
    from harness.plan.cells import Trees
    from harness.store.run_store import RunStore

ANY_FAILURE = (*FAILURES, Kind.BELOW_TARGET)
"""What is bad where no failure in particular is sought."""

LOOK_AHEAD = 256
"""Questions of a list among which the widest is sought."""


def of_use(spec: CampaignSpec, search: Search, counted: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Trials of earlier runs that ``spec`` may count: on its line, or, for a cause, of the failure that it seeks.

    Where no failure is named, the first one becomes the one that is sought. That must not be another cell's.
    """
    if isinstance(search, ThresholdSearch):
        return [record for record in counted if search.covers(record.trial.point)]
    if spec.task is not Task.MINIMISE or spec.signature or spec.bad_kinds:
        return list(counted)
    corner = spec.bad or spec.matrix.space.bad
    ordered = sorted(counted, key=lambda record: record.trial.point != corner)
    for record in ordered:
        if record.trial.point == corner and record.verdict.kind in FAILURES:
            return ordered
    return [record for record in ordered if record.verdict.kind not in FAILURES]


class Campaign:
    """One question about a matrix, on one machine. What was recorded before is not run again."""

    def __init__(
        self,
        *,
        store: RunStore,
        parts: Parts | Sequence[Parts],
        screen: Screen,
        gpus: Sequence[str] = (),
        claims: Claims | None = None,
        interrupted: Callable[[], bool] = lambda: False,
        trees: Trees | None = None,
    ) -> None:
        lanes = (parts,) if isinstance(parts, Parts) else tuple(parts)
        parts = lanes[0]
        self.store = store
        self.spec = store.spec
        self.matrix = self.spec.matrix
        self.screen = screen
        self.today = dt.date.fromisoformat(parts.clock.wall()[:10])
        self._begin_beyond(store.reused())
        self.oracle = Oracle(
            self.spec.bad_kinds or (ANY_FAILURE if self.spec.task is Task.CELLS else ()),
            past_refusals=self.spec.task is Task.MINIMISE,
            code_varies=any(bundle.commit for bundle in self.matrix.space.bundles),
        )
        self.attempts = Attempts(store=store, parts=parts, screen=screen, interrupted=interrupted, answer=self._answer)
        self.planner = CellPlanner(
            self.spec,
            target=parts.target,
            code=store.identity.code,
            machine=store.identity.machine.fingerprint,
            trees=trees,
        )
        self.lanes = Lanes(
            attempts=self.attempts,
            parts=lanes,
            gpus=gpus,
            claims=claims,
            label=lambda b: self.matrix.space.name_of(b.trial.point),
        )
        # Elsewhere GPUs are the engine's to lease: a node has those that it was asked for.
        leased = parts.elsewhere is None
        self.queue = Queue(gpus=len(gpus), slots=len(lanes), gpus_at=self.matrix.gpus_at if leased else lambda _: 0)
        self.hides_gpus = leased and any(row.gpus for row in self.matrix.resources)
        self.earlier, self.starts = Earlier(), Starts()
        self.names: dict[str, tuple[str, ...]] = {}
        self.ran: dict[str, str] = {}
        self.predicted_s: dict[Point, float] = {}
        self.surprise = ""

    def run(self) -> Run:
        """Run to the end, or until the budget is used up, and write down what it all shows."""
        asked = ""
        try:
            self._replay()
            self.earlier = self._look_back()
            self._search()
            ended = SURVIVED if self.attempts.survivors else self.surprise
            if not ended:
                ended = BUDGET_USED_UP if self.search.stopped or self.search.ask() is not None else "answered"
        except (Interrupted, KeyboardInterrupt):
            ended, asked = "interrupted", self.attempts.parts.asked()
        answer = self.conclude()
        if ended == "interrupted":  # a search that was cut off has no boundary yet
            answer = replace(answer, boundary=None)
        attempts = self.attempts
        self.store.add_end(
            why=ended, seconds=attempts.seconds, answer=answer, asked=asked, survivors=attempts.survivors
        )
        return self.store.run()

    def settle(self, *, seconds: float) -> Run:
        """Write down what the trials that are there already show; runs nothing."""
        self._replay()
        self.lanes.close()
        ended = "answered" if self.search.ask() is None else "not all cells were run"
        self.store.add_end(why=ended, seconds=seconds, answer=self.conclude())
        return self.store.run()

    def conclude(self) -> CampaignAnswer:
        """What is known so far; runs nothing."""
        answers = {fact.cell: fact for fact in self.store.facts() if isinstance(fact, Override)}
        records = self._counted_records()
        counted = tuple(record for record in records if not record.trial.is_control)
        facts = Facts(
            records=counted,
            names=self.names,
            ran=self.ran,
            predicted_s=self.predicted_s,
            overrides=answers,
            programs=programs_by_cell(self.store.identity.programs),
        )
        space = self.matrix.space
        answer = CampaignAnswer(
            cells=cell_results(self.matrix, self.spec.cells, facts, today=self.today),
            failures=failure_tables(space, facts),
            fits=axis_fits(space, facts),
            gpu_seconds=self._gpu_seconds(),
        )
        answer = self.search.conclude(answer)
        if self.spec.task is Task.CELLS:
            return answer
        if answer.boundary is not None:
            axis = self.spec.line
            fits = fits_along(records, axis=axis)
            fitted = replace(answer.boundary, fit=scaling_of(records, axis=axis), fits=fits)
            answer = replace(answer, boundary=with_controls(fitted, self.spec, records))
        answer = with_refusal(answer, self.spec, records)
        commands = own_commands(self.spec, answer, records) if self.matrix.command else ()
        may_set = bool(self.matrix.command) and not self.spec.file
        others = not_followed(records, space=space, causes=answer.causes, may_set=may_set)
        return replace(answer, notes=(*answer.notes, *others), commands=commands)

    def _counted_records(self) -> tuple[TrialRecord, ...]:
        """Every trial that counts here: those of earlier runs, then those of this one."""
        return (*self.store.reused(), *self.store.records())

    # -- the loop

    def _replay(self) -> None:
        for record in (*self.store.undone(), *self._counted_records()):
            self.planner.note(record.trial)
        for fact in self.store.facts():
            if not isinstance(fact, Override):
                self._remember(fact, self.store.read_evidence(fact.trial.key))
                self.oracle.answer(fact.verdict)
            self.hearing.hear(fact)

    def _look_back(self) -> Earlier:
        """What earlier runs have tried; counted, once, before the first trial of this one, if that was asked for."""
        earlier = earlier_trials(
            self.store.run_dir,
            question=self.spec,
            machine=self.store.identity.machine,
            program=self.store.identity.program,
            like=lambda record: self.planner.again(record.trial),
        )
        if not self.spec.reuse or self.store.facts() or self.store.undone():
            return earlier
        counted = self._judged(of_use(self.spec, self.search, earlier.counted))
        records = [record for record, _ in counted]
        self._begin_beyond(records)
        for record, evidence in counted:
            self.store.add_reuse(record)
            self._remember(record, evidence)
            self.planner.note(record.trial)
            self.hearing.hear(record)
        for note in words(records, earlier.others):
            self.store.add_note(note)
            self.screen.noted(note)
        return earlier

    def _judged(self, records: Sequence[TrialRecord]) -> list[tuple[TrialRecord, Evidence | None]]:
        """``records`` as this question judges them; along one axis those that it cannot judge are asked again."""
        judged: list[tuple[TrialRecord, Evidence | None]] = []
        for record in records:
            evidence = read_evidence(self.store.run_dir.parent / record.run, record.trial.key)
            answer = self._answer(record.verdict, evidence or Evidence(steps_wanted=0))
            if self.spec.task is not Task.BISECT or answer is not Answer.UNRESOLVED:
                judged.append((replace(record, answer=answer), evidence))
        return judged

    def _begin_beyond(self, reused: Sequence[TrialRecord]) -> None:
        """A fresh search whose limits are for what comes on top of ``reused``."""
        self.hearing = Hearing(beyond(self.spec, reused))
        self.search = self.hearing.search

    def _search(self) -> None:
        self.store.add_plan(self.search.estimate())
        try:
            while self._start() or self.lanes.busy:
                if self.lanes.busy:
                    record, lease = self.lanes.finish_one()
                    self.queue.release(lease)
                    self._learn(record)
        finally:
            self.lanes.close()

    def _start(self) -> bool:
        """Start every trial that may start now; whether one was answered without being run, so that more may."""
        self.queue.want(self._requests())
        while (lease := self.queue.grant()) is not None:
            request, claim = lease.request, self.lanes.claim(lease)
            if claim is None:
                self.queue.put_back(lease)
                return False
            trial = self._planned(request)
            if trial is None:
                claim.release()
                self.queue.release(lease)
                return True
            plan = self.search.estimate()
            limited = within(plan, most=self.matrix.effort.max_trials, done=len(self.store.records()) + self.lanes.busy)
            self.screen.planned(limited)
            self.store.add_decision(request, plan=plan, gpus=claim.names)
            self.lanes.start(self.attempts.begin(trial, reason=request.reason), lease, claim, hide=self.hides_gpus)
            self.queue.want(self._requests())
        return False

    def _requests(self) -> tuple[CellRequest, ...]:
        if self._is_spent() or self.surprise or self.attempts.survivors:
            return ()
        return self.search.ready(LOOK_AHEAD) or self._afterwards()

    def _afterwards(self) -> tuple[CellRequest, ...]:
        """What is run when the search is over, one at a time: controls, and a minimal command line once more."""
        if self.lanes.busy or self.search.ask() is not None:
            return ()
        answer, records, request = self.search.conclude(CampaignAnswer()), self.store.records(), None
        if answer.boundary is not None:
            request = next_control(self.spec, answer.boundary, records)
        if self.matrix.command and request is None:
            request = once_more(answer, records)
        return () if request is None else (request,)

    def _planned(self, request: CellRequest) -> Trial | None:
        """The trial for ``request``; None when it cannot be run, or would not end within its limit even if healthy."""
        try:
            trial = self.planner.trial(request)
        except SpecError as error:
            return self._say(request.cell, by="the trainer", why=str(error))
        if why := self.starts.why_not(trial):
            return self._say(request.cell, by="earlier trials", why=why)
        limits = self.matrix.limits_at(request.cell)
        # With dense attention a trial says nothing of how long one without takes.
        is_dense = trial.control == DENSE
        alike = (r for r in self.store.records() if (r.trial.control == DENSE) == is_dense)
        records = (*(() if is_dense else self.earlier.passed), *alike)
        prediction = predict_cell(records, space=self.matrix.space, cell=request.cell)
        if prediction is not None:
            self.predicted_s.setdefault(request.cell, prediction.total_s)
            if self.spec.task is not Task.BISECT and limits.total_s is not None and prediction.total_s > limits.total_s:
                why = (
                    f"it would take {prediction.least}{prediction.total_s:.0f} s to pass ({prediction.source}), "
                    f"but may take {limits.total_s:g} s: the limit could not tell slow from hung"
                )
                return self._say(request.cell, by="prediction", why=why)
        guess = prediction or guess_cell(records, space=self.matrix.space, cell=request.cell)
        return replace(trial, budget=budget(limits, guess, soft=request.soft), prediction=prediction)

    def _say(self, cell: Point, *, by: str, why: str) -> None:
        override = Override(cell=cell, answer=Answer.UNRESOLVED, by=by, why=why)
        self.store.add_override(override)
        self.hearing.hear(override)

    def _learn(self, record: TrialRecord) -> None:
        self._remember(record, self.store.read_evidence(record.trial.key))
        self.starts.note(record)
        if self.hearing.hear(record) and self.spec.fail_fast and self.spec.task is Task.CELLS:
            self._look_for_surprise(record.trial.point)

    # -- what a trial means

    def _answer(self, verdict: Verdict, evidence: Evidence) -> Answer:
        """Whether it is the failure being sought: the named one if there is a name, so that no other is followed."""
        if self.spec.signature is None:
            return self.oracle.answer(verdict)
        signature = next(row for row in self.matrix.signatures if row.name == self.spec.signature)
        is_complete = verdict.kind is Kind.BELOW_TARGET and signature.kind in NEVER_ENDED_WELL
        if verdict.kind is Kind.PASS or is_complete:
            return Answer.GOOD
        return Answer.BAD if matches(signature, verdict, evidence) else Answer.UNRESOLVED

    def _remember(self, record: TrialRecord, evidence: Evidence | None) -> None:
        key = record.trial.key
        if evidence is not None and record.verdict.kind is not Kind.PASS:
            rows = self.matrix.signatures
            self.names[key] = tuple(row.name for row in rows if matches(row, record.verdict, evidence))
        if (ran := fingerprint(record.trial, self.store.trial_dir(key))) != "":
            self.ran[key] = ran

    def _look_for_surprise(self, cell: Point) -> None:
        facts = Facts(records=self.store.records(), names=self.names, ran={}, predicted_s={}, overrides={})
        expected = in_force(self.matrix, cell, today=self.today)
        verdict, because = cell_status(expected, list(map(facts.ended, facts.of(cell))))
        if verdict is CellStatus.UNEXPECTED:
            self.surprise = f"stopped at the first surprise: {self.matrix.space.name_of(cell)}: {because}"

    # -- the budget

    def _gpu_seconds(self) -> float:
        return sum(r.outcome.duration_s * self.matrix.gpus_at(r.trial.point) for r in self.store.records())

    def _is_spent(self) -> bool:
        most = self.matrix.gpu_seconds
        is_over = most is not None and self._gpu_seconds() >= most
        return is_over or self.attempts.is_spent(self.matrix.effort, running=self.lanes.busy)
