"""Flags, the environment and a file become one BisectSpec; flags win over the file, the file over the environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import SpecError, choices
from harness.core.point import Point, Value
from harness.core.spec import BisectSpec, Effort, Limits
from harness.plan.trials import CONTROLS, Planner
from harness.spec.axes import parse_axis, setting
from harness.spec.fault import parse_fault
from harness.spec.load import kind_of, load
from harness.targets.nsa import NsaTarget

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.settings import Settings

SHORTCUTS = {"attention": "model.attention", "seq_len": "train.seq_len", "steps": "train.steps"}
"""Options that are short for ``--set PATH=VALUE``."""


def question_of(settings: Settings, options: Mapping[str, Any]) -> BisectSpec:
    """The question that these options ask.

    Raises:
        SpecError: an axis, fault, setting, kind or control that does not exist or does not fit, with the nearest
            name that does.
    """
    base = load(Path(options["file"])) if options["file"] else None
    if base is None and not options["axis"]:
        raise SpecError("nothing to vary: give --axis n_layers, or a question file (examples: nsa-harness matrix copy)")
    axis = parse_axis(options["axis"]) if options["axis"] else _required(base).axis
    fault = parse_fault(options["fault"]) if options["fault"] is not None else (base.fault if base else None)
    fixed = _fixed(settings, options, base)
    if axis.path in dict(fixed):
        raise SpecError(
            f"{axis.path} is held fixed at {fixed.get(axis.path)!r} and varied by --axis {axis.name}; choose"
        )
    spec = BisectSpec(
        question=_words(axis.name, axis.values, base, changed=bool(options["axis"])),
        target="nsa",
        axis=axis,
        fixed=fixed,
        fault=fault,
        bad=tuple(kind_of(word) for word in options["bad"]) or (base.bad if base else ()),
        limits=limits_of(options, base),
        effort=effort_of(options, base),
        controls=(),
        executor=options["executor"] or (base.executor if base else "forkserver"),
        seed=options["seed"],
        env=base.env if base else (),
        reuse=options["reuse"] is not False,
    )
    spec = replace(spec, controls=_controls(options["controls"], spec, base))
    _check(spec)
    return spec


def _required(base: BisectSpec | None) -> BisectSpec:
    if base is None:
        raise SpecError("no question file was given")
    return base


def _words(name: str, values: tuple[Value, ...], base: BisectSpec | None, *, changed: bool) -> str:
    if base is not None and base.question and not changed:
        return base.question
    return f"From which {name} in {values[0]}..{values[-1]} does training fail?"


def _fixed(settings: Settings, options: Mapping[str, Any], base: BisectSpec | None) -> Point:
    target = NsaTarget(python=settings.python)
    held = target.from_environment(dict(settings.patient_env))
    held.update(dict(base.fixed) if base else {})
    held.update({path: options[name] for name, path in SHORTCUTS.items() if options[name] is not None})
    held.update(_assigned(options["settings"]))
    return Point.of(held)


def _assigned(pairs: Iterable[tuple[str, str]]) -> dict[str, Value]:
    held: dict[str, Value] = {}
    for name, text in pairs:
        where = setting(name)
        try:
            held[where.path] = where.parsed(text)
        except ValueError as error:
            raise SpecError(str(error)) from error
    return held


def limits_of(options: Mapping[str, Any], base: BisectSpec | None) -> Limits:
    """The limits that the user set, in a file or by options."""
    limits = base.limits if base else Limits()
    given = {f"{name}_s": options[name] for name in ("startup", "stall", "total") if options[name] is not None}
    return replace(limits, **given)


def effort_of(options: Mapping[str, Any], base: BisectSpec | None) -> Effort:
    """How much the search may spend."""
    effort = base.effort if base else Effort()
    given = {
        "certify": options["certify"],
        "check_above": options.get("check_above"),
        "soft_limit": options.get("soft_limit"),
        "max_trials": options["max_trials"],
        "max_seconds": options["budget"],
    }
    return replace(effort, **{name: value for name, value in given.items() if value is not None})


def _controls(given: tuple[str, ...], spec: BisectSpec, base: BisectSpec | None) -> tuple[str, ...]:
    if "none" in given:
        return ()
    for name in given:
        if name not in CONTROLS:
            raise SpecError(f"unknown control {name!r}{choices(name, (*CONTROLS, 'none'))}")
    if given:
        return given
    if base is not None and base.controls:
        return base.controls
    # One thing changed at the failing value: the planted fault if there is one, else the attention.
    if spec.fault:
        return ("no-fault",)
    return () if spec.fixed.get("model.attention") == "dense" else ("dense",)


def _check(spec: BisectSpec) -> None:
    """Build every value's configuration, the fault and the controls once: what is wrong is wrong before any trial."""
    target = NsaTarget(python="")
    for value in spec.axis.values:
        target.config({**dict(spec.fixed), spec.axis.path: value})
    Planner(spec, target=target, code="", machine="")
