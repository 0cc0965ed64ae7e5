"""The shape of a question file, checked by pydantic; its errors become file:line and the nearest known key."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from harness.core.errors import SpecError, suggestion
from harness.core.spec import Effort

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from harness.spec.yaml_file import Key, Lines


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
        raise SpecError("\n".join(_explain(e, model, lines) for e in error.errors())) from error


@cache
def question_model() -> type[BaseModel]:
    """The pydantic model of a question file (its ``model_json_schema()`` serves editors)."""
    from typing import Literal

    from pydantic import BaseModel, ConfigDict, Field, create_model

    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    seconds = (float | None, Field(default=None, gt=0))
    limits = create_model("limits", __base__=Strict, startup_s=seconds, stall_s=seconds, total_s=seconds)
    effort = create_model(
        "effort",
        __base__=Strict,
        confidence=(float, Field(default=Effort().confidence, gt=0, lt=1)),
        certify=(int | None, Field(default=None, ge=1)),
        max_trials=(int, Field(default=Effort().max_trials, ge=1)),
        max_seconds=seconds,
    )
    return create_model(
        "question",
        __base__=Strict,
        question=(str, Field(min_length=1)),
        target=(Literal["nsa"], "nsa"),
        axis=(str, ...),
        fixed=(dict[str, Any], Field(default_factory=dict)),
        fault=(str | None, None),
        bad=(list[str], Field(default_factory=list)),
        limits=(limits, Field(default_factory=limits)),
        effort=(effort, Field(default_factory=effort)),
        controls=(list[str], Field(default_factory=list)),
        executor=(Literal["forkserver", "local"], "forkserver"),
        seed=(int, Field(default=0, ge=0)),
        env=(dict[str, str], Field(default_factory=dict)),
    )


def _explain(error: Any, model: type[BaseModel], lines: Lines) -> str:
    key: Key = tuple(error["loc"])
    where, place = ".".join(str(part) for part in key), lines.place(*key)
    if error["type"] == "extra_forbidden":
        known = _keys(model, key[:-1])
        return f"{place}: unknown key {where!r}{suggestion(str(key[-1]), known)} Known here: {', '.join(known)}."
    if error["type"] == "missing":
        return f"{place}: {where!r} is missing"
    return f"{place}: {where} = {error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}"


def _keys(model: type[BaseModel], key: Key) -> tuple[str, ...]:
    for part in key:
        model = cast("type[BaseModel]", model.model_fields[str(part)].annotation)
    return tuple(model.model_fields)
