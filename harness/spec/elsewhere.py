"""Axes along which the program itself changes: ``commit=v1..HEAD``, ``env:torch=/venvs/a/bin/python,..``."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from harness.core.errors import SpecError
from harness.core.point import Axis, AxisType
from harness.core.space import Bundle, Factor
from harness.spec.amounts import items_of

if TYPE_CHECKING:
    from pathlib import Path

COMMIT, ENVIRONMENT = "commit", "env:"
SHORT = 12
LIMIT_S = 30.0


def is_elsewhere(text: str) -> bool:
    """Whether ``text`` names such an axis."""
    name = text.partition("=")[0].strip()
    return name == COMMIT or name.startswith(ENVIRONMENT)


def elsewhere_factor(text: str, *, repository: Path) -> Factor:
    """The axis that ``text`` names, its values in the order in which they are given; the first passes, the last fails.

    ``commit=A..B`` is A and every commit after it up to B, along first parents; ``commit=A,B,C`` just these.
    ``env:NAME=P,Q`` is the axis NAME with an interpreter for each value.

    Raises:
        SpecError: fewer than two values, or git knows no such commit.
    """
    name, _, values = map(str.strip, text.partition("="))
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
