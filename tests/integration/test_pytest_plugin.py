"""pytest --hang-guard on real hung tests and on healthy ones that look alike, each session a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.observe.stacks.pyspy import PySpy
from lean_pytest import LEAN_ENVIRON

ROOT = Path(__file__).resolve().parents[2]

HUNG = """
import subprocess, sys, threading

def test_before():
    pass

def test_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # of test_lock

def test_child():
    child = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"
    subprocess.run([sys.executable, "-c", child])  # of test_child

def test_loop():
    n = 0
    while n >= 0: n = (n + 1) % 7  # of test_loop

def test_between():
    pass
"""

LOCK = HUNG.partition("def test_child")[0]

HELD = """
import ctypes

def test_earlier():
    pass

def test_mutex():
    mutex = ctypes.create_string_buffer(64)
    ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    ctypes.PyDLL(None).pthread_mutex_lock(mutex)  # of test_mutex

def test_after():
    pass
"""

LOST = (
    HELD
    + """
import os, signal, pytest

@pytest.fixture(scope="module")
def made():
    return os.getpid()

def test_crash(made):
    os.abort()

@pytest.mark.hang_guard(stall=1)
def test_stop(made):
    os.kill(made, signal.SIGSTOP)

@pytest.mark.hang_guard(stall=1)
def test_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").read_bytes()  # of test_pipe

def test_last(made):
    assert made == os.getpid()
"""
)

CALL = """
import re, pytest

@pytest.mark.hang_guard(stall=1)
def test_call():
    re.fullmatch("(a?){60}a{60}", "a" * 59 + "b")  # of test_call
"""

RENAMED = """
import ctypes, os, pytest

def names():
    began_before = os.path.exists("begun")
    open("begun", "w").close()
    return ["second" if began_before else "first"]

@pytest.mark.parametrize("name", names())
def test_renamed(name):
    pass

def test_mutex():
    mutex = ctypes.create_string_buffer(64)
    ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    ctypes.PyDLL(None).pthread_mutex_lock(mutex)
"""

OUTRUN = """
import ctypes, threading, pytest

@pytest.mark.timeout(4)
@pytest.mark.hang_guard(off=True)
def test_mutex():
    mutex = ctypes.create_string_buffer(64)
    ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    ctypes.PyDLL(None).pthread_mutex_lock(mutex)

def test_leaves():
    threading.Thread(target=threading.Event().wait).start()
"""

VERDICTS = {
    "test_lock": "HANG (deadlock)",
    "test_child": "HANG (deadlock)",
    "test_loop": "HANG (infinite-loop)",
    "test_mutex": "HANG (gil-held)",
    "test_pipe": "HANG (blocked-io)",
    "test_call": "HANG (gil-held)",
}

HEALTHY = """
import signal, threading, time

SECONDS = 18.0

def test_sleep():
    time.sleep(SECONDS)

def test_compute():
    end, n = time.monotonic() + SECONDS / 2, 0
    while time.monotonic() < end:
        n += len(str(n))

def test_thread():
    done = threading.Event()
    threading.Thread(target=lambda: (time.sleep(SECONDS), done.set())).start()
    done.wait()

def test_alarm():
    lock = threading.Lock()
    signal.signal(signal.SIGALRM, lambda *_: lock.release())
    signal.alarm(int(SECONDS))
    lock.acquire()
    lock.acquire()
"""


SHORT = """
import time

def test_ends_while_it_is_looked_at():
    time.sleep(4.0)
"""

BESIDE = """
import multiprocessing, threading, pytest

def test_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # of test_lock

def lock_twice():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # of test_fork

@pytest.mark.hang_guard(stall=1)
def test_fork():
    child = multiprocessing.get_context("fork").Process(target=lock_twice)
    child.start()
    child.join()

@pytest.mark.hang_guard(off=True)
@pytest.mark.timeout(4)
def test_off():
    threading.Event().wait()
"""

EXIT = """
import threading, pytest

def test_leaves_a_thread():
    lock = threading.Lock()
    lock.acquire()
    threading.Thread(target=lock.acquire).start()

@pytest.mark.hang_guard(after=1)
def test_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # of test_lock
"""

ENDS = """
import concurrent.futures, threading

def test_pool():
    concurrent.futures.ThreadPoolExecutor(1).submit(int).result()

def test_leaves_a_thread():
    lock = threading.Lock()
    lock.acquire()
    threading.Thread(target=lock.acquire).start()
"""

FINISH = """
import threading

class Finish:
    def HOOK(self):
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()  # of HOOK

def test_registers(request):
    request.config.pluginmanager.register(Finish())
"""

DOCS = (ROOT / "docs" / "pytest.md").read_text().partition("## Cells of a matrix file")[0]


def blocks(language: str) -> list[str]:
    """The code blocks of the documentation in one language."""
    return [part.partition("```")[0] for part in DOCS.split(f"```{language}\n")[1:]]


class Session:
    """One finished run of pytest on a file of tests."""

    def __init__(self, folder: Path, tests: str, *options: str, ini: str = "[pytest]\n") -> None:
        folder.mkdir()
        (folder / "pytest.ini").write_text(f"{ini}filterwarnings = error\n")
        (folder / "test_it.py").write_text(tests)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "harness.pytest_plugin",
            "-p",
            "no:cacheprovider",
            "-W",
            "error",
        ]
        self.folder = folder
        environ = {**os.environ, **LEAN_ENVIRON, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*command, "--junitxml=junit.xml", *options],
            cwd=folder,
            env=environ | {"NSA_HARNESS_RUNS": str(folder / "runs"), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        self.code, self.out = done.returncode, done.stdout + done.stderr
        file = folder / "junit.xml"  # missing where the whole session was ended
        cases = ET.parse(file).getroot().iter("testcase") if file.exists() else ()
        self.cases = {case.get("name"): case for case in cases}
        suite = ET.parse(file).getroot().find("testsuite") if file.exists() else None
        self.suite_s = 0.0 if suite is None else float(suite.get("time", "0"))

    def failure(self, test: str) -> str:
        """The failure text of ``test`` in JUnit; empty when it passed."""
        found = self.cases[test].find("failure")
        return "" if found is None else found.text or ""

    def properties(self, test: str) -> dict[str, str]:
        return {row.get("name", ""): row.get("value", "") for row in self.cases[test].iter("property")}

    def line(self, text: str) -> int:
        lines = (self.folder / "test_it.py").read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if text in line)

    def check_hang(self, test: str) -> None:
        """``test`` is named with its verdict, its own line, the stacks of its processes and its report."""
        said = self.failure(test)
        assert said.startswith(f"{VERDICTS[test]}: the test hangs in its call"), self.out
        assert f"# of {test}" in said
        assert f"test_it.py:{self.line(f'# of {test}')}: in {test}" in said
        assert said.count("thread MainThread:") == (2 if test == "test_child" else 1), said
        report = Path(said.rpartition("report: ")[2].strip())
        assert report.is_relative_to(self.folder / "runs")
        assert test in report.read_text()
        assert said.splitlines()[0] in self.out


@pytest.fixture(scope="module", autouse=True)
def _can_look(tmp_path_factory):
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        folder = tmp_path_factory.mktemp("look")
        answer = PySpy().sample(pid=child.pid, rank=0, t_s=0.0, native=False, number=1, trial_dir=folder)
    finally:
        child.communicate(b"\n")
    if "ptrace refused" in (reason := getattr(answer, "reason", "")):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """All sessions at once: they mostly wait."""
    folder = tmp_path_factory.mktemp("sessions")
    guard = ("--hang-guard", "--hang-guard-after=2")
    asked = {
        "alone": (HUNG, *guard),
        "lost": (LOST, *guard),
        "outrun": (OUTRUN, *guard),
        "renamed": (RENAMED, *guard),
        "marked": ("import pytest\npytestmark = pytest.mark.hang_guard(after=2)\n" + HELD,),
        "workers": (LOCK + HELD, *guard, "-n2", "--max-worker-restart=1"),
        "beside": (BESIDE, *guard, "--timeout=100", "-ofaulthandler_timeout=100"),
        "exit": (EXIT,),
        "ends": (ENDS, *guard, "-n1"),
        "left": (ENDS + LOCK, *guard, "-n1"),
        "pytest_sessionfinish": (FINISH.replace("HOOK", "pytest_sessionfinish"), *guard),
        "pytest_terminal_summary": (FINISH.replace("HOOK", "pytest_terminal_summary"), *guard),
        "short": (SHORT, "--hang-guard", "--hang-guard-after=0.5"),
        "healthy": (HEALTHY, *guard, "-n4", "-pno:timeout"),
    }
    with ThreadPoolExecutor() as pool:
        runs = {name: pool.submit(Session, folder / name, *given) for name, given in asked.items()}
        documented = pool.submit(Session, folder / "documented", blocks("python")[0], ini=blocks("ini")[0])
        return {name: run.result() for name, run in runs.items()} | {"documented": documented.result()}


@pytest.mark.slow
@pytest.mark.parametrize("test", ["test_lock", "test_child", "test_loop"])
def test_a_hung_test_is_named_and_the_next_one_runs(sessions, test):
    session = sessions["alone"]
    session.check_hang(test)
    assert session.properties(test)["hang_guard_verdict"] == VERDICTS[test]
    assert session.properties(test)["hang_guard_report"] in session.failure(test)
    assert session.failure("test_between") == session.failure("test_before") == ""
    assert session.code == 1


@pytest.mark.long
def test_one_call_into_c_that_goes_nowhere_is_a_hang_after_all_patience(tmp_path):
    session = Session(tmp_path / "call", CALL, "--hang-guard", "--hang-guard-after=2", "--timeout=200")
    session.check_hang("test_call")
    assert "it is one call that does not come back, or takes very long" in session.failure("test_call")


@pytest.mark.slow
def test_a_test_that_takes_its_process_with_it_takes_no_other(sessions):
    session = sessions["lost"]
    session.check_hang("test_mutex")
    session.check_hang("test_pipe")
    assert session.properties("test_mutex")["hang_guard_verdict"] == "HANG (gil-held)"
    assert session.failure("test_crash") == "the process of the test ended: signal SIGABRT"
    assert session.failure("test_stop").startswith("HANG (stopped): the test hangs in its call")
    assert [session.failure(f"test_{name}") for name in ("earlier", "after", "last")] == [""] * 3
    assert "4 failed, 3 passed" in session.out
    assert session.code == 1


@pytest.mark.slow
def test_a_limit_that_python_does_not_hear_of_is_enforced_and_a_thread_left_behind_is_an_error_of_its_test(sessions):
    session = sessions["outrun"]
    assert session.failure("test_mutex").startswith(
        "Timeout: pytest-timeout's limit ran out, and Python did not answer"
    )
    (error,) = session.cases["test_leaves"].iter("error")
    assert "the session hangs at its end, for a thread that test_it.py::test_leaves left" in error.text
    assert "1 failed, 1 passed, 1 error" in session.out
    assert session.suite_s > sum(float(case.get("time", "0")) for case in session.cases.values())  # of two processes
    assert session.code == 1


@pytest.mark.slow
def test_a_session_ends_where_a_test_that_was_run_is_not_found_again(sessions):
    """It would be run again and again, with the one that ends its process."""
    session = sessions["renamed"]
    assert "test_it.py::test_renamed[first] was run and is not found again; later tests were not run" in session.out
    assert session.code == 1


@pytest.mark.slow
def test_without_the_option_a_test_that_does_not_answer_ends_the_session_and_says_so(sessions):
    session = sessions["marked"]
    assert session.code == -9
    assert "HANG (gil-held): the test hangs in its call" in session.out
    assert "later tests were not run" in session.out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 2), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_kept_session_is_ended_by_the_signals_that_end_any(tmp_path, number, code):
    (tmp_path / "test_it.py").write_text("def test_it():\n print('up', flush=True)\n input()\ndef test_next(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "harness.pytest_plugin", "-s", "--hang-guard", "test_it.py"]
    session = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, **LEAN_ENVIRON, "PYTHONPATH": str(ROOT)},
        text=True,
        stdin=-1,
        stdout=-1,
    )
    assert session.stdout is not None
    while "up" not in session.stdout.readline():
        pass
    session.send_signal(number)
    out, _ = session.communicate(timeout=60)
    assert session.returncode == code
    assert "goes on" not in out


@pytest.mark.slow
@pytest.mark.parametrize("test", ["test_lock", "test_mutex"])
def test_under_xdist_a_worker_that_hangs_is_replaced_and_no_test_is_lost(sessions, test):
    session = sessions["workers"]
    session.check_hang(test)
    assert session.code == 1
    assert session.properties(test)["hang_guard_verdict"] == VERDICTS[test]
    assert session.properties(test)["hang_guard_report"] in session.failure(test)
    assert "crashed while running" not in session.out
    assert [session.failure(f"test_{name}") for name in ("before", "earlier", "after")] == ["", "", ""]


@pytest.mark.slow
def test_what_is_slow_is_mentioned_and_passes(sessions):
    session = sessions["healthy"]
    assert session.code == 0, session.out
    assert "4 passed" in session.out
    assert mentioned(session), session.out


def test_the_last_test_of_a_session_is_mentioned_too_though_its_look_was_not_over(tmp_path):
    last = "import time\ndef test_last():\n    time.sleep(5)\n"
    session = Session(tmp_path / "last", last, "--hang-guard", "--hang-guard-after=1", "-pno:timeout")

    assert session.code == 0, session.out
    said = session.out.partition("looked at, and left to go on")[2]
    assert "test_it.py::test_last (call): after " in said, session.out
    assert "the session ended before" not in said, "the test had passed before"


def mentioned(session):
    """Those of the four healthy tests that the session says it looked at and left to go on."""
    said = session.out.partition("looked at, and left to go on")[2]
    return [
        name for name in ("sleep", "compute", "thread", "alarm") if f"test_it.py::test_{name} (call): after " in said
    ]


@pytest.mark.slow
def test_a_look_ends_with_the_session_that_it_was_for(sessions):
    session = sessions["short"]
    assert session.code == 0
    assert session.out.rstrip().endswith("="), session.out  # nobody speaks after pytest's last line


@pytest.mark.slow
def test_beside_other_time_limits_each_does_its_own(sessions):
    session = sessions["beside"]
    session.check_hang("test_lock")
    assert "Timeout (>4.0s)" in session.failure("test_off")


@pytest.mark.slow
def test_a_forked_child_is_not_taken_to_have_the_alarm_of_pytest_timeout(sessions):
    said = sessions["beside"].failure("test_fork")
    assert re.match(r"HANG \([a-z-]+\): the test hangs in its call", said)
    assert "=>  lock_twice" in said


@pytest.mark.slow
def test_a_mark_guards_without_the_option_and_a_session_that_cannot_end_is_ended(sessions):
    session = sessions["exit"]
    session.check_hang("test_lock")
    assert session.code == 1
    assert "HANG (deadlock): the session hangs at its end, for a thread that test_it.py::test_leaves_a" in session.out
    assert session.failure("test_leaves_a_thread") == ""


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["pytest_sessionfinish", "pytest_terminal_summary"])
def test_a_hang_behind_the_last_test_is_told_and_fails_the_session(sessions, hook):
    session = sessions[hook]
    assert "HANG (deadlock): the session hangs at its end" in session.out
    assert f"test_it.py:{session.line(f'# of {hook}')}: in {hook}" in session.out
    assert session.code == 1
    assert session.failure("test_registers") == ""  # JUnit is written
    assert ("1 passed" in session.out) == (hook == "pytest_sessionfinish")  # the summary ends where it hung


@pytest.mark.slow
def test_a_worker_that_cannot_end_is_named_by_the_test_whose_thread_it_waits_for(sessions):
    session = sessions["ends"]
    assert session.code == 1, session.out
    assert "ERROR at teardown of test_it.py::test_leaves_a_thread" in session.out
    said = session.cases["test_leaves_a_thread"].find("error").text  # two: it had passed
    assert said.startswith("HANG (deadlock): the session hangs at its end, for a thread that test_it.py::test_leaves_a")
    assert session.properties("test_leaves_a_thread")["hang_guard_verdict"] == "HANG (deadlock)"
    assert "test_pool" not in session.out  # its thread ends once Python asks it to


@pytest.mark.slow
def test_a_thread_whose_worker_is_ended_for_another_test_is_mentioned(sessions):
    session = sessions["left"]
    session.check_hang("test_lock")
    assert session.code == 1
    said = session.out.partition("looked at, and left to go on")[2]
    assert "test_it.py::test_leaves_a_thread (teardown): it left a thread; its worker was ended for test_it.py" in said


@pytest.mark.slow
def test_the_documented_tests_do_what_is_documented(sessions):
    session = sessions["documented"]
    assert session.out.count(" passed") == 1
    assert "1 failed, 2 passed" in session.out
    said = _no_numbers(session.failure("test_takes_a_lock_twice").replace("test_it.py", "test_locks.py"))
    for line in blocks("text")[0].splitlines():
        assert _no_numbers(line) in said
    assert "test_it.py:9: in test_takes_a_lock_twice" in session.failure("test_takes_a_lock_twice")


def _no_numbers(text: str) -> str:
    return re.sub(r"[\d.]+", "N", text)


@pytest.mark.parametrize("command", "".join(blocks("bash")).splitlines())
def test_the_documented_commands_are_taken(tmp_path, command):
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    program, *options = command.split()
    assert program == "pytest"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-pharness.pytest_plugin", "-pno:cacheprovider", *options],
        cwd=tmp_path,
        env={**os.environ, **LEAN_ENVIRON, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_nothing_is_left_of_any_session(sessions):
    for session in sessions.values():
        for process in Path("/proc").glob("[0-9]*/cwd"):
            try:
                at = process.readlink()
            except OSError:
                continue
            assert at != session.folder, (process.parent / "cmdline").read_text()
