"""Apart: figures drawn by a second process, whose library loads while this one reads the run and writes the text."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from harness.core.errors import StoreError
from harness.report.figures import FIGURES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

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
    child, ask_fd, go_fd, answers_fd = second
    has_ended_well = cache(lambda: os.waitpid(child, 0)[1] == 0)
    with os.fdopen(go_fd, "wb", 0) as go, os.fdopen(answers_fd, "rb") as answers, os.fdopen(ask_fd, "wb") as question:

        def draw(findings: Findings, hide: Callable[[str], str]) -> Callable[[], tuple[Figure, ...]]:
            pickle.dump((findings, hide), question, protocol=pickle.HIGHEST_PROTOCOL)
            question.flush()
            with suppress(BrokenPipeError):  # it is dead already, and will not have ended well
                go.write(b"!")

            def wait() -> tuple[Figure, ...]:
                answer = answers.read()
                return pickle.loads(answer) if has_ended_well() else here(findings, hide)()

            return wait

        try:
            yield draw
        finally:
            go.close()
            answers.close()  # or it would wait for ever to be read
            has_ended_well()


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


def _begin() -> tuple[int, int, int, int] | None:
    """The second process, the file for what it is asked, the pipe to tell it so, and the pipe that it answers by."""
    try:
        ask_fd = os.memfd_create("asked")  # holds any amount at once, while a pipe would keep us until it is read
        (ready, go_fd), (answers_fd, answer) = os.pipe(), os.pipe()
        child = os.fork()
    except OSError:  # this user has no process or file left, as a stuck run may be the reason
        return None
    if not child:
        os.close(go_fd)
        os.close(answers_fd)
        _serve(ask_fd, ready, answer)
    os.close(ready)
    os.close(answer)
    return child, ask_fd, go_fd, answers_fd


def _serve(ask_fd: int, ready: int, answer: int) -> None:
    """The second process: load, wait for the question or the end of the first, answer, and never return."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _load()
        if os.read(ready, 1):
            with os.fdopen(ask_fd, "rb") as question, os.fdopen(answer, "wb") as out:
                question.seek(0)
                out.write(pickle.dumps(figures_of(*pickle.load(question))))
        status = 0
    finally:
        os._exit(status)


def _load() -> None:
    """Load matplotlib without the lists of properties in its documentation, a fourth of the time: nobody reads them."""
    import matplotlib.artist

    matplotlib.artist.kwdoc = lambda artist: ""
    for name in ("backends.backend_svg", "figure"):
        import_module(f"matplotlib.{name}")
