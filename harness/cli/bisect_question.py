"""The threshold question of ``nsa-harness bisect``: of a file, of our own trainer, or of the program behind ``--``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.core.campaign import CampaignSpec, Task, threshold_question
from harness.core.command_line import placeholders
from harness.core.errors import CommandError, SpecError, choices
from harness.core.point import Point
from harness.core.ports import CellRequest
from harness.core.space import Space
from harness.core.trial import CONTROLS
from harness.plan.cells import CellPlanner
from harness.spec.axes import parse_axis
from harness.spec.fault import parse_fault
from harness.spec.matrix import load_matrix
from harness.spec.program import in_order
from harness.spec.questions import load
from harness.store.files import read_text
from harness.targets.nsa import NsaTarget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.space import Factor
    from harness.settings import Settings

TRAINER = "nsa"


def question_of(settings: Settings, options: Mapping[str, Any], command: Sequence[str] = ()) -> CampaignSpec:
    """The threshold question of these options.

    Raises:
        SpecError: an axis, fault, setting, kind or control that does not exist or does not fit, with the nearest
            name that does; a value that our trainer cannot have.
    """
    from harness.cli.matrix_run import how, reuses
    from harness.cli.typed_matrix import bad_kinds, with_effort

    if options["cell"] and not options["from_run"]:
        raise click.UsageError("--cell needs --from-run RUN, the run of a matrix that has it")
    if options["from_run"]:
        spec = _from_run(settings, options, command)
    elif options["file"]:
        spec = _of_file(settings, options, command)
    else:
        spec = _typed(settings, options, command)
    matrix = with_effort(spec.matrix, options)
    spec = replace(
        spec,
        matrix=matrix,
        good=spec.good or matrix.space.good,
        bad_kinds=bad_kinds(options, matrix) or spec.bad_kinds,
        reuse=reuses(matrix, choice=options["reuse"]),
        **how(matrix, options, otherwise=spec.executor),
    )
    spec = replace(spec, controls=_controls(options["controls"], spec))
    if matrix.target == TRAINER and not spec.file:
        _check(spec)
    return spec


def _of_file(settings: Settings, options: Mapping[str, Any], command: Sequence[str]) -> CampaignSpec:
    from harness.cli.typed_matrix import existing, no_file_with
    from harness.spec.questions import ordered, search_spec

    path, _, search = str(options["file"]).partition("::")
    if not search and not command and not _has_version(Path(path)):
        return _of_earlier_file(settings, options, Path(path))
    no_file_with(options, command)
    matrix = load_matrix(existing(path)).matrix
    beside = [entry for entry in matrix.searches if entry.axis is not None]
    if search:
        return search_spec(matrix, search, file=path)
    if options["axis"]:
        question = f"From which {options['axis']} on does it fail?"
        matrix = ordered(matrix, options["axis"])
        return CampaignSpec(question=question, task=Task.BISECT, matrix=matrix, file=path, axis=options["axis"])
    if len(beside) == 1:
        return search_spec(matrix, beside[0].name, file=path)
    names = ", ".join(f"{path}::{entry.name}" for entry in beside) or "none"
    raise SpecError(f"name an axis of {path} with --axis, or one of its searches: {names}")


def _of_earlier_file(settings: Settings, options: Mapping[str, Any], path: Path) -> CampaignSpec:
    """A question file as earlier versions had them, about one axis of our trainer; flags win over it."""
    from harness.cli.typed_matrix import fixed_of

    base = load(path)
    axis = parse_axis(options["axis"]) if options["axis"] else base.line
    fixed = {**fixed_of(settings, {}), **dict(base.matrix.base.config), **fixed_of(None, options)}
    if axis.path in fixed:
        raise SpecError(f"{axis.path} is held fixed at {fixed[axis.path]!r} and varied by --axis {axis.name}; choose")
    typed = f"From which {axis.name} in {axis.values[0]}..{axis.values[-1]} does training fail?"
    return threshold_question(
        question=typed if options["axis"] else base.question,
        axis=axis,
        fixed=Point.of(fixed),
        fault=base.matrix.fault if options["fault"] is None else parse_fault(options["fault"]),
        bad=base.bad_kinds,
        limits=base.matrix.limits,
        effort=base.matrix.effort,
        controls=base.controls,
        executor=base.executor,
        env=base.matrix.base.env,
    )


def _from_run(settings: Settings, options: Mapping[str, Any], command: Sequence[str]) -> CampaignSpec:
    """The way from the good cell to a cell of an earlier run of a matrix, along one axis."""
    from harness.cli.typed_matrix import no_file_with
    from harness.spec.cells import parse_cell
    from harness.spec.questions import ordered
    from harness.store.history import History
    from harness.store.run_store import find_run, recalled

    no_file_with({**options, "fault": options["fault"] or options["file"]}, command)
    if not options["cell"]:
        raise click.UsageError("--from-run needs --cell CELL, the cell of that run that failed")
    question = recalled(History.read(find_run(settings.runs, options["from_run"])).question, dict(settings.whole_env))
    space = question.matrix.space
    cell = parse_cell(options["cell"], space)
    moved = [name for name, value in cell if value != space.factor(name).good]
    axis = options["axis"] or (moved[0] if len(moved) == 1 else None)
    if axis not in moved:
        choice = f"one of {', '.join(moved)}" if moved else "another cell: this is the good one"
        others = "" if axis is None or not moved else f"; {axis} is at its good value there"
        raise SpecError(f"{space.name_of(cell)} differs from the good cell in {len(moved)} axes; give {choice}{others}")
    good = Point.of({**dict(cell), axis: space.factor(axis).good})
    return CampaignSpec(
        question=f"From which {axis} on does {space.name_of(cell)} of {question.matrix.name} fail?",
        task=Task.BISECT,
        matrix=ordered(question.matrix, axis),
        file=question.file,
        axis=axis,
        good=good,
    )


def _typed(settings: Settings, options: Mapping[str, Any], command: Sequence[str]) -> CampaignSpec:
    from harness.cli.typed_matrix import typed_matrix

    if not options["axis"]:
        raise _nothing_to_vary(command)
    matrix = typed_matrix(settings, options, command, axes=[options["axis"]])
    factor, *others = map(in_order, matrix.space.factors)
    if others:
        name = others[0].name
        raise CommandError(f"{name} is a flag that is neither varied nor held: give --set {name}=1 or --set {name}=0")
    return CampaignSpec(
        question=_words(factor, command),
        task=Task.BISECT,
        matrix=replace(matrix, name=factor.name, space=Space(factors=(factor,))),
        axis=factor.name,
    )


def _nothing_to_vary(command: Sequence[str]) -> SpecError:
    if not command:
        example = "give --axis n_layers, or a matrix file (examples: nsa-harness matrix copy)"
        return SpecError(f"nothing to vary: {example}")
    places = placeholders(command)
    example = f"{places[0].name}=1..12" if places else "n_layers=1..12, and {n_layers} where the value belongs"
    return CommandError(f"nothing to vary: give --axis {example}")


def _words(factor: Factor, command: Sequence[str]) -> str:
    first, last = factor.good, factor.bad
    if factor.bundles[0].commit or factor.bundles[0].python:
        what = "commit" if factor.bundles[0].commit else f"{factor.name} interpreter"
        return f"Since which {what} does it fail?"
    clause = f"this fail: {' '.join(command)}" if command else "training fail?"
    return f"From which {factor.name} in {first}..{last} does {clause}"


def _controls(names: tuple[str, ...], spec: CampaignSpec) -> tuple[str, ...]:
    """What is run beside the failure: as asked, as the file says, else the one thing of our trainer to change."""
    if NONE in names:
        return ()
    if not names:
        return spec.controls or tuple(filter(None, [spec.usual_control]))
    if spec.matrix.target != TRAINER:
        raise SpecError(f"--control {names[0]} changes our own trainer and its numbers; this question has no control")
    for name in names:
        if name not in CONTROLS:
            raise SpecError(f"unknown control {name!r}{choices(name, (*CONTROLS, NONE))}")
    return names


NONE = "none"


def _check(spec: CampaignSpec) -> None:
    """Build every value's trial, the fault and the controls once: what is wrong is wrong before any trial."""
    planner = CellPlanner(spec, target=NsaTarget(python=""), code="", machine="")
    for value in spec.line.values:
        planner.like(CellRequest(cell=spec.at(value), role="search", reason=""))


def _has_version(path: Path) -> bool:
    """A matrix file says so in its first key; a question file of an earlier version has none."""
    try:
        lines = read_text(path).splitlines()
    except (OSError, ValueError):
        return False  # the reader of question files says what is wrong with it
    return any(line.startswith("version:") for line in lines)
