"""A guarded session in a process of its own, and another one that goes on where that one could not.

A test that keeps the interpreter's lock in C, that is stopped, or that crashes takes its process with it, and all tests
after it. So a guarded session runs in a child, forked before anything heavy is loaded, and this process only waits for
it. Where the child ends in the middle of a test, that test has failed: another child is forked from the same beginning.
It tells pytest what the tests so far have reported, as they reported it, and runs the others; so the summary, JUnit,
``-x``, ``--lf`` and the exit status are those of one session.

What does not work: a process for every test (the fixtures of a module are made for each of them, and what is forked
below torch's threads stands still), and starting pytest anew by its command line (a program may have called it).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.pytest_plugin.place import EXIT, FINISH, HangNotice, StateFile, read_notice

if TYPE_CHECKING:
    import pytest

    from harness.pytest_plugin.place import RunningTest

_session_folder: Path | None = None
"""In the process that runs a kept session: the folder of the session. None in all others."""

_began_at: Any = None
"""When the session of this process began, as pytest keeps it: its later processes count from there."""

_has_begun = False
"""Whether the session of this process has begun."""

NAME = "main"
"""The name of the files of a process that runs tests and is not a worker of xdist."""

END = "the end of the session"
"""What is said to hang when the session does not end and no test is known to be at fault."""

SESSION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that are for the whole session, and not for the test that runs: handed on, and not gone on from."""

SIGNALS = (*SESSION_SIGNALS, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


def can_keep(config: pytest.Config) -> bool:
    """Whether this process is pytest's own, has one thread, and is to run the tests itself."""
    options = config.known_args_namespace
    elsewhere = getattr(options, "numprocesses", None) or getattr(options, "tx", None)
    shows = options.usepdb or options.collectonly or options.help or options.version
    of_pytest = list(config.invocation_params.args) == sys.argv[1:] and not _is_of_xdist()
    alone = len(list(Path("/proc/self/task").iterdir())) == 1 and threading.active_count() == 1
    return _session_folder is None and of_pytest and alone and not elsewhere and not shows


def take() -> Path | None:
    """The folder of the session that this process was forked for; None for a session that a test begins in it."""
    global _has_begun
    folder, _has_begun = None if _has_begun else _session_folder, True
    return folder


def _is_of_xdist() -> bool:
    frame: Any = sys._getframe()  # no other way to see who called pytest
    while frame is not None and frame.f_globals.get("__name__") != "__channelexec__":
        frame = frame.f_back
    return frame is not None


def keep() -> None:
    """Come back in a process that is to run the session; this one ends as that one does, or as the last after it."""
    from _pytest.timing import Instant

    from harness.launch.prctl import die_with_parent

    global _session_folder, _began_at
    _began_at = Instant()
    folder, keeper = Path(tempfile.mkdtemp(prefix="nsa-hang-guard-")), os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    while True:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        pid = os.fork()
        if pid == 0:
            die_with_parent(signal.SIGKILL, parent=keeper)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            _session_folder = folder
            return
        status = _wait(pid)
        if not _goes_on(folder, status):
            _end_as(status, folder)


def _wait(pid: int) -> int:
    """How the process ends; meanwhile it is handed the signals that are for it."""
    while True:
        siginfo = signal.sigwaitinfo(SIGNALS)
        if siginfo.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status
        elif siginfo.si_code <= 0:  # a process sent it: what a terminal sends, all of its processes are sent
            with suppress(ProcessLookupError):
                os.kill(pid, siginfo.si_signo)


def _goes_on(folder: Path, status: int) -> bool:
    """Whether tests may be left; the one that its process ended in is failed then, for the next to tell."""
    state, notice = _state(folder), read_notice(folder / f"{NAME}.told")
    notice = notice if notice is not None and notice.seq == state.seq else None
    is_for_session = os.WIFSIGNALED(status) and os.WTERMSIG(status) in SESSION_SIGNALS
    is_behind_the_tests = state.phase in (FINISH, EXIT) and (notice is None or notice.nodeid == END)
    if not state.seq or is_for_session or is_behind_the_tests:
        return False
    if notice is not None:
        state = replace(state, nodeid=notice.nodeid)
        _fail(folder, state, notice)
        how = notice.text.partition("\n")[0]
    else:
        how = f"the process of the test ended: {_ending(status)}"
        _fail(folder, state, state.notice(text=how))
    (folder / f"{NAME}.told").unlink(missing_ok=True)
    (folder / f"{NAME}.state").unlink(missing_ok=True)
    sys.stdout.write(f"\n\n{state.nodeid}: {how}\nhang guard: another process goes on with what is left.\n\n")
    return True


def _state(folder: Path) -> RunningTest:
    with closing(StateFile(folder / f"{NAME}.state")) as file:
        return file.read()


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit status {os.waitstatus_to_exitcode(status)}"


def _fail(folder: Path, state: RunningTest, notice: HangNotice) -> None:
    """Keep the failure of the test that ran, as it would have reported it."""
    from _pytest.reports import TestReport, pytest_report_to_serializable

    file, line, name = state.nodeid.partition("::")[0], None, state.nodeid
    for report in read_reports(folder):
        if report["nodeid"] == state.nodeid:
            file, line, name = report["location"]
            break
    when = "teardown" if state.phase == EXIT else state.phase
    failed: dict[str, Any] = {"outcome": "failed", "longrepr": notice.text, "when": when, "duration": notice.seconds}
    ended: dict[str, Any] = {"outcome": "passed", "longrepr": None, "when": "teardown"}
    with (folder / f"{NAME}.reports").open("a") as reports:
        for more in [failed] if when == "teardown" else [failed, ended]:
            report = TestReport(
                nodeid=state.nodeid,
                location=(file, line, name),
                keywords={},
                sections=notice.sections,
                user_properties=notice.properties,
                **more,
            )
            reports.write(json.dumps(pytest_report_to_serializable(report)) + "\n")


def read_reports(folder: Path) -> list[dict[str, Any]]:
    """What the tests so far have reported; of what the last process was just writing, nothing."""
    reports: list[dict[str, Any]] = []
    with suppress(FileNotFoundError):
        for line in (folder / f"{NAME}.reports").read_text().splitlines():
            with suppress(ValueError):
                reports.append(json.loads(line))
    return reports


def _end_as(status: int, folder: Path) -> None:
    """End as the session did; one that could not end, with its own exit status, or 1 where all tests had passed."""
    state, notice = _state(folder), read_notice(folder / f"{NAME}.told")
    code = os.waitstatus_to_exitcode(status)
    if notice is not None and notice.seq == state.seq and notice.nodeid == END:
        sys.stdout.write(f"\n{notice.text}\n")
        code = max(state.status, 1)
    sys.stdout.flush()
    shutil.rmtree(folder, ignore_errors=True)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # there is one of the process that it happened to
        with suppress(OSError):  # SIGKILL has no other
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), -code)
    os._exit(code)


class EarlierReports:
    """Tells pytest what the tests reported that an earlier process of the session has run."""

    def __init__(self, config: pytest.Config, reports: list[dict[str, Any]]) -> None:
        self.config = config
        self.reports: dict[str, list[dict[str, Any]]] = {}
        for report in reports:
            of_test = self.reports.setdefault(report["nodeid"], [])
            if report.get("when") == "teardown":  # of a session that could not end: the later one counts
                of_test[:] = [other for other in of_test if other.get("when") != "teardown"]
            of_test.append(report)

    def begin(self, session: pytest.Session) -> None:
        """Each of them must be found again, or a test that ends its process would be run again and again.

        No hook: who is registered while the tests that were found are told of is not called any more.
        """
        import pytest

        _count_from_the_first_process(self.config)
        lost = sorted(self.reports.keys() - {item.nodeid for item in session.items})
        if lost:
            pytest.exit(f"hang guard: {lost[0]} was run and is not found again; later tests were not run", returncode=1)

    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Its reports in place of running it."""
        if item.nodeid not in self.reports:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in self.reports[item.nodeid]:
            report = self.config.hook.pytest_report_from_serializable(config=self.config, data=data)
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def _count_from_the_first_process(config: pytest.Config) -> None:
    """The seconds that pytest and JUnit tell of the session are those of all of its processes."""
    from _pytest.junitxml import xml_key

    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for teller, name in ((reporter, "_session_start"), (config.stash.get(xml_key, None), "suite_start")):
        if hasattr(teller, name):
            setattr(teller, name, _began_at)
