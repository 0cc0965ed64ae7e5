"""What ``minimise`` and ``explore`` share: the question from a file or from flags, the plan, the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.cli.campaigns import answer
from harness.cli.foreign import COMMAND
from harness.cli.matrix_run import how, reuses
from harness.cli.typed_matrix import bad_kinds, matrix_of
from harness.core.campaign import CampaignSpec, Task
from harness.core.errors import SpecError, suggestion
from harness.core.matrix import SearchKind
from harness.spec.cells import parse_cell
from harness.spec.questions import search_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

    from harness.core.matrix import Matrix
    from harness.settings import Settings

MINIMISE, EXPLORE = Task.MINIMISE, Task.EXPLORE
QUESTIONS = {
    Task.MINIMISE: "Which settings does the failure need?",
    Task.EXPLORE: "Which combinations of settings fail?",
}


def run_search(ctx: click.Context, file: str | None, task: Task, options: dict[str, Any]) -> None:
    """Run the search that the command line asks for, or go on with an earlier one."""
    answer(ctx, options, lambda settings: question_of(settings, file, task, options, command=ctx.meta[COMMAND]))


def question_of(
    settings: Settings, file: str | None, task: Task, options: dict[str, Any], *, command: Sequence[str] = ()
) -> CampaignSpec:
    """The question: of the file, of the search beside it, or of what was typed; flags win."""
    path, _, search = (file or "").partition("::")
    matrix = matrix_of(settings, file, options, command)
    spec = _from_file(matrix, path, search, task)
    return replace(
        spec,
        strength=_strength(matrix, options.get("strength"), usual=spec.strength),
        **_cells(matrix, options),
        **_fields(options),
        bad_kinds=bad_kinds(options, matrix) or spec.bad_kinds,
        signature=signature_of(matrix, options["signature"]) or (None if options["bad"] else spec.signature),
        reuse=reuses(matrix, choice=options["reuse"]),
        **how(matrix, options),
    )


def _from_file(matrix: Matrix, path: str, search: str, task: Task) -> CampaignSpec:
    """The search that was named, else the only one of this kind beside the matrix, else one from corner to corner."""
    if search:
        spec = search_spec(matrix, search, file=path)
        if spec.task is not task:
            raise SpecError(
                f"search {search!r} is a {spec.task}, not a {task}; run it with matrix run {path}::{search}"
            )
        return spec
    beside = [entry.name for entry in matrix.searches if entry.kind is SearchKind(task.value)]
    if len(beside) == 1:
        return search_spec(matrix, beside[0], file=path)
    if len(beside) > 1:
        raise SpecError(f"{path} has several: {', '.join(beside)}; name one, e.g. {path}::{beside[0]}")
    return CampaignSpec(question=QUESTIONS[task], task=task, matrix=matrix, file=path)


def _cells(matrix: Matrix, options: dict[str, Any]) -> dict[str, Any]:
    names = {"good": options.get("good_cell"), "bad": options.get("bad_cell")}
    return {name: parse_cell(text, matrix.space) for name, text in names.items() if text is not None}


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    names = {"all_causes": "causes", "explain": "explain", "stop_after_first": "fail_fast"}
    return {field: options[name] for name, field in names.items() if options.get(name)}


def _strength(matrix: Matrix, asked: int | None, *, usual: int) -> int:
    """Of how many axes every combination is tried: no more than there are."""
    n_axes = len(matrix.space.factors)
    if asked is not None and asked > n_axes:
        raise SpecError(f"--strength {asked} needs as many axes, and there are {n_axes}")
    return asked or min(usual, n_axes)


def signature_of(matrix: Matrix, name: str | None) -> str | None:
    """``name``, if the matrix has such a signature; SpecError with the nearest otherwise."""
    names = [row.name for row in matrix.signatures]
    if name is not None and name not in names:
        listing = ", ".join(names) or "none"
        raise SpecError(f"unknown signature {name!r}{suggestion(name, names)}; the file has {listing}")
    return name
