"""Lives of trials, played through the watch's policy and the rules without a clock or a process.

A life is a series of silences between marks; what every process does in them is drawn. Healthy ones pause in all ways
that programs do (they compute, sleep, save, compile, wait for a child, for a lock of another program, for a rank that
is late), and none may be called HANG; hung ones can never go on, and must be told within twenty seconds of silence.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.classify.engine import classify
from harness.classify.rules.busy import busy
from harness.classify.rules.stalled import stalled
from harness.core.evidence import (
    Evidence,
    Frame,
    Heartbeat,
    Measurement,
    Pace,
    ProcessState,
    RankFacts,
    StackSample,
    ThreadStack,
    ThreadState,
)
from harness.core.outcome import Ending, Outcome, StopReason
from harness.core.point import Point
from harness.core.trial import Budget, Limit, Trial
from harness.core.verdict import Case, Kind
from harness.observe.runner import RECORDERS_AT, never_ends
from harness.observe.watch import LONGEST_POLL_S, ROUND, Act, State, next_step
from harness.reading import pace
from harness.reading.pace import WATCHED

STALL_S, STARTUP_S = 30.0, 120.0
DUMP_S = 0.15
SOON_S = 20.0
MAIN, OTHER, CHILD = 100, 200, 300
LIB = "/usr/lib/python3.11"


def limit(seconds):
    return Limit(seconds=seconds, source="default")


TRIAL = Trial(
    target="run", point=Point(settings=()), repeat=0, role="search", config={}, seed=0, code="c", machine="m",
    budget=Budget(startup=limit(STARTUP_S), stall=limit(STALL_S), total=limit(86400.0)),
)  # fmt: skip


# -- what processes do


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One thread for a while: its state, the wait it is in, CPU per second, wakings per second, its frames.

    ``lines`` is how many lines of its innermost function a look may find it on.
    """

    tid: int
    frames: tuple[Frame, ...] = ()
    state: str = "S"
    wchan: str = ""
    call: str = ""
    timed: bool | None = False
    holders: tuple[int, ...] = ()
    outside: bool | None = None
    share: float = 0.0
    wakes: float = 0.0
    lines: int = 1
    name: str = "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process for a while, with what it reads and writes, faults and grows by, all per second."""

    threads: tuple[Thread, ...]
    pid: int = MAIN
    rank: int = 0
    parent: int = 1
    io: float = 0.0
    faults: float = 0.0
    growth: float = 0.0
    command: str = "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Steps with their seconds, then a silence: for how long who does what; the last part of a hung life never ends."""

    steps: tuple[float, ...]
    parts: tuple[tuple[float, tuple[Process, ...]], ...]
    phase: str
    ranks: tuple[int, ...] = ()
    title: str = ""


def frame(function, line=10, file="/home/me/train.py", *, native=False):
    return Frame(function=function, file=file, line=line, native=native)


TOP = frame("<module>", 90)
WAIT = (frame("wait", 331, f"{LIB}/threading.py"), frame("acquire", 20), TOP)
JOINS = (
    frame("wait", 1201, f"{LIB}/subprocess.py"),
    frame("run", 550, f"{LIB}/subprocess.py"),
    frame("build", 30),
    TOP,
)
STEP = (frame("matmul", 40), frame("forward", 41), TOP)
REDUCE = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
MEETS = (frame("all_reduce", 2800, REDUCE), frame("sync", 60), TOP)

LOCKED = {"wchan": "futex_do_wait", "call": "futex", "frames": WAIT}
SLEEPS = {"wchan": "hrtimer_nanosleep", "call": "clock_nanosleep", "timed": True}
COMPUTES = {"state": "R", "timed": None, "share": 0.9, "wakes": 5.0}


def process(pid=MAIN, *, more=(), **facts):
    own = {name: facts.pop(name) for name in ("rank", "parent", "io", "faults", "growth", "command") if name in facts}
    return Process(pid=pid, threads=(Thread(tid=pid, **{"frames": STEP} | facts), *more), **own)


def child_of(parent, **facts):
    return process(CHILD, parent=parent, **facts)


def helper(**facts):
    return Thread(tid=MAIN + 1, **{"frames": (frame("work", 70), frame("run", 975, f"{LIB}/threading.py"))} | facts)


def waits_for_child(**child):
    parent = process(frames=JOINS, wchan="do_wait", call="wait4", holders=(CHILD,), outside=False)
    return (parent, child_of(MAIN, **child))


TICKER = Thread(
    tid=MAIN + 9, name="pt_gloo_runloop", wchan="ep_poll", call="epoll_wait", timed=True, wakes=100.0, share=0.004
)
FED_BY_MAIN = {"wchan": "anon_pipe_read", "call": "pipe-read", "holders": (MAIN,), "outside": False}
MEETING = {"frames": MEETS, "wchan": "futex_do_wait", "call": "futex", "timed": True}

PAUSES = {
    "computes": (process(**COMPUTES, lines=9, faults=400.0),),
    "computes in place": (process(**COMPUTES),),
    "computes beside many": (process(**COMPUTES | {"share": 0.03}, lines=4),),
    "sleeps": (process(**SLEEPS),),
    "sleeps and asks": (process(**SLEEPS, wakes=4.0, share=0.001, lines=2),),
    "saves": (process(state="D", wchan="folio_wait_bit_common", call="write", io=3e7, wakes=30.0, share=0.1),),
    "saves to a late disk": (process(state="D", wchan="folio_wait_bit_common", call="write"),),
    "saves to another machine": (process(state="D", wchan="rpc_wait_bit_killable", call="write"),),
    "reads a late file system": (process(state="D", wchan="request_wait_answer", call="read"),),
    "a lock of another program": (process(wchan="locks_lock_inode_wait", call="flock", outside=True),),
    "an answer of another machine": (process(wchan="sk_wait_data", call="socket-inet", outside=True),),
    "a poll of another machine": (process(wchan="do_poll", call="poll", outside=True, timed=False),),
    "a pipe of another program": (process(wchan="anon_pipe_read", call="pipe-read", outside=True),),
    "a queue with a limit": (process(**LOCKED | {"timed": True}),),
    "a thread that computes": (process(**LOCKED, more=(helper(**COMPUTES, lines=7),)),),
    "a thread that sleeps": (process(**LOCKED, more=(helper(**SLEEPS),)),),
    "a thread that asks another machine": (
        process(**LOCKED, more=(helper(wchan="sk_wait_data", call="socket-inet", outside=True),)),
    ),
    "a thread that saves": (process(**LOCKED, more=(helper(state="D", wchan="io_schedule", call="write"),), io=1e6),),
    "a child that computes": waits_for_child(**COMPUTES, lines=5),
    "a child that sleeps": waits_for_child(**SLEEPS),
    "a compiler": waits_for_child(**COMPUTES, command="cc1plus", frames=()),
    "a child that asks another machine": waits_for_child(wchan="sk_wait_data", call="socket-inet", outside=True),
    "a child behind a pipe": (
        process(wchan="anon_pipe_read", call="pipe-read", holders=(CHILD,), outside=False),
        child_of(MAIN, **COMPUTES, lines=3),
    ),
    "a device": (process(wchan="io_cqring_wait", call="io_uring_enter"),),
    "nobody could see what": (process(timed=None),),
    "collects garbage": (process(**COMPUTES, faults=3000.0, growth=-1e6),),
}  # fmt: skip

LATE = {
    "computes": dict(**COMPUTES, lines=6, faults=100.0),
    "sleeps": SLEEPS,
    "saves": {"state": "D", "wchan": "folio_wait_bit_common", "call": "write", "io": 1e7},
    "asks another machine": {"wchan": "sk_wait_data", "call": "socket-inet", "outside": True},
    "waits for another program's lock": {"wchan": "locks_lock_inode_wait", "call": "flock", "outside": True},
}
"""What the late one of two ranks may do while the other waits for it."""

HANGS = {
    "a lock twice": (process(**LOCKED),),
    "locks in two orders": (process(**LOCKED, more=(helper(wchan="futex_do_wait", call="futex", frames=WAIT),)),),
    "a lock, beside a ticker": (process(**LOCKED, more=(TICKER,)),),
    "its own pipe": (process(**FED_BY_MAIN),),
    "a child's lock": waits_for_child(**LOCKED),
    "a child that waits for it": waits_for_child(**FED_BY_MAIN),
    "a child that nobody feeds": (
        process(wchan="anon_pipe_read", call="pipe-read", holders=(CHILD,), outside=False),
        child_of(MAIN, **FED_BY_MAIN),
    ),
    "a lock, while a child waits for work": (
        process(**LOCKED),
        child_of(MAIN, **FED_BY_MAIN),
    ),
}  # fmt: skip

LOST = {
    "waits for its own lock": LOCKED,
    "is stopped": {"state": "T", "wchan": "do_signal_stop", "timed": None},
    "waits for its own pipe": {
        "wchan": "anon_pipe_read", "call": "pipe-read", "holders": (OTHER,), "outside": False,
    },
}  # fmt: skip
"""What the lost one of two ranks may do."""


def ranks(**late):
    return (process(rank=0, **MEETING, more=(TICKER,)), process(OTHER, rank=1, **late))


# -- a life, played


def slept_until(step_after, *, over_s):
    """The polls after which the watch does something: what is due stays due, so it need not be asked at each."""
    first, last = 1, math.ceil(over_s / LONGEST_POLL_S)
    while first < last:
        middle = (first + last) // 2
        if step_after(middle * LONGEST_POLL_S).act is Act.SLEEP:
            first = middle + 1
        else:
            last = middle
    return first * LONGEST_POLL_S


def rates(processes):
    """What every process, and every thread of one, makes in a second of a part."""
    made = {}
    for one in processes:
        made |= {(one.pid, "growth"): one.growth, (one.pid, "faults"): one.faults, (one.pid, "io"): one.io}
        for thread in one.threads:
            made |= {(one.pid, thread.tid, "wakes"): thread.wakes, (one.pid, thread.tid, "share"): thread.share}
    return made


class Player:
    """One life and what was seen of it."""

    def __init__(self, life: Life, rng: random.Random) -> None:
        self.life, self.rng = life, rng
        self.began_s = 5.0 + sum(life.steps)
        self.looks: list[ProcessState] = []
        self.stacks: list[StackSample] = []
        self.openings: dict[int, str] = {}
        self.marks = self._marks()
        self.pace = self._pace()
        self.ends = list(itertools.accumulate(seconds for seconds, _ in life.parts))
        self.rates = [(seconds, rates(processes)) for seconds, processes in life.parts]

    def _marks(self):
        pids = {0: MAIN, 1: OTHER} if self.life.ranks else {0: MAIN}
        marks, t_s = [], 5.0
        for step, seconds in enumerate(self.life.steps):
            for rank, pid in pids.items():
                for phase, at in (("data", 0.0), ("backward", 0.5)):
                    marks.append(
                        Heartbeat(
                            seq=len(marks),
                            t_s=t_s + at * seconds,
                            rank=rank,
                            pid=pid,
                            phase=phase,
                            edge="begin",
                            step=step,
                        )
                    )
            t_s += seconds
        for rank, pid in pids.items():
            marks.append(
                Heartbeat(
                    seq=len(marks),
                    t_s=self.began_s,
                    rank=rank,
                    pid=pid,
                    phase=self.life.phase,
                    edge="begin",
                    step=len(self.life.steps),
                )
            )
        return tuple(marks)

    def _pace(self):
        usual = self.life.steps[1:]
        half_s = max(usual, default=0.0) / 2
        gaps = (("data", "begin", half_s), ("backward", "begin", half_s)) if usual else ()
        return Pace(steps=len(self.life.steps), longest_s=half_s, gaps=gaps)

    def play(self):
        """The silence at which it is called a hang, and the verdict; None where it never is."""
        over_s = self.ends[-1]
        at_s, verdict, verdict_at_s, began_s, position, rested_s = 0.0, None, 0.0, None, 0, 0.0
        several = bool(self.life.ranks)
        last = self.marks[-1]
        training = len(self.life.steps) > 0
        limit_s = pace.silence_limit(TRIAL.budget, training=training).seconds
        suspicious_s = pace.suspicious_s(self.pace)
        due_s = (pace.busy_patience_s(self.pace, last, TRIAL, training=training),)

        def step_after(slept_s):
            return next_step(
                State(
                    age_s=self.began_s + at_s + slept_s, silence_s=at_s + slept_s, suspicious_s=suspicious_s,
                    limit_s=limit_s, limited=StopReason.STALL, total_s=TRIAL.budget.total.seconds,
                    due_s=due_s,
                    round_began_s=began_s, position=position, rested_s=rested_s + slept_s, several=several,
                    verdict_at_s=verdict_at_s,
                    hang=verdict.because if verdict is not None and never_ends(verdict) else "",
                )
            )  # fmt: skip

        while at_s < over_s:
            step = step_after(0.0)
            if step.act is Act.END:
                return (at_s if step.reason is StopReason.CERTAIN else None), verdict
            if step.act is Act.SLEEP:
                is_between_rounds = began_s is None or position >= len(ROUND)
                slept_s = slept_until(step_after, over_s=over_s) if is_between_rounds else step.seconds
                at_s += slept_s
                rested_s += slept_s
                continue
            if step.begins:
                began_s, position = at_s, 0
            if step.act is Act.LOOK:
                self.look(at_s)
            elif step.act is Act.DUMP:
                self.dump(at_s)
                at_s += DUMP_S
            elif several:
                self.openings.clear()
            position, rested_s = min(position + 1, len(ROUND)), 0.0
            seen = len(self.stacks) > len(self.life.ranks or (0,)) or position >= len(ROUND)
            if at_s < over_s and seen and (not several or position > RECORDERS_AT):
                verdict_at_s, verdict = at_s, self.ask(at_s)
        return None, verdict

    def doing(self, at_s):
        return self.life.parts[min(bisect.bisect_right(self.ends, at_s), len(self.ends) - 1)][1]

    def summed(self, at_s, *what):
        """What a process or a thread of it made of something over all of the silence up to now."""
        total, left_s = 0.0, at_s
        for seconds, rates_of_part in self.rates:
            total += min(left_s, seconds) * rates_of_part.get(what, 0.0)
            left_s -= seconds
            if left_s <= 0.0:
                break
        return total

    def look(self, at_s):
        for one in self.doing(at_s):
            number = f"proc-{len(self.looks) + 1}"
            threads = tuple(self.state(one, thread, at_s) for thread in one.threads)
            growth, faults, io = (int(self.summed(at_s, one.pid, what)) for what in ("growth", "faults", "io"))
            self.looks.append(
                ProcessState(
                    id=number, t_s=self.began_s + at_s, rank=one.rank, pid=one.pid, state=threads[0].state,
                    threads=threads, rss_bytes=(1 << 28) + growth, minor_faults=faults,
                    read_bytes=0, written_bytes=io,
                    children=int(one.pid == MAIN and len(self.doing(at_s)) > 1), parent=one.parent,
                    command=one.command, undisturbed_since=self.openings.get(one.pid),
                )
            )  # fmt: skip
            self.openings.setdefault(one.pid, number)

    def state(self, one, thread, at_s):
        # Between two waits every thread runs for a moment.
        turns = bisect.bisect_right(self.ends, at_s)
        wakes = self.summed(at_s, one.pid, thread.tid, "wakes") + 3 * turns
        return ThreadState(
            tid=thread.tid, name=thread.name, state=thread.state, wchan=thread.wchan,
            cpu_s=3.0 + self.summed(at_s, one.pid, thread.tid, "share") + 0.003 * turns,
            voluntary_switches=int(wakes), involuntary_switches=int(wakes / 3), timed=thread.timed, call=thread.call,
            holders=thread.holders, outside=thread.outside,
        )  # fmt: skip

    def dump(self, at_s):
        self.openings.clear()
        for one in self.doing(at_s):
            shown = [thread for thread in one.threads if thread.frames]
            if not shown:
                continue
            threads = tuple(
                ThreadStack(tid=t.tid, name=t.name, frames=self.frames(t), active=t.state == "R") for t in shown
            )
            self.stacks.append(
                StackSample(
                    id=f"stack-{len(self.stacks) + 1}", source="py-spy", native=False, t_s=self.began_s + at_s,
                    rank=one.rank, pid=one.pid, threads=threads,
                )
            )  # fmt: skip

    def frames(self, thread):
        first, *rest = thread.frames
        return (replace(first, line=first.line + self.rng.randrange(thread.lines)), *rest)

    def ask(self, at_s):
        silence_s, age_s = at_s, self.began_s + at_s
        facts = tuple(
            RankFacts(
                id=f"rank-{rank}", rank=rank, pid={0: MAIN, 1: OTHER}[rank], steps_done=len(self.life.steps),
                heartbeats=tuple(mark for mark in self.marks if mark.rank == rank),
                heartbeats_total=len(self.marks) // 2, silence_s=silence_s,
            )
            for rank in self.life.ranks
        )  # fmt: skip
        evidence = Evidence(
            steps_wanted=0, steps_done=len(self.life.steps), heartbeats=self.marks, heartbeats_total=len(self.marks),
            silence_s=silence_s, stacks=tuple(self.stacks), processes=tuple(self.looks), ranks=facts, pace=self.pace,
            measurement=Measurement(startup_s=5.0, step_s=self.life.steps, longest_silence_s=self.pace.longest_s),
            world=len(facts), main=MAIN,
        )  # fmt: skip
        ended = Outcome(ending=Ending.STOPPED_BY_US, stopped_by=StopReason.CERTAIN, duration_s=age_s)
        case = Case(trial=TRIAL, outcome=ended, evidence=evidence)
        # All rules only once they matter: they take five times as long as the two that can say HANG.
        return classify(case) if stalled(case) or busy(case) else None


# -- lives, drawn


def drawn_steps(rng):
    """Lognormal step times, a few of them, around anything from a millisecond to three seconds."""
    usual_s = 10 ** rng.uniform(-3, 0.5)
    return tuple(rng.lognormvariate(math.log(usual_s), 0.5) for _ in range(rng.randint(1, 12)))


def healthy(rng):
    several = rng.random() < 0.3
    parts, left_s = [], 10 ** rng.uniform(math.log10(3.2), math.log10(WATCHED * STALL_S * 0.9))
    title = []
    while left_s > 0.0:
        name = rng.choice(list(LATE if several else PAUSES))
        seconds = min(left_s, 10 ** rng.uniform(-0.5, 2.1))
        parts.append((seconds, ranks(**LATE[name]) if several else PAUSES[name]))
        title.append(f"{name} for {seconds:.1f} s")
        left_s -= seconds
    return Life(
        steps=drawn_steps(rng), parts=tuple(parts), phase=rng.choice(("data", "step", "backward")),
        ranks=(0, 1) if several else (), title="; ".join(title),
    )  # fmt: skip


def hung(rng):
    """Perhaps something healthy first; then something that never ends, and no other."""
    several = rng.random() < 0.3
    name = rng.choice(list(LOST if several else HANGS))
    never = ranks(**LOST[name]) if several else HANGS[name]
    before = [(rng.uniform(0.1, 2.5), ranks(**LATE["computes"]) if several else PAUSES["computes"])]
    return Life(
        steps=drawn_steps(rng), parts=(*(before if rng.random() < 0.5 else ()), (1000.0, never)),
        phase=rng.choice(("data", "step", "backward")), ranks=(0, 1) if several else (), title=name,
    )  # fmt: skip


LIVES = st.integers(min_value=0, max_value=2**63)


PARTS, AT_ONCE = 8, 25
"""Parts that several processes can share to the end; and lives from one seed: to draw one takes as long as a look."""


@pytest.mark.parametrize("part", range(PARTS))
@settings(max_examples=10_000 // PARTS // AT_ONCE, deadline=None)
@given(seed=LIVES)
def test_no_healthy_life_is_called_a_hang(seed, part):
    """Ten thousand in all."""
    rng = random.Random(PARTS * seed + part)
    for _ in range(AT_ONCE):
        life = healthy(rng)
        at_s, verdict = Player(life, rng).play()
        assert at_s is None, f"{life.title}: {verdict.cause} after {at_s:.1f} s: {verdict.because}"


@settings(max_examples=2_000 // AT_ONCE, deadline=None)
@given(LIVES)
def test_every_hung_life_is_told_soon(seed):
    """Two thousand in all."""
    rng = random.Random(seed)
    for _ in range(AT_ONCE):
        life = hung(rng)
        player = Player(life, rng)
        at_s, verdict = player.play()
        assert at_s is not None, f"{life.title}: never told"
        assert verdict.kind is Kind.HANG
        assert at_s <= max(SOON_S, 2.5 * pace.suspicious_s(player.pace)), f"{life.title} after {at_s:.1f} s"


@pytest.mark.parametrize("name", HANGS)
def test_every_kind_of_hang_is_played(name):
    life = Life(steps=(0.1,) * 5, parts=((1000.0, HANGS[name]),), phase="step", title=name)
    assert Player(life, random.Random(1)).play()[0] is not None


@pytest.mark.parametrize("name", PAUSES)
def test_every_kind_of_pause_is_played(name):
    life = Life(steps=(0.1,) * 5, parts=((100.0, PAUSES[name]),), phase="step", title=name)
    assert Player(life, random.Random(1)).play()[0] is None
