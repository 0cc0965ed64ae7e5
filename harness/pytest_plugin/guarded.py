"""The guard's part in the process that runs the tests: it says what runs, and fails a test when told to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pytest

from harness.pytest_plugin import keeper
from harness.pytest_plugin.place import (
    EXIT,
    FINISH,
    SIGNAL,
    RunningTest,
    StateFile,
    python,
    read_mentions,
    read_notice,
    ticks_now,
)

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType


class Finish:
    """Inside of all wrappers, so that the summary of the terminal comes as ever; JUnit's file is one of the others."""

    def __init__(self, guarded: GuardedTests) -> None:
        self.guarded = guarded

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, Any, Any]:
        """Call those that pytest has not called yet, if one of them was ended."""
        try:
            return (yield)
        except pytest.fail.Exception as error:
            if not self.guarded.hang_behind_tests:
                raise
            ended = error
        rest = _not_yet_called(session.config, ended)
        return rest(session=session, exitstatus=exitstatus)


def _not_yet_called(config: pytest.Config, ended: BaseException) -> Any:
    """The hook without the wrappers, without the function that was ended, and without those called before it."""
    codes = {frame.f_code for frame, _ in traceback.walk_tb(ended.__traceback__)}
    called: list[object] = []
    wrappers: list[object] = []
    rest: list[object] = []
    for impl in reversed(config.hook.pytest_sessionfinish.get_hookimpls()):
        if impl.wrapper or impl.hookwrapper:
            wrappers.append(impl.plugin)
            continue
        rest.append(impl.plugin)
        if getattr(impl.function, "__code__", None) in codes:
            called += rest
            rest = []
    return config.pluginmanager.subset_hook_caller("pytest_sessionfinish", remove_plugins=[*wrappers, *called])


MOST_S = 86_400.0
"""More than any test is left alone for: a limit above it is a slip, and would switch the guard off."""


class GuardedTests:
    """Says at every phase of every guarded test what runs; owns the waiter of this process."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        option = config.getoption("hang_guard")
        self.all = bool(config.getini("hang_guard") if option is None else option)
        self.after_s, self.stall_s = limits(config)
        self.session_folder = None if self.worker else keeper.take()
        self.folder: Path | None = None
        self.name = str(self.worker["workerid"]) if self.worker else keeper.NAME
        self.file: StateFile | None = None
        self.waiter: subprocess.Popen[bytes] | None = None
        self.before: Any = None
        self.item: pytest.Item | None = None
        self.item_limits = (0.0, 0.0)
        self.dumps_later = float(config.getini("faulthandler_timeout") or 0.0) > 0.0
        self.threads: frozenset[int] = frozenset()
        self.started = WeakKeyDictionary(dict.fromkeys(threading.enumerate(), ""))
        self.owners: dict[str, str] = {}
        self.watchdog = 0
        self.now = RunningTest()
        self.seq = self.answered = self.failed = 0
        self.status = 0
        self.hang_behind_tests = ""
        self.reports: Any = None
        self.earlier: set[str] = set()

    # -- its waiter

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Start the waiter, if any test is guarded."""
        if self.file is not None or self.config.getoption("collectonly"):
            return
        looks_s = (self._limits(item)[0] for item in session.items)
        if any(looks_s if self.worker else list(looks_s)):  # of all: a wrong one ends the session here
            self._start(session)
        elif session.items and not self.worker:
            self._say_what_is_idle()

    def _say_what_is_idle(self) -> None:
        """Warn of options that say how tests are guarded where none is."""
        for name in ("hang_guard_after", "hang_guard_stall"):
            if not self.all and self.config.getoption(name) is not None:
                option = f"--{name.replace('_', '-')}"
                text = f"{option} does nothing here: no test is guarded without --hang-guard or the mark hang_guard"
                self.config.issue_config_time_warning(pytest.PytestConfigWarning(text), stacklevel=2)

    def _start(self, session: pytest.Session) -> None:
        if self.all and not self.worker:
            self.config.pluginmanager.register(Finish(self), "hang-guard-finish")
        shared = self.worker.get("nsa_hang_guard") if self.worker else self.session_folder
        self.folder = Path(shared or tempfile.mkdtemp(prefix="nsa-hang-guard-"))
        if self.worker:
            os.register_at_fork(after_in_child=lambda: _let_go(self.config))
        self.file = StateFile(self.folder / f"{self.name}.state")
        self.file.write(self.now)
        if threading.current_thread() is threading.main_thread():
            self.before = signal.signal(SIGNAL, self._on_hang)
        settings = {
            "pid": os.getpid(),
            "worker": self.worker is not None,
            "kept": self.session_folder is not None,
            "cwd": str(self.config.invocation_params.dir),
            "again": ["python", "-m", "pytest", "--hang-guard"],
        }
        (self.folder / f"{self.name}.json").write_text(json.dumps(settings))
        if self.session_folder is not None:
            if reports := keeper.read_reports(self.session_folder):
                earlier = keeper.EarlierReports(self.config, reports)
                self.earlier = set(earlier.reports)
                self.config.pluginmanager.register(earlier, "hang-guard-earlier")
                earlier.begin(session)
            self.reports = (self.session_folder / f"{self.name}.reports").open("a")
        # Of a worker, standard output is xdist's own channel; where the session is kept, others speak.
        out = subprocess.DEVNULL if self.worker or self.session_folder else None
        self.waiter = subprocess.Popen(
            python("waiter", self.folder, self.name, light=True),
            stdin=subprocess.DEVNULL,
            stdout=out,
            cwd=self.config.invocation_params.dir,
            start_new_session=True,  # Ctrl-C is for pytest
        )

    # -- what runs

    def _limits(self, item: pytest.Item) -> tuple[float, float]:
        """Seconds before ``item`` is looked at, 0 where it is not guarded; of its longest wait for somebody outside."""
        mark = item.get_closest_marker("hang_guard")
        if mark is None:
            return (self.after_s if self.all else 0.0), self.stall_s
        if mark.args or mark.kwargs.keys() - {"after", "stall", "off"}:
            raise pytest.UsageError(
                f"{item.nodeid}: hang_guard takes after=SECONDS, stall=SECONDS and off=True, not {mark!r}"
            )
        after_s = seconds(f"{item.nodeid}: hang_guard(after=)", mark.kwargs.get("after", self.after_s))
        stall_s = seconds(f"{item.nodeid}: hang_guard(stall=)", mark.kwargs.get("stall", self.stall_s))
        return (0.0 if mark.kwargs.get("off") else after_s), stall_s

    def _begin(self, phase: str, *, nodeid: str, path: str, after_s: float, stall_s: float) -> None:
        self.seq += 1
        rings_s = (
            signal.getitimer(signal.ITIMER_REAL)[0] if _is_pytest_timeout(signal.getsignal(signal.SIGALRM)) else 0.0
        )
        began_s = time.monotonic()
        self.now = RunningTest(
            seq=self.seq,
            phase=phase,
            nodeid=nodeid,
            path=path,
            began_s=began_s,
            began_ticks=ticks_now(),
            after_s=after_s,
            answered=self.answered,
            alarm_s=began_s + rings_s if rings_s else 0.0,
            watchdog=self.watchdog,
            stall_s=stall_s,
            status=self.status,
        )
        self._say()

    def _say(self) -> None:
        if self.file is not None:
            self.file.write(self.now)

    def _phase(self, item: pytest.Item, phase: str) -> Generator[None, Any, Any]:
        if self.file is None:
            return (yield)
        if item is not self.item:
            self.item, self.item_limits = item, self._limits(item)
            if self.dumps_later and self.item_limits[0] > 0.0:
                of_python = {thread.native_id for thread in threading.enumerate()}
                self.watchdog = next(iter(_threads() - self.threads - of_python), 0)
        after_s, stall_s = self.item_limits
        self._begin(phase, nodeid=item.nodeid, path=str(item.path), after_s=after_s, stall_s=stall_s)
        try:
            return (yield)
        finally:
            self.now = RunningTest(answered=self.answered)
            self._say()
            self._note_threads(item.nodeid)

    def _note_threads(self, nodeid: str) -> None:
        """Whose each thread is, and who is to know, outside, for which of them Python will wait."""
        for thread in threading.enumerate():
            self.started.setdefault(thread, nodeid)
        owners = {str(thread.native_id): self.started[thread] for thread in self._test_threads()}
        if owners != self.owners and self.folder is not None:
            self.owners = owners
            (self.folder / f"{self.name}.left").write_text(json.dumps(owners))

    def _test_threads(self) -> list[threading.Thread]:
        """Threads that tests left, for which Python waits before its process ends."""
        return [thread for thread in threading.enumerate() if not thread.daemon and self.started.get(thread)]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Which threads there are before pytest's faulthandler starts its own, known by no stack."""
        if self.dumps_later and self.file is not None:
            self.threads = _threads()
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Its fixtures may hang too."""
        return (yield from self._phase(item, "setup"))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """The test itself."""
        return (yield from self._phase(item, "call"))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """And what its fixtures do at the end."""
        return (yield from self._phase(item, "teardown"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test says, for the case that another process goes on."""
        if self.reports is not None and report.nodeid not in self.earlier:
            data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
            self.reports.write(json.dumps(data, default=str) + "\n")
            self.reports.flush()

    # -- a hang

    def _on_hang(self, number: int, frame: FrameType | None) -> None:
        """The waiter says that what runs hangs: fail it here and now."""
        self.answered += 1
        notice = read_notice(self.folder / f"{self.name}.told") if self.folder else None
        hangs = notice is not None and notice.seq == self.now.seq and self.now.seq > 0
        self.now = replace(self.now, answered=self.answered)
        self._say()
        if notice is None or not hangs:
            return
        if self.now.phase == EXIT:
            sys.__stderr__.write(f"\n{notice.text}\n") if sys.__stderr__ else None
            _flush()
            os._exit(self.status)
        if self.now.alarm_s and not _is_pytest_timeout(signal.getsignal(signal.SIGALRM)):
            return  # the test has set an alarm of its own since: it may wake by that
        self.failed += 1
        if self.now.phase == FINISH:
            self.hang_behind_tests = notice.text
        pytest.fail(notice.text, pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """The verdict and the report of a test that hung are properties of it."""
        notice = read_notice(self.folder / f"{self.name}.told") if self.failed and self.folder else None
        if notice is not None and notice.nodeid == item.nodeid and notice.phase == call.when and call.excinfo:
            item.user_properties += notice.properties
        return (yield)

    # -- the end

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, Any, Any]:
        """Remember the exit status, for a process that does not get to its end, and guard what others do here.

        A worker of xdist idles from here on until the last one is done; so Python is asked now to say when it ends. To
        ask when it is unconfigured is too late: where that takes long, xdist has interrupted it.
        """
        self.status = int(exitstatus)
        if self.worker and self.file is not None:
            threading._register_atexit(self._end)  # pyrefly: ignore[missing-attribute]
        if self.worker or not self.all or self.file is None:
            return (yield)
        self._begin(FINISH, nodeid=keeper.END, path="", after_s=self.after_s, stall_s=self.stall_s)
        try:
            return (yield)
        except pytest.fail.Exception:  # of a wrapper: the summary may be printed, or not
            if not self.hang_behind_tests:
                raise
            sys.stderr.write(f"\n{self.hang_behind_tests}\n")
        finally:
            self.now = RunningTest(answered=self.answered)
            self._say()
            if self.hang_behind_tests and session.exitstatus in (
                pytest.ExitCode.OK,
                pytest.ExitCode.NO_TESTS_COLLECTED,
            ):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what took long and was looked at, and what was ended behind the last test."""
        if self.folder is not None and not self.worker:
            summarise(self.folder, terminalreporter)
        if self.hang_behind_tests:
            terminalreporter.section("hang guard: behind the last test")
            terminalreporter.line(self.hang_behind_tests)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Have the end of the process guarded too, where that may hang; else end the waiter."""
        if self.waiter is None or self.folder is None or self.file is None:
            return
        if self.reports is not None:
            self.reports.close()
        threads = self._test_threads()
        if self.session_folder is not None or self.failed or (self.worker and threads):
            if not self.worker:
                self._end()
            self.waiter.returncode = 0  # it goes after us: nobody here is to wait for it
            return
        self.waiter.terminate()
        self.waiter.wait()
        if self.before is not None:
            signal.signal(SIGNAL, self.before)
        self.file.close()
        self.file = None
        if not (self.worker and self.worker.get("nsa_hang_guard")):
            shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self) -> None:
        threads = self._test_threads()
        if self.worker and not threads:
            return
        nodeid = self.started[threads[0]] if threads else keeper.END
        self._begin(EXIT, nodeid=nodeid, path="", after_s=min(self.after_s, 2.0), stall_s=self.stall_s)


def limits(config: pytest.Config) -> tuple[float, float]:
    """When a test is first looked at, and the longest healthy wait for somebody outside, as the session was told."""
    return _limit(config, "hang_guard_after"), _limit(config, "hang_guard_stall")


def _limit(config: pytest.Config, name: str) -> float:
    option = config.getoption(name)
    if option is None:
        return seconds(name, config.getini(name))
    return seconds(f"--{name.replace('_', '-')}", option)


def seconds(name: str, value: Any) -> float:
    """``value`` of the option, ini option or mark ``name`` as seconds.

    Raises:
        UsageError: by it no test would ever be looked at, or none left alone.
    """
    with suppress(TypeError, ValueError):
        if 0.0 < float(value) <= MOST_S:
            return float(value)
    raise pytest.UsageError(f"{name} takes seconds above 0 and at most {MOST_S:.0f} (a day), not {value!r}")


def _let_go(config: pytest.Config) -> None:
    """In a forked child: give up the pipes by which xdist hears of its worker's end, or it would wait for the child.

    A child that has left for a session of its own is nobody's to be found, and ended, when its worker is.
    """
    for plugin in config.pluginmanager.get_plugins():
        channel: Any = getattr(plugin, "channel", None)
        io = getattr(getattr(channel, "gateway", None), "_io", None)
        for file in (getattr(io, "infile", None), getattr(io, "outfile", None)):
            with suppress(OSError, ValueError, AttributeError):
                nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                os.dup2(nothing, file.fileno(), inheritable=False)  # pyrefly: ignore[missing-attribute]
                os.close(nothing)


def summarise(folder: Path, terminalreporter: pytest.TerminalReporter) -> None:
    """One line for every test that was looked at and not ended."""
    mentions = dict.fromkeys(chain.from_iterable(map(read_mentions, sorted(folder.glob("*.looks")))))
    if not mentions:
        return
    over = _ended(terminalreporter)
    terminalreporter.section("hang guard: looked at, and left to go on")
    for mention in mentions:
        is_over = mention.is_over or (mention.nodeid, mention.phase) in over
        terminalreporter.line(replace(mention, is_over=is_over).sentence)


def _ended(terminalreporter: pytest.TerminalReporter) -> set[tuple[str, str]]:
    """The test and the phase of all that came to its end, whatever that was."""
    reports = chain.from_iterable(terminalreporter.stats.values())
    return {(one.nodeid, one.when or "") for one in reports if isinstance(one, pytest.TestReport)}


def _threads() -> frozenset[int]:
    return frozenset(map(int, os.listdir("/proc/self/task")))  # noqa: PTH208 - at every test


def _is_pytest_timeout(handler: Any) -> bool:
    return getattr(handler, "__module__", "") == "pytest_timeout"


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # pyrefly: ignore[missing-attribute]
