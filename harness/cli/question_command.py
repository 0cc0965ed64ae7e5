"""``bisect ... -- COMMAND``: flags and a stranger's command line become one BisectSpec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cli.foreign import patterns, settings_of, variables
from harness.cli.question import effort_of, kind_of, limits_of
from harness.core.errors import SpecError
from harness.core.point import Point
from harness.core.spec import BisectSpec
from harness.core.success import Success
from harness.plan.trials import Planner
from harness.spec.axes import free_axis
from harness.targets.script import ScriptTarget, placeholders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OURS = ("file", "fault", "attention", "seq_len", "executor")
"""Options that speak of our own trainer."""


def question_of_command(command: Sequence[str], options: Mapping[str, Any]) -> BisectSpec:
    """The question that these options ask of ``command``.

    Raises:
        SpecError: an option of our own trainer, no axis, an axis that is no placeholder, or a value that is missing.
    """
    for name in OURS:
        if options[name]:
            what = "a question file" if name == "file" else f"--{name.replace('_', '-')}"
            raise SpecError(
                f"{what} speaks of our own trainer and says nothing about the command behind --; leave it out"
            )
    if given := [name for name in options["controls"] if name != "none"]:
        raise SpecError(f"--control {given[0]} changes our own trainer; a command has no control of ours")
    if not options["axis"]:
        names = placeholders(command)
        example = f"{names[0]}=1..12" if names else "n_layers=1..12, and {n_layers} where the value belongs"
        raise SpecError(f"nothing to vary: give --axis {example}")
    axis = free_axis(options["axis"])
    fixed = settings_of(command, {**options, "values": options["settings"]})
    if axis.path in fixed:
        raise SpecError(f"{axis.name} is held fixed by --set and varied by --axis; choose")
    required = patterns(options["success"], option="--success")
    spec = BisectSpec(
        question=f"From which {axis.name} in {axis.values[0]}..{axis.values[-1]} does this fail: {' '.join(command)}",
        target=ScriptTarget.name,
        axis=axis,
        fixed=Point.of(fixed),
        bad=tuple(kind_of(word) for word in options["bad"]),
        limits=limits_of(options, None),
        effort=effort_of(options, None),
        executor=ScriptTarget.executor,
        seed=options["seed"],
        env=variables(options["env"]),
        command=tuple(command),
        success=Success(require=required) if required else None,
        reuse=bool(options["reuse"]),
    )
    Planner(spec, target=ScriptTarget(python=""), code="", machine="")
    ScriptTarget(python="").config({**fixed, axis.path: axis.values[0]})
    return spec
