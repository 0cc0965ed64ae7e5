"""One look at what a test does, judged by the instrument's rules; the report of a hang. A process of its own.

Only the processes of the session are looked at: the one that runs the tests and what is below it. What serves pytest
and not the test is left out of the evidence, and nothing else is: the waiter, the thread of xdist's worker that listens
to its controller, and the time limits of pytest-timeout and faulthandler, which end a test and let none go on. A forked
child has the handler of pytest-timeout's alarm from the test, but not the alarm; it may have set one of its own, so
that is left out only after the patience that is due to what somebody outside may end.

One rule is added to those of a run, where somebody gave ``stall``: a test that computes in one call into C, with
nothing to show for it, hangs once it does so for four times that (``harness.classify.rules.busy.one_call``). By the
default alone it is never a hang, for such a call may come back. That it is one call and not many, the source says
(``is_one_call``). Asking Python by a signal does not: the C code of regular expressions answers, too.
"""

from __future__ import annotations

import json
import linecache
import signal
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.classify.engine import classify
from harness.classify.rules.busy import one_call
from harness.classify.rules.stalled import STOPPED
from harness.clock import WallClock
from harness.core.errors import HarnessError, StoreError
from harness.core.outcome import StopReason
from harness.core.verdict import Case, Confidence, Kind
from harness.observe.attach import Looker, job_logs
from harness.observe.job import JobTree, ProcTree, Worker, find_job, is_same
from harness.observe.proc import Proc
from harness.observe.watch import Act, Step, next_look, next_step
from harness.pytest_plugin import STALL_S
from harness.pytest_plugin.keeper import END
from harness.pytest_plugin.place import EXIT, FINISH, RunningTest, StateFile, waited_for
from harness.reading.frames import is_noise, python_frames, telling_frame
from harness.reading.loops import runs_once
from harness.reading.pace import WATCHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harness.core.evidence import Evidence, Frame, ProcessState, StackSample, ThreadStack
    from harness.core.outcome import Outcome
    from harness.core.ports import Clock
    from harness.core.trial import Trial
    from harness.core.verdict import Verdict
    from harness.observe.job import Member, Tree
    from harness.observe.watch import State

SURE = (Confidence.PROOF, Confidence.HIGH)
"""How sure the rules must be before anything is ended."""

LISTENER = ("/execnet/gateway_base.py", "_thread_receiver")
"""The thread of an xdist worker that reads what its controller sends: it lets no test go on."""

TIMEOUT = "pytest_timeout"
"""How the name of pytest-timeout's own thread begins."""


FAR_S = 30.0
"""How far pytest-timeout's alarm must be for threads to be stopped for their native frames: longer than any dump."""

LATE_ROUNDS = 3
"""So often what computes is looked at once its patience is over: on a busy machine a dump may miss a frame."""

PYTEST = ("/_pytest/", "/pluggy/", "/xdist/", "/execnet/", "/pytest/__main__.py", "<frozen runpy>")
"""Parts of the paths of frames that say nothing about a test."""


class Below(ProcTree):
    """The processes of the session: ``root`` and all below it, without the waiter and what it started."""

    def __init__(self, root: int, *, without: int) -> None:
        super().__init__(named=root)
        self._pids, self._without = {root}, without

    def get(self, pid: int) -> Member | None:
        """The process ``pid``, if it is of the session."""
        return super().get(pid) if pid in self._pids else None

    def children(self, pid: int) -> Iterable[int]:
        """Its children, if it is of the session."""
        pids = [child for child in super().children(pid) if child != self._without] if pid in self._pids else []
        self._pids.update(pids)
        return pids


class BeforeTheAlarm(Proc):
    """/proc, in which the alarm of pytest-timeout in ``pid`` is not seen while it is too far to be lost in a dump."""

    def __init__(self, *, pid: int, rings_s: float, clock: Clock) -> None:
        super().__init__()
        self._pid, self._rings_s, self._clock = pid, rings_s, clock

    def signals(self, at: str, kind: str) -> frozenset[int]:
        """The signals by number."""
        far = at == f"{self._pid}" and self._clock.now() + FAR_S < self._rings_s
        return super().signals(at, kind) - ({signal.SIGALRM} if far else set())


class TestLooker(Looker):
    """Watches a test as ``run`` watches a program, less what serves pytest and not the test.

    Until the rules call it a hang, the test goes on, or all patience is over. A hang that is not certain counts once
    it has been watched for as long as ``run`` would: a test may wait for somebody with a time limit of its own.
    """

    __test__ = False

    def __init__(self, *, alarm: bool, watchdog: int, others: Callable[[], bool], tree: Tree, **options: Any) -> None:
        self._alarm, self._watchdog, self._others, self._tree = alarm, watchdog, others, tree
        self.has_others, self._late = False, 0
        super().__init__(tree=tree, **options)

    def evidence(self, **facts: Any) -> Evidence:
        """What was seen of the test."""
        evidence = super().evidence(**facts)
        patient = evidence.silence_s >= WATCHED * self.trial.budget.stall.seconds
        forked = self._forked(evidence) if self._alarm and patient else frozenset[int]()
        return of_the_test(evidence, alarm=self._alarm, watchdog=self._watchdog, forked=forked)

    def _forked(self, evidence: Evidence) -> frozenset[int]:
        """The processes that have the command line of the one that runs the tests: its forks, and theirs."""
        members = {look.pid: self._tree.get(look.pid) for look in evidence.processes}
        main = members.get(evidence.main)
        if main is None or not main.argv:
            return frozenset()
        return frozenset(pid for pid, member in members.items() if member is not None and member.argv == main.argv)

    def next(self, state: State) -> Step:
        """What to do next about a test; other processes than at the beginning are for another look."""
        if state.round_began_s is None:
            return next_look(state, rounds_left=1)
        if state.hang and self.verdict is not None and not is_sure(self.verdict, self.trial, state.verdict_at_s):
            state = replace(state, hang="")
        is_late = state.verdict_at_s >= WATCHED * state.limit_s
        if is_late and state.round_is_over:
            self._late += 1
            if not state.works or self._late >= LATE_ROUNDS:
                return Step(act=Act.END, reason=StopReason.CERTAIN)
            step = Step(act=Act.LOOK, begins=True)
        else:  # a late round asks for native frames, too
            step = next_step(replace(state, time_is_up=is_late))
        self.has_others = step.begins and self._others()
        return Step(act=Act.END, reason=StopReason.CERTAIN) if self.has_others else step


def is_sure(verdict: Verdict, trial: Trial, silence_s: float) -> bool:
    """Whether a hang may be acted on: the rules are sure, or it has lasted beyond all patience."""
    return verdict.confidence in SURE or silence_s >= WATCHED * trial.budget.stall.seconds


def of_the_test(
    evidence: Evidence, *, alarm: bool, watchdog: int = 0, forked: frozenset[int] = frozenset()
) -> Evidence:
    """``evidence`` without the threads that serve pytest; ``alarm`` says that SIGALRM is pytest-timeout's.

    ``watchdog`` is the thread of faulthandler_timeout in the process that runs the tests, and ``forked`` are processes
    that have the handler of that alarm from there.
    """
    alarms = {"SIGALRM"} if alarm else set[str]()
    main = evidence.main
    ours = {(main, watchdog)} if main else set[tuple[int, int]]()
    for sample in evidence.stacks:
        for thread in sample.threads:
            if _serves(thread):
                ours.add((sample.pid, thread.tid))
    stacks: list[StackSample] = []
    for sample in evidence.stacks:
        threads = tuple(thread for thread in sample.threads if (sample.pid, thread.tid) not in ours)
        stacks.append(replace(sample, threads=threads))
    processes: list[ProcessState] = []
    for look in evidence.processes:
        running = tuple(thread for thread in look.threads if (look.pid, thread.tid) not in ours)
        hidden = alarms if look.pid in {main, *forked} else set[str]()
        handles = tuple(name for name in look.handles if name not in hidden)
        processes.append(replace(look, threads=running, handles=handles))
    return replace(evidence, stacks=tuple(stacks), processes=tuple(processes))


def _serves(thread: ThreadStack) -> bool:
    file, function = LISTENER
    listens = any(f.function.endswith(function) and f.file.endswith(file) for f in thread.frames)
    return listens or thread.name.startswith(TIMEOUT)


class SessionLook:
    """One look at the session's process ``pid``."""

    def __init__(self, *, pid: int, without: int, state: RunningTest, file: StateFile, path: Path) -> None:
        from harness.machine import code_fingerprint, describe

        self.state, self.file, self.path, self.clock = state, file, path, WallClock()
        self.tree = Below(pid, without=without)
        self.machine, self.code = describe(), code_fingerprint()
        self.pid, self.job = pid, find_job(pid, tree=self.tree)
        self.root, self.printed = self.tree.get(pid), _printed(pid)
        self.started_at, self.has_others = self.clock.wall(), False

    def trial(self) -> Trial:
        """What is watched, as a trial with the patience of ``run`` and without a limit of time."""
        from harness.core.trial import Limit
        from harness.plan.predict import LEAST_STALL_S
        from harness.solo import foreign_trial

        return foreign_trial(
            f"{self.state.nodeid} ({self.state.phase})",
            code=self.code,
            machine=self.machine.fingerprint,
            why="a slow test is not ended",
            stall=Limit(seconds=max(self.state.stall_s, LEAST_STALL_S), source="hang_guard_stall"),
        )

    def judge(self, outcome: Outcome, evidence: Evidence) -> Verdict:
        """The instrument's own rules, and the one for what computes where somebody gave a limit for that."""
        case = Case(trial=self.trial(), outcome=outcome, evidence=evidence)
        verdict = classify(case)
        if self.state.stall_s == STALL_S or verdict.kind is not Kind.UNRESOLVED or not is_one_call(evidence):
            return verdict
        return one_call(case) or verdict

    def watch(self, job: JobTree) -> tuple[Outcome, Evidence, Verdict]:
        """Some seconds of ``job``, judged."""
        from harness.observe.devices.table import load_devices
        from harness.observe.runner import Eyes
        from harness.observe.stacks.table import load_sources

        proc = BeforeTheAlarm(pid=self.pid, rings_s=self.state.alarm_s, clock=self.clock)
        self.path.with_suffix(".look").mkdir(exist_ok=True)
        looker = TestLooker(
            alarm=bool(self.state.alarm_s),
            watchdog=self.state.watchdog,
            others=lambda: _workers(find_job(job.launcher.pid, tree=self.tree)) != _workers(self.job),
            over=self.is_over,
            job=job,
            trial=self.trial(),
            folder=self.path.with_suffix(".look"),
            clock=self.clock,
            eyes=Eyes(sources=load_sources(("py-spy", "pystack"), proc=proc), devices=load_devices(), view=Proc()),
            is_same=is_same,
            judge=self.judge,
            tree=self.tree,
        )
        outcome, evidence = looker.run()
        self.has_others = looker.has_others
        return outcome, evidence, self.judge(outcome, evidence)

    def is_over(self) -> bool:
        """Whether the test is over, or gets on: it has printed something."""
        return self.file.read().seq != self.state.seq or _printed(self.pid) > self.printed

    def see(self) -> tuple[Outcome, Evidence, Verdict, bool]:
        """The look, and whether it is a hang of the test that is certain."""
        outcome, evidence, verdict = self.watch(self.job)
        hangs = verdict.kind is Kind.HANG and is_sure(verdict, self.trial(), evidence.silence_s)
        if hangs and self.root is not None and self.root.pid not in _workers(self.job):
            # Ranks below the test hang; the test itself may be about to end them, or have nothing to do with them.
            alone = JobTree(launcher=self.root, workers=(Worker(member=self.root),))
            hangs = self.watch(alone)[2].cause != "moving"
        return outcome, evidence, verdict, hangs

    def keep(self, outcome: Outcome, evidence: Evidence, verdict: Verdict, *, runs: Path, again: Sequence[str]) -> Path:
        """The run in ``runs`` with the report of a hang; the report's path.

        Raises:
            HarnessError: it cannot be written there.
        """
        from harness.conduct import Conducted
        from harness.core.campaign import CampaignAnswer
        from harness.core.verdict import Answer
        from harness.report.write import write
        from harness.solo import foreign_question
        from harness.store import layout
        from harness.store.run_store import RunStore

        is_a_test = self.state.nodeid != END
        what = f"the test {self.state.nodeid}" if is_a_test else END
        nodeids = (self.state.nodeid,) if is_a_test else ()
        with RunStore.create(
            runs,
            spec=foreign_question(name="pytest", question=f"Does {what} hang?"),
            machine=self.machine,
            code=self.code,
            argv=(*again, *nodeids),
            clock=self.clock,
        ) as store:
            trial = self.trial()
            store.add_start(trial)
            conducted = Conducted(outcome=outcome, evidence=evidence, verdict=verdict, started_at=self.started_at)
            store.write_evidence(trial.key, evidence)
            store.add_record(conducted.record(trial, answer=Answer.UNRESOLVED))
            store.add_end(why="answered", seconds=outcome.duration_s, answer=CampaignAnswer())
            write(store.run(), store.run_dir)
            return layout.report(store.run_dir).absolute()


def _workers(job: JobTree) -> list[int]:
    return [worker.member.pid for worker in job.workers]


def _printed(pid: int) -> int:
    """Bytes that pytest has captured of the test's output; 0 where it goes elsewhere."""
    return sum(log.size_bytes for log in job_logs([pid]))


# -- in words


def text(state: RunningTest, verdict: Verdict, evidence: Evidence, *, seconds: float, report: object) -> str:
    """The failure of the test: the verdict, its line, the stacks of all its processes, the path of the report."""
    from harness.report.text import wrap

    where = f"the test hangs in its {state.phase}"
    if state.phase in (FINISH, EXIT):
        where = "the session hangs at its end" + (
            f", for a thread that {state.nodeid} left" if state.nodeid != END else ""
        )
    out = [f"{verdict}: {where}, after {seconds:.0f} s (confidence: {verdict.confidence})"]
    out += wrap(verdict.because, width=80, indent="  ")
    line = own_line(evidence, state.path)
    if line is not None:
        out += ["", f"{line.file}:{line.line}: in {line.function}"]
        source = linecache.getline(line.file, line.line).strip()
        out += [f"    {source}"] if source else []
    out += ["", "stacks, innermost frame first:"]
    for sample in last_samples(evidence):
        out += _stacks(sample)
    return "\n".join([*out, "", f"report: {report}"])


def own_line(evidence: Evidence, path: str) -> Frame | None:
    """Where the test is in its own file; else the telling frame of its process."""
    samples = [sample for sample in evidence.stacks if sample.pid == evidence.main] or list(evidence.stacks)
    if not samples:
        return None
    threads = sorted(samples[-1].threads, key=lambda thread: thread.tid != samples[-1].pid)
    for thread in threads:
        for frame in thread.frames:
            if frame.line and Path(frame.file) == Path(path):
                return frame
    return telling_frame(threads[0]) if threads else None


def is_one_call(evidence: Evidence) -> bool:
    """Whether the main thread is in one call, by its source: no line of the test's own frames runs twice.

    There is no loop around any of them, no function is on the stack twice, and no C code calls back into Python.
    """
    thread = _main_thread(evidence)
    if thread is None or not python_frames(thread):
        return False
    inside = thread.frames[thread.frames.index(python_frames(thread)[0]) :]
    own: list[Frame] = []
    functions: set[tuple[str, str]] = set()
    for frame in inside:
        if _of_pytest(frame):
            break
        own.append(frame)
        functions.add((frame.file, frame.function))
        if frame.native or len(functions) < len(own):
            return False
    return bool(own) and all(runs_once("".join(linecache.getlines(f.file)), line=f.line or 0) for f in own)


def _main_thread(evidence: Evidence) -> ThreadStack | None:
    """The main thread of the process that runs the tests, in its last stacks with native frames."""
    for sample in reversed(evidence.stacks):
        if sample.native and sample.pid == evidence.main:
            return next((thread for thread in sample.threads if thread.tid == sample.pid), None)
    return None


def last_samples(evidence: Evidence) -> list[StackSample]:
    """The last stacks of every process, that of the test first."""
    last = {sample.pid: sample for sample in evidence.stacks}
    return [last[pid] for pid in sorted(last, key=lambda pid: (pid != evidence.main, pid))]


def _stacks(sample: StackSample) -> list[str]:
    from harness.report.stacks import lines

    out: list[str] = []
    for thread in sample.threads:
        own = tuple(filter(_is_own, thread.frames))
        name = "MainThread" if thread.tid == sample.pid else thread.name or str(thread.tid)
        out.append(f"  process {sample.pid}, thread {name}:")
        out += [f"    {line}" for line in lines(replace(thread, frames=own)).splitlines()]
    return out


def _is_own(frame: Frame) -> bool:
    return not (is_noise(frame) or frame.native or _of_pytest(frame))


def _of_pytest(frame: Frame) -> bool:
    return any(part in frame.file for part in PYTEST)


def main(arguments: Sequence[str]) -> None:
    """``look FOLDER NAME WAITER SEQ``: one JSON object on standard output."""
    folder, name, waiter, seq = Path(arguments[0]), arguments[1], int(arguments[2]), int(arguments[3])
    settings = json.loads((folder / f"{name}.json").read_text())
    with closing(StateFile(folder / f"{name}.state")) as file:
        try:
            answer = _look(file, settings, path=folder / name, waiter=waiter, seq=seq)
        except HarnessError as error:
            answer = {"hang": False, "why": f"nobody could look at it: {error}"}
    sys.stdout.write(json.dumps(answer))


def reported(keep: Callable[[Path], Path]) -> str:
    """Where the report of a hang is, elsewhere where the folder of runs cannot be written to, or why there is none.

    The hang is told whatever goes wrong with its report: a test that nobody ends takes all the time that its job has.
    """
    from harness.settings import Settings

    runs = "the folder of runs"
    try:
        runs = str(Settings.read().runs)
        return str(keep(Path(runs)))
    except Exception as error:  # noqa: BLE001 - whatever it is
        why = (isinstance(error, StoreError) and error.what) or str(error) or type(error).__name__
    try:
        return f"{keep(Path(tempfile.mkdtemp(prefix='nsa-harness-')))} (not in {runs}: {why})"
    except Exception:  # noqa: BLE001 - most likely the same
        return f"none could be written: {why}"


def _look(file: StateFile, settings: dict[str, Any], *, path: Path, waiter: int, seq: int) -> dict[str, object]:
    state = file.read()
    if state.seq != seq:
        return {"hang": False, "why": "it went on"}
    pid = int(settings["pid"])
    state = waited_for(state, path.with_suffix(".left"), pid=pid)
    look = SessionLook(pid=pid, without=waiter, state=state, file=file, path=path)
    outcome, evidence, verdict, hangs = look.see()
    if not hangs:
        kind = "" if verdict.kind is Kind.UNRESOLVED else f"{verdict} ({verdict.confidence} confidence): "
        return {"hang": False, "why": f"{kind}{verdict.because}", "soon": look.has_others}
    report = reported(lambda runs: look.keep(outcome, evidence, verdict, runs=runs, again=settings["again"]))
    seconds = look.clock.now() - state.began_s
    message = text(state, verdict, evidence, seconds=seconds, report=report)
    stopped = verdict.cause == STOPPED
    return {"hang": True, "verdict": str(verdict), "report": report, "text": message, "stopped": stopped}
