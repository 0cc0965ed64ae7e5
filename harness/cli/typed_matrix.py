"""The matrix that a command line asks about: axes of our own trainer, or of the program behind ``--``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.foreign import patterns, settings_of, variables
from harness.cli.options import OF_PROGRAMS
from harness.core.errors import CommandError, SpecError
from harness.core.success import Success
from harness.core.verdict import Kind
from harness.spec.inline import fixed_settings, inline_matrix
from harness.spec.matrix import load_matrix
from harness.spec.program import TARGET, program_matrix
from harness.spec.questions import kind_of
from harness.targets.nsa import NsaTarget
from harness.targets.script import ScriptTarget
from harness.trees import repository_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.core.matrix import Matrix
    from harness.core.point import Value
    from harness.settings import Settings

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
