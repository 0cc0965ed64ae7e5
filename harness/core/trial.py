"""Trial: one run of one target at one point; its budget and its content-hash key."""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from harness.core.fit import at_least, how_far
from harness.core.point import Point, Value, word_of
from harness.core.success import Success

NEVER_S = 30 * 86400.0
"""A limit of so many seconds is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A time limit in seconds, where it came from in words, and whether the user set it."""

    seconds: float
    source: str
    by_user: bool = False

    @property
    def is_endless(self) -> bool:
        """Whether it never ends a trial."""
        return self.seconds >= NEVER_S

    @classmethod
    def upgraded(cls, data: dict[str, Any]) -> dict[str, Any]:
        """What earlier versions wrote, which said in words alone that the user had set it."""
        return {"by_user": str(data.get("source")).startswith("set by the user"), **data}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long a trial may be silent before its first step, silent after it, and run in all.

    ``soft``: ``total`` is only a multiple of what a pass takes; a trial that it ends has answered nothing yet.
    """

    startup: Limit
    stall: Limit
    total: Limit
    soft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How long a healthy trial at this point should take, fitted from trials that passed.

    ``high`` values are upper 95 % limits of the fit, or a multiple of it where too few points or too long a way do not
    tell them; ``basis`` names the points it was fitted on, ``beyond`` says how many times larger than the largest of
    them this trial is. ``node_s`` is the seconds of a step for each autograd node of its forward pass, at the largest
    trial that counted them.
    """

    total_s: float
    total_high_s: float
    silence_s: float
    silence_high_s: float
    basis: str
    beyond: float = 1.0
    node_s: float | None = None

    @property
    def least(self) -> str:
        """What goes before the predicted seconds: nothing, or that they are a lower bound."""
        return at_least(self.beyond)

    @property
    def source(self) -> str:
        """``3 passed trials at n_layers 1..4``, and how far beyond them this trial is, where it is far."""
        return "; ".join(filter(None, (self.basis, how_far(self.beyond))))


_COMPARES = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A comparison on one setting: ``n_layers >= 5``."""

    name: str
    op: str
    value: Value

    def holds(self, settings: Mapping[str, Value]) -> bool:
        """Whether ``settings`` satisfy this; a setting that is not there never does."""
        if self.name not in settings:
            return False
        have = settings[self.name]
        if self.op == "==":
            return have == self.value
        if self.op == "!=":
            return have != self.value
        if not isinstance(have, int | float) or not isinstance(self.value, int | float):
            return False
        return _COMPARES[self.op](have, self.value)

    def __str__(self) -> str:
        return f"{self.name}{self.op}{word_of(self.value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A specimen planted into the target from outside, active where every condition holds."""

    specimen: str
    conditions: tuple[Condition, ...] = ()

    def active(self, settings: Mapping[str, Value]) -> bool:
        """Whether this fault fires at these settings."""
        return all(condition.holds(settings) for condition in self.conditions)

    def __str__(self) -> str:
        where = ",".join(map(str, self.conditions))
        return f"{self.specimen}@{where}" if where else self.specimen


CONTROL = "control"
"""How the role of a control begins; its name follows."""

NO_FAULT = "no-fault"
DENSE = "dense"
CONTROLS = (NO_FAULT, DENSE)
"""What a control may change: the planted fault is left out, or attention is dense."""

ATTENTION = "model.attention"
"""The setting of our trainer that the control ``dense`` changes."""


def control_of(role: str) -> str:
    """The name of the control that ``role`` asks for; empty where it asks for none."""
    first, _, name = role.partition(" ")
    return (name or CONTROL) if first == CONTROL else ""


_AT_COMMIT = re.compile(r"commit ([0-9a-f]{7,12})[0-9a-f]* under ")
"""How the code of a trial begins whose program is taken from a commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run: the target at a point, repeat k, with the code and machine it belongs to.

    ``config`` is the whole requested configuration of the target (JSON); ``fault`` is set only where its
    conditions hold; ``role`` says why it is run: search, certify, confirm, control or selftest. ``success`` is what
    it must show beyond its exit status. ``python`` is the interpreter that runs it, ``tree`` the folder that its
    program is taken from (then ``code`` names the commit); None means those of the harness.
    """

    target: str
    point: Point
    repeat: int
    role: str
    config: dict[str, object]
    seed: int
    code: str
    machine: str
    fault: Fault | None = None
    env: tuple[tuple[str, str], ...] = ()
    budget: Budget
    prediction: Prediction | None = None
    success: Success | None = None
    python: str | None = None
    tree: str | None = None
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self._key())

    def written_as(self, key: object) -> Trial:
        """The same trial under the ``key`` that it was written with, which names its folder; itself without one.

        A newer version may compute another key, and so do values that were hidden when it was written.
        """
        if not isinstance(key, str) or not key:
            return self
        written = replace(self)
        object.__setattr__(written, "key", key)
        return written

    @property
    def commit(self) -> str | None:
        """The commit that its program is taken from, shortened; None where it is the present program."""
        named = _AT_COMMIT.match(self.code)
        return named[1] if named else None

    @property
    def is_control(self) -> bool:
        """Whether it was run with one thing changed, and so does not count for a threshold."""
        return bool(self.control)

    @property
    def control(self) -> str:
        """The name of the control that it is; empty for a trial that counts."""
        return control_of(self.role)

    def _key(self) -> str:
        # Limits are left out: they are learned while a run goes on, and they do not change the question.
        question: dict[str, object] = {
            "target": self.target,
            "point": list(self.point.settings),
            "repeat": self.repeat,
            "role": self.role,
            "config": self.config,
            "seed": self.seed,
            "code": self.code,
            "machine": self.machine,
            "fault": str(self.fault) if self.fault else None,
            "env": list(self.env),
        }
        if self.success is not None:
            question["success"] = asdict(self.success)
        if self.python is not None:
            question["python"] = self.python
        text = json.dumps(question, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
