"""What a command line asks, of a file, of our own trainer or of the program behind ``--``: a matrix, and a question."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.foreign import patterns, settings_of, variables
from harness.cli.matrix_options import OF_PROGRAMS
from harness.core.campaign import CampaignSpec, Task, threshold_question
from harness.core.command_line import placeholders
from harness.core.errors import CommandError, SpecError, choices, suggestion
from harness.core.matrix import MatrixStrategy, SearchKind
from harness.core.point import Point
from harness.core.ports import CellRequest
from harness.core.space import Space
from harness.core.success import Success
from harness.core.trial import CONTROLS
from harness.core.verdict import Kind
from harness.plan.cells import CellPlanner
from harness.search.cells import planned_cells
from harness.spec.axes import parse_axis
from harness.spec.fault import parse_fault
from harness.spec.inline import TARGET, fixed_settings, in_order, inline_matrix, program_matrix
from harness.spec.matrix import load_matrix
from harness.spec.matrix_axes import chosen_cells, parse_cell, parse_shard, shard_of
from harness.spec.questions import kind_of, load, ordered, search_spec
from harness.store.files import read_text
from harness.store.history import History
from harness.store.run_store import find_run, recalled
from harness.targets.nsa import NsaTarget
from harness.targets.script import ScriptTarget
from harness.trees import repository_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.core.matrix import Matrix
    from harness.core.point import Value
    from harness.core.space import Factor
    from harness.settings import Settings

QUESTIONS = {
    Task.MINIMISE: "Which settings does the failure need?",
    Task.EXPLORE: "Which combinations of settings fail?",
}

SHORTCUTS = {"attention": "model.attention", "seq_len": "train.seq_len", "steps": "train.steps"}
"""Options that are short for ``--set PATH=VALUE`` of our own trainer."""

OURS = ("fault", "attention", "seq_len")
"""Options that speak of our own trainer."""


def typed_matrix(
    settings: Settings, options: Mapping[str, Any], command: Sequence[str], *, axes: Iterable[str]
) -> Matrix:
    """The matrix of ``axes``, of ``command`` where there is one.

    Raises:
        SpecError: an axis, value or setting that does not exist or does not fit, or nothing to vary.
        UsageError: an option that says nothing about this program.
    """
    if command:
        return _of_command(settings, options, command, axes)
    for name in OF_PROGRAMS:
        if options.get(name):
            raise click.UsageError(f"{_option(name)} needs a command behind --")
    fixed = fixed_of(settings, options)
    return inline_matrix(axes, fixed=fixed, fault=options["fault"], repository=repository_of("nsa"))


def matrix_of(settings: Settings, file: str | None, options: Mapping[str, Any], command: Sequence[str]) -> Matrix:
    """The matrix in ``file`` (``FILE[::SEARCH]``), or the typed one without a file; limits of the command line win."""
    if file is None:
        matrix = typed_matrix(settings, options, command, axes=options["axes"])
    else:
        no_file_with(options, command)
        matrix = load_matrix(existing(file.partition("::")[0])).matrix
    return with_effort(matrix, options)


def fixed_of(settings: Settings | None, options: Mapping[str, Any]) -> dict[str, Value]:
    """The settings of our own trainer that are held: those of the environment of ``settings``, then of ``options``."""
    fixed = NsaTarget(python="").from_environment(dict(settings.patient_env)) if settings else {}
    short = [(path, str(options[name])) for name, path in SHORTCUTS.items() if options.get(name) is not None]
    return fixed | fixed_settings([*short, *options.get("settings", ())])


def _of_command(settings: Settings, options: Mapping[str, Any], command: Sequence[str], axes: Iterable[str]) -> Matrix:
    for name in OURS:
        if options.get(name) is not None:  # also an empty text, of a shell variable that is not set
            raise CommandError(
                f"{_option(name)} speaks of our own trainer and says nothing about the command behind --; leave it out"
            )
    if options["executor"] not in (None, ScriptTarget.executor):
        raise CommandError(f"a command is started by the executor {ScriptTarget.executor}; leave --executor out")
    matrix = program_matrix(
        command,
        axes=axes,
        settings=settings_of(command, {**options, "values": options["settings"]}),
        env=variables(options["env"]),
        environ=dict(settings.whole_env),
        repository=repository_of(TARGET),
    )
    ScriptTarget(python="").config(dict(matrix.bundle(matrix.space.good).config))
    return replace(matrix, success=Success(require=patterns(options["success"], option="--success")))


def bad_kinds(options: Mapping[str, Any], matrix: Matrix) -> tuple[Kind, ...]:
    """The kinds that --bad names; SpecError for one that there is not, or that this program never shows."""
    kinds = tuple(map(kind_of, options["bad"]))
    if Kind.NONFINITE in kinds and matrix.target == TARGET:
        raise CommandError(
            "--bad nonfinite is for our own trainer; nobody looks at the loss of another program. Let it raise where "
            "its loss is not finite, and leave --bad out; or have it print what shows a finite one, and give "
            "--success REGEX --bad below_target"
        )
    return kinds


def with_effort(matrix: Matrix, options: Mapping[str, Any]) -> Matrix:
    """``matrix`` with the limits that the command line sets, of a trial and of the whole run."""
    fields = {"max_seconds": "budget", "certify": "certify", "check_above": "check_above"}
    fields |= {"max_trials": "max_trials", "soft_limit": "soft_limit"}
    effort = replace(matrix.effort, **_asked(options, fields))
    limits = _asked(options, {"startup_s": "startup", "stall_s": "stall", "total_s": "total"})
    return replace(matrix, effort=effort, limits=replace(matrix.limits, **limits))


def _asked(options: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """The values of ``fields``, each named with the option that sets it; without those that nobody asked for."""
    return {field: options[name] for field, name in fields.items() if options.get(name) is not None}


def existing(path: str) -> Path:
    """The path of a file that is there; a usage error otherwise."""
    try:
        is_there = Path(path).is_file()
    except OSError:  # no file can have such a name
        is_there = False
    if not is_there:
        raise click.UsageError(f"{path} is not there; nsa-harness matrix copy writes examples to ./matrices")
    return Path(path)


def no_file_with(options: Mapping[str, Any], command: Sequence[str]) -> None:
    """Refuse what a matrix file says itself; SpecError."""
    if command:
        raise SpecError("a file and a command behind -- are two questions; leave one of them out")
    for name in ("axes", "fault", "settings", "steps", *OF_PROGRAMS):
        if options.get(name):
            raise SpecError(f"{_option(name)} is for a question without a file; write it into the file")


def _option(name: str) -> str:
    return {"settings": "--set", "axes": "--axis"}.get(name, f"--{name.replace('_', '-')}")


def how(matrix: Matrix, options: Mapping[str, Any], *, otherwise: str = "forkserver") -> dict[str, Any]:
    """The options that say how trials are run; another program, interpreter or commit cannot be forked.

    ``otherwise`` is the executor where none is asked for and none is called for.
    """
    fresh = matrix.target != "nsa" or any(bundle.python or bundle.commit for bundle in matrix.space.bundles)
    return {"executor": options["executor"] or ("local" if fresh else otherwise), "seed": options["seed"]}


def reuses(matrix: Matrix, *, choice: bool | None) -> bool:
    """Whether a search counts trials of earlier runs: as asked, else where it is known which code those ran.

    That is so of our own trainer and of commits. What a command runs may have changed from one run to the next.
    """
    default = matrix.target == "nsa" or any(bundle.commit for bundle in matrix.space.bundles)
    return default if choice is None else choice


# -- of bisect: from which value on


def question_of_bisect(settings: Settings, options: Mapping[str, Any], command: Sequence[str] = ()) -> CampaignSpec:
    """The threshold question of these options.

    Raises:
        SpecError: an axis, fault, setting, kind or control that does not exist or does not fit, with the nearest
            name that does; a value that our trainer cannot have.
    """
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
    if matrix.target == "nsa" and not spec.file:
        _check(spec)
    return spec


def _of_file(settings: Settings, options: Mapping[str, Any], command: Sequence[str]) -> CampaignSpec:
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
    if "none" in names:
        return ()
    if not names:
        return spec.controls or tuple(filter(None, [spec.usual_control]))
    if spec.matrix.target != "nsa":
        raise SpecError(f"--control {names[0]} changes our own trainer and its numbers; this question has no control")
    for name in names:
        if name not in CONTROLS:
            raise SpecError(f"unknown control {name!r}{choices(name, (*CONTROLS, 'none'))}")
    return names


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


# -- of minimise and explore: which settings


def question_of_search(
    settings: Settings, file: str | None, task: Task, options: dict[str, Any], *, command: Sequence[str] = ()
) -> CampaignSpec:
    """The question: of the file, of the search beside it, or of what was typed; flags win."""
    path, _, search = (file or "").partition("::")
    matrix = matrix_of(settings, file, options, command)
    spec = _from_file(matrix, path, search, task)
    n_axes, strength = len(matrix.space.factors), options.get("strength")
    if strength is not None and strength > n_axes:
        raise SpecError(f"--strength {strength} needs as many axes, and there are {n_axes}")
    fields: dict[str, Any] = {}
    for field, name in (("good", "good_cell"), ("bad", "bad_cell")):
        if options.get(name) is not None:
            fields[field] = parse_cell(options[name], matrix.space)
    for field, name in (("causes", "all_causes"), ("explain", "explain"), ("fail_fast", "stop_after_first")):
        if options.get(name):
            fields[field] = options[name]
    return replace(
        spec,
        strength=strength or min(spec.strength, n_axes),
        **fields,
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


def signature_of(matrix: Matrix, name: str | None) -> str | None:
    """``name``, if the matrix has such a signature; SpecError with the nearest otherwise."""
    names = [row.name for row in matrix.signatures]
    if name is not None and name not in names:
        listing = ", ".join(names) or "none"
        raise SpecError(f"unknown signature {name!r}{suggestion(name, names)}; the file has {listing}")
    return name


# -- of matrix run and trial: how cells end


def question_of_cells(
    settings: Settings, file: str | None, options: dict[str, Any], *, command: Sequence[str] = ()
) -> CampaignSpec | None:
    """What these options ask of the matrix in ``file``, or of the one that is typed; None when that selects nothing."""
    path, _, search = (file or "").partition("::")
    if file is None and not command and not options["axes"]:
        raise click.UsageError("name a matrix file, axes with --axis, or --resume a run")
    matrix = matrix_of(settings, file, options, command)
    if file is None:
        matrix = replace(matrix, strategy=MatrixStrategy.FULL)
    if options["strategy"]:
        matrix = replace(matrix, strategy=MatrixStrategy(options["strategy"]))
    if options["tags"] and not set(options["tags"]) <= set(matrix.tags):
        return None
    if search:
        spec = search_spec(matrix, search, file=path)
        return replace(spec, reuse=reuses(matrix, choice=options["reuse"]), **how(matrix, options))
    cells = chosen_cells(
        matrix, planned_cells(matrix), cells=options["cells"], only=options["only"], gpus=options["gpus"]
    )
    if options["shard"]:
        cells = shard_of(cells, *parse_shard(options["shard"]))
    if not cells:
        return None
    return CampaignSpec(
        question=matrix.description or f"How do the cells of {matrix.name} end?",
        task=Task.CELLS,
        matrix=matrix,
        file=path,
        cells=cells,
        passes=options["repeat"] or matrix.passes,
        fail_fast=options["fail_fast"],
        reuse=bool(options["reuse"]),
        **how(matrix, options),
    )


def question_of_trial(text: str, *, signature: str | None, repeat: int, options: Mapping[str, Any]) -> CampaignSpec:
    """What ``trial FILE::CELL`` asks: one cell, as often as it has to pass."""
    path, _, cell = text.partition("::")
    matrix = with_effort(load_matrix(existing(path)).matrix, options)
    point = parse_cell(cell, matrix.space)
    return CampaignSpec(
        question=f"Does {matrix.space.name_of(point)} of {matrix.name} pass?",
        task=Task.CELLS,
        matrix=matrix,
        file=path,
        cells=(point,),
        passes=repeat,
        until_bad=True,
        signature=signature_of(matrix, signature),
        **how(matrix, options),
    )
