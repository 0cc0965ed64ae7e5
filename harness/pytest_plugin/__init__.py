"""pytest --hang-guard: a test that hangs is named, with verdict, line, stacks and report; the others go on.

A small process beside pytest (``waiter``) watches from outside, because nothing inside can be relied on while C code
keeps the interpreter's lock. It does nothing until a test has taken some seconds; then the rules of the instrument are
asked (``look``), and only a HANG of high confidence ends anything. ``guarded`` is the part in the process that runs the
tests, ``controller`` the part in the one that xdist's workers report to, ``keeper`` what goes on with the session when
the process that runs the tests cannot.

pytest loads this module in every session: it imports nothing of ours until the guard is asked for, but the fixtures
``gpus`` and ``ports`` (``leases``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

AFTER_S = 5.0
"""Seconds that a test has before anybody looks at it."""

STALL_S = 120.0
"""Longest time that a healthy test stands still in a wait which somebody outside may end, as in ``nsa-harness run``:
four times that is waited for. Who gives another says so of one call into C, too; by this one it is never a hang."""

MARKER = """\
hang_guard(after=SECONDS, stall=SECONDS, off=False): guard this test, also without --hang-guard; look after so many \
seconds for the first time; stall is the longest healthy wait or call into C; off=True leaves it alone."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """The options, and the same as ini options."""
    from harness.pytest_plugin import early

    pluginmanager.register(early, "hang-guard-early")
    group = parser.getgroup("hang guard", "nsa-harness")
    group.addoption(
        "--hang-guard",
        action="store_true",
        default=None,
        help="Name and end tests that hang; never those that are slow.",
    )
    group.addoption(
        "--hang-guard-after",
        type=float,
        metavar="SECONDS",
        help=f"When a test is first looked at (default {AFTER_S:g}).",
    )
    group.addoption(
        "--hang-guard-stall",
        type=float,
        metavar="SECONDS",
        help="Longest healthy wait for somebody outside, or call into C with nothing to show for it; "
        f"a hang after four times that (default {STALL_S:g}, for waits alone).",
    )
    parser.addini("hang_guard", "Name and end tests that hang; never those that are slow.", type="bool", default=False)
    parser.addini("hang_guard_after", "Seconds after which a test is first looked at.", default=str(AFTER_S))
    parser.addini("hang_guard_stall", "Seconds of the longest healthy wait, or call into C.", default=str(STALL_S))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The cells of a matrix file that was named, or whose folder was: ``pytest matrices/``."""
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    from harness.pytest_plugin.cells import CollectedMatrix, is_asked_for

    return CollectedMatrix.from_parent(parent, path=file_path) if is_asked_for(file_path, parent.config) else None


def pytest_configure(config: pytest.Config) -> None:
    """Put the guard's part into this process: into one that runs tests, or into the one that xdist reports to."""
    from harness.pytest_plugin import leases

    config.addinivalue_line("markers", MARKER)
    config.pluginmanager.register(leases, "gpu-leases")
    if config.getoption("usepdb", default=False):
        return  # whoever debugs wants nobody ended
    if config.getoption("dist", default="no") != "no" and not hasattr(config, "workerinput"):
        from harness.pytest_plugin.controller import Controller

        config.pluginmanager.register(Controller(config), "hang-guard")
    else:
        from harness.pytest_plugin.guarded import GuardedTests

        config.pluginmanager.register(GuardedTests(config), "hang-guard")
