"""A matrix from the command line, of our own trainer or of somebody's program.

``--axis n_layers=1..12 --axis tied_head=false,true``, or ``--axis depth=1..8 -- python train.py {amp:--amp}``; along
``commit=v1..HEAD`` and ``env:torch=/venvs/a/bin/python,..`` the program itself changes.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.command_line import PYTHON, flag, removable_variables
from harness.core.errors import CommandError, SpecError, suggestion
from harness.core.matrix import Matrix
from harness.core.point import Axis, AxisType, Value, word_of
from harness.core.space import Bundle, Factor, Space
from harness.spec.amounts import items_of
from harness.spec.axes import numbers_of, parse_axis, setting
from harness.spec.fault import parse_fault
from harness.spec.matrix_axes import (
    axes_of,
    places_of,
    prove_distinct_when_hidden,
    prove_interpreter,
    typed_value,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.core.command_line import Placeholder
    from nsa.config import ConfigPath


COMMIT, ENVIRONMENT = "commit", "env:"
SHORT = 12
LIMIT_S = 30.0


def elsewhere_factor(text: str, *, repository: Path) -> Factor | None:
    """The axis that ``text`` names, its values in the order in which they are given; the first passes, the last fails.

    None where the program does not change along it.

    ``commit=A..B`` is A and every commit after it up to B, along first parents; ``commit=A,B,C`` just these.
    ``env:NAME=P,Q`` is the axis NAME with an interpreter for each value.

    Raises:
        SpecError: fewer than two values, or git knows no such commit.
    """
    name, _, values = map(str.strip, text.partition("="))
    if name != COMMIT and not name.startswith(ENVIRONMENT):
        return None
    words = items_of(values)
    if name == COMMIT and len(words) == 1 and ".." in words[0]:
        words = _range(words[0], repository)
    if len(words) < 2:
        example = f"{COMMIT}=v1..HEAD" if name == COMMIT else f"{name}=/venvs/a/bin/python,/venvs/b/bin/python"
        raise SpecError(f"axis {name!r} needs at least two values, e.g. {example}")
    axis = Axis(name=name.removeprefix(ENVIRONMENT), path="", type=AxisType.ORDERED, values=tuple(words))
    bundles = tuple(Bundle(commit=word) if name == COMMIT else Bundle(python=word) for word in words)
    return Factor(axis=axis, good=words[0], bad=words[-1], bundles=bundles)


def _range(text: str, repository: Path) -> list[str]:
    first, last = (word.strip(". ") for word in text.split("..", 1))
    last = last or "HEAD"
    begin = git(repository, "rev-parse", "--verify", f"{first}^{{commit}}").strip()
    later = git(repository, "rev-list", "--reverse", "--first-parent", f"{begin}..{last}").split()
    if not later:
        end = git(repository, "rev-parse", f"{last}^{{commit}}").strip()
        raise SpecError(_no_commit_after(first, begin, last, end))
    return [commit[:SHORT] for commit in (begin, *later)]


def _no_commit_after(first: str, begin: str, last: str, end: str) -> str:
    """Why ``first..last`` has no commit: of a range without any, the last commit comes before the first or is it."""
    if begin == end:
        return f"{COMMIT}={first}..{last} has no second commit: {first} and {last} are the same one, {begin[:SHORT]}"
    return (
        f"{COMMIT}={first}..{last} is turned round: {last} comes before {first} in their history; the commit that "
        f"passes stands first: {COMMIT}={last}..{first}"
    )


def git(repository: Path, *argv: str, limit_s: float = LIMIT_S) -> str:
    """What git says in ``repository``; SpecError where it fails, does not come to an end, or is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *argv], capture_output=True, text=True, timeout=limit_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpecError(f"git {argv[0]} in {repository} failed: {error}") from error
    if done.returncode:
        complaint = done.stderr.strip() or f"no such commit in {repository}"
        raise SpecError(f"git {' '.join(argv[:2])} .. {argv[-1]}: {complaint}")
    return done.stdout


HERE = Path()


def inline_matrix(
    axes: Iterable[str], *, fixed: Mapping[str, Value] | None = None, fault: str | None = None, repository: Path = HERE
) -> Matrix:
    """The matrix of these axes, on our own trainer; ``repository`` has its commits.

    Numbers ascend, and the smallest is the good value; of words and flags the first is good and the last bad.

    Raises:
        SpecError: an unknown setting or value, with the nearest, or no axis at all.
    """
    factors = [elsewhere_factor(text, repository=repository) or _factor(text) for text in axes]
    if not factors:
        raise SpecError("nothing to vary: name a matrix file, or axes such as --axis n_layers=1..12")
    for factor in factors:
        if fixed and factor.axis.path in fixed:
            value = fixed[factor.axis.path]
            raise SpecError(f"{factor.axis.path} is held fixed at {value!r} and varied by --axis {factor.name}; choose")
    by_name = axes_of(factors)
    return Matrix(
        name=name_of_axes(by_name),
        space=Space(factors=tuple(factors)),
        base=Bundle(config=tuple(sorted((fixed or {}).items()))),
        fault=None if fault is None else parse_fault(fault, axes=by_name),
    )


def name_of_axes(names: Iterable[str]) -> str:
    """What a matrix that was typed is called, and so the folder of its run."""
    return "-".join(re.findall(r"\w+", " ".join(names)))[:40]


def fixed_settings(pairs: Iterable[tuple[str, str]]) -> dict[str, Value]:
    """Names and values as texts, as settings of our own trainer by path; SpecError for an unknown one."""
    fixed: dict[str, Value] = {}
    for name, text in pairs:
        where = setting(name)
        fixed[where.path] = _parsed(where, text)
    return fixed


def _factor(text: str) -> Factor:
    name, equals, values = map(str.strip, text.partition("="))
    where = setting(name)
    axis = parse_axis(text) if where.type in (int, float) else _in_words(where, name, values if equals else "")
    return factor_along(axis)


def factor_along(axis: Axis) -> Factor:
    """The factor whose first value is good and whose last is bad, each value the setting that the axis is about."""
    bundles = tuple(Bundle(config=((axis.path, value),)) for value in axis.values)
    return Factor(axis=axis, good=axis.values[0], bad=axis.values[-1], bundles=bundles)


def _in_words(where: ConfigPath, name: str, values: str) -> Axis:
    """An axis of words or of a flag; SpecError where it has fewer than two."""
    words = tuple(_parsed(where, word) for word in items_of(values))
    if len(words) < 2:
        raise SpecError(f"axis {name!r} needs its values, the good one first, e.g. {name}={_example(where)}")
    kind = AxisType.FLAG if where.type is bool else AxisType.CATEGORICAL
    return Axis(name=name, path=where.path, type=kind, values=words)


def _parsed(where: ConfigPath, word: str) -> Value:
    try:
        return where.parsed(word.strip())
    except ValueError as error:
        raise SpecError(str(error)) from error


def _example(where: ConfigPath) -> str:
    return "false,true" if where.type is bool else f"{where.default},.."


TARGET = "command"


def program_matrix(
    command: Sequence[str],
    *,
    axes: Iterable[str],
    settings: Mapping[str, Value],
    env: Sequence[tuple[str, str]],
    environ: Mapping[str, str],
    repository: Path,
) -> Matrix:
    """The matrix of ``command``: its axes are those that are named, and every flag in it that is not held.

    ``settings`` are those of the target ``command``; ``args.NAME`` holds a place of the command line, and an axis of
    that name at one of its values. ``environ`` is what the program inherits, ``repository`` has its commits.

    Raises:
        CommandError: an axis without values or without a place, a place that is neither varied nor held, or a
            variable that is in ``environ`` and so could not be taken away.
    """
    places = places_of(command)
    fixed = {path.removeprefix("args."): value for path, value in settings.items() if path.startswith("args.")}
    factors: list[Factor] = []
    base = dict(settings)
    for text in axes:
        if (factor := elsewhere_factor(text, repository=repository)) is not None:
            prove_interpreter(factor, command)
            factors.append(factor)
            continue
        factor = _place_factor(text, places)
        if factor.name not in fixed:
            factors.append(factor)
            continue
        base[factor.axis.path] = value_of(factor.axis, typed_value(factor.axis, word_of(fixed[factor.name])))
    names = [factor.name for factor in factors]
    for name, place in places.items():
        if place.is_flag and name not in names and name not in fixed:
            names.append(name)
            factors.append(_place_factor(name, places))
    _check_places(places, varied=set(names), fixed=fixed)
    if not factors:
        raise CommandError(f"nothing to vary: {_what_to_vary(places)}")
    for name, place in removable_variables(command):
        if name in environ and place not in fixed:
            raise CommandError(
                f"{name} is set in this shell, so leaving it out would not take it away; "
                f"unset it first, or give both values: {name}={{{place}:1|0}}"
            )
    return Matrix(
        name=name_of_axes(names),
        target=TARGET,
        command=tuple(command),
        base=Bundle(config=tuple(base.items()), env=tuple(env)),
        space=Space(factors=tuple(factors)),
    )


def _place_factor(text: str, places: Mapping[str, Placeholder]) -> Factor:
    """One axis: its first value is good and its last bad. Numbers that ascend have thresholds."""
    name, _, listing = map(str.strip, text.partition("="))
    _prove_name(name, places)
    items = items_of(listing)
    if places[name].is_flag:
        values = tuple(flag(name, item) for item in items) or (False, True)
        axis = Axis(name=name, path=f"args.{name}", type=AxisType.FLAG, values=values)
    elif not items:
        raise CommandError(f"axis {name!r} of a command needs its values, e.g. {name}=1..12 or {name}=first,second")
    else:
        axis = _axis(name, items)
    factor = factor_along(axis)
    prove_distinct_when_hidden(factor)
    return factor


def _prove_name(name: str, places: Mapping[str, Placeholder]) -> None:
    """CommandError where ``name`` cannot be an axis, or has no place in the command."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or name == PYTHON:
        raise CommandError(f"{name!r} cannot be the name of an axis; use letters, digits and _, e.g. n_layers=1..12")
    if name not in places:
        near = suggestion(name, places)
        raise CommandError(f"axis {name!r} has no place in the command{near}; write {{{name}}} where its value belongs")


def _axis(name: str, items: Sequence[str]) -> Axis:
    numbers = numbers_of(name, items)
    if numbers is None and len(items) < 2:
        raise CommandError(f"axis {name!r}: {items[0]!r} is one word; give two or more, the good one first, or numbers")
    kind = AxisType.CATEGORICAL if numbers is None else AxisType.ORDERED
    return Axis(name=name, path=f"args.{name}", type=kind, values=tuple(items) if numbers is None else numbers)


def in_order(factor: Factor) -> Factor:
    """``factor`` for a search that needs an order: words and flags stand in the order in which they were given."""
    axis = factor.axis
    if axis.type is AxisType.ORDERED:
        return factor
    words = tuple(map(word_of, axis.values))
    ordered = replace(axis, type=AxisType.ORDERED, values=words)
    return replace(factor, axis=ordered, good=words[0], bad=words[-1])


def _check_places(places: Mapping[str, Placeholder], *, varied: set[str], fixed: Mapping[str, Value]) -> None:
    with_value = {*varied, *fixed}
    for name in places:
        if name not in with_value:
            raise CommandError(
                f"the command has {{{name}}}, but {name} has no value: vary it with --axis {name}=V,V.. or hold it "
                f"with --set {name}=VALUE{suggestion(name, with_value)}; for a literal {{{name}}} write {{{{{name}}}}}"
            )
    for name in fixed.keys() - places.keys():
        raise CommandError(
            f"{name} is set, but the command has no {{{name}}}{suggestion(name, places)}; write it where the value "
            f"belongs, e.g. --{name.replace('_', '-')} {{{name}}}"
        )


def _what_to_vary(places: Mapping[str, Placeholder]) -> str:
    first = next(iter(places), None)
    if first is not None:
        return f"every place is held by --set; vary one, e.g. --axis {first}"
    words = shlex.join(["--axis", "layers=1..12"])
    return f"write {words} and {{layers}} in the command where the value belongs, or a flag as {{amp:--amp}}"
