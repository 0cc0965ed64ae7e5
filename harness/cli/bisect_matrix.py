"""``nsa-harness bisect`` where the axis is one of a matrix file, the commits of the program, or interpreters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.foreign import INVOCATION
from harness.core.campaign import CampaignSpec, Task
from harness.core.command_line import placeholders
from harness.core.errors import CommandError, SpecError
from harness.core.point import Point
from harness.core.space import Space
from harness.spec.elsewhere import is_elsewhere
from harness.spec.inline import has_words
from harness.spec.matrix import load_matrix
from harness.spec.program import in_order
from harness.store.files import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.space import Factor
    from harness.settings import Settings


def is_about_a_matrix(settings: Settings, options: Mapping[str, Any], command: Sequence[str]) -> bool:
    """Whether it is about a program, a matrix file, commits, interpreters or words, or goes on with such a run."""
    from harness.cli.campaigns import find
    from harness.store.run_store import is_campaign

    if options["resume"]:
        return is_campaign(find(settings, str(options["resume"])))
    if options["cell"] and not options["from_run"]:
        raise click.UsageError("--cell needs --from-run RUN, the run of a matrix that has it")
    if options["from_run"]:
        return True
    if command or (options["axis"] and (is_elsewhere(options["axis"]) or has_words(options["axis"]))):
        return True
    path, named, _ = str(options["file"] or "").partition("::")
    return bool(named) or (bool(path) and _has_version(Path(path)))


def bisect_matrix(ctx: click.Context, settings: Settings, options: Mapping[str, Any], command: Sequence[str]) -> None:
    """Run the search, or go on with it."""
    from harness.cli.campaigns import begin, finish, resume
    from harness.cluster.placed import On

    if options["resume"]:
        run = resume(settings, name=str(options["resume"]), jobs=options["jobs"], on=On.of(options))
    else:
        spec = question_of(settings, options, command)
        if options["dry_run"]:
            from harness.cli.plan_text import print_plan

            print_plan(settings, spec)
            return
        run = begin(settings, spec, invocation=ctx.meta[INVOCATION], jobs=options["jobs"], on=On.of(options))
    finish(ctx, run, as_json=bool(options["as_json"]))


def question_of(settings: Settings, options: Mapping[str, Any], command: Sequence[str]) -> CampaignSpec:
    """The threshold question of these options."""
    from harness.cli.matrix_run import how, reuses, with_effort
    from harness.spec.load import kind_of

    if options["from_run"]:
        spec = _from_run(settings, options, command)
    elif options["file"]:
        spec = _beside_file(options, command)
    else:
        spec = _along_program(settings, options, command)
    matrix = with_effort(spec.matrix, options)
    return replace(
        spec,
        matrix=matrix,
        good=spec.good or matrix.space.good,
        bad_kinds=tuple(kind_of(word) for word in options["bad"]) or spec.bad_kinds,
        reuse=reuses(matrix, asked=options["reuse"]),
        **how(matrix, options),
    )


def _beside_file(options: Mapping[str, Any], command: Sequence[str]) -> CampaignSpec:
    from harness.cli.matrix_run import existing
    from harness.cli.typed_matrix import no_file_with
    from harness.spec.searches import ordered, search_spec

    no_file_with(options, command)
    path, _, search = str(options["file"]).partition("::")
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


def _from_run(settings: Settings, options: Mapping[str, Any], command: Sequence[str]) -> CampaignSpec:
    """The way from the good cell to a cell of an earlier run of a matrix, along one axis."""
    from harness.cli.campaigns import find
    from harness.cli.typed_matrix import no_file_with
    from harness.spec.cells import parse_cell
    from harness.spec.searches import ordered
    from harness.store.history import History
    from harness.store.recall import recalled

    no_file_with({**options, "fault": options["fault"] or options["file"]}, command)
    if not options["cell"]:
        raise click.UsageError("--from-run needs --cell CELL, the cell of that run that failed")
    question = recalled(History.read(find(settings, options["from_run"])).question, dict(settings.whole_env))
    if not isinstance(question, CampaignSpec):
        raise SpecError(f"{options['from_run']} is no run of a matrix: it has no cells")
    space = question.matrix.space
    cell = parse_cell(options["cell"], space)
    moved = [name for name, value in cell if value != space.factor(name).good]
    axis = options["axis"] or (moved[0] if len(moved) == 1 else None)
    if axis not in moved:
        told = f"one of {', '.join(moved)}" if moved else "another cell: this is the good one"
        others = "" if axis is None or not moved else f"; {axis} is at its good value there"
        raise SpecError(f"{space.name_of(cell)} differs from the good cell in {len(moved)} axes; give {told}{others}")
    held = Point.of({**dict(cell), axis: space.factor(axis).good})
    return CampaignSpec(
        question=f"From which {axis} on does {space.name_of(cell)} of {question.matrix.name} fail?",
        task=Task.BISECT,
        matrix=ordered(question.matrix, axis),
        file=question.file,
        axis=axis,
        good=held,
    )


def _along_program(settings: Settings, options: Mapping[str, Any], command: Sequence[str]) -> CampaignSpec:
    from harness.cli.typed_matrix import typed_matrix

    if given := [name for name in options["controls"] if name != "none"]:
        raise SpecError(f"--control {given[0]} changes our own trainer and its numbers; this question has no control")
    if not options["axis"]:
        names = [place.name for place in placeholders(command)]
        example = f"{names[0]}=1..12" if names else "n_layers=1..12, and {n_layers} where the value belongs"
        raise CommandError(f"nothing to vary: give --axis {example}")
    matrix = typed_matrix(settings, options, command, axes=[options["axis"]])
    factor, *others = (in_order(factor) for factor in matrix.space.factors)
    if others:
        name = others[0].name
        raise CommandError(f"{name} is a flag that is neither varied nor held: give --set {name}=1 or --set {name}=0")
    return CampaignSpec(
        question=_words(factor, command),
        task=Task.BISECT,
        matrix=replace(matrix, name=factor.name, space=Space(factors=(factor,))),
        axis=factor.name,
    )


def _words(factor: Factor, command: Sequence[str]) -> str:
    first, last = factor.good, factor.bad
    if factor.bundles[0].commit or factor.bundles[0].python:
        what = "commit" if factor.bundles[0].commit else f"{factor.name} interpreter"
        return f"Since which {what} does it fail?"
    asked = f"this fail: {' '.join(command)}" if command else "training fail?"
    return f"From which {factor.name} in {first}..{last} does {asked}"


def _has_version(path: Path) -> bool:
    """A matrix file says so in its first key; a question file has none."""
    try:
        lines = read_text(path).splitlines()
    except (OSError, ValueError):
        return False  # the reader of question files says what is wrong with it
    return any(line.startswith("version:") for line in lines)
