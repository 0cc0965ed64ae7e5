"""The shape of a question file, checked by pydantic; its errors become file:line and the nearest known key."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from harness.core.errors import FileError, choices
from harness.core.spec import Effort

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from harness.spec.yaml_file import Key, Lines

DEFAULT = Effort()


def validated(data: Mapping[str, Any], lines: Lines) -> Any:
    """``data`` as the question model: every key known, every value of its type, defaults filled in.

    Raises:
        SpecError: one line for each thing that is wrong.
    """
    from pydantic import ValidationError

    model = question_model()
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise FileError("\n".join(_explain(e, model, lines) for e in error.errors())) from error


@cache
def question_model() -> type[BaseModel]:
    """The pydantic model of a question file (its ``model_json_schema()`` serves editors)."""
    from typing import Literal

    from pydantic import BaseModel, ConfigDict, Field

    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    class LimitKeys(Strict):
        startup_s: float | None = Field(default=None, gt=0)
        stall_s: float | None = Field(default=None, gt=0)
        total_s: float | None = Field(default=None, gt=0)

    class EffortKeys(Strict):
        confidence: float = Field(default=DEFAULT.confidence, gt=0, lt=1)
        certify: int | None = Field(default=None, ge=1)
        soft_limit: bool = DEFAULT.soft_limit
        check_above: int = Field(default=DEFAULT.check_above, ge=0)
        max_trials: int = Field(default=DEFAULT.max_trials, ge=1)
        max_seconds: float | None = Field(default=None, gt=0)

    class Question(Strict):
        question: str = Field(min_length=1)
        target: Literal["nsa"] = "nsa"
        axis: str
        fixed: dict[str, Any] = Field(default_factory=dict)
        fault: str | None = None
        bad: list[str] = Field(default_factory=list)
        limits: LimitKeys = Field(default_factory=LimitKeys)
        effort: EffortKeys = Field(default_factory=EffortKeys)
        controls: list[str] = Field(default_factory=list)
        executor: Literal["forkserver", "local"] = "forkserver"
        seed: int = Field(default=0, ge=0)
        env: dict[str, str] = Field(default_factory=dict)

    return Question


def _explain(error: Any, model: type[BaseModel], lines: Lines) -> str:
    key: Key = tuple(error["loc"])
    where, place = ".".join(str(part) for part in key), lines.place(*key)
    if error["type"] == "extra_forbidden":
        known = _keys(model, key[:-1])
        return f"{place}: unknown key {where!r}{choices(str(key[-1]), known)}"
    if error["type"] == "missing":
        return f"{place}: {where!r} is missing"
    message = error["msg"].partition(" or instance of ")[0].replace("dictionary", "mapping")
    return f"{place}: {where} = {error['input']!r}: {message[0].lower()}{message[1:]}"


def _keys(model: type[BaseModel], key: Key) -> tuple[str, ...]:
    for part in key:
        model = cast("type[BaseModel]", model.model_fields[str(part)].annotation)
    return tuple(model.model_fields)
