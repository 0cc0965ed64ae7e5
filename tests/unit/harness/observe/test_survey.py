"""The survey looks between its stack samples, asks for native frames once and last, and never takes one for another."""

from __future__ import annotations

from fake_clock import FakeClock
from harness.core.evidence import ProcessState, SourceFailure, StackSample, ThreadStack
from harness.observe.job import JobTree, Member, Worker
from harness.observe.survey import Survey
from harness.reading.stillness import quiet_windows


class View:
    def __init__(self, log):
        self.log = log

    def look(self, pid, *, id, t_s, rank=0, children=0, since=None):
        self.log.append(("look", pid))
        return ProcessState(
            id=id,
            t_s=t_s,
            rank=rank,
            pid=pid,
            state="S",
            threads=(),
            rss_bytes=0,
            minor_faults=0,
            read_bytes=0,
            written_bytes=0,
            children=children,
            undisturbed_since=since,
        )


class Source:
    name = "py-spy"

    def __init__(self, log, *, reason=None):
        self.log, self.reason = log, reason

    def sample(self, *, pid, rank, t_s, native, number, trial_dir):
        self.log.append(("native" if native else "stack", pid))
        if self.reason:
            return SourceFailure(id="f", source=self.name, reason=self.reason)
        main = ThreadStack(tid=pid, name="MainThread", frames=())
        return StackSample(
            id=f"stack-{number}", source=self.name, native=native, t_s=t_s, rank=rank, pid=pid, threads=(main,)
        )


def member(pid, *, rank):
    return Member(pid=pid, started=pid, parent=1, state="S", command="python", python=True, env={"RANK": str(rank)})


def survey(*, log, reason=None, native=False, is_same=lambda _: True, absent=(), ended=()):
    workers = (Worker(member=member(20, rank=0), helpers=((member(30, rank=0), "DataLoader worker"),)),)
    job = JobTree(launcher=member(10, rank=9), workers=workers, absent=absent, ended=ended)
    sources = [Source(log, reason=reason)]
    return Survey(
        job=job,
        clock=FakeClock(),
        view=View(log),
        is_same=is_same,
        neutral=sources,
        native=sources if native else (),
        note=lambda _: None,
    )


def test_two_samples_enclose_an_undisturbed_window_of_a_second_with_the_helpers():
    log = []
    (seen,) = survey(log=log).take(samples=2)

    assert [what for what, _ in log] == ["stack", "look", "look", "stack"]
    (window,) = quiet_windows(seen.looks)
    assert window.seconds == 1.0
    assert seen.looks[0].children == 1


def test_a_single_sample_still_has_its_window():
    log = []
    (seen,) = survey(log=log).take(samples=1)

    assert [what for what, _ in log] == ["look", "look", "stack"]
    assert len(quiet_windows(seen.looks)) == 1


def test_native_frames_are_taken_once_and_last():
    log = []
    survey(log=log, native=True).take(samples=3)

    assert [what for what, _ in log] == ["stack", "look", "look", "stack", "look", "look", "stack", "native"]


def test_a_refusal_is_the_ranks_reason():
    (seen,) = survey(log=[], reason="ptrace refused (no Yama)").take(samples=1)

    assert seen.missing == "could not be seen: ptrace refused (no Yama)"
    assert len(seen.looks) == 2


def test_another_process_with_the_pid_is_never_looked_at():
    log = []
    (seen,) = survey(log=log, is_same=lambda _: False).take(samples=2)

    assert log == []
    assert seen.missing == "ended while it was looked at"


def test_an_absent_rank_gets_the_only_dead_childs_pid():
    absent = ((1, "has ended", True), (2, "is elsewhere", False))
    _, ended, elsewhere = survey(log=[], absent=absent, ended=(member(21, rank=1),)).take(samples=1)

    assert (ended.rank, ended.pid, ended.required) == (1, 21, True)
    assert ended.missing.startswith("has ended")
    assert (elsewhere.rank, elsewhere.pid, elsewhere.missing, elsewhere.required) == (2, None, "is elsewhere", False)
