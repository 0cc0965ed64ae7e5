"""The files that a ``matrix`` command is given: matrices, and among them questions about one axis, left aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.spec.matrix import MatrixFile


def load_all(files: Iterable[Path]) -> list[tuple[Path, MatrixFile]]:
    """Every matrix among ``files``. Questions about one axis are read too, named on standard error, and left out.

    Raises:
        SpecError: a file is wrong, or none is a matrix.
    """
    from harness.core.errors import OneAxisError
    from harness.spec.load import load
    from harness.spec.matrix import load_matrix

    found: list[tuple[Path, MatrixFile]] = []
    aside: dict[Path, OneAxisError] = {}
    for path in files:
        try:
            found.append((path, load_matrix(path)))
        except OneAxisError as error:
            load(path)
            aside[path] = error
    if not found and aside:
        raise next(iter(aside.values()))
    for path in aside:
        click.echo(f"left aside: {path} asks about one axis; nsa-harness bisect {path}", err=True)
    return found
