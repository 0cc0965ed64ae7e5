"""THE LOOP: ask, plan, launch, watch, classify, record, tell; then the controls. Read this after core/."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.attempts import Attempts, Interrupted
from harness.conduct import Parts
from harness.core.boundary import Claim, Finding
from harness.core.campaign import Said
from harness.core.verdict import Answer, Kind
from harness.earlier import earlier_along, words
from harness.lanes import Lanes
from harness.plan.budget import budget
from harness.plan.leases import Lease, Need
from harness.plan.predict import predict
from harness.plan.trials import Planner
from harness.search.oracle import Oracle, not_followed
from harness.search.scaling import fits_along, scaling_of
from harness.search.threshold import ThresholdSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.core.boundary import Boundary
    from harness.core.point import Value
    from harness.core.ports import Screen
    from harness.core.record import Run, TrialRecord
    from harness.core.trial import Trial
    from harness.store.run_store import RunStore

SEARCHING = frozenset({"search", "certify", "confirm"})
"""Roles whose answers the search is told; a control's are not."""

CONTROL_PASSES = 3
"""Passes asked of a control when the failure showed in every trial at its value."""

INFRA_RETRIES = 2
"""A trial that the machine spoiled is run again this often before its value counts as unresolved."""


class Session:
    """One question, asked of one target on one machine."""

    def __init__(
        self,
        *,
        store: RunStore,
        parts: Parts | Sequence[Parts],
        screen: Screen,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        lanes = (parts,) if isinstance(parts, Parts) else tuple(parts)
        parts = lanes[0]
        self.store = store
        self.spec = store.spec
        self.screen = screen
        self.search = self._search_beyond(store.reused())
        self.oracle = Oracle(self.spec.bad)
        self.planner = Planner(self.spec, target=parts.target, code=store.code, machine=store.machine.fingerprint)
        self.attempts = Attempts(
            store=store, parts=parts, screen=screen, interrupted=interrupted, answer=lambda v, _: self.oracle.answer(v)
        )
        self.lanes = Lanes(attempts=self.attempts, parts=lanes)
        self.running: list[tuple[Value, str]] = []
        self.spoiled = 0

    def bisect(self) -> Run:
        """Search to the end, run the controls, write the conclusion; what was recorded before is not run again.

        With ``spec.reuse`` that holds for what earlier runs of the same question have recorded, too.
        """
        try:
            self._replay()
            self._look_back()
            self._search()
            boundary = self._control(self._with_scaling(self.search.result()))
            ended = "budget used up" if self.search.stopped or self.search.ask() is not None else "answered"
        except (Interrupted, KeyboardInterrupt):
            boundary, ended = None, "interrupted"
        self.store.add_end(why=ended, seconds=self.attempts.seconds, boundary=boundary)
        return self.store.run()

    def _replay(self) -> None:
        for record in (*self.store.undone(), *self._known()):
            self.planner.note(record.trial)
        for fact in self.store.facts():
            if isinstance(fact, Said):
                self.search.tell(value=fact.cell.get(self.spec.axis.name), answer=fact.answer, seconds=0.0)
            else:
                self._learn(fact)

    def _look_back(self) -> None:
        """Count, once and before any trial of this run, what earlier runs have answered, as this question judges it."""
        if not self.spec.reuse or self.store.facts() or self.store.undone():
            return
        earlier = earlier_along(
            self.store.run_dir, spec=self.spec, machine=self.store.machine, again=self.planner.again
        )
        judged = [replace(record, answer=self.oracle.answer(record.verdict)) for record in earlier.counted]
        counted = [record for record in judged if record.answer is not Answer.UNRESOLVED]
        self.search = self._search_beyond(counted)
        self.oracle = Oracle(self.spec.bad)
        for record in counted:
            self.store.add_reuse(record)
            self.planner.note(record.trial)
            self._learn(record)
        for note in words(counted, earlier.others):
            self.store.add_note(note)
            self.screen.noted(note)

    def _search_beyond(self, reused: Sequence[TrialRecord]) -> ThresholdSearch:
        """A fresh search whose limits are for what comes on top of ``reused``."""
        return ThresholdSearch(self.spec.axis, self.spec.effort.beyond(record.outcome.duration_s for record in reused))

    def _known(self) -> tuple[TrialRecord, ...]:
        """Every trial that counts here: those of earlier runs, then those of this one."""
        return (*self.store.reused(), *self.store.records())

    def _search(self) -> None:
        self.store.add_plan(self.search.estimate())
        try:
            while self._start() or self.lanes.busy:
                record, _ = self.lanes.finish_one()
                self.running.remove((record.trial.point.get(self.spec.axis.name), record.trial.role))
                self._learn(record)
        finally:
            self.lanes.close()

    def _start(self) -> bool:
        """Start what may run now, a question for each lane, and say whether anything runs."""
        runs = list(self.running)
        for request in self.search.ask_many(self.lanes.most):
            asked = (request.value, request.role)
            if asked in runs:
                runs.remove(asked)
                continue
            if self.lanes.busy == self.lanes.most:
                break
            if self.attempts.spent(self.spec.effort, running=self.lanes.busy):
                break
            left = self.search.estimate()
            self.screen.planned(left)
            self.store.add_decision(request, left=left)
            trial = self._with_budget(self.planner.search(request), soft=request.soft)
            self.running.append(asked)
            lease = Lease(need=Need(id=len(self.running)))
            claim = self.lanes.claim(lease)
            assert claim is not None, "a trial that asks for no GPU waits for none"
            self.lanes.start(self.attempts.begin(trial, reason=request.reason), lease, claim, hide=False)
        return bool(self.running)

    def _learn(self, record: TrialRecord) -> None:
        """Tell the search, except of a trial that the machine spoiled: its question is then simply asked again."""
        if record.trial.role not in SEARCHING:
            return
        self.spoiled = self.spoiled + 1 if record.verdict.kind is Kind.INFRA else 0
        if 0 < self.spoiled <= INFRA_RETRIES:
            return
        self.spoiled = 0
        self.search.tell(
            value=record.trial.point.get(self.spec.axis.name),
            answer=self.oracle.answer(record.verdict),
            seconds=record.outcome.duration_s,
            slow=record.verdict.kind is Kind.SLOW or record.verdict.cause == "limit-too-short",
            soft=record.is_cut,
        )

    def _run(self, trial: Trial, *, reason: str, soft: bool = False) -> TrialRecord:
        return self.attempts.run(self._with_budget(trial, soft=soft), reason=reason)

    def _with_budget(self, trial: Trial, *, soft: bool) -> Trial:
        value = trial.point.get(self.spec.axis.name)
        prediction = predict(self._known(), axis=self.spec.axis, value=value, target=trial)
        return replace(trial, budget=budget(self.spec.limits, prediction, soft=soft), prediction=prediction)

    def _with_scaling(self, boundary: Boundary) -> Boundary:
        records, axis = self._known(), self.spec.axis
        notes = (*boundary.notes, *not_followed(r for r in records if r.trial.role in SEARCHING))
        return replace(boundary, notes=notes, fit=scaling_of(records, axis=axis), fits=fits_along(records, axis=axis))

    def _control(self, boundary: Boundary) -> Boundary:
        """At the failing value, change one thing and run again; the claim grows only if that passes."""
        if boundary.finding not in (Finding.THRESHOLD, Finding.ALL_FAIL) or not self.spec.controls:
            return boundary
        passed = [name for name in self.spec.controls if self._control_passes(name, boundary)]
        failed = [name for name in self.spec.controls if name not in passed]
        notes = (
            *boundary.notes,
            *(f"control {name} passes at {boundary.axis}={boundary.first_bad}" for name in passed),
            *(f"control {name} does not pass at {boundary.axis}={boundary.first_bad}" for name in failed),
        )
        isolated = bool(passed) and not failed and boundary.claim is Claim.REPRODUCED
        return replace(boundary, notes=notes, claim=Claim.ISOLATED if isolated else boundary.claim)

    def _control_passes(self, name: str, boundary: Boundary) -> bool:
        """As many passes as make a rare failure of the control unlikely; one failure, or a spoiled machine, ends it."""
        flaky = any(c.good and c.bad for c in boundary.counts)
        wanted = boundary.certificate_passes if flaky else CONTROL_PASSES
        value, role = boundary.first_bad, f"control {name}"
        here = [r for r in self._known() if r.trial.role == role and r.trial.point.get(self.spec.axis.name) == value]
        kinds = [record.verdict.kind for record in here]
        while kinds.count(Kind.PASS) < wanted:
            if set(kinds) - {Kind.PASS, Kind.INFRA} or kinds.count(Kind.INFRA) > INFRA_RETRIES:
                return False
            trial = self.planner.control(name, value)
            kinds.append(self._run(trial, reason=f"control: {name}").verdict.kind)
        return True
