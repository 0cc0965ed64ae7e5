"""The part of the guard in the process that xdist's workers report to: it fails the test that its worker hung in."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from harness.pytest_plugin.guarded import limits, summarise
from harness.pytest_plugin.place import EXIT, read_notice

ENDS_S = 180.0
"""So long a worker has to end. xdist gives it ten seconds; on a busy machine a look at what it waits for takes more."""


class Controller:
    """Owns the session's folder, and puts what was told about a worker into the report of its crash."""

    def __init__(self, config: pytest.Config) -> None:
        limits(config)  # wrong ones are told here, and not by each worker
        self.config = config
        self.folder: Path | None = None
        self.hung: pytest.TestReport | None = None
        self.output_of_the_hung: list[tuple[str, str]] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where the session's folder is."""
        self.folder = self.folder or Path(tempfile.mkdtemp(prefix="nsa-hang-guard-"))
        node.workerinput["nsa_hang_guard"] = str(self.folder)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """A worker was ended because its test hung: that is the failure, not that the worker is gone."""
        worker = report.node.gateway.id  # xdist's
        notice = read_notice(self.folder / f"{worker}.told") if self.folder else None
        if notice is not None and notice.nodeid == crashitem:
            # xdist gives up after four crashes for each worker (--max-worker-restart); this is none.
            session: Any = self.config.pluginmanager.get_plugin("dsession")
            session._failed_nodes_count -= 1
            report.longrepr = notice.text
            report.when = "call"
            file, _, test = crashitem.partition("::")
            report.location = (file, None, test.replace("::", "."))
            report.duration = notice.seconds
            report.user_properties += notice.properties
            self.output_of_the_hung = [*report.sections, *notice.sections]
            # Output of a teardown is told with the report of the teardown, which follows.
            report.sections += [] if notice.phase == "teardown" else notice.sections
            self.hung = report

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """End a test that hung as every test ends: at its teardown JUnit writes its properties and its output."""
        if report is not self.hung:
            return
        self.hung = None
        ended = pytest.TestReport(
            nodeid=report.nodeid,
            location=report.location,
            keywords={},
            outcome="passed",
            longrepr=None,
            when="teardown",
            sections=self.output_of_the_hung,
            user_properties=report.user_properties,
            node=report.node,  # xdist's
        )
        self.config.hook.pytest_runtest_logreport(report=ended)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Have xdist end its workers now: one that hung in that fails the test whose thread it waited for."""
        nodes: Any = getattr(self.config.pluginmanager.get_plugin("dsession"), "nodemanager", None)
        if self.folder is None or nodes is None:
            return
        if exitstatus != pytest.ExitCode.INTERRUPTED:
            nodes.EXIT_TIMEOUT = ENDS_S
        nodes.teardown_nodes()
        for notice in filter(None, map(read_notice, sorted(self.folder.glob("*.told")))):
            if notice.phase != EXIT:
                continue
            report = pytest.TestReport(
                nodeid=notice.nodeid,
                location=(notice.nodeid.partition("::")[0], None, notice.nodeid),
                keywords={},
                outcome="failed",
                longrepr=notice.text,
                when="teardown",
                duration=notice.seconds,
                user_properties=notice.properties,
            )
            self.config.hook.pytest_runtest_logreport(report=report)
            if exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what took long and was looked at."""
        if self.folder is not None:
            summarise(self.folder, terminalreporter)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Take the folder away."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
