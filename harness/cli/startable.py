"""Whether a command can be started at all, before any trial: a typing error is no finding about a machine."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from harness.core.command_line import composed
from harness.core.errors import NoProgramError
from harness.launch.program import why_not_startable
from harness.targets.script import ScriptTarget

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.core.matrix import Matrix
    from harness.core.space import Bundle
    from harness.settings import Settings


def prove_program(
    settings: Settings, config: Mapping[str, object], *, env: Sequence[tuple[str, str]], is_elsewhere: bool
) -> None:
    """Refuse a program that cannot be started on this machine with the PATH and in the folder that it will have.

    Raises:
        NoProgramError: why, in a sentence.
    """
    if not is_elsewhere:
        _refuse(*_start(settings, config, env=env, python=settings.python))


def prove_programs(settings: Settings, matrix: Matrix, *, is_elsewhere: bool) -> None:
    """The same for every cell of ``matrix``, where all of them start one program; else a trial shows it.

    Raises:
        NoProgramError: why, in a sentence.
    """
    if is_elsewhere or not matrix.command:
        return
    starts: set[tuple[str, str | None, str]] = set()
    for bundle in _one_by_one(matrix):
        config = ScriptTarget(python="").config({"command": shlex.join(matrix.command), **dict(bundle.config)})
        if bundle.commit:  # the folder is that of a worktree, which is not made yet
            config.pop("directory", None)
        starts.add(_start(settings, config, env=bundle.env, python=bundle.python or settings.python))
    if len(starts) == 1:
        _refuse(*starts.pop())


def _one_by_one(matrix: Matrix) -> Iterator[Bundle]:
    """The good cell, and every value of each axis in it."""
    yield matrix.bundle(matrix.space.good)
    for factor in matrix.space.factors:
        for value in factor.axis.values:
            yield matrix.bundle(matrix.space.good.with_value(factor.name, value))


def _start(
    settings: Settings, config: Mapping[str, Any], *, env: Sequence[tuple[str, str]], python: str
) -> tuple[str, str | None, str]:
    """The program of a trial, its PATH, and its folder (empty: not there yet)."""
    line = composed(config, python=python, env=env)
    path = {**dict(settings.whole_env), **dict(line.variables)}.get("PATH")
    return line.argv[0] if line.argv else "", path, str(config.get("directory") or "")


def _refuse(name: str, path: str | None, directory: str) -> None:
    if "/" in name and not directory:
        return
    why = why_not_startable(name, path=path, directory=directory)
    if why:
        raise NoProgramError(why)
