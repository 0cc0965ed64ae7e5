"""The last rule: it always fires, never guesses, and says what speaks for slow, what for stuck, what is missing.

Also of a job that somebody else started and that was only watched: there it says what every rank does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import (
    PATIENCE,
    beyond_limit,
    conclude,
    ids_of,
    job_of_case,
    main_pid,
    silence,
    stopped_by_limit,
    watched_out,
)
from harness.classify.rules.busy import LONGER, healthy_silence_s
from harness.classify.rules.stalled import stalled, stuck
from harness.classify.signs import FOR_SLOW, asleep
from harness.classify.views import (
    absent_and_waiting,
    alike,
    cited,
    still_there,
    views_of,
    waiting,
    who,
)
from harness.core.node import in_words
from harness.core.outcome import Ending, StopReason
from harness.core.verdict import COMPUTES, LIMIT_TOO_SHORT, TOO_EARLY, Confidence, Kind
from harness.reading.frames import spell, telling_frame
from harness.reading.loops import changes, may_be_endless, progress
from harness.reading.pace import ASKED_S
from harness.reading.waits import Ender

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.classify.views import RankView
    from harness.core.evidence import LoopSample
    from harness.core.verdict import Case, Verdict
    from harness.reading.standing import Chance, Standing

COMPILERS = ("cc1", "g++", "gcc", "clang", "c++", "as", "ld", "collect2", "nvcc", "cicc", "ptxas", "cudafe")
"""Beginnings of the names of programs that compile."""

THRASH_PER_S = 20_000.0
"""Page faults a second beyond any healthy step that was measured (9,500); a page that comes and goes makes 250,000."""

_HARDLY = 0.02
"""Share of its time up to which what wakes, and moves no data, does not work."""

MOVING = "moving"
"""The cause that says of a job that was watched: it works, no hang was seen."""

MAY_BE_ENDLESS = "may-be-endless"
"""The cause that says: it computes in a loop of which nothing is seen to change."""

MAY_GO_ON = "may-go-on"
"""The cause that says: it stands still, and what it waits for may still come."""

PAUSED = "paused"
"""The cause that says: a signal has stopped it, and another one lets it go on."""

NOT_LOOKED_INTO = "not-looked-into"
"""The cause that says: nothing of it was seen to work, and no stack of it could be read."""

SPOKEN_OF = 4
"""Processes of a watched job without ranks of which it is said what each does; the report says it of all."""

ENDED = "ended-meanwhile"
"""The cause that says: nothing of it is left to be judged."""


def unresolved(case: Case) -> Verdict:
    """UNRESOLVED, with what an undecided case is like and what would decide it."""
    views = views_of(case)
    if case.outcome.ending is Ending.STILL_RUNNING:
        return _ended(case, views) or _watched(case, views)
    too_short = _limit_too_short(case)
    if too_short is not None:
        return too_short
    absent, waiters = absent_and_waiting(still_there(views))
    if stopped_by_limit(case) and waiters and absent:
        return _of_ranks(case, absent, waiters)
    one = job_of_case(case).leader
    helpers = stuck(job_of_case(case)) if stopped_by_limit(case) else []
    parts = [silence(case) if stopped_by_limit(case) else _ending(case)]
    parts += [*_groups(case, one), *_never_go_on(helpers)]
    return conclude(
        case,
        Kind.UNRESOLVED,
        cause=_cause(case, one),
        because="; ".join(parts),
        cites=(
            *(one.ids if one else ()),
            *cited(helpers),
            *cited(_one_and_those_it_waits_for(case)[1:]),
            *ids_of(case.evidence.failures),
            "progress",
            "exit",
        ),
        confidence=Confidence.LOW,
    )


def _limit_too_short(case: Case) -> Verdict | None:
    """The prediction says more than what was waited for, and neither progress nor a standstill was seen."""
    prediction, outcome = case.trial.prediction, case.outcome
    if prediction is None or not stopped_by_limit(case):
        return None
    if beyond_limit(case) and case.evidence.silence_s < prediction.silence_high_s:
        needed = f"a healthy trial may be silent for {prediction.silence_high_s:.1f} s"
    elif outcome.stopped_by is StopReason.TOTAL and outcome.duration_s < prediction.total_high_s:
        needed = (
            f"the total limit ran out after {outcome.duration_s:.1f} s, "
            f"a healthy trial may take {prediction.total_high_s:.1f} s"
        )
    else:
        return None
    return conclude(
        case,
        Kind.UNRESOLVED,
        cause=LIMIT_TOO_SHORT,
        because=f"{silence(case)}, but {needed} (upper limit from {prediction.source}), and nothing shows a standstill",
        cites=("progress", "prediction", "exit"),
        confidence=Confidence.PROOF,
    )


# -- for and against


def _cause(case: Case, one: Standing | None) -> str:
    if not stopped_by_limit(case):
        return "unknown-ending"
    if not beyond_limit(case) and one is not None and changes(one.samples) is None:
        return "cut-off-in-silence"
    if one is None or one.motion is None or not one.samples:
        return "not-seen"
    moved = one.motion
    if moved.still:
        if one.depends_on:
            return _what_it_waits_for(case, one)
        if any(chance.ender in (Ender.TIMER, Ender.TICKING) for chance in one.chances):
            return "timed-wait"
        return "undecided"
    if moved.busy and moved.faults > THRASH_PER_S * moved.seconds:
        return "page-thrash"
    if changes(one.samples) is not None:
        return COMPUTES
    if moved.busy:
        return "busy"
    return "polling" if moved.main_timed else "undecided"


def _what_it_waits_for(case: Case, one: Standing) -> str:
    """A compiler, a child, or another process of the job: a rank, whoever started it, one that shares its lock."""
    if _compiles(case, one.depends_on):
        return "compile-stall"
    stand = job_of_case(case).stand
    for at in one.depends_on & stand.keys():
        while at in stand:
            at = stand[at].parent
            if at == one.pid:
                return "waits-for-child"
    return "waits-for-process"


def _compiles(case: Case, pids: frozenset[int]) -> bool:
    stand = job_of_case(case).stand
    return any(stand[pid].command.startswith(COMPILERS) for pid in pids & stand.keys())


def _groups(case: Case, one: Standing | None) -> list[str]:
    sides = (
        ("for slow", list(filter(None, (sign(case) for sign in FOR_SLOW)))),
        ("for stuck", _for_stuck(case, one)),
        ("missing", _missing(case, one)),
    )
    return [f"{name}: {', '.join(signs)}" for name, signs in sides if signs]


def _for_stuck(case: Case, one: Standing | None) -> list[str]:
    signs = [*filter(None, (asleep(case),))]
    if one is not None and one.stays:
        where = spell(telling_frame(one.thread)) if one.thread is not None else "nowhere"
        weak = "" if len(one.native) >= 2 else " (Python frames only, which proves nothing)"
        signs.append(f"{len(one.samples)} of {len(one.samples)} stacks are the same, in {where}{weak}")
    yardstick = healthy_silence_s(case)
    if yardstick is not None and case.evidence.silence_s > LONGER * yardstick[0]:
        signs.append(f"the longest healthy silence is {yardstick[0]:.2f} s ({yardstick[1]})")
    return signs


def _never_go_on(helpers: Sequence[Standing]) -> list[str]:
    """That ``helpers`` of those that train can never go on, which another may yet see, and end."""
    if not helpers:
        return []
    processes = "process" if len(helpers) == 1 else "processes"
    pids = ", ".join(in_words(one.pid) for one in helpers)
    return [f"{processes} {pids} can never go on, in {_place(helpers[0])}; whoever waits for that may yet end it"]


def _missing(case: Case, one: Standing | None) -> list[str]:
    if not stopped_by_limit(case):
        return []
    gaps: list[str] = []
    if one is None or one.motion is None:
        gaps.append("two undisturbed looks at /proc during the silence")
    if one is None or len(one.samples) < 2:
        why = "; ".join(f"{f.source}: {f.reason}" for f in case.evidence.failures)
        if one is not None and any(failure.no_python for failure in case.evidence.failures):
            why = f"no Python runs in {one.command or 'it'}"
        gaps.append(f"two stacks{f' ({why})' if why else ''}")
    elif len(one.native) < 2:
        gaps.append("two stacks with native frames")
    if healthy_silence_s(case) is None:
        gaps.append("a prediction, or an earlier step, to hold the silence against")
    if not watched_out(case):
        gaps.append(f"a silence of {PATIENCE:.0f} times its limit")
    return gaps


def _ending(case: Case) -> str:
    outcome = case.outcome
    return f"no rule knows this ending: {outcome.ending.value}, exit {outcome.exit}, {outcome.why or 'no reason given'}"


# -- several ranks


def _of_ranks(case: Case, absent: Sequence[RankView], waiters: Sequence[RankView]) -> Verdict:
    """Where one rank works while the others wait for it, it is named: late, or in a loop without an end."""
    working = _first_at_work(absent)
    sentences = [waiting(group) for group in alike(waiters)]
    for v in absent:
        sentences += [v.silence, *_groups(v.case, v.standing)]
    view = working or absent[0]
    verdict = conclude(
        view.case,
        Kind.UNRESOLVED,
        cause="straggler" if working else _cause(view.case, view.standing),
        because="; ".join(sentences),
        cites=(*cited([*absent, *waiters]), *ids_of(case.evidence.failures), "progress", "exit"),
        confidence=Confidence.LOW,
    )
    return replace(verdict, rank=view.rank if len(absent) == 1 else None)


def _first_at_work(views: Sequence[RankView]) -> RankView | None:
    for view in views:
        moved = view.standing.motion if view.standing is not None else None
        if moved is not None and moved.busy:
            return view
    return None


# -- a job that was only watched


def _ended(case: Case, views: Sequence[RankView]) -> Verdict | None:
    """Nobody is there any more: what was seen before says nothing about an end that nobody saw."""
    if case.outcome.exit is None and (not views or still_there(views)):
        return None
    several, main = case.evidence.world > 1, main_pid(case)
    name = who(views) if several else f"process {main}"
    sampled = [view for view in views if view.samples]
    places: list[str] = []
    for view in sampled:
        place = _place(view.standing)
        places.append(f"rank {view.rank} in {place}" if several else place)
    trainer = job_of_case(case).stand.get(main) if main is not None and not views else None
    if trainer is not None and trainer.thread is not None:
        places.append(_place(trainer))
    last = f"; last seen: {', '.join(places)}" if places else ""
    one = not several
    verdict = conclude(
        case,
        Kind.UNRESOLVED,
        cause=ENDED,
        because=f"{name} ended while {'it was' if one else 'they were'} watched; how, only who started "
        f"{'it' if one else 'them'} knows{last}",
        cites=(*ids_of(case.evidence.ranks), *cited(sampled), "progress"),
        confidence=Confidence.LOW,
    )
    return replace(verdict, rank=None)


def _place(one: Standing | None) -> str:
    thread = one.thread if one is not None else None
    return spell(telling_frame(thread) if thread is not None else None)


def _watched(case: Case, views: Sequence[RankView]) -> Verdict:
    """Where every rank is, and what it does or waits for; MOVING when something of the job was seen to work."""
    there = still_there(views)
    absent, waiters = absent_and_waiting(there)
    ones = _one_and_those_it_waits_for(case)
    sentences, ids = _each(ones), cited([*ones[1:], *ones[:1]])
    if views:
        sentences = [waiting(group) for group in alike(waiters)]
        sentences += [f"rank {view.rank} {_does(view.standing)}" for view in absent]
        ids = cited(there)
    cause, end = _outlook(case)
    if cause not in (MOVING, PAUSED) and case.evidence.failures and not case.evidence.stacks:
        cause, end = NOT_LOOKED_INTO, "whether it goes on cannot be told: nobody could look into it"
    verdict = conclude(
        case,
        Kind.UNRESOLVED,
        cause=cause,
        because=f"{'; '.join(sentences)}; {end}",
        cites=(*ids, *ids_of(case.evidence.failures), "progress"),
        confidence=Confidence.LOW,
    )
    return replace(verdict, rank=absent[0].rank if len(absent) == 1 and len(there) > 1 else None)


def _one_and_those_it_waits_for(case: Case) -> list[Standing]:
    """The process that trains, then those that it waits for: who works first, who waits for another of them last."""
    job = job_of_case(case)
    if job.leader is None:
        return []
    others = [job.stand[pid] for pid in job.waited_for([job.leader.pid]) - {job.leader.pid}]
    others.sort(key=lambda one: (bool(one.depends_on), -_cpu_s(one), one.pid))
    return [job.leader, *others]


def _cpu_s(one: Standing) -> float:
    return one.motion.cpu_s if one.motion is not None else 0.0


def _each(ones: Sequence[Standing]) -> list[str]:
    """What each does, ``it`` where there is one; of many that another waits for the first few."""
    if len(ones) < 2:
        return [f"it {_does(ones[0] if ones else None)}"]
    sentences = [f"process {in_words(one.pid)} ({one.command}) {_does(one)}" for one in ones[:SPOKEN_OF]]
    more = len(ones) - SPOKEN_OF
    return [*sentences, *([f"{more} more that it waits for"] if more > 0 else [])]


def _outlook(case: Case) -> tuple[str, str]:
    """What the whole job is called, and why: it works, it may never end, it is too early to tell, it may go on."""
    job = job_of_case(case)
    live = job.alive(lambda one: _circles(one) is not None)
    outside: set[str] = set()
    for pid in job.leaders:
        chance = live.get(pid)
        if chance is not None and (_moved(job.stand[pid], chance) or _moves(case, pid, live)):
            return MOVING, "no hang was seen"
    for pid in job.waited_for(job.leaders):
        chance = live.get(pid)
        if chance is not None and chance.ender is not None:
            outside.add(chance.how)
    stopped = [one for one in job.stand.values() if _is_stopped(one)]
    if stopped:
        names = [f"rank {one.rank}" if case.evidence.ranks else f"process {in_words(one.pid)}" for one in stopped]
        return PAUSED, f"a signal has stopped {', '.join(names)}, and another one lets it go on"
    loops: list[LoopSample] = []
    for one in job.stand.values():
        loop = _circles(one)
        if loop is not None:
            loops.append(loop)
    if not loops and _falls_due(case):
        cause, doubts = TOO_EARLY, [f"nothing moves; if that is so for {ASKED_S:g} s, it hangs"]
    else:
        cause = MAY_BE_ENDLESS if loops else MAY_GO_ON
        doubts = sorted(outside)
    doubts += map(_doubt, loops)
    return cause, f"whether it goes on cannot be told: {'; '.join(doubts) or 'too little was seen'}"


def _is_stopped(one: Standing) -> bool:
    return bool(one.looks) and one.looks[-1].state == "T"


def _doubt(loop: LoopSample) -> str:
    at = f"{loop.file.rpartition('/')[2]}:{loop.header_line}"
    return f"nothing that could be seen of `{loop.header}` ({at}) changes, and it calls nothing: it may never end"


def _circles(one: Standing) -> LoopSample | None:
    """The loop that a process computes in without anything that changes, as far as it was seen."""
    if one.motion is None or one.motion.still or not one.motion.counters_still:
        return None
    return may_be_endless(one.samples, tid=one.motion.busiest)


def _falls_due(case: Case) -> bool:
    """Whether what was seen will be a hang if it is still so after the patience that is due to it."""
    if case.evidence.silence_s >= ASKED_S:
        return False
    return stalled(replace(case, evidence=replace(case.evidence, silence_s=ASKED_S))) is not None


def _moves(case: Case, start: int, live: Mapping[int, Chance]) -> bool:
    """Whether a process that ``start`` depends on was seen to move."""
    stand, visited, frontier = job_of_case(case).stand, {start}, [start]
    while frontier:
        for pid in stand[frontier.pop()].depends_on & live.keys() & stand.keys() - visited:
            if any(_moved(stand[pid], chance) for chance in stand[pid].chances):
                return True
            visited.add(pid)
            frontier.append(pid)
    return False


def _moved(one: Standing, chance: Chance) -> bool:
    """Whether it was seen to go on by itself: what was seen too briefly to stand still did not, though it may."""
    moved = one.motion
    return chance.moves and (moved is None or moved.has_changed or moved.still or not moved.rested)


def _does(one: Standing | None) -> str:
    telling = telling_frame(one.thread) if one is not None and one.thread is not None else None
    where = f" in {spell(telling)}" if telling is not None else ""
    if one is not None and _is_stopped(one):
        return f"is stopped (state T){where}"
    if one is not None and one.looks and one.looks[-1].state == "t":
        return f"is held by a debugger or another tracer (state t){where}"
    if one is not None and len(one.looks) == 1:
        return f"was there at one look only{where}"
    if one is None or one.motion is None:
        return f"could not be seen moving or not{where}"
    moved = one.motion
    if moved.rested and not moved.still:
        return f"was seen for {moved.seconds:.1f} s only{where}, in which nothing moved"
    if not moved.still:
        used = f"{moved.cpu_s:.2f} s CPU in {moved.seconds:.1f} s, {moved.switches} switches"
        does = "wakes now and then" if moved.data_still and moved.cpu_s < _HARDLY * moved.seconds else "works"
        return "; ".join([f"{does}{where}: {used}", *map(str, progress(one.samples))])
    kernel = f" (kernel: {moved.main_wchan})" if moved.main_wchan else ""
    return f"stands still{where}{kernel}: nothing moved in {moved.seconds:.1f} s"
