"""Stack dumpers: what they print is read right, and whatever they do, the watch gets an answer in time."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import harness
from fake_clock import FakeClock
from harness.clock import WallClock
from harness.core.evidence import Frame, SourceFailure, StackSample, ThreadStack
from harness.launch import procs
from harness.observe.proc import Proc
from harness.observe.procfs import Files
from harness.observe.stacks import dumper, pyspy
from harness.observe.stacks.dumper import find_tool, run_by, run_dumper, why_refused
from harness.observe.stacks.faulthandler import Faulthandler
from harness.observe.stacks.parse import (
    parse_faulthandler,
    parse_pyspy,
    parse_pystack,
    pyspy_locals,
    without_parameters,
)
from harness.observe.stacks.pick import sample_all
from harness.observe.stacks.pyspy import PySpy
from harness.observe.stacks.pystack import PyStack
from harness.observe.stacks.table import load_sources
from harness.observe.stacks.tids import with_tids
from harness.reading.frames import own_line, spell, traceback_frames
from harness.reading.printed import raised_in
from harness.reading.waits import ASKED_BY
from harness.shim.nsa_harness_shim import without_us
from harness.testing.executors import wait_gone
from stack_sources import ScriptedSource

PYSTACK = """Traceback for thread 7849 (python) [Has the GIL] (most recent call last):
    (C) File "???", line 0, in _start (/usr/bin/python3.11)
    (Python) File "/t.py", line 5, in <module>
        stuck_here()
    (Python) File "/t.py", line 4, in stuck_here
        print("File x, line 3, in y")
    (C) File "Objects/call.c", line 7, in cfunction_call (/usr/lib/libpython3.11.so.1.0)
    (C) File "Python/thread_pthread.h", line 486, in PyThread_acquire_lock_timed (/usr/lib/libpython3.11.so.1.0)
    (C) File "./nptl/futex.c", line 103, in __futex_wait (inlined) (/usr/lib/libc.so.6)

Traceback for thread 7850 (pt_gloo_runloop) [] (most recent call last):
    (C) File "???", line 0, in gloo::ring(int, char (*)[2]) (/usr/lib/libtorch.so)
"""

FAULTHANDLER = """Thread 0x00007f5c3c7fe6c0 [tick] (most recent call first):
  File "/lib/threading.py", line 331 in wait
  File "/t.py", line 9 in tick

Current thread 0x00007f5c41e2b740 (most recent call first):
  File "/a dir/t.py", line 4 in stuck_here
  File "/a dir/t.py", line ??? in <module>
"""


def frame(name, **changes):
    base = {"name": name, "filename": "/t.py", "module": None, "short_filename": "t.py", "line": 4, "locals": None}
    return base | changes


def thread(*frames, tid=7):
    return {
        "pid": 7,
        "thread_id": 1,
        "thread_name": None,
        "os_thread_id": tid,
        "active": True,
        "owns_gil": False,
        "frames": list(frames),
    }


def test_pyspy_frames_are_native_when_they_name_a_library():
    libc = frame("futex", module="/lib/libc.so.6", filename="/lib/libc.so.6", line=0)
    (only,) = parse_pyspy(json.dumps([thread(libc, frame("f"))]))
    assert [(f.function, f.native) for f in only.frames] == [("futex", True), ("f", False)]
    assert (only.tid, only.name, only.active, only.owns_gil) == (7, "", True, False)


def test_threads_that_pyspy_knows_by_their_address_get_the_kernels_numbers():
    """Before Python 3.11 it has no others: a busy loop was not told, as no thread of the process had its number."""
    done, ready = threading.Event(), threading.Barrier(4)
    threads = [threading.Thread(target=lambda: (ready.wait(), done.wait())) for _ in range(3)]
    for one in threads:
        one.start()
    ready.wait()
    tids = {one.ident: one.native_id for one in (threading.main_thread(), *threads)}
    rows = [thread(frame("f"), tid=None) | {"thread_id": address} for address in tids]
    shown = parse_pyspy(json.dumps(rows))
    numbered = [one.tid for one in with_tids(shown, os.getpid())]
    alone = [one.tid for one in with_tids(shown[:1], os.getpid())]
    without_main = with_tids(shown[1:], os.getpid())
    done.set()
    for one in threads:
        one.join()
    assert numbered == list(tids.values())
    assert alone == [os.getpid()]
    assert without_main == shown[1:], "nobody tells where the numbers stand"


def numbered_as(root, tasks):
    """``root`` as a /proc in which process 20389 has these threads, each with its number in a namespace of its own."""
    for tid, inner in tasks.items():
        folder = root / f"20389/task/{tid}"
        folder.mkdir(parents=True)
        (folder / "status").write_text(f"NSpid:\t{tid}\t{inner}\n")
    return Files(str(root))


def test_threads_of_a_container_get_the_numbers_that_the_kernel_has_for_them_here(tmp_path):
    """There the main thread is 1: no thread of a process seemed to run Python, and a wait for one was a hang."""
    files = numbered_as(tmp_path, {20389: 1, 20433: 42})
    names = {42: "helper", 1: "MainThread", 20433: "of another view", 7: "ended"}
    threads = [ThreadStack(tid=tid, name=name, frames=()) for tid, name in names.items()]
    shown = {thread.name: thread.tid for thread in with_tids(threads, 20389, files)}
    assert shown == {"helper": 20433, "MainThread": 20389, "of another view": 20433, "ended": 7}


def test_the_locals_of_a_thread_come_by_the_number_that_it_has_here():
    row = thread(frame("f", locals=[{"name": "self", "repr": "<Thread at 0x7f>", "addr": 7}]), tid=42)
    (inside,) = parse_pyspy(json.dumps([row]))
    assert pyspy_locals(json.dumps([row]), [replace(inside, tid=20433)]) == {(20433, 0): {"self": "<Thread at 0x7f>"}}


def test_a_frame_of_a_library_that_cannot_be_opened_is_no_line_of_the_program():
    """In a chroot py-spy finds no symbols and names no library: ``0x7f6d524e9f16`` was told as the line of a hang."""
    bare = frame("0x7f6d524e9f16", filename="?", line=0)
    (only,) = parse_pyspy(json.dumps([thread(bare, frame("f"))]))
    assert [frame.native for frame in only.frames] == [True, False]


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", "[7]", '[{"os_thread_id": 7}]'])
def test_other_output_of_pyspy_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_pyspy(text)


def test_pystack_frames_come_innermost_first_as_pyspy_gives_them():
    """Without parameters, and of the interpreter only what says what a thread does."""
    main, gloo = parse_pystack(PYSTACK)
    assert (main.tid, main.name, main.owns_gil) == (7849, "python", True)
    assert main.frames == (
        Frame(function="__futex_wait", file="./nptl/futex.c", line=103, native=True),
        Frame(function="PyThread_acquire_lock_timed", file="Python/thread_pthread.h", line=486, native=True),
        Frame(function="stuck_here", file="/t.py", line=4),
        Frame(function="<module>", file="/t.py", line=5),
    )
    assert (gloo.name, gloo.owns_gil) == ("pt_gloo_runloop", False)
    assert gloo.frames == (Frame(function="gloo::ring", file="/usr/lib/libtorch.so", line=0, native=True),)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("at::_ops::mm::call(at::Tensor const&, at::Tensor const&)", "at::_ops::mm::call"),
        ("c10d::Reducer::all_reduce(std::function<void (int)> const&) const", "c10d::Reducer::all_reduce"),
        (
            "torch::autograd::(anonymous namespace)::_call_hooks(_object*)",
            "torch::autograd::(anonymous namespace)::_call_hooks",
        ),
        ("torch::autograd::Node::operator()(std::vector<int>&&)", "torch::autograd::Node::operator()"),
        ("pthread_cond_wait@@GLIBC_2.3.2", "pthread_cond_wait@@GLIBC_2.3.2"),
        ("run()::{lambda(int)#1}", "run()::{lambda(int)#1}"),
        ("odd) name)", "odd) name)"),
    ],
)
def test_parameters_of_a_native_function_are_left_out(said, name):
    assert without_parameters(said) == name


SHIM = str(Path(harness.__file__).parent / "shim" / "nsa_harness_shim.py")


def test_our_own_wrappers_in_a_strangers_program_are_not_shown():
    spy = [frame("run_backward"), frame("backward", filename=SHIM), frame("train")]
    (only,) = parse_pyspy(json.dumps([thread(*spy)]))
    (stacked, _) = parse_pystack(PYSTACK.replace('"/t.py", line 4', f'"{SHIM}", line 4'))
    (_, faulted) = parse_faulthandler(FAULTHANDLER.replace("/a dir/t.py", SHIM, 1), pid=7)

    assert [f.function for f in only.frames] == ["run_backward", "train"]
    assert "stuck_here" not in [f.function for f in stacked.frames]
    assert [f.function for f in faulted.frames] == ["<module>"]


def test_the_line_of_an_exception_is_the_programs_own_also_where_a_message_quotes_another_process():
    """As ``torch.multiprocessing.spawn`` raises what a child raised: in its message."""
    quoted = "\n".join(
        (
            "Traceback (most recent call last):",
            '  File "/opt/lib/python3.12/site-packages/torch/multiprocessing/spawn.py", line 90, in _wrap',
            "    fn(i, *args)",
            '  File "/work/train.py", line 30, in work',
            '    dist.init_process_group("gloo")',
            f'  File "{SHIM}", line 494, in init_process_group',
            "    return original(*args, **kwargs)",
            "           ^^^^^^^^^^^^^^^^^^^^^^^^^",
            '  File "/opt/lib/python3.12/site-packages/torch/distributed/rendezvous.py", line 7, in _store',
            "    return TCPStore()",
            "OSError: port in use",
            "",
        )
    )
    assert spell(own_line(raised_in(quoted))) == "work (work/train.py:30)"
    assert [f.line for f in traceback_frames(quoted)] == [90, 30, 7]
    assert without_us(quoted) == quoted.replace("\n".join(quoted.splitlines()[5:8]) + "\n", "")


def test_a_line_that_is_no_python_is_the_place_of_its_error():
    text = '  File "/work/train.py", line 1, in <module>\n    import net\n  File "/work/net.py", line 2\n    def f(:\n'
    assert spell(own_line(raised_in(f"{text}          ^\nSyntaxError: invalid syntax\n"))) == "<module> (work/net.py:2)"
    of_a_string = text.replace("/work/net.py", "<string>")
    assert (
        spell(own_line(raised_in(f"{of_a_string}          ^\nSyntaxError: invalid syntax\n")))
        == "<module> (work/train.py:1)"
    )


def test_faulthandler_lists_the_main_thread_last():
    other, main = parse_faulthandler(FAULTHANDLER, pid=7)
    assert (main.tid, main.name) == (7, "MainThread")
    assert main.frames[0] == Frame(function="stuck_here", file="/a dir/t.py", line=4)
    assert main.frames[1].line == 0
    assert (other.tid, other.frames[1].function) == (0x7F5C3C7FE6C0, "tick")


def test_of_two_dumps_by_faulthandler_the_last_counts():
    """A signal that was answered late, and the one that was sent since."""
    late = FAULTHANDLER.replace("stuck_here", "was_here")
    assert parse_faulthandler(late + FAULTHANDLER, pid=7) == parse_faulthandler(FAULTHANDLER, pid=7)


@pytest.mark.parametrize("parse", [parse_pystack, lambda text: parse_faulthandler(text, pid=7)])
def test_output_without_threads_is_refused(parse):
    with pytest.raises(ValueError, match="no threads"):
        parse("nothing here\n")


@pytest.fixture
def tool(tmp_path):
    def tool(script):
        path = tmp_path / "dumper"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return tool


@pytest.fixture
def child():
    """A Python process that waits on its standard input."""
    argv = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        yield child.pid
        child.kill()


def sample(source, pid, tmp_path, *, native=False):
    return source.sample(pid=pid, rank=0, t_s=1.0, native=native, number=1, trial_dir=tmp_path)


@pytest.mark.parametrize("source", [PySpy, PyStack])
def test_missing_tool_is_a_failure_that_says_how_to_get_it(source, child, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    failure = sample(source(), child, tmp_path)
    assert isinstance(failure, SourceFailure)
    assert "not installed; install it with: pip install" in failure.reason


def test_tool_beside_the_interpreter_comes_before_the_one_on_path(tmp_path, monkeypatch):
    for folder in ("beside", "path"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "py-spy").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "beside" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert find_tool("py-spy") == str(tmp_path / "beside" / "py-spy")
    (tmp_path / "beside" / "py-spy").unlink()
    assert find_tool("py-spy") == str(tmp_path / "path" / "py-spy")


def test_a_tool_that_is_packed_with_us_is_run_by_our_interpreter_and_finds_its_own_modules(tmp_path, monkeypatch):
    (tmp_path / "site" / "bin").mkdir(parents=True)
    (tmp_path / "site" / "packed.py").write_text("print('packed')")
    script = tmp_path / "site" / "bin" / "pystack"
    script.write_text("#!/gone/python\nimport packed\n")
    script.chmod(0o755)
    monkeypatch.setattr(dumper, "PACKED", script.parent)
    alone = tmp_path / "python"
    alone.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(alone))

    tool = find_tool("pystack")

    assert tool == str(script)
    assert subprocess.run(["env", *run_by(tool)], capture_output=True, text=True, check=True).stdout == "packed\n"


@pytest.mark.parametrize(("scope", "said"), [("1\n", "kernel.yama.ptrace_scope = 1"), (None, "no Yama")])
def test_refusal_names_the_kernel_setting(tmp_path, scope, said):
    if scope:
        (tmp_path / "sys/kernel/yama").mkdir(parents=True)
        (tmp_path / "sys/kernel/yama/ptrace_scope").write_text(scope)
    message = "Permission Denied: Try running again with elevated permissions\n\nStack backtrace:\n 0: x\n"
    reason, not_allowed = why_refused(message, code=1, proc=Proc(str(tmp_path)))
    assert reason.startswith(f"ptrace refused ({said}")
    assert "Try running again" not in reason
    assert not_allowed


def test_dumper_that_is_refused_is_a_failure_without_its_advice(tool, child, tmp_path):
    refuses = tool("echo 'Error: Operation not permitted (os error 1)' >&2; exit 1")
    failure = sample(PySpy(tool=refuses), child, tmp_path)
    assert failure.reason.startswith("ptrace refused")
    assert "os error" not in failure.reason
    assert failure.not_allowed
    assert not failure.no_python


def test_a_process_without_python_is_told_from_one_that_may_not_be_seen(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as other:
        failures = [sample(source, other.pid, tmp_path, native=True) for source in (PySpy(), PyStack())]
        other.kill()
    assert [failure.no_python for failure in failures] == [True, True]


def test_dumper_that_prints_nonsense_is_a_failure(tool, child, tmp_path):
    assert "unreadable output" in sample(PySpy(tool=tool("echo hello")), child, tmp_path).reason
    assert "unreadable output" in sample(PyStack(tool=tool("echo hello")), child, tmp_path).reason


WAITS_IN = """\
import threading


def {function}({argument}):
    lock = threading.Lock()
    lock.acquire()
    print(flush=True)
    lock.acquire()


{function}(1)  # {comment}
"""
LOCKS = {"function": "take", "argument": "name", "comment": "plain", "file": "locks.py"}


@contextmanager
def stuck_in(folder, *, file, **words):
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(WAITS_IN.format(**words))
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            while "futex" not in Path(f"/proc/{child.pid}/wchan").read_text():
                os.sched_yield()
            yield child.pid
        finally:
            child.kill()


@pytest.mark.parametrize(
    ("words", "is_read"),
    [
        ({"comment": "größe"}, True),
        ({"function": "größe_warten"}, False),
        ({"function": "größe_warten", "argument": "länge"}, False),
        ({"file": "größe/locks.py"}, False),
    ],
    ids=["in a comment", "a function", "and its argument", "a folder"],
)
def test_a_dump_whose_names_pystack_cannot_read_is_none_and_py_spys_is_taken(words, is_read, tmp_path):
    """It leaves the frame out, and the caller's line would be named."""
    words = LOCKS | words
    with stuck_in(tmp_path, **words) as pid:
        alone = sample(PyStack(), pid, tmp_path, native=True)
        both, _ = sample_all((PySpy(), PyStack()), pid=pid, rank=0, t_s=1.0, native=True, number=1, trial_dir=tmp_path)
    assert isinstance(alone, StackSample) is is_read
    assert is_read or "names that are not ASCII" in alone.reason
    (main,) = (thread for thread in both.threads if thread.tid == pid)
    innermost = next(frame for frame in main.frames if not frame.native)
    assert (innermost.function, innermost.line) == (words["function"], 8)
    assert innermost.file.endswith(words["file"])
    assert both.native


def test_dumper_that_cannot_be_started_is_a_failure(child, tmp_path):
    (tmp_path / "dumper").write_text("no program")
    assert "cannot be started" in sample(PySpy(tool=str(tmp_path / "dumper")), child, tmp_path).reason


def test_dumper_that_hangs_is_killed_with_its_children(tool, child, tmp_path, monkeypatch):
    hangs, told = tool(f"sleep 1000 & echo $! > {tmp_path}/grandchild; wait"), tmp_path / "grandchild"
    with begun(monkeypatch, lambda: told.exists() and told.read_text().endswith("\n")):
        dump = run_dumper([hangs], pid=child, proc=Proc(), limit_s=0.1)
    assert "no answer within" in dump.failure
    assert "was killed" in dump.failure
    left = procs.read(int(told.read_text()))
    wait_gone([left] if left else [])  # killed; the kernel takes it apart in its own time


def test_dumper_that_gets_on_is_given_three_times_as_long_as_one_that_is_stuck(tool, child, tmp_path):
    """A machine with other work on it makes a dumper slow; only what does not use the CPU that it gets is stuck."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    waits = tool(f"read line < {gate}; echo $line")

    slow = run_dumper(
        [waits], pid=child, proc=Working(0.1, 0.2, 0.3, then=lambda: gate.write_text("here\n")), limit_s=0.5
    )
    assert slow.text == "here\n"
    stuck = run_dumper([waits], pid=child, proc=Working(0.1, 0.1), limit_s=0.12)
    assert "no answer within 0.12 s (process state S; the dumper used 0.1 s of CPU)" in stuck.failure
    busy = run_dumper([waits], pid=child, proc=Working(*(n / 1000 for n in range(1, 99))), limit_s=0.02)
    assert "no answer within 0.06 s" in busy.failure


def test_a_dumper_that_computes_without_an_end_is_given_up_by_the_cpu_time_that_it_used(tool, child, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    endless = run_dumper([tool(f"read line < {gate}")], pid=child, proc=Working(0.05, 0.2, 0.3), limit_s=0.2)
    assert endless.failure.startswith("no answer within 0.2 s (process state ")
    assert "the dumper used 0.3 s of CPU" in endless.failure


class Working(Proc):
    """/proc as it shows a dumper that has used so much CPU at each look; behind the last, ``then`` happens."""

    def __init__(self, *used_s, then=lambda: None):
        super().__init__()
        self.used_s, self.then = list(used_s), then

    def cpu_s(self, pid):
        used_s = self.used_s.pop(0) if len(self.used_s) > 1 else self.used_s[0]
        if len(self.used_s) == 1:
            self.then()
            self.then = lambda: None
        return used_s


def test_dumper_that_does_not_die_at_once_is_collected_when_it_does(tool, child, tmp_path, monkeypatch):
    os.mkfifo(gate := tmp_path / "gate")
    monkeypatch.setattr("harness.observe.stacks.dumper._END_LIMIT_S", 0.01)
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    lingers = tool(f"echo $$ > {tmp_path}/pid; read line < {gate}")
    with begun(monkeypatch, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n")):
        dump = run_dumper([lingers], pid=child, proc=Proc(), limit_s=0.01)
    assert "but did not end" in dump.failure

    pid = int((tmp_path / "pid").read_text())
    (end,) = (thread for thread in threading.enumerate() if thread.name == "dumper-end")
    gate.write_text("now\n")
    end.join()
    assert not Path(f"/proc/{pid}").exists()


@contextmanager
def begun(monkeypatch, is_so):
    """A dumper's limit begins when ``is_so``: however late a busy machine lets it come that far."""

    class Begun(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            while not is_so():
                WallClock().sleep(0.005)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", Begun)
        yield


def test_process_that_a_killed_dumper_left_stopped_is_continued(tool, child, monkeypatch):
    stops = tool(f"kill -STOP {child}; sleep 1000")
    with begun(monkeypatch, lambda: Proc().states(child) == "T"):
        dump = run_dumper([stops], pid=child, proc=Proc(), limit_s=0.1)
    assert "it was continued" in dump.failure
    assert os.waitid(os.P_PID, child, os.WCONTINUED | os.WNOHANG) is not None
    assert "T" not in Proc().states(child)


def test_process_that_a_killed_dumper_would_have_stopped_in_disk_sleep_goes_on(tool, tmp_path, monkeypatch):
    """The stop arrives when the disk answers, after the dumper is dead. Here a child that cannot begin is the disk."""
    os.mkfifo(disk := tmp_path / "disk")
    waits = f"""
import os
os.waitpid(os.posix_spawn("/bin/true", ["true"], {{}}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, {str(disk)!r}, 0, 0)]), 0)
"""
    with subprocess.Popen([sys.executable, "-c", waits]) as child:
        while Proc().states(child.pid) != "D":
            WallClock().sleep(0.005)
        attaches = f"""{sys.executable} -c 'import ctypes, os
assert ctypes.CDLL(None).ptrace(16, {child.pid}, 0, 0) == 0
os.waitpid({child.pid}, 0)'"""
        with begun(monkeypatch, lambda: Proc().pending_signals(child.pid)):
            dump = run_dumper([tool(attaches)], pid=child.pid, proc=Proc(), limit_s=0.1)
        disk.write_text("")
        while Proc().states(child.pid) not in {"T", "Z"}:
            WallClock().sleep(0.005)
        child.kill()
    assert child.returncode == 0
    assert "it was continued" in dump.failure


def test_process_that_ends_while_it_is_looked_at_is_gone_not_an_error(tool):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    dump = run_dumper([tool(f"kill -KILL {child.pid}; exit 1")], pid=child.pid, proc=Reaping(child))
    assert "ended while it was looked at" in dump.failure
    child.communicate()


class Reaping(Proc):
    """/proc as seen by somebody whose children are reaped at once."""

    def __init__(self, child):
        super().__init__()
        self.child, self.calls = child, 0

    def states(self, pid):
        self.calls += 1
        if self.calls > 1:
            self.child.wait()
        return super().states(pid)


@pytest.mark.parametrize("source", [PySpy, PyStack])
def test_native_frames_are_not_asked_of_a_process_in_disk_sleep(source, tool, tmp_path):
    class DiskSleep(Proc):
        def states(self, pid):
            return "SD"

    ran = tool(f"touch {tmp_path}/ran; exit 1")
    failure = sample(source(tool=ran, proc=DiskSleep()), os.getpid(), tmp_path, native=True)
    assert "state D" in failure.reason
    assert not (tmp_path / "ran").exists()
    sample(source(tool=ran, proc=DiskSleep()), os.getpid(), tmp_path, native=False)
    assert (tmp_path / "ran").exists()


def test_native_frames_are_not_asked_of_a_traced_process(tool, child, tmp_path):
    class Traced(Proc):
        def tracer(self, pid):
            return 4711

    assert (
        "process 4711 traces it"
        in sample(PySpy(tool=tool("exit 1"), proc=Traced()), child, tmp_path, native=True).reason
    )


LOCK = "lock = threading.Lock(); lock.acquire(); print(flush=True); lock.acquire()"
CHILD = "import subprocess; subprocess.Popen(['sleep', '60'])"
PAUSE = "print(flush=True); signal.pause()"


@pytest.mark.parametrize(
    ("handles", "threads", "waits", "stopped"),
    [
        ("signal.signal(signal.SIGUSR1, print)", 1, PAUSE, False),  # the kernel would give it to the thread that runs
        ("signal.signal(signal.SIGUSR1, print)", 0, PAUSE, True),  # nobody else could get it: it waits for the end
        ("", 1, PAUSE, True),  # nothing handles a signal, so none is missed
        ("signal.signal(signal.SIGALRM, print)", 1, LOCK, False),  # its handler may give the lock back
        ("signal.signal(signal.SIGALRM, print)", 0, LOCK, True),
        (f"signal.signal(signal.SIGCHLD, print); {CHILD}", 1, LOCK, False),  # the same when its child ends
        (f"signal.signal(signal.SIGCHLD, print); {CHILD}", 0, LOCK, True),
        ("signal.signal(signal.SIGCHLD, print)", 1, LOCK, True),  # it has no child
        ("signal.signal(signal.SIGUSR1, print)", 1, LOCK, False),  # a scheduler's ping was lost in one of two runs
        ("signal.signal(signal.SIGUSR1, print)", 0, LOCK, True),
        ("signal.signal(signal.SIGTERM, print)", 1, LOCK, True),  # whoever sends that means to end it
    ],
)
def test_a_thread_that_waits_for_a_signal_is_not_stopped_where_another_would_get_it(handles, threads, waits, stopped):
    program = (
        f"import signal, threading\n{handles}\nstay = threading.Event()\n"
        f"for _ in range({threads}): threading.Thread(target=stay.wait, daemon=True).start()\n{waits}"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        proc = Proc()
        while Proc().states(child.pid)[0] != "S" or (waits is PAUSE and "pause" not in proc.calls(child.pid)):
            WallClock().sleep(0.01)
        why = dumper.unstoppable(child.pid, proc=proc)
        in_c = dumper.unstoppable(child.pid, proc=proc, by_python=frozenset({signal.SIGINT}))
        child.kill()
    assert (why == "") == stopped, why
    assert (in_c == "") == (stopped or ("SIGUSR1" in handles and waits is LOCK)), "LLVM's handlers give no lock back"


@pytest.mark.parametrize(
    ("waits", "why"),
    [
        ("ours.recv(1)", ""),
        (
            "ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 30, 0)); ours.recv(1)",
            "begin anew",
        ),
        ("os.read(os.openpty()[1], 1)", "begin anew"),
        (
            "c = ctypes.CDLL(None); take = ctypes.create_string_buffer(struct.pack('HhH', 0, -1, 0)); "
            "c.semop(c.semget(0, 1, 0o600), take, 1)",
            "would end",
        ),
        (
            "here = socket.create_server(('127.0.0.1', 0)); ours = socket.create_connection(here.getsockname()); "
            "ours.send(bytes(1 << 24))",
            "ended short",
        ),
        ("ours.recv(2, socket.MSG_WAITALL)", "until all has come"),
        (
            "import select; poll = select.epoll(); poll.register(ours, select.EPOLLIN); poll.poll()",
            "",
        ),
        (
            "c = ctypes.CDLL(None); c.epoll_wait(c.epoll_create1(0), ctypes.create_string_buffer(12), 1, -1)",
            "would end",
        ),
        (
            "c = ctypes.CDLL(None); c.sigtimedwait(ctypes.create_string_buffer(b'\\0\\2', 128), None, None)",
            "would end",
        ),
        ("ctypes.CDLL(None).recvmmsg(ours.fileno(), ctypes.create_string_buffer(128), 2, 0, None)", "would end"),
    ],
    ids=[
        "a socket", "a socket with a limit", "a terminal", "a semaphore", "a large message", "all of a message",
        "Python's loop of events", "a call for events by ctypes", "a signal",
        "several messages",
    ],
)  # fmt: skip
def test_a_call_that_a_stop_would_end_or_begin_anew_is_let_be(waits, why):
    program = f"import ctypes, os, socket, struct\nours, theirs = socket.socketpair()\nprint(flush=True)\n{waits}"
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        while Proc().states(child.pid)[0] != "S" or not Proc().calls(child.pid):
            WallClock().sleep(0.01)
        reason = dumper.unstoppable(child.pid, proc=Proc())
        child.kill()
    assert why in reason if why else not reason, reason


def test_faulthandler_never_signals_a_process_that_would_die_of_it(child, tmp_path):
    failure = sample(Faulthandler(), child, tmp_path)
    assert "no handler for SIGUSR" in failure.reason
    assert Proc().states(child)


@contextmanager
def waiting(path):
    """The PID of an interpreter that waits in a system call and shows its stacks in the file at ``path``."""
    code = "import sys; from harness.shim.nsa_harness_shim import show_stacks; show_stacks(open(sys.argv[1], 'w'));"
    argv = [sys.executable, "-c", f"{code} print(flush=True); input()", str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        while Proc().states(child.pid) != "S":
            WallClock().sleep(0.005)
        yield child.pid
        child.kill()


def test_a_process_that_ran_and_now_waits_is_asked_again_from_c(tmp_path):
    """Python's handler runs when the system call returns, and it may never."""

    class RanBefore(Proc):
        looks = 0

        def states(self, pid):
            self.looks += 1
            return "R" if self.looks == 1 else super().states(pid)

    with waiting(tmp_path / "faulthandler_rank0.txt") as pid:
        answer = sample(Faulthandler(proc=RanBefore(), limit_s=0.2), pid, tmp_path)
    assert answer.source == "faulthandler (signal 61 was sent)"


@pytest.mark.parametrize(("computes", "ran"), [("while True: sum(range(10**5))", True), ("sum(range(10**12))", False)])
def test_only_a_process_that_comes_back_to_python_says_so(computes, ran, tmp_path):
    """Many short calls look like one without an end, but for this."""
    shows = "import sys; from harness.shim.nsa_harness_shim import show_stacks; show_stacks(open(sys.argv[1], 'w'))"
    argv = [sys.executable, "-c", f"{shows}; print(flush=True)\n{computes}", str(tmp_path / "faulthandler_rank0.txt")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        begun_s = Proc().cpu_s(child.pid)
        while Proc().cpu_s(child.pid) < begun_s + 0.1:
            WallClock().sleep(0.005)
        said = Faulthandler().inside(pid=child.pid, rank=0, trial_dir=tmp_path, limit_s=3.0 if ran else 0.5)
        child.kill()
    assert said.ran is ran


@pytest.mark.parametrize("number", ASKED_BY)
def test_a_request_for_stacks_that_comes_while_python_ends_does_not_end_the_process(number, tmp_path):
    code = f"""
import faulthandler, os, sys
from harness.shim.nsa_harness_shim import show_stacks
show_stacks(open(sys.argv[1], "w"))
show_stacks(open(sys.argv[1], "w"))
class Last:
    def __del__(self, let_go=faulthandler.unregister, kill=os.kill, me=os.getpid()):
        let_go(61)  # as Python does after the last object is gone
        kill(me, {number})
last = Last()
"""
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "stacks")], check=False).returncode == 0


def test_faulthandler_prints_each_time_what_is_new(tmp_path):
    with waiting(path := tmp_path / "faulthandler_rank0.txt") as pid:
        first, second = (sample(Faulthandler(), pid, tmp_path) for _ in range(2))
        written = path.stat().st_size
        refused = sample(Faulthandler(), pid, tmp_path, native=True)
    assert (first.source.partition(" ")[0], first.native) == ("faulthandler", False)
    assert [thread.tid for thread in second.threads] == [pid]
    assert "Python frames only" in refused.reason
    assert path.stat().st_size == written


def test_faulthandler_that_gets_no_answer_gives_up(tmp_path):
    clock = FakeClock()
    previous = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with (tmp_path / "faulthandler_rank0.txt").open("a"):
            failure = sample(Faulthandler(clock=clock), os.getpid(), tmp_path)
        closed = sample(Faulthandler(clock=FakeClock()), os.getpid(), tmp_path)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert "has closed it" in closed.reason
    assert "SIGUSR1 was sent, and nothing was printed within 3 s (a thread of it runs" in failure.reason
    assert clock.now() - clock.began_s == pytest.approx(3.0, abs=0.1)


def test_half_a_dump_is_waited_on_for_its_other_half(tmp_path):
    path, clock = tmp_path / "faulthandler_rank0.txt", FakeClock()
    half = FAULTHANDLER.index("Current thread")
    previous = signal.signal(signal.SIGUSR1, lambda *_: path.write_text(FAULTHANDLER[:half]))
    clock.at(0.5, lambda: path.write_text(FAULTHANDLER))
    try:
        with path.open("a"):
            answer = sample(Faulthandler(clock=clock), os.getpid(), tmp_path)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert [thread.frames[0].function for thread in answer.threads] == ["wait", "stuck_here"]
    assert clock.now() - clock.began_s < 0.6


def pick(*sources, native=True, tmp_path):
    return sample_all(sources, pid=7, rank=0, t_s=1.0, native=native, number=1, trial_dir=tmp_path)


def test_a_process_that_was_stopped_in_vain_has_that_time_in_the_sample_that_came_in_the_place(tmp_path):
    class Gives:
        name = "pystack"

        def sample(self, **_):
            return SourceFailure(id="failure-1", source=self.name, reason="no answer", stopped_s=10.0)

    answer, _ = pick(Gives(), ScriptedSource(native=False, name="python"), tmp_path=tmp_path)
    assert answer.stopped_s == 10.0


@pytest.mark.parametrize("end", ["exit 1", "echo hello", "sleep 9"], ids=["refuses", "unreadable", "never answers"])
def test_a_dumper_that_fails_says_how_long_it_stopped_the_process(end, tool, child, tmp_path):
    class Held(Proc):
        def state(self, pid):
            return "t"

    failure = sample(PyStack(tool=tool(f"sleep 0.2; {end}"), proc=Held(), limit_s=0.4), child, tmp_path, native=True)
    assert failure.stopped_s > 0.1


def test_first_source_with_native_frames_wins(tmp_path):
    python = ScriptedSource(native=False, name="python")
    answer, failures = pick(
        ScriptedSource(fail="no", name="broken"), python, ScriptedSource(name="c"), tmp_path=tmp_path
    )
    assert (answer.source, answer.native) == ("c", True)
    assert [failure.source for failure in failures] == ["broken"]


def test_native_frames_are_asked_of_the_quickest_first_and_python_frames_of_the_neutral_one(tmp_path):
    sources = ScriptedSource(name="py-spy"), ScriptedSource(name="pystack")
    assert [pick(*sources, native=native, tmp_path=tmp_path)[0].source for native in (True, False)] == [
        "pystack",
        "py-spy",
    ]


def test_native_frames_that_stop_before_python_are_another_sources_matter(tool, child, tmp_path):
    partly = tool(
        f"cat <<'END'\n{PYSTACK}* - Unable to merge native stack due to insufficient native information - *\nEND"
    )
    failure = sample(PyStack(tool=partly), child, tmp_path, native=True)
    assert failure.reason == "native frames that end before Python's begin"
    assert sample(PyStack(tool=partly, every_thread=True), child, tmp_path, native=True).native


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to raise a priority")
def test_dumper_computes_before_others_do(tool, child):
    """Its target may be stopped meanwhile; asked with nothing to wait for but the priority itself."""
    waits = tool('until [ "$(nice)" = -10 ]; do :; done; nice')
    assert run_dumper([waits], pid=child, proc=Proc()).text == "-10\n"


def test_python_frames_are_taken_when_nobody_has_native_ones(tmp_path):
    python = ScriptedSource(native=False, name="python")
    answer, failures = pick(python, ScriptedSource(fail="no"), tmp_path=tmp_path)
    assert (answer.source, answer.native) == ("python", False)
    assert python.samples == [(1, True)]
    assert len(failures) == 1


def test_source_that_refuses_native_frames_is_asked_last(tmp_path):
    class Refuses(ScriptedSource):
        def sample(self, *, native, number, **rest):
            if native:
                self.samples.append((number, native))
                return SourceFailure(id="failure-1", source=self.name, reason="Python frames only")
            return super().sample(native=native, number=number, **rest)

    neutral, disturbs = Refuses(name="neutral"), Refuses(name="disturbs")
    answer, _ = pick(neutral, disturbs, tmp_path=tmp_path)
    assert answer.source == "neutral"
    assert disturbs.samples == [(1, True)]


def test_a_dumper_that_fails_has_stopped_the_process_all_the_same(tool, child, tmp_path):
    class Traced(Proc):
        def state(self, pid):
            return "t"

    fails = PyStack(tool=tool("sleep 0.1; exit 1"), proc=Traced())
    assert sample(fails, child, tmp_path, native=True).stopped_s > 0.05
    answer, failures = pick(FailsAfter(0.2, "a"), FailsAfter(0.1, "b"), ScriptedSource(native=False), tmp_path=tmp_path)
    assert (answer.native, len(failures)) == (False, 2)
    assert answer.stopped_s == pytest.approx(0.3)


class FailsAfter(ScriptedSource):
    """Stops the process for so long, and gives Python frames only."""

    def __init__(self, stopped_s, name):
        super().__init__(name=name)
        self.stopped_s = stopped_s

    def sample(self, *, native, number, **rest):
        if native:
            return SourceFailure(id="failure-1", source=self.name, reason="no", stopped_s=self.stopped_s)
        return super().sample(native=native, number=number, **rest)


def test_nobody_can_and_everybody_says_why(tmp_path):
    answer, failures = pick(ScriptedSource(fail="a"), ScriptedSource(fail="b"), native=False, tmp_path=tmp_path)
    assert answer is None
    assert [failure.reason for failure in failures] == ["a", "b"]


def test_table_gives_all_sources_in_order_of_preference():
    assert [source.name for source in load_sources()] == ["py-spy", "pystack", "faulthandler"]
    assert [source.name for source in load_sources(["pystack"])] == ["pystack"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize("name", ["py-spy", "pystack"])
def test_process_of_another_user_is_refused_and_the_reason_said(name, child, tmp_path):
    tool = find_tool(name)
    if tool is None:
        pytest.skip(f"{name} is not installed")
    setpriv = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]
    if not os.access(setpriv[0], os.X_OK):
        pytest.skip("needs setpriv")
    wrapper = tmp_path / "as-nobody"
    wrapper.write_text(f'#!/bin/sh\nexec {" ".join(setpriv)} {tool} "$@"\n')
    wrapper.chmod(0o755)
    source = {"py-spy": PySpy, "pystack": PyStack}[name](tool=str(wrapper))
    answer = sample(source, child, tmp_path)
    assert not isinstance(answer, StackSample)
    assert "ptrace refused" in answer.reason


def test_a_source_on_a_file_system_that_does_not_answer_is_done_without(monkeypatch):
    """A home directory on a server that is gone: what the program waits for keeps nobody who looks at it."""
    gone = threading.Event()
    monkeypatch.setattr(pyspy, "SOURCES_LIMIT_S", 0.05)
    monkeypatch.setattr("harness.observe.stacks.pyspy.os.stat", lambda path: gone.wait())
    thread = ThreadStack(tid=7, name="", frames=(Frame(function="f", file="/home/a/train.py", line=3),))
    taken = StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=os.getpid(), threads=(thread,))
    try:
        assert pyspy.sources(taken) == {}
    finally:
        gone.set()


def test_a_file_that_was_changed_since_its_process_began_is_not_what_that_runs(tmp_path):
    """Nor is it what a process runs that was forked since: the code was loaded before."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    for path in (before, after):
        path.write_text("work()\n")
    long_ago_s = time.time() - 86_400.0
    os.utime(before, (long_ago_s, long_ago_s))
    forked = os.fork()
    if not forked:
        signal.pause()
    try:
        answers = [pyspy.changed(pid, (str(before), str(after), "/gone.py")) for pid in (os.getpid(), forked)]
    finally:
        os.kill(forked, signal.SIGKILL)
        os.waitpid(forked, 0)
    assert answers == [{str(after)}] * 2


def test_a_program_is_the_files_on_the_stack_and_what_these_import_of_its_own(tmp_path, monkeypatch):
    """A handler of records stands in ``setup``, which no stack shows once it has returned."""
    (tmp_path / "inner").mkdir()
    texts = {
        "train.py": "import setup, json\nfrom inner import parts\n",
        "setup.py": "from inner.deep import late\n",
        "inner/__init__.py": "",
        "inner/parts.py": "PARTS = 1\n",
        "inner/deep.py": "import train\n",
        "stranger.py": "NOBODY = 'imports it'\n",
        "json.py.txt": "",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    frame = Frame(function="main", file=f"{tmp_path}/train.py", line=2)
    thread = ThreadStack(tid=os.getpid(), name="MainThread", frames=(frame,))
    shown = StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=os.getpid(), threads=(thread,))
    texts = pyspy.sources(shown)
    assert list(texts) == [f"{tmp_path}/train.py"]
    read = {Path(path).relative_to(tmp_path).as_posix() for path in pyspy.program(shown, texts)}
    assert read == {"train.py", "setup.py", "inner/parts.py", "inner/deep.py"}
    monkeypatch.setattr(pyspy, "MOST_FILES", 3)
    assert pyspy.program(shown, texts) is None
