"""What the guard's processes tell each other, and what of a session is left out before the rules are asked."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from harness.core.errors import NotBegunError
from harness.core.evidence import Evidence, Frame, ProcessState, StackSample, ThreadStack, ThreadState
from harness.core.outcome import Ending, Outcome
from harness.core.verdict import Kind
from harness.pytest_plugin import STALL_S
from harness.pytest_plugin.controller import Controller
from harness.pytest_plugin.guarded import GuardedTests, limits, seconds, summarise
from harness.pytest_plugin.look import Below, SessionLook, is_one_call, of_the_test, reported
from harness.pytest_plugin.place import (
    HangNotice,
    Mention,
    RunningTest,
    StateFile,
    captured,
    read_notice,
    tell,
    write_mentions,
)
from harness.store.files import write_failed

ROOT = Path(__file__).parents[4]


def test_the_last_state_written_is_the_one_read(tmp_path):
    file = StateFile(tmp_path / "a.state")
    assert file.read() == RunningTest()
    long = RunningTest(
        seq=1, phase="call", nodeid="test_it.py::test_a", path="/a", began_s=1.5, after_s=5.0, alarm_s=9.5
    )
    file.write(long)
    assert file.read() == long
    file.write(RunningTest(answered=2))
    assert file.read() == RunningTest(answered=2)
    file.write(RunningTest(seq=3, nodeid="n" * 9000))
    assert file.read().nodeid == "n" * 200
    file.close()


def test_what_was_told_is_read_as_it_was(tmp_path):
    notice = HangNotice(seq=1, nodeid="n", phase="call", seconds=2.0, verdict="HANG", report="/r", text="a\nb")
    assert read_notice(tmp_path / "a.told") is None
    tell(tmp_path / "a.told", notice)
    assert read_notice(tmp_path / "a.told") == notice


def test_what_pytest_captured_of_a_process_is_read_from_outside_and_no_file_of_the_user(tmp_path):
    with tempfile.TemporaryFile() as out, (tmp_path / "own").open("w+") as own:
        child = subprocess.Popen(
            [sys.executable, "-c", "print('before', flush=True); input()"], stdin=-1, stdout=out, stderr=own
        )
        try:
            until = time.monotonic() + 20
            while not captured(child.pid, 1) and time.monotonic() < until:
                time.sleep(0.02)
            assert captured(child.pid, 1) == "before\n"
            own.write("mine")
            own.flush()
            assert captured(child.pid, 2) == ""
        finally:
            child.communicate(b"\n")
    assert captured(child.pid, 1) == ""


@pytest.mark.parametrize("value", [-1, 0, float("nan"), 1e9, float("inf"), "soon", None])
def test_seconds_that_would_switch_the_guard_off_are_wrong_use(value):
    with pytest.raises(pytest.UsageError, match="--hang-guard-after takes seconds above 0 and at most 86400"):
        seconds("--hang-guard-after", value)


def test_wrong_seconds_are_named_by_where_they_stand():
    config = Mock()
    config.getoption.side_effect = {"hang_guard_after": None, "hang_guard_stall": -5.0}.get
    config.getini.return_value = "2.5"
    with pytest.raises(pytest.UsageError, match="--hang-guard-stall takes"):
        limits(config)
    config.getoption.side_effect = None
    config.getoption.return_value = None
    assert limits(config) == (2.5, 2.5)
    config.getini.return_value = "0"
    with pytest.raises(pytest.UsageError, match="hang_guard_after takes"):
        Controller(config)


def hung(**changed):
    facts = {"phase": "call", "seconds": 2.0, "verdict": "HANG", "report": "/r", "text": "a", **changed}
    return HangNotice(seq=1, nodeid="test_it.py::test_a", **facts)


@pytest.mark.parametrize(("phase", "of_the_failure"), [("call", "before"), ("teardown", "")])
def test_a_test_whose_worker_is_ended_has_its_properties_and_its_output_in_junit(phase, of_the_failure, tmp_path):
    """A terminal shows of the failure its own output, and what any report of the test has of its teardown."""
    sent, node = [], Mock()
    node.gateway.id = "gw0"
    config = Mock()
    config.getoption.return_value = 5.0
    config.pluginmanager.get_plugin.return_value._failed_nodes_count = 1
    controller = Controller(config)
    config.hook.pytest_runtest_logreport = lambda report: sent.append(report)
    controller.folder = tmp_path
    tell(tmp_path / "gw0.told", hung(out="before", phase=phase))
    report = pytest.TestReport("test_it.py::test_a", ("a", None, "a"), {}, "failed", "gone", "???", node=node)
    controller.pytest_handlecrashitem("test_it.py::test_a", report, None)
    controller.pytest_runtest_logreport(report)
    controller.pytest_runtest_logreport(report)
    (ended,) = sent
    assert (ended.when, ended.outcome, ended.node) == ("teardown", "passed", node)
    assert (ended.capstdout, report.capstdout) == ("before", of_the_failure)
    assert dict(ended.user_properties) == {"hang_guard_verdict": "HANG", "hang_guard_report": "/r"}


def test_nobody_outside_of_the_session_is_seen():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        tree = Below(os.getpid(), without=other.pid)
        assert tree.get(child.pid) is None  # nobody was asked for it yet
        assert child.pid in tree.children(os.getpid())
        assert tree.get(child.pid) is not None
        assert other.pid not in tree.children(os.getpid())
        assert tree.get(other.pid) is tree.get(os.getppid()) is None
        assert list(tree.children(os.getppid())) == []
    finally:
        for process in (child, other):
            process.communicate(b"\n")


def test_the_plugin_imports_nothing_until_it_is_asked():
    code = "import sys, harness.pytest_plugin; print([m for m in sys.modules if m.startswith(('harness.', 'pytest'))])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['harness.pytest_plugin']"


def test_what_serves_pytest_is_left_out_and_what_is_the_tests_own_is_kept():
    listener = Frame(function="_thread_receiver", file="/site-packages/execnet/gateway_base.py", line=1)
    own = Frame(function="_thread_receiver", file="/home/me/test_a.py", line=1)
    stacks = (
        ThreadStack(tid=7, name="MainThread", frames=(own,)),
        ThreadStack(tid=8, name="", frames=(listener,)),
        ThreadStack(tid=9, name="pytest_timeout test_a", frames=()),
        ThreadStack(tid=11, name="server", frames=(own,)),
    )

    def looked(pid: int) -> ProcessState:
        threads = tuple(
            ThreadState(tid=tid, name="", state="S", wchan="", cpu_s=0.0, voluntary_switches=0, involuntary_switches=0)
            for tid in (7, 8, 9, 10, 11)
        )
        return ProcessState(
            id=f"p{pid}", t_s=1.0, rank=0, pid=pid, state="S", threads=threads, rss_bytes=0, minor_faults=0,
            read_bytes=0, written_bytes=0, children=0, handles=("SIGALRM", "SIGINT"),
        )  # fmt: skip

    sample = StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=7, threads=stacks)
    evidence = Evidence(steps_wanted=0, stacks=(sample,), processes=(looked(7), looked(70)), main=7)
    seen = of_the_test(evidence, alarm=True, watchdog=10)

    assert [thread.tid for thread in seen.stacks[0].threads] == [7, 11]
    assert [[thread.tid for thread in look.threads] for look in seen.processes] == [[7, 11], [7, 8, 9, 10, 11]]
    assert [look.handles for look in seen.processes] == [("SIGINT",), ("SIGALRM", "SIGINT")]
    assert of_the_test(evidence, alarm=False).processes[0].handles == ("SIGALRM", "SIGINT")
    forked = of_the_test(evidence, alarm=True, forked=frozenset({70}))
    assert [look.handles for look in forked.processes] == [("SIGINT",), ("SIGINT",)]


STRAIGHT = (
    "import re\n\ndef test_a():\n    re.match('a', 'b')\n\ndef test_b():\n    while True:\n        re.match('a', 'b')\n"
)


@pytest.mark.parametrize(
    ("lines", "between", "one"),
    [
        ([4], "", True),
        ([8], "", False),  # in a loop
        ([4, 4], "", False),  # on the stack twice
        ([4], "map_next", False),  # called by C code
        ([99], "", False),  # not in its source
    ],
)
def test_it_is_one_call_where_no_line_of_the_test_runs_twice(tmp_path, lines, between, one):
    file = tmp_path / "test_it.py"
    file.write_text(STRAIGHT)
    frames = [Frame(function="sre_match", file="", line=0, native=True)]
    frames += [Frame(function="test_a", file=str(file), line=line) for line in lines]
    frames += [Frame(function=between, file="", line=0, native=True)] if between else []
    frames += [Frame(function="pytest_pyfunc_call", file="/site-packages/_pytest/python.py", line=1)]
    thread = ThreadStack(tid=7, name="MainThread", frames=tuple(frames))
    sample = StackSample(id="s", source="py-spy", native=True, t_s=1.0, rank=0, pid=7, threads=(thread,))
    assert is_one_call(Evidence(steps_wanted=0, stacks=(sample,), main=7)) is one


@pytest.mark.parametrize(("stall_s", "hangs"), [(STALL_S, False), (30.0, True)])
def test_one_call_is_a_hang_only_where_somebody_gave_a_limit_for_it(monkeypatch, stall_s, hangs):
    undecided, hung = Mock(kind=Kind.UNRESOLVED), Mock(kind=Kind.HANG)
    monkeypatch.setattr("harness.pytest_plugin.look.classify", Mock(return_value=undecided))
    monkeypatch.setattr("harness.pytest_plugin.look.one_call", Mock(return_value=hung))
    monkeypatch.setattr("harness.pytest_plugin.look.is_one_call", Mock(return_value=True))
    look = Mock(state=RunningTest(stall_s=stall_s))
    outcome = Outcome(ending=Ending.STILL_RUNNING, stopped_by=None, duration_s=1.0)
    monkeypatch.setattr("harness.pytest_plugin.look.Case", Mock())
    assert SessionLook.judge(look, outcome, Evidence(steps_wanted=0)) is (hung if hangs else undecided)


FORK = """
import os, select, signal
from types import SimpleNamespace as Of
from harness.pytest_plugin.guarded import _let_go
read, write = os.pipe()
worker = Of(channel=Of(gateway=Of(_io=Of(outfile=os.fdopen(write, "wb"), infile=None))))
os.register_at_fork(after_in_child=lambda: _let_go(Of(pluginmanager=Of(get_plugins=lambda: [Of(), worker]))))
child = os.fork()
if not child:
    signal.pause()
worker.channel.gateway._io.outfile.close()
print("the end" if select.select([read], [], [], 5.0)[0] else "somebody has the pipe")
os.kill(child, signal.SIGKILL)
"""


def test_a_forked_child_of_a_worker_does_not_keep_the_pipe_by_which_xdist_hears_of_its_end():
    done = subprocess.run([sys.executable, "-c", FORK], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "the end\n"


def session_of(config: Mock, *marks: pytest.Mark | None) -> Mock:
    """A session whose tests have these marks ``hang_guard``."""
    items = [Mock(nodeid=f"t.py::test_{i}", config=config) for i in range(len(marks))]
    for item, mark in zip(items, marks, strict=True):
        item.get_closest_marker.return_value = mark
    return Mock(items=items)


def guarded_tests(*, hang_guard: bool) -> GuardedTests:
    config = Mock(workerinput=None)
    options = {"hang_guard": hang_guard, "hang_guard_after": 3.0, "hang_guard_stall": 5.0, "collectonly": False}
    config.getoption.side_effect = options.get
    config.getini.return_value = ""
    tests = GuardedTests(config)
    tests._start = Mock()
    return tests


def test_options_of_a_guard_that_nobody_asked_for_are_warned_of():
    tests = guarded_tests(hang_guard=False)
    tests.pytest_collection_finish(session_of(tests.config, None))
    warnings = [str(call.args[0]) for call in tests.config.issue_config_time_warning.call_args_list]
    assert [text.partition(" ")[0] for text in warnings] == ["--hang-guard-after", "--hang-guard-stall"]


@pytest.mark.parametrize("mark", [None, pytest.mark.hang_guard(after=2).mark])
def test_no_option_of_a_guard_is_warned_of_where_it_guards(mark):
    tests = guarded_tests(hang_guard=mark is None)
    tests.pytest_collection_finish(session_of(tests.config, mark))
    assert not tests.config.issue_config_time_warning.called


def test_a_wrong_mark_behind_a_guarded_test_ends_the_session_before_its_first_test():
    tests = guarded_tests(hang_guard=True)
    with pytest.raises(pytest.UsageError, match=r"test_1: hang_guard\(after=\) takes seconds above 0"):
        tests.pytest_collection_finish(session_of(tests.config, None, pytest.mark.hang_guard(after=-1).mark))


def test_a_hang_whose_report_cannot_be_written_there_is_told_with_one_elsewhere(tmp_path, monkeypatch):
    """The test was never ended, and nothing was said until somebody interrupted the session."""
    monkeypatch.setenv("NSA_HARNESS_RUNS", str(tmp_path / "full"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def keep(runs: Path) -> Path:
        if runs.name == "full":
            failed = write_failed(runs / "a. Safe: b", OSError(errno.EPERM, "no way"), safe="nothing was begun")
            raise NotBegunError(failed)
        return runs / "report.md"

    def refuse(runs: Path) -> Path:
        raise OSError("cannot write it: no space")

    report, _, why = reported(keep).partition(" (")
    assert Path(report).name == "report.md"
    assert Path(report).is_relative_to(tmp_path)
    assert why == f"not in {tmp_path / 'full'}: cannot write {tmp_path / 'full'}/a. Safe: b: no way)"
    assert reported(refuse) == "none could be written: cannot write it: no space"


class Terminal:
    """What the summary needs of pytest's terminal: the reports by outcome, and a place for lines."""

    def __init__(self, *reports: pytest.TestReport) -> None:
        self.stats, self.lines = {"passed": list(reports)}, list[str]()

    def section(self, title: str) -> None:
        """Nobody asks for it here."""

    def line(self, text: str) -> None:
        self.lines.append(text)


def test_of_a_test_that_came_to_its_end_it_is_not_said_that_the_session_ended_first(tmp_path):
    """The session ended soon after it: nobody was left to write down that the test had been over before."""
    names = ("sleep", "interrupted")
    mentions = [Mention(nodeid=f"test_a.py::test_{name}", phase="call", seconds=5.0) for name in names]
    write_mentions(tmp_path / "main.looks", mentions)
    passed = pytest.TestReport(
        nodeid="test_a.py::test_sleep", location=("", 0, ""), keywords={}, outcome="passed", longrepr=None, when="call"
    )
    terminal = Terminal(passed)
    summarise(tmp_path, terminal)
    assert terminal.lines == [
        "test_a.py::test_sleep (call): after 5 s: it was looked at from then on, and was over before the answer",
        "test_a.py::test_interrupted (call): after 5 s: "
        "it was looked at from then on, and the session ended before the answer",
    ]


def test_a_test_is_not_taken_for_another_whose_line_would_begin_alike(tmp_path):
    mention = Mention(nodeid="test_a.py::test_it[x (call): y]", phase="call", seconds=5.0)
    thread = Mention(nodeid="test_a.py::test_it[x", phase="teardown", ended_for="test_b.py::test_lock")
    write_mentions(tmp_path / "gw0.looks", [mention, thread])
    write_mentions(tmp_path / "gw1.looks", [mention])
    passed = pytest.TestReport(
        nodeid=thread.nodeid, location=("", 0, ""), keywords={}, outcome="passed", longrepr=None, when="call"
    )
    terminal = Terminal(passed)

    summarise(tmp_path, terminal)

    assert terminal.lines == [
        "test_a.py::test_it[x (call): y] (call): after 5 s: "
        "it was looked at from then on, and the session ended before the answer",
        "test_a.py::test_it[x (teardown): it left a thread; its worker was ended for test_b.py::test_lock "
        "before Python could wait for that",
    ]
