"""What to do next about a trial that is being watched: a pure question, asked again after every answer.

The watch looks after a trial that is quick, and looks closely at one that is silent. It knows nothing of clocks, files
and processes: it is told what is the case (``State``), and says what to do next (``Step``); ``harness.observe.runner``
does it and asks again. So thousands of lives of trials can be played through it in a second.

A silence is looked into in rounds of five seconds: looks at /proc with undisturbed windows between them, three dumps of
stacks, and once the flight recorders where there are several ranks. The first round begins after three seconds (or one
and a half times the longest silence so far), the others each time the silence has doubled, and before every moment at
which a decision falls due. After each answer the rules are asked whether what was seen makes a hang; the watch itself
never judges, and ends a trial only because they say so, because a limit ran out that was waited for in full, or because
the user asked. The total limit bounds the rounds: what is silent when it runs out was looked into in the seconds before
it, and no further round begins that cannot be over by then (a limit of 12 s had taken 15.5 s).

What does not work: examining only at the limit (two minutes for what is certain after seven seconds); native frames of
everything (they stop a process for a fifth of a second); one look for each of several deciders, who then disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from harness.core.outcome import USER_ASKED, StopReason
from harness.reading.pace import WATCHED

LONGEST_POLL_S = 0.2
"""How long nobody looks after the trial at most."""

SHORTEST_POLL_S = 0.02
"""How soon it is looked after again at first: 20 ms, then 5 % of its age, five times a second at last."""

PAUSE_S = 1.1
"""Undisturbed time between two dumps of stacks."""

SETTLE_S = 0.1
"""Time after a dump before /proc is looked at again: threads that the dump woke have gone back to sleep."""

AFTERMATH_S = 6.0
"""Time that the other ranks have, after one has failed, to end by themselves and say what they miss."""

CLOSING_S = 5.0
"""How long before a decision falls due its round is begun."""

BRIEF_S = 1.0
"""No silence shorter than this is looked into, whatever falls due: there may be no interpreter yet."""


class Act(Enum):
    """What the watch can ask for."""

    SLEEP = auto()
    LOOK = auto()
    DUMP = auto()
    RECORDERS = auto()
    END = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do next. ``native`` asks for native frames of all that train, not only of those that stand still.

    ``begins`` says that a round begins with it. Of an END, ``reason`` is why (None: it ended by itself) and ``why``
    says it in words.
    """

    act: Act
    seconds: float = 0.0
    native: bool = False
    begins: bool = False
    reason: StopReason | None = None
    why: str = ""


ROUND: tuple[tuple[float, Act], ...] = (
    (0.0, Act.LOOK),
    (PAUSE_S, Act.LOOK),
    (0.0, Act.DUMP),
    (SETTLE_S, Act.LOOK),
    (PAUSE_S, Act.LOOK),
    (0.0, Act.DUMP),
    (0.0, Act.RECORDERS),
    (SETTLE_S, Act.LOOK),
    (PAUSE_S, Act.LOOK),
    (0.0, Act.DUMP),
    (SETTLE_S, Act.LOOK),
)
"""One round: what is done, and how long after what came before it."""

ACTS = tuple(act for _, act in ROUND)
"""What is done in a round, in order."""

ROUND_S = 4.2
"""What a round takes: its pauses, and a fifth of a second for each dump."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is the case.

    ``round_began_s`` is the silence at which the last round began (None: there was none in this silence), ``position``
    how many of its acts are done, ``rested_s`` the time since the last of them. ``due_s`` are silences at which
    decisions fall due, ``limit_s`` and ``limited`` the limit of this silence. ``several`` says whether other ranks or
    GPUs take part, once a round has begun; ``hang`` is why the rules call what was seen a hang, or empty; ``works``
    that they say it gets on. ``failed_s`` is how long ago a rank failed while others are left; ``verdict_at_s`` the
    silence at which the rules were asked last; ``time_is_up`` says that the total limit has run out, or the user has,
    and the last round is under way. ``called`` says that another part of the trial, on another node, is being looked
    into at this moment. ``examine`` says that a user who interrupts a silent trial wants to know where it is before it
    is ended.
    """

    age_s: float
    silence_s: float
    suspicious_s: float
    limit_s: float
    limited: StopReason
    total_s: float
    due_s: tuple[float, ...] = ()
    round_began_s: float | None = None
    position: int = 0
    rested_s: float = 0.0
    several: bool = False
    verdict_at_s: float = 0.0
    hang: str = ""
    works: bool = False
    exited: bool = False
    interrupted: bool = False
    examine: bool = False
    failed_s: float | None = None
    time_is_up: bool = False
    called: bool = False

    @property
    def round_is_over(self) -> bool:
        """Whether all of the last round was done."""
        return self.round_began_s is not None and self.position >= len(ROUND)


def next_step(state: State) -> Step:
    """What to do next."""
    if state.exited:
        return Step(act=Act.END)
    examines = state.interrupted and state.examine and (state.time_is_up or state.silence_s >= state.suspicious_s)
    if state.interrupted and not examines:
        return Step(act=Act.END, reason=StopReason.INTERRUPT, why=USER_ASKED)
    if state.hang:
        return Step(act=Act.END, reason=StopReason.CERTAIN, why=state.hang)
    if state.round_began_s is not None and not state.round_is_over:
        return _within_round(state)
    if examines:
        if _is_unexamined(state) and not state.time_is_up:
            return _begin()
        return Step(act=Act.END, reason=StopReason.EXAMINED, why=USER_ASKED)
    if state.time_is_up:
        return Step(act=Act.END, reason=StopReason.TOTAL)
    if state.age_s >= state.total_s:
        return _begin() if _is_unexamined(state) else Step(act=Act.END, reason=StopReason.TOTAL)
    if state.failed_s is not None:
        return _after_a_failure(state)
    if state.called or _round_is_due(state):
        return _begin()
    if any(state.verdict_at_s < due_s <= state.silence_s for due_s in _decisions(state)):
        return Step(act=Act.LOOK)
    if state.silence_s >= WATCHED * state.limit_s and not state.works:
        return Step(act=Act.END, reason=state.limited, why=f"silent for {state.silence_s:.1f} s")
    poll_s = min(0.05 * state.age_s, LONGEST_POLL_S, state.total_s - state.age_s)
    return Step(act=Act.SLEEP, seconds=max(poll_s, SHORTEST_POLL_S))


def next_look(state: State, *, rounds_left: int) -> Step:
    """The same for a job that is not ours to end: a round, one more where it may go on, and the answer."""
    if state.exited:
        return Step(act=Act.END)
    if state.hang:
        return Step(act=Act.END, reason=StopReason.CERTAIN, why=state.hang)
    if state.round_began_s is not None and not state.round_is_over:
        return _within_round(state)
    if state.round_began_s is not None and (state.works or rounds_left <= 0):
        return Step(act=Act.END, reason=StopReason.CERTAIN)
    return _begin()


def _is_unexamined(state: State) -> bool:
    """Whether a trial whose time is up has been silent for so long that its end says nothing without another look."""
    if state.silence_s < state.suspicious_s:
        return False
    return state.round_began_s is None or state.rested_s > CLOSING_S


def _begin() -> Step:
    return Step(act=ROUND[0][1], begins=True)


def _within_round(state: State) -> Step:
    pause_s, act = ROUND[state.position]
    if state.rested_s < pause_s:
        # Not less than a millisecond: what rounding leaves of a pause would never be over.
        return Step(act=Act.SLEEP, seconds=min(max(pause_s - state.rested_s, 0.001), LONGEST_POLL_S))
    is_first = Act.DUMP not in ACTS[: state.position]
    return Step(act=act, native=act is Act.DUMP and (_closing(state) or (state.several and not is_first)))


def _closing(state: State) -> bool:
    """Whether a decision falls due with this round: then what computes is asked for its native frames too."""
    began_s = state.round_began_s or 0.0
    is_last = began_s > _time_is_up_s(state) - 2 * ROUND_S
    return state.time_is_up or is_last or any(due - CLOSING_S - 1.0 <= began_s <= due for due in _decisions(state))


def _round_is_due(state: State) -> bool:
    """Whether the silence has come to a moment at which a round begins, none has begun since, and one can be over."""
    began_s, time_is_up_s = state.round_began_s, _time_is_up_s(state)
    if began_s is not None and state.silence_s + ROUND_S > time_is_up_s:
        return False
    moments = [due_s - CLOSING_S for due_s in _decisions(state)]
    if time_is_up_s >= state.suspicious_s:
        moments.append(max(time_is_up_s - CLOSING_S, BRIEF_S))
    at_s = state.suspicious_s
    while at_s <= state.silence_s:
        moments.append(at_s)
        at_s *= 2.0
    since_s = 0.0 if began_s is None else began_s
    return any(since_s < moment <= state.silence_s for moment in moments if moment >= min(state.suspicious_s, BRIEF_S))


def _time_is_up_s(state: State) -> float:
    """The silence at which the total limit will have run out."""
    return state.total_s - state.age_s + state.silence_s


def _decisions(state: State) -> tuple[float, ...]:
    return (*state.due_s, state.limit_s, WATCHED * state.limit_s, _time_is_up_s(state))


def _after_a_failure(state: State) -> Step:
    """A rank has failed: the others are examined and ended some time later, unless they end by themselves."""
    if state.failed_s is not None and state.failed_s >= AFTERMATH_S:
        if state.round_began_s is None:
            return _begin()
        return Step(act=Act.END, reason=StopReason.CERTAIN, why="a rank failed, and the others did not move on")
    return Step(act=Act.SLEEP, seconds=LONGEST_POLL_S)
