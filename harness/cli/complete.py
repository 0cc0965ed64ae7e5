"""What a shell completes beside commands, options and files: axes, faults, specimens, kinds, runs and cells.

A completion must never fail into somebody's prompt: what cannot be read completes to nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

    from harness.core.matrix import Matrix


def axes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The axes of the file that was named, or of our own trainer."""
    from harness.spec.axes import AXES

    matrix = _matrix(ctx)
    return _begin(incomplete, AXES if matrix is None else matrix.space.names)


def faults(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Faults that can be planted, which are the specimens of selftest."""
    from harness.specimens.catalog import SPECIMENS

    return _begin(incomplete, SPECIMENS)


def kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Kinds of failures."""
    from harness.core.verdict import BAD_KINDS

    return _begin(incomplete, (kind.value.lower() for kind in BAD_KINDS))


def executors(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Ways to start a trial."""
    from harness.launch.table import EXECUTORS

    return _begin(incomplete, EXECUTORS)


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Runs by name, newest first, where --runs says that they are."""
    from harness.settings import Settings

    names: list[str] = []
    with suppress(Exception):
        where = Settings.read(runs=ctx.params.get("runs")).runs
        names = [path.parent.name for path in sorted(where.glob("*/journal.jsonl"), reverse=True)]
    return _begin(incomplete, ["latest", *names])


def cells(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The planned cells of the file, or of the run, that was named."""
    from harness.search.cells import planned_cells

    matrix = _matrix(ctx)
    if matrix is None:
        return []
    return _begin(incomplete, map(matrix.space.name_of, planned_cells(matrix)))


def _matrix(ctx: click.Context) -> Matrix | None:
    """The matrix that the words before are about."""
    from pathlib import Path

    from harness.settings import Settings
    from harness.spec.matrix import load_matrix
    from harness.store.run_store import find_run, read_run

    matrix = None
    with suppress(Exception):
        if name := ctx.params.get("from_run"):
            matrix = read_run(find_run(Settings.read(runs=ctx.params.get("runs")).runs, name)).spec.matrix
        elif file := ctx.params.get("file") or next(iter(ctx.args), None):  # unparsed while an option lacks its value
            matrix = load_matrix(Path(str(file).partition("::")[0])).matrix
    return matrix


def _begin(incomplete: str, words: Iterable[str]) -> list[str]:
    return sorted(word for word in words if word.startswith(incomplete))
