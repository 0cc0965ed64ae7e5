"""``nsa-harness bisect`` where the axis is one of a matrix file, the commits of the program, or interpreters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.campaign import CampaignSpec, Task
from harness.core.errors import SpecError
from harness.core.matrix import Matrix
from harness.core.space import Bundle, Space
from harness.core.spec import Limits
from harness.spec.elsewhere import elsewhere_factor, is_elsewhere
from harness.spec.inline import held_settings
from harness.spec.matrix import load_matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import click

    from harness.settings import Settings

SHORTCUTS = {"attention": "model.attention", "seq_len": "train.seq_len", "steps": "train.steps"}


def is_about_a_matrix(settings: Settings, options: Mapping[str, Any]) -> bool:
    """Whether these options ask about a matrix file, commits, interpreters, or go on with a run about them."""
    from harness.cli.campaigns import find
    from harness.store.run_store import is_campaign

    if options["resume"]:
        return is_campaign(find(settings, str(options["resume"])))
    if options["axis"] and is_elsewhere(options["axis"]):
        return True
    path, named, _ = str(options["file"] or "").partition("::")
    return bool(named) or (bool(path) and _has_version(Path(path)))


def bisect_matrix(ctx: click.Context, settings: Settings, options: Mapping[str, Any], command: Sequence[str]) -> None:
    """Run the search, or go on with it."""
    from harness.cli.campaigns import begin, finish, resume

    if options["resume"]:
        run = resume(settings, name=str(options["resume"]))
    else:
        spec = question_of(options, command)
        if options["dry_run"]:
            from harness.cli.searches import print_plan

            print_plan(spec)
            return
        run = begin(settings, spec)
    finish(ctx, run, as_json=bool(options["as_json"]))


def question_of(options: Mapping[str, Any], command: Sequence[str]) -> CampaignSpec:
    """The threshold question of these options."""
    from harness.cli.matrix_run import how, reuses
    from harness.cli.question import kind_of

    spec = _along_program(options, command) if not options["file"] else _beside_file(options)
    matrix = _limited(spec.matrix, options)
    return replace(
        spec,
        matrix=matrix,
        good=spec.good or matrix.space.good,
        bad_kinds=tuple(kind_of(word) for word in options["bad"]),
        reuse=reuses(matrix, asked=options["reuse"]),
        **how(matrix, dict(options)),
    )


def _beside_file(options: Mapping[str, Any]) -> CampaignSpec:
    from harness.cli.matrix_run import existing
    from harness.spec.searches import search_spec

    path, _, search = str(options["file"]).partition("::")
    matrix = load_matrix(existing(path)).matrix
    beside = [entry for entry in matrix.searches if entry.axis is not None]
    if search:
        return search_spec(matrix, search, file=path)
    if options["axis"]:
        matrix.space.factor(options["axis"])
        question = f"From which {options['axis']} on does it fail?"
        return CampaignSpec(question=question, task=Task.BISECT, matrix=matrix, file=path, axis=options["axis"])
    if len(beside) == 1:
        return search_spec(matrix, beside[0].name, file=path)
    names = ", ".join(f"{path}::{entry.name}" for entry in beside) or "none"
    raise SpecError(f"name an axis of {path} with --axis, or one of its searches: {names}")


def _along_program(options: Mapping[str, Any], command: Sequence[str]) -> CampaignSpec:
    from harness.trees import repository_of

    repository = repository_of("command" if command else "nsa")
    factor = elsewhere_factor(options["axis"], repository=repository)
    held = [f"{path}={options[name]}" for name, path in SHORTCUTS.items() if options[name] is not None]
    held += [f"{path}={value}" for path, value in options["settings"]]
    if command and held:
        raise SpecError("settings are of our own trainer; write those of a command into its command line")
    matrix = Matrix(
        name=factor.name,
        target="command" if command else "nsa",
        command=tuple(command),
        base=Bundle(config=held_settings(held), env=tuple(options["env"])),
        space=Space(factors=(factor,)),
    )
    what = "commit" if factor.bundles[0].commit else f"{factor.name} interpreter"
    return CampaignSpec(question=f"Since which {what} does it fail?", task=Task.BISECT, matrix=matrix, axis=factor.name)


def _limited(matrix: Matrix, options: Mapping[str, Any]) -> Matrix:
    given = {f"{name}_s": options[name] for name in ("startup", "stall", "total") if options[name] is not None}
    effort = {
        "certify": options["certify"],
        "check_above": options["check_above"],
        "soft_limit": options["soft_limit"],
        "max_seconds": options["budget"],
        "max_trials": options["max_trials"],
    }
    return replace(
        matrix,
        limits=replace(matrix.limits or Limits(), **given),
        effort=replace(matrix.effort, **{name: value for name, value in effort.items() if value is not None}),
    )


def _has_version(path: Path) -> bool:
    """A matrix file says so in its first key; a question file has none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False  # the reader of question files says what is wrong with it
    return any(line.startswith("version:") for line in lines)
