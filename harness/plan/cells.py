"""CellPlanner: a cell of a matrix becomes a trial with its own seed, repeat number and, where it holds, the fault."""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from harness.core.command_line import composed
from harness.core.dotted import flatten
from harness.core.errors import SpecError, suggestion, unknown
from harness.core.ports import CellRequest
from harness.core.success import PASSES
from harness.core.trial import ATTENTION, CONTROLS, DENSE, NO_FAULT, Trial, control_of
from harness.core.verdict import NEVER_STARTED
from harness.plan.predict import budget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.campaign import CampaignSpec
    from harness.core.point import Point, Value
    from harness.core.ports import Target
    from harness.core.record import TrialRecord


class Trees(Protocol):
    """The folders of programs that are not simply the present one in the present interpreter."""

    def at(self, commit: str | None) -> str | None:
        """The folder of ``commit`` (None: as it is now), if the target needs to be told; SpecError for no commit."""
        ...

    def full_name(self, commit: str) -> str:
        """The whole name of ``commit``; makes no tree."""
        ...


class CellPlanner:
    """Makes the trials of a campaign.

    Every trial of a cell has its own repeat number, whatever its role, so that keys never collide and no two trials
    of a flaky program draw the same random numbers.

    Raises:
        SpecError: a fault condition on an axis or setting that does not exist (it would never hold, and the search
            would find nothing), or a control that would change nothing.
    """

    def __init__(
        self, spec: CampaignSpec, *, target: Target, code: str, machine: str, trees: Trees | None = None
    ) -> None:
        self.spec = spec
        self.matrix = spec.matrix
        self.target = target
        self.code = code
        self.machine = machine
        self.trees = trees
        self._repeats: Counter[Point] = Counter()
        self._check_fault()
        self._check_controls()

    def note(self, trial: Trial) -> None:
        """Count a trial that was made before, as after a resume."""
        self._repeats[trial.point] = max(self._repeats[trial.point], trial.repeat + 1)

    def trial(self, request: CellRequest) -> Trial:
        """The trial that answers ``request``; SpecError when the target cannot run such a cell."""
        bundle = self.matrix.bundle(request.cell)
        tree = None
        if self.trees is not None and (bundle.commit is not None or bundle.python is not None):
            tree = self.trees.at(bundle.commit)
        trial = replace(self.like(request), tree=tree)
        self._repeats[request.cell] += 1
        return trial

    def again(self, trial: Trial) -> Trial | None:
        """The trial that would be made now of the cell of an earlier one.

        None where there is no such cell here, and for a control, which is run beside the failure it is held against.
        """
        settings = dict(trial.point)
        if trial.is_control or settings.keys() != set(self.matrix.space.names):
            return None
        try:
            return self.like(CellRequest(cell=self.matrix.space.cell(settings), role="search", reason=""))
        except SpecError:
            return None

    def like(self, request: CellRequest) -> Trial:
        """The trial that :meth:`trial` would make, without making it or the tree that it would run in."""
        cell, bundle, control = request.cell, self.matrix.bundle(request.cell), control_of(request.role)
        config = self._config(cell, dense=control == DENSE)
        fault = None if control == NO_FAULT else self.matrix.fault
        active = fault is not None and fault.active(self._settings(cell, config))
        repeat = self._repeats[cell]
        drawn = f"{self.spec.seed}|{self.matrix.space.name_of(cell)}|{repeat}"
        return Trial(
            target=self.matrix.target,
            point=cell,
            repeat=repeat,
            role=request.role,
            config=config,
            seed=int.from_bytes(hashlib.sha256(drawn.encode()).digest()[:4]),
            code=self._code(bundle.commit),
            machine=self.machine,
            fault=fault if active else None,
            env=bundle.env,
            budget=budget(self.matrix.limits_at(cell), None),
            success=None if self.matrix.success == PASSES else self.matrix.success,
            python=bundle.python,
        )

    def _code(self, commit: str | None) -> str:
        """What runs and what judges it: an old commit is judged by the harness as it is now."""
        if commit is None or self.trees is None:
            return self.code
        return f"commit {self.trees.full_name(commit)} under {self.code}"

    def _config(self, cell: Point, *, dense: bool = False) -> dict[str, object]:
        bundle = self.matrix.bundle(cell)
        if not self.matrix.command:
            return self.target.config({**dict(bundle.config), **({ATTENTION: "dense"} if dense else {})})
        config = self.target.config({"command": shlex.join(self.matrix.command), **dict(bundle.config)})
        return config | {"more": list(bundle.args)} if bundle.args else config

    def _settings(self, cell: Point, config: Mapping[str, object]) -> dict[str, Value]:
        """Everything that a fault's conditions may name; an axis hides a setting of the same name."""
        by_path = flatten(config)
        short = Counter(path.rpartition(".")[2] for path in by_path)
        by_name: dict[str, Value] = {}
        for path, value in by_path.items():
            name = path.rpartition(".")[2]
            if short[name] == 1:
                by_name[name] = value
        return {**by_name, **by_path, **dict(cell)}

    def _check_fault(self) -> None:
        if self.matrix.fault is None:
            return
        good = self.matrix.space.good
        settings = self._settings(good, self._config(good))
        for condition in self.matrix.fault.conditions:
            if condition.name not in settings:
                near = suggestion(condition.name, settings)
                raise SpecError(f"the fault is to strike where {condition}, but there is no such axis or setting{near}")

    def _check_controls(self) -> None:
        for name in self.spec.controls:
            if name not in CONTROLS:
                raise unknown("control", name, CONTROLS)
            if name == NO_FAULT and self.matrix.fault is None:
                raise SpecError("control 'no-fault' changes nothing: no fault is planted; leave it out")
            if name == DENSE and flatten(self._config(self.spec.corner)).get(ATTENTION) in (None, "dense"):
                raise SpecError("control 'dense' changes nothing: the attention is not one of nsa's; leave it out")


ENOUGH = 3
"""So many trials that never started say of a program that the next will not start either."""

Program: TypeAlias = tuple[str | None, ...]


@dataclass(slots=True)
class Starts:
    """Which programs never started, in how many trials in a row, and why."""

    _failures: dict[Program, list[str]] = field(default_factory=dict[Program, list[str]])

    def note(self, record: TrialRecord) -> None:
        """Take in how a trial ended."""
        failures = self._failures.setdefault(_program(record.trial), [])
        if record.verdict.cause == NEVER_STARTED:
            failures.append(record.outcome.why)
        else:
            failures.clear()

    def why_not(self, trial: Trial) -> str:
        """Why ``trial`` need not be tried; empty where its program has started, or was hardly tried."""
        failures = self._failures.get(_program(trial), [])
        return f"it never started in {len(failures)} trials: {failures[-1]}" if len(failures) >= ENOUGH else ""


def _program(trial: Trial) -> Program:
    """What is started, and where it is looked for: trials that have all of this in common start or do not."""
    if trial.target != "command":
        return (trial.target, trial.python, trial.tree)
    line = composed(trial.config, python=trial.python or "python", env=trial.env)
    return (*line.argv[:1], dict(line.variables).get("PATH"), trial.tree)
