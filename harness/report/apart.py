"""Apart: figures drawn by a second process, whose library loads while this one reads the run and writes the text."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from harness.core.errors import StoreError
from harness.report.figures import FIGURES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Executor

    from harness.report.figures.draw import Figure
    from harness.report.findings import Findings

Draw: TypeAlias = "Callable[[Findings, Callable[[str], str]], Callable[[], tuple[Figure, ...]]]"
"""Begins to draw the figures of a run, and gives what waits for them."""


@contextmanager
def apart() -> Generator[Draw]:
    """What draws in a second process, which begins to load now; in this one where a second would not help.

    Loading matplotlib and drawing is half of a report's time. The second process is a fork, so only a process of one
    thread has it. When it dies without an answer, its work is done here, where an error can be seen.
    """
    second = _begin() if _is_worth_it() else None
    if second is None:
        yield here
        return

    def draw(findings: Findings, hide: Callable[[str], str]) -> Callable[[], tuple[Figure, ...]]:
        try:
            answer = second.submit(figures_of, findings, hide)
        except BrokenExecutor:
            return here(findings, hide)

        def wait() -> tuple[Figure, ...]:
            with suppress(BrokenExecutor):
                return answer.result()
            return figures_of(findings, hide)

        return wait

    with second:
        yield draw


def can_draw() -> bool:
    """Whether matplotlib is there; a machine without it still gets its report, and can have it drawn elsewhere."""
    return find_spec("matplotlib") is not None


def here(findings: Findings, hide: Callable[[str], str]) -> Callable[[], tuple[Figure, ...]]:
    """Draws in this process, when the figures are asked for."""
    return lambda: figures_of(findings, hide)


def figures_of(findings: Findings, hide: Callable[[str], str]) -> tuple[Figure, ...]:
    """The figures of a run; one whose evidence, or whose library, cannot be read is left out."""
    figures: list[Figure] = []
    for name in FIGURES:
        figure: Figure | None = None
        with suppress(StoreError, ImportError, OSError):
            figure = FIGURES.load(name)(findings, hide)
        figures += [figure] if figure else []
    return tuple(figures)


def _is_worth_it() -> bool:
    if not can_draw() or "matplotlib.figure" in sys.modules:
        return False
    return len(os.sched_getaffinity(0)) > 1 and len(list(Path("/proc/self/task").iterdir())) == 1


def _begin() -> Executor | None:
    """The second process, which loads; None where this user has no process or file left, as a stuck run may need."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with suppress(OSError):
        second = ProcessPoolExecutor(1, mp_context=get_context("fork"), initializer=_load)
        second.submit(int)  # only then it is started
        return second
    return None


def _load() -> None:
    """Load matplotlib without the lists of properties in its documentation, a fourth of the time: nobody reads them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    import matplotlib.artist

    matplotlib.artist.kwdoc = lambda artist: ""
    for name in ("backends.backend_svg", "figure"):
        import_module(f"matplotlib.{name}")
