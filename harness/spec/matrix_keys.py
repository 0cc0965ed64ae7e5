"""The keys of a matrix file, a pydantic model for each mapping in it. Import this only where a file is read.

The texts are what an editor shows beside a key (``nsa-harness matrix schema``).
"""

from __future__ import annotations

import datetime as dt  # noqa: TC003 - pydantic resolves it
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field  # noqa: TID253 - nobody imports this module before a file is read


class Strict(BaseModel):
    """No key that is not known, no value that is not quite of its type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class BundleKeys(Strict):
    """What one value of an axis does to the program."""

    args: list[str] = Field(default_factory=list, description="command-line arguments to append")
    env: dict[str, Any] = Field(default_factory=dict, description="environment variables")
    config: dict[str, Any] = Field(default_factory=dict, description="dotted settings of the trainer")
    python: str | None = Field(default=None, description="run it in this interpreter")
    commit: str | None = Field(default=None, description="run the program as it was at this commit")


class ApplyKeys(Strict):
    """How the values of an axis reach the program; one of these."""

    arg: str | None = Field(default=None, description="append this argument and the value; {value} in it is the value")
    env: str | None = Field(default=None, description="set this environment variable to the value")
    config: str | None = Field(default=None, description="set this dotted setting to the value")
    python: str | None = Field(default=None, description="run it in this interpreter; {value} is the value")
    commit: str | None = Field(default=None, description="take the program from this commit; {value} is the value")
    map: dict[Any, BundleKeys] | None = Field(default=None, description="each value does something of its own")


class AxisKeys(Strict):
    """One thing that is varied."""

    type: Literal["ordered", "categorical", "flag"]
    values: list[Any] | None = None
    range: list[int] | None = Field(default=None, min_length=2, max_length=2, description="both ends included")
    good: Any = Field(default=None, description="the known-good value (default: the first)")
    bad: Any = Field(default=None, description="the known-bad value (default: the last)")
    priority: int = Field(default=0, description="higher is suspected first")
    requires: dict[str, Any] = Field(default_factory=dict, description="must hold wherever this axis is not at good")
    apply: ApplyKeys | None = Field(default=None, description="default: the trainer's setting of the same name")


class ConstraintKeys(Strict):
    """Where ``when`` holds, ``require`` must hold too."""

    when: dict[str, Any]
    require: dict[str, Any]
    because: str = ""


class LimitKeys(Strict):
    """Longest silence before the first step, after it, and longest trial."""

    startup: float | str | None = None
    stall: float | str | None = None
    total: float | str | None = None


class LimitsWhenKeys(LimitKeys):
    """Other limits where ``when`` holds."""

    when: dict[str, Any]


class ResourceKeys(Strict):
    """What a cell occupies."""

    gpus: int = Field(default=0, ge=0)


class ResourcesWhenKeys(ResourceKeys):
    """More of it where ``when`` holds."""

    when: dict[str, Any]


class SuccessKeys(Strict):
    """What a trial must show, beyond ending, to pass."""

    steps: int | None = Field(default=None, ge=1)
    max_memory_gb: float | None = Field(default=None, gt=0)
    min_tokens_per_s: float | None = Field(default=None, gt=0)
    loss: Literal["finite", "decreasing"] | None = None
    gradients: Literal["true"] | None = None
    require: list[str] = Field(default_factory=list)
    forbid: list[str] = Field(default_factory=list)


class SignatureKeys(Strict):
    """A failure with a name."""

    verdict: str
    log: str | None = None
    stack: str | None = None


class ExpectKeys(Strict):
    """How the cells where ``when`` holds are expected to end."""

    when: dict[str, Any]
    verdict: str
    signature: str | None = None
    issue: str = ""
    since: dt.date | None = None
    until: dt.date | None = None
    strict: bool = False
    rate: float = Field(default=1.0, gt=0, le=1)
    seconds: float | str | None = None


class RuleOutKeys(Strict):
    """What a certificate asks for."""

    passes: int | None = Field(default=None, ge=1, description="passes of a certificate; default: by cost")
    confidence: float = Field(default=0.95, gt=0, lt=1)


class RepeatKeys(Strict):
    """How often a cell is run."""

    passes: int = Field(default=1, ge=1)
    infra_retries: int = Field(default=2, ge=0)
    certify: RuleOutKeys = Field(default_factory=RuleOutKeys)


class BudgetKeys(Strict):
    """After how much a run ends."""

    wall: float | str | None = None
    trials: int | None = Field(default=None, ge=1)
    gpu_seconds: float | None = Field(default=None, gt=0)


class SearchKeys(Strict):
    """A search beside the matrix."""

    name: str = Field(min_length=1)
    kind: Literal["bisect", "minimise", "explore"]
    axis: str | None = None
    fixed: dict[str, Any] = Field(default_factory=dict)
    signature: str | None = None
    strength: int = Field(default=2, ge=1)
    causes: int = Field(default=1, ge=1)


class AskedKeys(Strict):
    """A question to the matrix, and the sentence for each of its answers."""

    ever: list[str] | None = Field(default=None, description="verdicts: did any trial end so? none named: any failure")
    always: list[str] | None = Field(default=None, description="verdicts: did every cell end so?")
    matters: str | None = Field(default=None, description="an axis: do cells that differ in it alone end differently?")
    when: dict[str, Any] = Field(default_factory=dict, description="only these cells")
    cause: str = ""
    phase: str = Field(default="", description="only in this phase, which a trial must have reached to say no")
    yes: str = Field(min_length=1)
    no: str = Field(min_length=1)


class MatrixKeys(Strict):
    """A matrix file."""

    version: Literal[1]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str = ""
    incident: list[str] = Field(default_factory=list)
    asks: list[AskedKeys] = Field(default_factory=list)
    target: Literal["nsa", "command"] = "nsa"
    command: list[str] = Field(default_factory=list, description="what to run, for target: command")
    base: dict[str, Any] = Field(default_factory=dict, description="settings held in every cell")
    env: dict[str, Any] = Field(default_factory=dict)
    fault: str | None = Field(default=None, description="plant a known fault, e.g. backward-deadlock@n_layers>=5")
    axes: dict[str, AxisKeys] = Field(min_length=1)
    strategy: Literal["full", "one-factor", "pairwise", "list"] = "list"
    strength: int = Field(default=2, ge=1)
    include: list[dict[str, Any]] = Field(default_factory=list)
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    constraints: list[ConstraintKeys] = Field(default_factory=list)
    limits: LimitKeys = Field(default_factory=LimitKeys)
    limits_when: list[LimitsWhenKeys] = Field(default_factory=list)
    resources: ResourceKeys = Field(default_factory=ResourceKeys)
    resources_when: list[ResourcesWhenKeys] = Field(default_factory=list)
    success: SuccessKeys = Field(default_factory=SuccessKeys)
    signatures: dict[str, SignatureKeys] = Field(default_factory=dict)
    expect: list[ExpectKeys] = Field(default_factory=list)
    repeat: RepeatKeys = Field(default_factory=RepeatKeys)
    budget: BudgetKeys = Field(default_factory=BudgetKeys)
    searches: list[SearchKeys] = Field(default_factory=list)
    tags: list[str] = Field(default_factory=list)
