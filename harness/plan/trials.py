"""Planner: a strategy's requests become trials with their own seed, repeat number and, where it holds, the fault."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from harness.core.errors import SpecError, suggestion, unknown
from harness.core.trial import Trial
from harness.plan.budget import budget
from harness.plan.settings import settings_of

if TYPE_CHECKING:
    from harness.core.point import Point, Value
    from harness.core.ports import Request, Target
    from harness.core.spec import BisectSpec
    from harness.core.trial import Fault

NO_FAULT = "no-fault"
DENSE = "dense"
CONTROLS = (NO_FAULT, DENSE)
CONTROL = "control"
"""The first word of a control's role."""
ATTENTION = "model.attention"


class Planner:
    """Makes the trials of one question.

    Every trial at a value has its own repeat number, whatever its role, so that keys never collide and no two trials
    of a flaky program draw the same random numbers.

    Raises:
        SpecError: a fault condition on a setting that does not exist (it would never hold, and the search would find
            nothing), or a control that would change nothing.
    """

    def __init__(self, spec: BisectSpec, *, target: Target, code: str, machine: str) -> None:
        self.spec = spec
        self.target = target
        self.code = code
        self.machine = machine
        self._repeats: dict[Value, int] = {}
        self._check_fault()
        self._check_controls()

    def note(self, trial: Trial) -> None:
        """Count a trial that was made before, as after a resume."""
        value = trial.point.get(self.spec.axis.name)
        self._repeats[value] = max(self._repeats.get(value, 0), trial.repeat + 1)

    def search(self, request: Request) -> Trial:
        """The trial that answers ``request``."""
        return self._next(request.value, role=request.role, fixed=self.spec.fixed, fault=self.spec.fault)

    def control(self, name: str, value: Value) -> Trial:
        """The trial at ``value`` with one thing changed: the fault left out, or dense attention instead."""
        role, fixed = f"{CONTROL} {name}", self.spec.fixed
        if name == NO_FAULT:
            return self._next(value, role=role, fixed=fixed, fault=None)
        if name == DENSE:
            return self._next(value, role=role, fixed=fixed.with_value(ATTENTION, "dense"), fault=self.spec.fault)
        raise unknown("control", name, CONTROLS)

    def again(self, trial: Trial) -> Trial | None:
        """The trial that this search would make at the same value, of the same role and repeat.

        None for a control, which is run beside the failure that it is held against, and for a value of another axis.
        """
        spec, value = self.spec, trial.point.get(self.spec.axis.name)
        if value not in spec.axis.values or trial.role.startswith(CONTROL):
            return None
        return self._trial(value, role=trial.role, fixed=spec.fixed, fault=spec.fault, repeat=trial.repeat)

    def _next(self, value: Value, *, role: str, fixed: Point, fault: Fault | None) -> Trial:
        repeat = self._repeats.get(value, 0)
        trial = self._trial(value, role=role, fixed=fixed, fault=fault, repeat=repeat)
        self._repeats[value] = repeat + 1
        return trial

    def _trial(self, value: Value, *, role: str, fixed: Point, fault: Fault | None, repeat: int) -> Trial:
        axis = self.spec.axis
        config = self.target.config({**dict(fixed), axis.path: value})
        settings = settings_of(config, fixed=fixed, axis=axis, value=value)
        return Trial(
            target=self.spec.target,
            point=fixed.with_value(axis.name, value),
            repeat=repeat,
            role=role,
            config=config,
            seed=self._seed(value, repeat),
            code=self.code,
            machine=self.machine,
            fault=fault if fault is not None and fault.active(settings) else None,
            env=self.spec.env,
            budget=budget(self.spec.limits, None),
            success=self.spec.success,
        )

    def _seed(self, value: Value, repeat: int) -> int:
        text = f"{self.spec.seed}|{self.spec.axis.name}={value}|{repeat}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])

    def _check_fault(self) -> None:
        if self.spec.fault is None:
            return
        settings = self._settings()
        for condition in self.spec.fault.conditions:
            if condition.name not in settings:
                near = suggestion(condition.name, settings)
                raise SpecError(f"the fault is to strike where {condition}, but there is no such setting{near}")

    def _check_controls(self) -> None:
        for name in self.spec.controls:
            if name not in CONTROLS:
                raise unknown("control", name, CONTROLS)
            if name == NO_FAULT and self.spec.fault is None:
                raise SpecError("control 'no-fault' changes nothing: no fault is planted; leave it out")
            if name == DENSE and self._settings().get(ATTENTION) in (None, "dense"):
                raise SpecError("control 'dense' changes nothing: the attention is not one of nsa's; leave it out")

    def _settings(self) -> dict[str, Value]:
        axis = self.spec.axis
        config = self.target.config({**dict(self.spec.fixed), axis.path: axis.values[0]})
        return settings_of(config, fixed=self.spec.fixed, axis=axis, value=axis.values[0])
