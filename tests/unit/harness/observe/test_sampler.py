"""What the sampler adds to the samples that it keeps."""

import os
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fake_clock import FakeClock
from harness.core.evidence import Frame, StackSample, ThreadStack
from harness.observe.census import Census
from harness.observe.handlers import may_speak
from harness.observe.job import Member
from harness.observe.procfs import Files
from harness.observe.sampler import ANY_ANSWER_S, ASKED_HELPERS, Native, Sampler
from harness.observe.stacks.faulthandler import Faulthandler, Inside
from harness.reading.loops import loop_samples
from harness.reading.waits import ALARM
from scripted_trial import ScriptedHandle, ScriptedView
from stack_sources import ScriptedSource


class KernelNames(ScriptedSource):
    """Knows threads by the kernel's names once it shows native frames."""

    def sample(self, *, native, **rest):
        answer = super().sample(native=native, **rest)
        thread = answer.threads[0]
        named = replace(thread, name="python") if native else thread
        return replace(answer, threads=(named, replace(named, tid=thread.tid + 1, name="pt_autograd_0"))[: 1 + native])


def sampler_of(*sources, tmp_path, ranks=None):
    clock = FakeClock()
    handle = ScriptedHandle(clock=clock, trial_dir=tmp_path, pid=7)
    return Sampler(
        census=Census(handle=handle, clock=clock, read=ScriptedView().member),
        trial_dir=tmp_path,
        clock=clock,
        started_s=0.0,
        sources=sources,
        view=ScriptedView(),
        ranks=lambda: ranks or {0: 7},
    )


@pytest.mark.parametrize(("ranks", "nobodys"), [({0: 7}, 0), ({1: 8}, -1), ({0: 8, 1: 9}, -1)])
def test_what_started_the_ranks_is_no_rank_when_others_have_ended(ranks, nobodys, tmp_path):
    sampler = sampler_of(tmp_path=tmp_path, ranks=ranks)
    sampler.look()
    assert {look.rank for look in sampler.looks if look.pid == 7} == {nobodys}


def test_threads_keep_pythons_names_in_samples_with_native_frames(tmp_path):
    sampler = sampler_of(KernelNames(), tmp_path=tmp_path)
    for native in (Native.NONE, Native.ALL):
        sampler.look()
        sampler.dump(native)
    names = [[thread.name for thread in sample.threads] for sample in sampler.stacks if sample.native]
    assert names == [["MainThread", "pt_autograd_0"]]


@pytest.mark.parametrize(("native", "wanted"), [(Native.NONE, False), (Native.STILL, True), (Native.ALL, True)])
def test_a_helper_that_stands_still_is_asked_for_native_frames_whenever_anybody_is(native, wanted, tmp_path):
    """They alone tell that it waits for a lock."""
    sampler = sampler_of(ScriptedSource(), tmp_path=tmp_path, ranks={0: 9})
    sampler._stands_still = lambda pid: True
    sampler.look()
    sampler.dump(native)
    assert any(sample.native for sample in sampler.stacks if sample.pid == 7) is wanted


class Joining(ScriptedSource):
    """Its main thread joins a writer, as a sample without native frames alone tells."""

    def __init__(self, at):
        super().__init__()
        self._at = at

    def sample(self, *, native, **rest):
        answer = super().sample(native=native, **rest)
        file = f"/usr/lib/python3.11/{self._at if native else 'threading'}.py"
        main = replace(answer.threads[0], frames=(Frame(function="join", file=file, line=1, native=False),))
        return replace(answer, threads=(main, replace(main, tid=8)), joins=() if native else ((7, 8),))


@pytest.mark.parametrize(("at", "joins"), [("threading", ((7, 8),)), ("queue", ())])
def test_whom_a_thread_joined_it_still_joins_in_samples_with_native_frames_while_it_waits_for_one(at, joins, tmp_path):
    sampler = sampler_of(Joining(at), tmp_path=tmp_path)
    for native in (Native.NONE, Native.ALL):
        sampler.look()
        sampler.dump(native)
    assert [sample.joins for sample in sampler.stacks if sample.native] == [joins]


class Handling(ScriptedView):
    """Everything handles some signals."""

    def look(self, pid, **how):
        return replace(super().look(pid, **how), handles=("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGALRM", "alarm"))


@pytest.mark.parametrize(
    ("written", "handles"),
    [
        ("{began} 2 10", ("SIGUSR1", "SIGALRM", "alarm")),
        ("{began} 2", ("SIGALRM", "alarm")),
        ("7 2", ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGALRM", "alarm")),
        ("", ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGALRM", "alarm")),
        (None, ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGALRM", "alarm")),
    ],
    ids=["one in Python", "none in Python", "another process's", "half written", "not written"],
)
def test_a_message_that_comes_to_no_handler_in_python_lets_nobody_on(written, handles, tmp_path):
    pid, clock = os.getpid(), FakeClock()
    if written is not None:
        began = Files().stat(f"{pid}")[19]
        (tmp_path / f"handlers_{pid}").write_text(written.format(began=began))
    handle, view = ScriptedHandle(clock=clock, trial_dir=tmp_path, pid=pid), Handling()
    census = Census(handle=handle, clock=clock, read=view.member)
    sampler = Sampler(
        census=census, trial_dir=tmp_path, clock=clock, started_s=0.0, sources=(), view=view, ranks=lambda: {0: pid}
    )
    sampler.look()
    assert {look.pid: look.handles for look in sampler.looks}[pid] == handles


def test_the_programs_own_handler_of_sigterm_is_one(tmp_path):
    pid, clock = os.getpid(), FakeClock()
    for name, numbers in (("handlers", "2 15"), ("own_handlers", "15 28")):
        (tmp_path / f"{name}_{pid}").write_text(f"{Files().stat(f'{pid}')[19]} {numbers}")
    handle, view = ScriptedHandle(clock=clock, trial_dir=tmp_path, pid=pid), Handling()
    census = Census(handle=handle, clock=clock, read=view.member)
    sampler = Sampler(
        census=census, trial_dir=tmp_path, clock=clock, started_s=0.0, sources=(), view=view, ranks=lambda: {0: pid}
    )
    sampler.look()
    (look,) = (look for look in sampler.looks if look.pid == pid)
    assert look.handles == ("SIGTERM", "SIGALRM", "alarm")
    assert look.own_handles == ("SIGTERM", "SIGWINCH")


@pytest.mark.parametrize(
    ("words", "variables", "carries"),
    [
        (("python", "-u", "train.py", "-I"), {"PYTHONPATH": "/opt/harness/shim:/src"}, True),
        (("python", "-m", "service", "-E"), {"PYTHONPATH": "/opt/harness/shim"}, True),
        (("python", "-WError", "-E", "train.py"), {"PYTHONPATH": "/opt/harness/shim"}, True),
        (("python", "-I", "train.py"), {"PYTHONPATH": "/opt/harness/shim"}, False),
        (("python", "-Es", "train.py"), {"PYTHONPATH": "/opt/harness/shim"}, False),
        (("python", "train.py"), {"PYTHONPATH": "/src"}, False),
        (("python", "train.py"), {"PATH": "/usr/bin"}, False),
    ],
)
def test_a_program_that_hides_its_environment_carries_no_shim(words, variables, carries, tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_text("\0".join((*words, "")))
    (tmp_path / "7" / "environ").write_text("".join(f"{name}={value}\0" for name, value in variables.items()))
    assert may_speak(7, Files(str(tmp_path))) is carries


@pytest.mark.parametrize(
    ("python", "command", "carries", "opened", "own"),
    [
        (True, "python", False, False, ("SIGUSR1", "SIGUSR2", "SIGTERM")),
        (False, "gzip", False, False, ()),
        (True, "python", True, False, ()),
        (True, "python", False, True, ()),
        (True, "pt_data_worker", False, False, ()),
    ],
    ids=["it cannot speak", "no Python", "it carries the shim", "our own trainer", "a loader's worker"],
)
def test_a_python_program_that_cannot_speak_has_the_handlers_that_the_kernel_shows(
    python, command, carries, opened, own, tmp_path, monkeypatch
):
    class Silent(Handling):
        def look(self, pid, **how):
            return replace(super().look(pid, **how), command=command)

        def has_open(self, pid, name):
            return opened

    monkeypatch.setattr("harness.observe.sampler.may_speak", lambda pid: carries)
    sampler = sampler_of(tmp_path=tmp_path)
    sampler._view = Silent()
    member = Member(pid=7, parent=1, command="", started=1, state="S", python=python)
    sampler._census = SimpleNamespace(members=lambda: {7: member}, owner=lambda pid, mains: 0)
    sampler.look()
    assert {look.pid: look.own_handles for look in sampler.looks}[7] == own


class Speaking(ScriptedView):
    """A shell, 7, whose script speaks of an alarm, and what it started."""

    def speaks_of_alarms(self, pid):
        return pid == 7


def test_what_a_shell_started_whose_script_speaks_of_an_alarm_may_be_ended_by_one(tmp_path):
    sampler = sampler_of(tmp_path=tmp_path)
    sampler._view = Speaking()
    one = Member(pid=7, parent=1, command="", started=1, state="S")
    members = {7: one, 8: replace(one, pid=8, parent=7), 9: replace(one, pid=9, parent=8)}
    sampler._census = SimpleNamespace(members=lambda: members, owner=lambda pid, mains: 0)
    sampler.look()
    assert {look.pid: ALARM in look.handles for look in sampler.looks} == {7: False, 8: True, 9: False}


def in_a_program(tmp_path, module):
    """A sampler of this process, which runs a program that has called ``limits.arm``, with ``module`` in it."""
    (tmp_path / "limits.py").write_text(f"import _thread, signal, socket\n\ndef arm():\n    {module}\n")
    train = tmp_path / "train.py"
    train.write_text("from limits import arm\narm()\nwork()\n")

    class Works(ScriptedSource):
        def sample(self, **how):
            answer = super().sample(**how)
            frame = Frame(function="<module>", file=str(train), line=3)
            return replace(answer, pid=os.getpid(), threads=(replace(answer.threads[0], frames=(frame,)),))

    sampler = sampler_of(Works(), tmp_path=tmp_path)
    sampler.look()
    sampler.dump(Native.NONE)
    return sampler


def test_who_is_handed_something_is_asked_of_all_of_the_program(tmp_path):
    sampler = in_a_program(tmp_path, "socket.send_fds(other, [b'x'], [end])")
    assert sampler._hands_out == {"send_fds"}


@pytest.mark.parametrize(("module", "has"), [("work.get_future().then(go)", True), ("work.wait()", False)])
def test_what_is_called_when_a_collective_is_done_is_asked_of_all_of_the_program(module, has, tmp_path):
    assert in_a_program(tmp_path, module).stacks[0].has_callbacks is has


@pytest.mark.parametrize(
    ("age_s", "line", "looks_on"),
    [(86_400.0, "", True), (0.0, "", False), (86_400.0, "exec(compile(text, 'train.py', 'exec'))", False)],
    ids=["as it stands", "changed", "compiled"],
)
def test_the_source_of_a_thread_says_nothing_where_it_may_run_something_else(age_s, line, looks_on, tmp_path):
    train = tmp_path / "train.py"
    train.write_text(f"import time\ndef beat():\n    while True:\n        time.sleep(1)\n{line}\n")
    os.utime(train, (time.time() - age_s, time.time() - age_s))

    class Beats(ScriptedSource):
        def sample(self, **how):
            answer = super().sample(**how)
            beat = replace(answer.threads[0], tid=7, frames=(Frame(function="beat", file=str(train), line=4),))
            return replace(answer, pid=os.getpid(), threads=(beat,))

    sampler = sampler_of(Beats(), tmp_path=tmp_path)
    sampler.look()
    sampler.dump(Native.NONE)
    assert sampler.stacks[0].onlookers == ((7,) if looks_on else ())


@pytest.mark.parametrize(
    ("module", "armed"),
    [
        ("signal.alarm(25)", True),
        ("signal.pause()", False),
        ("_thread.interrupt_main()", True),
        ("_thread.exit()", False),
    ],
)
def test_an_alarm_may_be_set_by_a_module_that_no_thread_is_in_any_more(module, armed, tmp_path):
    """So may an interrupt that the main thread hears of when it wakes: of that nothing is to be seen, either."""
    sampler = in_a_program(tmp_path, module)
    assert (os.getpid() in sampler._with_alarm) is armed


class Busy(ScriptedView):
    """A process whose main thread sleeps; another wakes at every look, ``main`` says whether that one does, too."""

    main = False

    def look(self, pid, **how):
        look = super().look(pid, **how)
        self.turns = getattr(self, "turns", 0) + 1
        first = look.threads[0]
        first = replace(first, voluntary_switches=self.turns) if self.main else first
        other = replace(look.threads[0], tid=pid + 1, voluntary_switches=self.turns, timed=True)
        return replace(look, threads=(first, other))


@pytest.mark.parametrize(
    ("looks_on", "main", "trains", "idle"),
    [
        ((8,), False, True, True),
        ((), False, True, False),
        ((7, 8), True, True, False),  # whoever trains prints for itself
        ((7, 8), True, False, True),  # and a helper may do nothing else
        ((8,), True, False, False),
    ],
)
def test_what_is_printed_while_only_onlookers_ran_is_theirs(looks_on, main, trains, idle, tmp_path):
    sampler = sampler_of(tmp_path=tmp_path)
    sampler._ranks = lambda: {0: 7} if trains else {}
    sampler._view = Busy()
    assert not sampler.only_onlookers_ran()  # nobody has looked yet
    sampler.look()
    frame = Frame(function="beat", file="/src/train.py", line=3)
    threads = tuple(ThreadStack(tid=tid, name="beat", frames=(frame,)) for tid in (7, 8))
    sample = StackSample(id="s", source="py-spy", native=False, t_s=0.0, rank=0, pid=7, threads=threads)
    sampler.stacks.append(replace(sample, onlookers=looks_on))
    sampler._view.main = main
    assert sampler.only_onlookers_ran() is idle


IN_A_LOOP = (
    Frame(function="select", file="/usr/lib/python3.11/selectors.py", line=468),
    Frame(function="run_until_complete", file="/usr/lib/python3.11/asyncio/base_events.py", line=640),
    Frame(function="main", file="/src/train.py", line=9),
)
AWAITS_A_CHILD = (Frame(function="<module>", file="/src/launch.py", line=5),)


@pytest.mark.parametrize(
    ("frames", "more", "idle"),
    [
        (AWAITS_A_CHILD, {"launchers": (7,)}, True),
        (AWAITS_A_CHILD, {"onlookers": (7,)}, False),
        (IN_A_LOOP, {"onlookers": (-1,)}, True),
        (IN_A_LOOP, {}, False),
        (AWAITS_A_CHILD, {"onlookers": (-1,)}, False),
    ],
)
def test_a_launcher_and_an_event_loop_may_print_beside_what_is_stuck(frames, more, idle, tmp_path):
    """Though theirs is the main thread: the one awaits a process, the other wakes for tasks that merely look on."""
    sampler = sampler_of(tmp_path=tmp_path)
    sampler._ranks = lambda: {0: 7}
    sampler._view = Busy()
    sampler.look()
    threads = (ThreadStack(tid=7, name="main", frames=frames),)
    sample = StackSample(id="s", source="py-spy", native=False, t_s=0.0, rank=0, pid=7, threads=threads)
    sampler.stacks.append(replace(sample, **more))
    sampler._view.main = True
    look = sampler._view.look
    sampler._view.look = lambda pid, **how: replace(look(pid, **how), threads=look(pid, **how).threads[:1])
    sampler._before = {7: sampler._view.look(7, id="", t_s=0.0, rank=0, children=0)}
    assert sampler.only_onlookers_ran() is idle


class Stopped(Busy):
    """Whose main thread has so many turns, of which each stop is one."""

    stops = 0

    def look(self, pid, **how):
        look = super().look(pid, **how)
        first = replace(look.threads[0], voluntary_switches=self.stops)
        return replace(look, threads=(first, look.threads[1]))


@pytest.mark.parametrize("main", [False, True])
def test_to_be_stopped_for_a_dump_is_not_to_run(main, tmp_path):
    view = Stopped()

    def stop(_number):
        view.stops += 1

    sampler = sampler_of(ScriptedSource(name="py-spy", on_sample=stop), tmp_path=tmp_path)
    sampler._view = view
    sampler.look()
    sampler.dump(Native.ALL)
    frame = Frame(function="beat", file="/src/train.py", line=3)
    beside = ThreadStack(tid=8, name="beat", frames=(frame,))
    sampler.stacks = [replace(s, threads=(*s.threads, beside), onlookers=(8,)) for s in sampler.stacks]
    assert sampler.only_onlookers_ran()
    view.stops += main
    sampler.dump(Native.ALL)
    assert sampler.only_onlookers_ran() is not main


class Rests(ScriptedView):
    """Whose main thread ran so often, and which used so much CPU time."""

    ran = "1"
    used_s = 0.0

    def all_cpu_s(self, pid):
        return self.used_s

    def main_thread(self, pid):
        return self.ran


def test_who_prints_is_asked_once_those_that_train_have_rested_for_long_and_then_less_often(tmp_path):
    sampler, view = sampler_of(tmp_path=tmp_path), Rests()
    sampler._view = view
    clock = sampler._clock

    def idle_after(seconds):
        clock.sleep(seconds)
        return sampler.only_onlookers_ran()

    assert [idle_after(3.0) for _ in range(4)] == [False, False, True, True]
    sampler.progress()
    view.ran, view.used_s = "2", 1.0
    assert [idle_after(3.0) for _ in range(5)] == [False, False, False, False, True]
    view.ran = ""  # the kernel counts nothing
    assert [idle_after(30.0) for _ in range(2)] == [False, False]


@pytest.mark.parametrize(("used_s", "idle"), [(0.01, [False, False, True]), (0.3, [False, False, False])])
def test_who_prints_is_asked_of_one_that_does_hardly_more_than_that_too(used_s, idle, tmp_path):
    """A launcher, or an event loop: its main thread runs for each line."""
    sampler, view = sampler_of(tmp_path=tmp_path), Rests()
    sampler._view = view

    def asked_after(seconds):
        sampler._clock.sleep(seconds)
        view.ran += "1"
        view.used_s += used_s
        return sampler.only_onlookers_ran()

    assert [asked_after(2.6) for _ in idle] == idle


def test_where_nobody_can_be_asked_who_prints_it_is_progress(tmp_path):
    sampler, view = sampler_of(ScriptedSource(fail="no Python"), tmp_path=tmp_path), Rests()
    sampler._view = view
    assert [sampler._clock.sleep(3.0) or sampler.only_onlookers_ran() for _ in range(3)] == [False, False, True]
    sampler.look()
    sampler.dump(Native.ALL)
    sampler._clock.sleep(60.0)
    assert not sampler.only_onlookers_ran()


class Answers(Faulthandler):
    """Answers that its process runs Python, and keeps how long it was waited for."""

    waits = ()

    def inside(self, *, limit_s, **_):
        self.waits = (*self.waits, limit_s)
        return Inside(ran=True)


@pytest.mark.parametrize(("function", "asked"), [("cudaStreamSynchronize", True), ("sgemm", False)])
def test_whoever_waits_for_its_gpu_is_asked_whether_it_comes_back_to_python(function, asked, tmp_path):
    class Waits(ScriptedSource):
        def sample(self, *, native, **rest):
            answer = super().sample(native=native, **rest)
            thread = answer.threads[0]
            frames = (replace(thread.frames[0], function=function), *thread.frames[1:]) if native else thread.frames
            return replace(answer, threads=(replace(thread, frames=frames),))

    answers = Answers()
    sampler = sampler_of(Waits(("forward",)), answers, tmp_path=tmp_path)
    sampler.look()
    sampler.dump(Native.ALL)
    assert [sample.ran for sample in sampler.stacks if not sample.native] == [asked]
    assert answers.waits == ((ANY_ANSWER_S,) if asked else ())


class Threads(ScriptedView):
    """A process with another thread of this name."""

    name = "python"

    def look(self, pid, **how):
        look = super().look(pid, **how)
        return replace(look, threads=(*look.threads, replace(look.threads[0], tid=pid + 1, name=self.name)))


@pytest.mark.parametrize(("name", "is_native"), [("pt_nccl_watchdg", True), ("gloo_tcp_loop", False)])
def test_native_frames_of_a_call_over_a_gpu_are_taken_for_they_tell_whether_it_makes_its_communicator(
    name, is_native, tmp_path
):
    class Reduces(ScriptedSource):
        def sample(self, **how):
            answer = super().sample(**how)
            frames = tuple(
                replace(frame, file="/venv/torch/distributed/distributed_c10d.py")
                if frame.function == "all_reduce"
                else frame
                for frame in answer.threads[0].frames
            )
            return replace(answer, threads=(replace(answer.threads[0], frames=frames),))

    sampler = sampler_of(Reduces(("all_reduce", "step")), tmp_path=tmp_path)
    sampler._view = Threads()
    sampler._view.name = name
    for native in (Native.NONE, Native.ALL):
        sampler.look()
        sampler.dump(native)
    assert any(sample.native for sample in sampler.stacks) is is_native


@pytest.mark.parametrize(("source", "asked"), [("while n < 9:\n    pass\n", ASKED_HELPERS), ("work()\n", 0)])
def test_helpers_in_a_loop_of_numbers_are_asked_one_after_the_other_and_a_few_will_do(source, asked, tmp_path):
    class Keeps(Answers):
        pids = ()

        def inside(self, *, pid, **_):
            self.pids = (*self.pids, pid)
            return Inside()

    answers = Keeps()
    sampler = sampler_of(answers, tmp_path=tmp_path)
    (tmp_path / "work.py").write_text(source)
    file = str(tmp_path / "work.py")
    for number, pid in enumerate((7, 8, 9, 10, 11, 12)):
        thread = ThreadStack(tid=pid, name="MainThread", frames=(Frame(function="pad", file=file, line=1),))
        one = StackSample(
            id=f"stack-{number}", source="py-spy", native=False, t_s=0.0, rank=0, pid=pid, threads=(thread,)
        )
        loops = loop_samples(one, {(pid, 0): {"n": "3"}}, {file: source})
        sampler.stacks.append(replace(one, loops=loops))
    sampler._ask_helpers(0, 0)
    assert answers.pids == (8, 9, 10)[:asked]
    sampler._ask_helpers(0, 1)
    assert len(answers.pids) == asked
