"""The watch on real processes, started by a real executor, with the real stack dumpers."""

import signal
import subprocess
import sys
from contextlib import closing

import pytest

from harness.classify.engine import classify
from harness.clock import WallClock
from harness.core.command import Command
from harness.core.outcome import Ending, StopReason
from harness.core.point import Point
from harness.core.trial import Budget, Limit, Trial
from harness.core.verdict import Case
from harness.launch.local import LocalExecutor
from harness.observe.proc import Proc
from harness.observe.stacks.faulthandler import Faulthandler
from harness.observe.stacks.pyspy import PySpy
from harness.observe.stacks.table import load_sources
from harness.reading.stillness import quiet_windows
from scripted_trial import watch

PRELUDE = """
import ctypes, json, os, signal, subprocess, sys, threading, time
from pathlib import Path
from harness.shim.nsa_harness_shim import show_stacks
here, seq = Path(sys.argv[1]), 0
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
show_stacks(open(here / "faulthandler_rank0.txt", "w"))
beats = os.open(here / "heartbeat_rank0.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
def write(**facts):
    global seq
    seq += 1
    facts = {"seq": seq, "t": time.monotonic(), "rank": 0, "pid": os.getpid(), **facts}
    os.write(beats, (json.dumps(facts) + "\\n").encode())
def mark(phase, step):
    write(phase=phase, edge="begin", step=step, detail=None)
mark("build", None)
mark("forward", 0)
write(event="step", step=0, facts={"loss": 1.0})
mark("backward", 1)
"""


@pytest.fixture
def run(tmp_path):
    clock = WallClock()
    with closing(LocalExecutor(python=sys.executable, clock=clock)) as executor:

        def run(program, *, sources=None, stall_s=2.0, interrupted=lambda: False):
            (tmp_path / "program.py").write_text(PRELUDE + program)
            argv = (sys.executable, str(tmp_path / "program.py"), str(tmp_path))
            started_s = clock.now()
            handle = executor.start(Command(argv=argv, env=(), trial_dir=str(tmp_path)))
            asked = trial(stall_s=stall_s)
            return watch(
                handle=handle,
                trial=asked,
                trial_dir=tmp_path,
                clock=clock,
                sources=load_sources() if sources is None else sources,
                progress=None,
                started_s=started_s,
                interrupted=interrupted,
                judge=lambda outcome, seen: classify(Case(trial=asked, outcome=outcome, evidence=seen)),
            )

        yield run


def trial(*, stall_s):
    startup, stall, total = (Limit(seconds=s, source="test") for s in (120.0, stall_s, 300.0))
    return Trial(
        target="script",
        point=Point(settings=()),
        repeat=0,
        role="search",
        config={"steps": 2},
        seed=0,
        code="c",
        machine="m",
        budget=Budget(startup=startup, stall=stall, total=total),
    )


def functions(stack):
    return [frame.function for frame in stack.threads[0].frames]


@pytest.fixture
def dumper(tmp_path):
    """Skips where no process may look into another one, and nowhere else."""
    argv = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        answer = PySpy().sample(pid=child.pid, rank=0, t_s=0.0, native=True, number=1, trial_dir=tmp_path)
        child.kill()
    reason = getattr(answer, "reason", "")
    if "ptrace refused" in reason or "not installed" in reason:
        pytest.skip(reason)


@pytest.mark.usefixtures("dumper")
def test_a_deadlock_is_ended_as_soon_as_it_is_certain_and_its_frame_is_seen(run):
    program = "def take_it_twice():\n    a = threading.Lock(); a.acquire(); a.acquire()\ntake_it_twice()"
    outcome, evidence = run(program, stall_s=60.0)
    assert outcome.stopped_by is StopReason.CERTAIN
    assert "take_it_twice" in outcome.why
    assert outcome.cleanup.gone
    assert evidence.silence_s < 20.0
    assert all("take_it_twice" in functions(stack) for stack in evidence.stacks)
    windows = quiet_windows(evidence.processes)
    assert len(windows) >= 3
    assert all(window.still for window in windows)
    assert (evidence.steps_done, evidence.steps_wanted, evidence.last.phase) == (1, 2, "backward")


@pytest.mark.usefixtures("dumper")
def test_a_stopped_process_is_ended_at_its_limit(run):
    outcome, evidence = run("os.kill(os.getpid(), signal.SIGSTOP)")
    assert outcome.stopped_by is StopReason.CERTAIN
    assert "state T" in outcome.why
    assert {look.state for look in evidence.processes} == {"T"}
    assert any("state T" in failure.reason for failure in evidence.failures)
    assert outcome.cleanup.gone


@pytest.mark.slow
@pytest.mark.usefixtures("dumper")
def test_an_endless_loop_is_ended_before_its_limit_and_its_cpu_time_seen(run):
    outcome, evidence = run("while True: pass", stall_s=60.0)
    assert outcome.stopped_by is StopReason.CERTAIN
    assert "never ends" in outcome.why
    assert evidence.silence_s < 20.0
    assert not any(window.still for window in quiet_windows(evidence.processes))


@pytest.mark.long
@pytest.mark.usefixtures("dumper")
def test_a_wait_for_a_child_in_a_loop_that_never_ends_is_certain(run):
    outcome, evidence = run("subprocess.run([sys.executable, '-c', 'while True: pass'])", stall_s=60.0)
    assert outcome.stopped_by is StopReason.CERTAIN
    assert "never ends" in outcome.why
    assert evidence.silence_s < 20.0


WORKS = "[sys.executable, '-c', 'print(sum(n * n for n in range(10 ** 12)))']"


@pytest.mark.slow
@pytest.mark.parametrize("child", [pytest.param(WORKS, marks=pytest.mark.long), "['/bin/sleep', '1000']"])
def test_a_wait_for_a_child_that_works_or_sleeps_is_no_hang(run, child):
    outcome, evidence = run(f"subprocess.run({child})")
    assert outcome.stopped_by is StopReason.STALL
    assert evidence.silence_s >= 8.0
    assert len({look.pid for look in evidence.processes}) == 2
    assert outcome.cleanup.gone


@pytest.mark.slow
def test_faulthandler_is_the_recorded_substitute(run, tmp_path):
    no_dumper = PySpy(tool=str(tmp_path / "no-py-spy"))
    outcome, evidence = run("threading.Event().wait()", sources=(no_dumper, Faulthandler()))
    assert outcome.stopped_by is StopReason.CERTAIN
    assert {stack.source.partition(" ")[0] for stack in evidence.stacks} == {"faulthandler"}
    assert "wait" in functions(evidence.stacks[0])
    assert any(failure.source == "py-spy" and "cannot be started" in failure.reason for failure in evidence.failures)


def test_killed_in_the_middle_of_a_line_keeps_what_came_before(run):
    dies = 'os.write(beats, b\'{"seq": 9, "t"\'); os.kill(os.getpid(), signal.SIGKILL)'
    outcome, evidence = run(dies, stall_s=60.0)
    assert (outcome.ending, outcome.exit.signal) == (Ending.SIGNALLED, signal.SIGKILL)
    assert (evidence.heartbeats_total, evidence.last.phase) == (3, "backward")
    assert evidence.failures == ()
    assert evidence.stacks == ()


def test_what_is_left_behind_after_a_normal_exit_is_swept(run):
    grandchild = "print(subprocess.Popen(['/bin/sleep', '1000'], start_new_session=True).pid, flush=True)"
    outcome, evidence = run(grandchild, stall_s=60.0)
    assert (outcome.ending, outcome.exit.code) == (Ending.EXITED, 0)
    assert outcome.cleanup.ended == 1
    assert "left behind" in outcome.why
    (pid,) = (int(log.text) for log in evidence.logs if log.stream == "stdout")
    assert Proc().states(pid) == ""


def test_interrupt_ends_the_whole_tree(run):
    outcome, evidence = run("signal.pause()", stall_s=60.0, interrupted=lambda: True)
    assert outcome.stopped_by is StopReason.INTERRUPT
    assert outcome.cleanup.gone
    assert evidence.stacks == ()


@pytest.mark.parametrize(
    ("program", "timed"), [("time.sleep(1000)", True), ("threading.Event().wait(1000)", True), ("a.acquire()", False)]
)
def test_kernel_says_which_waits_end_by_themselves(program, timed):
    code = f"import threading, time; a = threading.Lock(); a.acquire(); print(flush=True); {program}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"\n"
        proc, look = Proc(), None
        while look is None or look.state != "S":
            look = proc.look(child.pid, id="proc-1", t_s=0.0)
        child.kill()
    assert look.threads[0].timed is timed
