"""Upgrade: what earlier versions wrote of a question along one axis, as it is written now. Nothing on disk changes.

Such a question named no task, its decisions named a value instead of a cell, the point of its trials had everything
that was held fixed beside the axis, and its end had a boundary instead of an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, cast

from harness.core.campaign import CampaignSpec, threshold_question
from harness.core.codec import from_json, to_json
from harness.core.matrix import DEFAULT_EFFORT, LEARNED
from harness.core.point import Axis, Point
from harness.core.spec import Effort, Limits  # noqa: TC001
from harness.core.success import Success  # noqa: TC001 - read back by its type
from harness.core.trial import Fault  # noqa: TC001
from harness.core.verdict import Kind  # noqa: TC001

if TYPE_CHECKING:
    from harness.store.journal import Line

NOTHING = Point()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Earlier:
    """The question as it was written; the order and the defaults of its fields are those of then."""

    question: str
    target: str
    axis: Axis
    fixed: Point = NOTHING
    fault: Fault | None = None
    bad: tuple[Kind, ...] = ()
    limits: Limits = LEARNED
    effort: Effort = DEFAULT_EFFORT
    controls: tuple[str, ...] = ()
    executor: str = "forkserver"
    seed: int = 0
    env: tuple[tuple[str, str], ...] = ()
    command: tuple[str, ...] = ()
    success: Success | None = None
    reuse: bool = False


def read_question(data: dict[str, Any]) -> CampaignSpec:
    """The question in ``data``, of any version; as :func:`harness.core.codec.from_json` where it is not one."""
    if "task" in data:
        return from_json(CampaignSpec, data)
    was = from_json(_Earlier, data)
    return threshold_question(**{f.name: getattr(was, f.name) for f in fields(was) if f.name != "command"})


def read_line(line: Line, question: CampaignSpec) -> Line:
    """An event of a run about ``question``, of any version."""
    data = line.data
    match line.event:
        case "decision" if "value" in data:
            cell = to_json(question.at(data["value"]))
            return replace(line, data={**_without(data, "value"), "cell": cell})
        case "start" | "record" | "reuse" | "said":
            return replace(line, data=_at_cells(data, question))
        case "end" if data.get("boundary") is not None:
            boundary = data["boundary"]
            answer = {"boundary": boundary, "because": boundary.get("because", "")}
            return replace(line, data={**_without(data, "boundary"), "answer": answer})
        case "end":
            return replace(line, data=_without(data, "boundary"))
        case _:
            return line


def _without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != key}


def _at_cells(data: dict[str, Any], question: CampaignSpec) -> dict[str, Any]:
    """``data`` with every point in it less what was held fixed; what is no point is left for the reader to refuse."""
    names = question.matrix.space.names
    turned = dict(data)
    for key in ("trial", "record"):
        if isinstance(data.get(key), dict):
            turned[key] = _at_cells(cast("dict[str, Any]", data[key]), question)
    for key in ("point", "cell"):
        if names and key in data:
            settings = [pair for pair in data[key]["settings"] if pair[0] in names]
            turned[key] = {**data[key], "settings": settings}
    return turned
