"""The shape of a matrix file, checked by pydantic; its errors become file:line and the nearest known key."""

from __future__ import annotations

import typing
from functools import cache
from typing import TYPE_CHECKING, Any

from harness.core.errors import FileError, choices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from harness.spec.yaml_file import Lines


def validated_matrix(data: Mapping[str, Any], lines: Lines) -> Any:
    """``data`` as the matrix model: every key known, every value of its type, defaults filled in.

    Raises:
        SpecError: one line for each thing that is wrong.
    """
    from pydantic import ValidationError

    model = matrix_model()
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found = dict.fromkeys(_explain(e, model, lines) for e in error.errors())
        raise FileError("\n".join(found)) from error


@cache
def matrix_model() -> type[BaseModel]:
    """The pydantic model of a matrix file (its ``model_json_schema()`` serves editors)."""
    import datetime as dt  # noqa: TC003 - pydantic resolves it
    from typing import Literal

    from pydantic import BaseModel, ConfigDict, Field

    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    class BundleKeys(Strict):
        args: list[str] = Field(default_factory=list, description="command-line arguments to append")
        env: dict[str, Any] = Field(default_factory=dict, description="environment variables")
        config: dict[str, Any] = Field(default_factory=dict, description="dotted settings of the trainer")
        python: str | None = Field(default=None, description="run it in this interpreter")
        commit: str | None = Field(default=None, description="run the program as it was at this commit")

    class ApplyKeys(Strict):
        arg: str | None = Field(default=None, description="append this argument and the value")
        env: str | None = Field(default=None, description="set this environment variable to the value")
        config: str | None = Field(default=None, description="set this dotted setting to the value")
        python: str | None = Field(default=None, description="run it in this interpreter; {value} is the value")
        commit: str | None = Field(default=None, description="take the program from this commit; {value} is the value")
        map: dict[Any, BundleKeys] | None = Field(default=None, description="each value does something of its own")

    class AxisKeys(Strict):
        type: Literal["ordered", "categorical", "flag"]
        values: list[Any] | None = None
        range: list[int] | None = Field(default=None, min_length=2, max_length=2, description="both ends included")
        good: Any = Field(default=None, description="the known-good value (default: the first)")
        bad: Any = Field(default=None, description="the known-bad value (default: the last)")
        priority: int = Field(default=0, description="higher is suspected first")
        requires: dict[str, Any] = Field(
            default_factory=dict, description="must hold wherever this axis is not at good"
        )
        apply: ApplyKeys | None = Field(default=None, description="default: the trainer's setting of the same name")

    class ConstraintKeys(Strict):
        when: dict[str, Any]
        require: dict[str, Any]
        because: str = ""

    class LimitKeys(Strict):
        startup: float | str | None = None
        stall: float | str | None = None
        total: float | str | None = None

    class LimitsWhenKeys(LimitKeys):
        when: dict[str, Any]

    class ResourceKeys(Strict):
        gpus: int = Field(default=0, ge=0)

    class ResourcesWhenKeys(ResourceKeys):
        when: dict[str, Any]

    class SuccessKeys(Strict):
        steps: int | None = Field(default=None, ge=1)
        max_memory_gb: float | None = Field(default=None, gt=0)
        min_tokens_per_s: float | None = Field(default=None, gt=0)
        loss: Literal["finite", "decreasing"] | None = None
        gradients: Literal["true"] | None = None
        require: list[str] = Field(default_factory=list)
        forbid: list[str] = Field(default_factory=list)

    class SignatureKeys(Strict):
        verdict: str
        log: str | None = None
        stack: str | None = None

    class ExpectKeys(Strict):
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
        passes: int | None = Field(default=None, ge=1, description="passes of a certificate; default: by cost")
        confidence: float = Field(default=0.95, gt=0, lt=1)

    class RepeatKeys(Strict):
        passes: int = Field(default=1, ge=1)
        infra_retries: int = Field(default=2, ge=0)
        certify: RuleOutKeys = Field(default_factory=RuleOutKeys)

    class BudgetKeys(Strict):
        wall: float | str | None = None
        trials: int | None = Field(default=None, ge=1)
        gpu_seconds: float | None = Field(default=None, gt=0)

    class SearchKeys(Strict):
        name: str = Field(min_length=1)
        kind: Literal["bisect", "minimise", "explore"]
        axis: str | None = None
        fixed: dict[str, Any] = Field(default_factory=dict)
        signature: str | None = None
        strength: int = Field(default=2, ge=1)
        causes: int = Field(default=1, ge=1)

    class MatrixKeys(Strict):
        version: Literal[1]
        name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
        description: str = ""
        incident: list[str] = Field(default_factory=list)
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

    return MatrixKeys


def _explain(error: Any, model: type[BaseModel], lines: Lines) -> str:
    key = tuple(part for part in error["loc"] if not _is_union_arm(part))
    where, place = ".".join(str(part) for part in key), lines.place(*key)
    if error["type"] == "extra_forbidden":
        known = _keys(model, key[:-1])
        return f"{place}: unknown key {where!r}{choices(str(key[-1]), known)}"
    if error["type"] == "missing":
        return f"{place}: {where!r} is missing"
    if any(_is_union_arm(part) for part in error["loc"]):
        return f"{place}: {where} = {error['input']!r}: it should be seconds, or a duration such as 90s, 1.5m or 2h"
    message = error["msg"].partition(" or instance of ")[0].replace("dictionary", "mapping")
    return f"{place}: {where} = {error['input']!r}: {message[0].lower()}{message[1:]}"


def _is_union_arm(part: object) -> bool:
    """Whether pydantic put this into the place of an error to say which type of a duration it tried."""
    return isinstance(part, str) and part in ("float", "str")


def _keys(model: Any, key: tuple[Any, ...]) -> tuple[str, ...]:
    """The keys that are known at ``key``."""
    at = model
    for part in key:
        if hasattr(at, "model_fields"):
            at = _inner(at.model_fields[str(part)].annotation)
        else:
            at = _inner(typing.get_args(at)[-1])
    return tuple(at.model_fields)


def _inner(annotation: Any) -> Any:
    """``X`` for ``X | None``."""
    args = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
    return args[0] if len(args) == 1 and type(None) in typing.get_args(annotation) else annotation
