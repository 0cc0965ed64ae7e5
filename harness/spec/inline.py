"""A matrix from the command line: ``--axis n_layers=1..12 --axis tied_head=false,true``, or axes of other programs.

Along those the program itself changes: ``commit=v1..HEAD``, ``env:torch=/venvs/a/bin/python,..``.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import SpecError
from harness.core.matrix import Matrix
from harness.core.point import Axis, AxisType, Value
from harness.core.space import Bundle, Factor, Space
from harness.spec.amounts import items_of
from harness.spec.axes import parse_axis, setting
from harness.spec.fault import parse_fault
from harness.spec.matrix_axes import axes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
