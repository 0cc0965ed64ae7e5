"""The keys of matrix files and of question files, a pydantic model for each mapping. Import this only to read a file.

The texts are what an editor shows beside a key (``nsa-harness matrix schema``).
"""

from __future__ import annotations

import datetime as dt  # noqa: TC003 - pydantic resolves it
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field  # noqa: TID253 - nobody imports this module before a file is read

from harness.core.spec import Effort

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT = Effort()


def _optional(description: str, **bounds: Any) -> Any:
    """A key that may be left out, and then says nothing."""
    return Field(default=None, description=description, **bounds)


def _part(empty: Callable[[], object], description: str) -> Any:
    """A key that may be left out, and then is ``empty()``: a list, a table or other keys with nothing in them."""
    return Field(default_factory=empty, description=description)


class Strict(BaseModel):
    """No key that is not known, no value that is not quite of its type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class BundleKeys(Strict):
    """What one value of an axis does to the program."""

    args: list[str] = _part(list, "command-line arguments to append")
    env: dict[str, Any] = _part(dict, "environment variables")
    config: dict[str, Any] = _part(dict, "dotted settings of the trainer")
    python: str | None = _optional("run it in this interpreter")
    commit: str | None = _optional("run the program as it was at this commit")


class ApplyKeys(Strict):
    """How the values of an axis reach the program; one of these."""

    arg: str | None = _optional("append this argument and the value; {value} in it is the value")
    env: str | None = _optional("set this environment variable to the value")
    config: str | None = _optional("set this dotted setting to the value")
    python: str | None = _optional("run it in this interpreter; {value} is the value")
    commit: str | None = _optional("take the program from this commit; {value} is the value")
    map: dict[Any, BundleKeys] | None = _optional("each value does something of its own")


class AxisKeys(Strict):
    """One thing that is varied."""

    type: Literal["ordered", "categorical", "flag"] = Field(
        description="ordered has thresholds; categorical is words; flag is false and true"
    )
    values: list[Any] | None = _optional("its values; of an ordered axis they ascend")
    range: list[int] | None = _optional("both ends included", min_length=2, max_length=2)
    good: Any = _optional("the known-good value (default: the first)")
    bad: Any = _optional("the known-bad value (default: the last)")
    priority: int = Field(default=0, description="higher is suspected first")
    requires: dict[str, Any] = _part(dict, "must hold wherever this axis is not at good")
    apply: ApplyKeys | None = _optional("default: the trainer's setting of the same name")


class ConstraintKeys(Strict):
    """Where ``when`` holds, ``require`` must hold too."""

    when: dict[str, Any] = Field(
        description="cells: an axis and its value, several values, or a comparison such as '>=5'"
    )
    require: dict[str, Any] = Field(description="what must hold there, written like when")
    because: str = Field(default="", description="why, shown beside cells that it leaves out")


class LimitKeys(Strict):
    """Longest silence before the first step, after it, and longest trial."""

    startup: float | str | None = _optional(
        "longest silence before the first step: seconds, or 90s, 1.5m, 2h; default: 120s"
    )
    stall: float | str | None = _optional("longest silence after it; default: learned from trials that passed")
    total: float | str | None = _optional("longest trial; default: learned")


class LimitsWhenKeys(LimitKeys):
    """Other limits where ``when`` holds."""

    when: dict[str, Any] = Field(description="the cells that have these limits")


class ResourceKeys(Strict):
    """What a cell occupies."""

    gpus: int = Field(default=0, ge=0, description="GPUs that a cell needs for itself")


class ResourcesWhenKeys(ResourceKeys):
    """More of it where ``when`` holds."""

    when: dict[str, Any] = Field(description="the cells that need so much")


class SuccessKeys(Strict):
    """What a trial must show, beyond ending, to pass."""

    steps: int | None = _optional("optimizer steps that must be done", ge=1)
    max_memory_gb: float | None = _optional("most memory of the trial", gt=0)
    min_tokens_per_s: float | None = _optional("least speed", gt=0)
    loss: Literal["finite", "decreasing"] | None = _optional("finite, or decreasing too")
    gradients: Literal["true"] | None = _optional("true: those of the first step are those of a plain pass")
    require: list[str] = _part(list, "regular expressions that the output must show")
    forbid: list[str] = _part(list, "regular expressions that it must not show")


class SignatureKeys(Strict):
    """A failure with a name."""

    verdict: str = Field(description="how a trial ends that shows it: hang, crash, oom, nonfinite, ..")
    log: str | None = _optional("a regular expression of its output")
    stack: str | None = _optional("a regular expression of a function or file in its stacks")


class ExpectKeys(Strict):
    """How the cells where ``when`` holds are expected to end."""

    when: dict[str, Any] = Field(description="the cells that this is about; of several entries the last counts")
    verdict: str = Field(description="pass, hang, crash, oom, nonfinite, slow, below_target")
    signature: str | None = _optional("the name of the failure, from signatures")
    issue: str = Field(default="", description="where it is known, e.g. '#12'")
    since: dt.date | None = _optional("counts from this day on")
    until: dt.date | None = _optional("counts until this day")
    strict: bool = Field(default=False, description="a pass is a surprise too")
    rate: float = Field(default=1.0, gt=0, le=1, description="how often it fails, when that is not always")
    seconds: float | str | None = _optional("how long a trial takes")


class RuleOutKeys(Strict):
    """What a certificate asks for."""

    passes: int | None = _optional("passes of a certificate; default: by cost", ge=1)
    confidence: float = Field(default=0.95, gt=0, lt=1, description="how sure a certificate is")


class RepeatKeys(Strict):
    """How often a cell is run."""

    passes: int = Field(default=1, ge=1, description="trials of each cell")
    infra_retries: int = Field(default=2, ge=0, description="how often a trial that the machine spoiled is run again")
    certify: RuleOutKeys = _part(RuleOutKeys, "what a search asks of its last good value")


class BudgetKeys(Strict):
    """After how much a run ends."""

    wall: float | str | None = _optional("end after this time, with a partial report")
    trials: int | None = _optional("end after so many", ge=1)
    gpu_seconds: float | None = _optional("end after so many seconds of GPUs", gt=0)


class SearchKeys(Strict):
    """A search beside the matrix."""

    name: str = Field(min_length=1, description="its name: nsa-harness bisect FILE::NAME")
    kind: Literal["bisect", "minimise", "explore"] = Field(
        description="bisect: from which value of axis; minimise: which settings; explore: every combination"
    )
    axis: str | None = _optional("what bisect follows")
    fixed: dict[str, Any] = _part(dict, "values that it holds; every other axis is at its good one")
    signature: str | None = _optional("the failure that it follows, from signatures")
    strength: int = Field(default=2, ge=1, description="explore: of how many axes every combination is tried")
    causes: int = Field(default=1, ge=1, description="minimise: look for so many causes")


class AskKeys(Strict):
    """A question to the matrix, and the sentence for each of its answers."""

    ever: list[str] | None = _optional("verdicts: did any trial end so? none named: any failure")
    always: list[str] | None = _optional("verdicts: did every cell end so?")
    matters: str | None = _optional("an axis: do cells that differ in it alone end differently?")
    when: dict[str, Any] = _part(dict, "only these cells")
    cause: str = Field(default="", description="only failures with this cause")
    phase: str = Field(default="", description="only in this phase, which a trial must have reached to say no")
    yes: str = Field(min_length=1, description="the sentence for yes")
    no: str = Field(min_length=1, description="the sentence for no")


class MatrixKeys(Strict):
    """A matrix file."""

    version: Literal[1] = Field(description="of this dialect: 1")
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="its name, and that of its runs")
    description: str = Field(default="", description="the question in a sentence")
    incident: list[str] = _part(list, "the reports that it asks about again")
    asks: list[AskKeys] = _part(list, "questions with an answer in words, at the head of the report")
    target: Literal["nsa", "command"] = Field(default="nsa", description="nsa: our own trainer; command: any program")
    command: list[str] = _part(list, "what to run, for target: command")
    base: dict[str, Any] = _part(dict, "settings held in every cell")
    env: dict[str, Any] = _part(dict, "environment variables of every trial")
    fault: str | None = _optional("plant a known fault, e.g. backward-deadlock@n_layers>=5")
    axes: dict[str, AxisKeys] = Field(min_length=1, description="what is varied, by name")
    strategy: Literal["full", "one-factor", "pairwise", "list"] | None = _optional(
        "which cells: full, one-factor (from the good one), pairwise, or list (include alone); default: full, and list "
        "where include or searches say what is run"
    )
    strength: int = Field(default=2, ge=1, description="pairwise: of how many axes every combination is covered")
    include: list[dict[str, Any]] = _part(
        list, "cells that are run whatever the strategy; axes left out are at their good value"
    )
    exclude: list[dict[str, Any]] = _part(list, "cells that are not run")
    constraints: list[ConstraintKeys] = _part(list, "what must hold where something else does")
    limits: LimitKeys = _part(LimitKeys, "when a trial has taken too long")
    limits_when: list[LimitsWhenKeys] = _part(list, "other limits for some cells")
    resources: ResourceKeys = _part(ResourceKeys, "what a cell needs of the machine")
    resources_when: list[ResourcesWhenKeys] = _part(list, "other needs of some cells")
    success: SuccessKeys = _part(SuccessKeys, "what a trial must show to pass, beside its end")
    signatures: dict[str, SignatureKeys] = _part(dict, "failures by name")
    expect: list[ExpectKeys] = _part(list, "how cells are expected to end; default: pass")
    repeat: RepeatKeys = _part(RepeatKeys, "how often")
    budget: BudgetKeys = _part(BudgetKeys, "when the whole run ends")
    searches: list[SearchKeys] = _part(list, "searches beside the matrix")
    tags: list[str] = _part(list, "words to choose files by: nsa-harness matrix run --tag")


class QuestionLimitKeys(Strict):
    """The limits of a question file, in seconds."""

    startup_s: float | None = Field(default=None, gt=0)
    stall_s: float | None = Field(default=None, gt=0)
    total_s: float | None = Field(default=None, gt=0)


class QuestionEffortKeys(Strict):
    """How hard a question file has its question tried."""

    confidence: float = Field(default=DEFAULT.confidence, gt=0, lt=1)
    certify: int | None = Field(default=None, ge=1)
    soft_limit: bool = DEFAULT.soft_limit
    check_above: int = Field(default=DEFAULT.check_above, ge=0)
    max_trials: int = Field(default=DEFAULT.max_trials, ge=1)
    max_seconds: float | None = Field(default=None, gt=0)


class QuestionKeys(Strict):
    """A question file of earlier versions, about one axis of our trainer."""

    question: str = Field(min_length=1)
    target: Literal["nsa"] = "nsa"
    axis: str
    fixed: dict[str, Any] = Field(default_factory=dict)
    fault: str | None = None
    bad: list[str] = Field(default_factory=list)
    limits: QuestionLimitKeys = Field(default_factory=QuestionLimitKeys)
    effort: QuestionEffortKeys = Field(default_factory=QuestionEffortKeys)
    controls: list[str] = Field(default_factory=list)
    executor: Literal["forkserver", "local"] = "forkserver"
    seed: int = Field(default=0, ge=0)
    env: dict[str, str] = Field(default_factory=dict)
