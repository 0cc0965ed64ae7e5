"""What several rules ask of a case: which limit silence is held against, where the trial was, what may be cited."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from harness.classify.signature import signature
from harness.core.outcome import Ending, StopReason, signal_name
from harness.core.verdict import Verdict
from harness.reading import pace
from harness.reading.ranks import Job, job_in_silence, main_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harness.core.evidence import Evidence, EvidenceId, LogTail
    from harness.core.trial import Limit
    from harness.core.verdict import Case, Confidence, Kind
    from harness.reading.standing import Standing

LIMITS = frozenset(
    {StopReason.STARTUP, StopReason.STALL, StopReason.TOTAL, StopReason.CERTAIN, StopReason.PACE, StopReason.EXAMINED},
)
"""Reasons for which we ended a trial that did not end by itself."""

STRANGERS = "command"
"""The target that runs anybody's program."""

OF_A_SIGNAL = 128
"""What shells, and programs that follow them, add to the number of the signal that ended a command."""


def ended_in_words(children: Iterable[tuple[int, int]], *, of: str) -> str:
    """``process 7, which multiprocessing had begun for it, was ended by SIGKILL (signal 9)``, and so on."""
    ends: list[str] = []
    for pid, code in children:
        how = f"was ended by {signal_name(-code)} (signal {-code})" if code < 0 else f"ended with exit status {code}"
        ends.append(f"process {pid}, which multiprocessing had begun for {of}, {how}")
    return "; ".join(ends)


PATIENCE = pace.WATCHED
"""Times its limit that a silence must last where one limit's worth of evidence is not decisive."""


class _Record(Protocol):
    """A piece of evidence, which has an id."""

    @property
    def id(self) -> EvidenceId: ...


def stopped_by_limit(case: Case) -> bool:
    """Whether we ended the trial because of a limit (not because the user asked), or would have if it were ours."""
    ours = (Ending.STOPPED_BY_US, Ending.STILL_RUNNING)
    return case.outcome.ending in ours and case.outcome.stopped_by in LIMITS


def begun(case: Case) -> bool:
    """Whether the first step was reached."""
    return pace.has_begun(case.evidence)


def ended(case: Case) -> bool:
    """Whether all its steps were done."""
    return pace.has_ended(case.evidence)


def training(case: Case) -> bool:
    """Whether it was between the first step's first mark and the end of its last step."""
    return pace.is_training(case.evidence)


def silence_limit(case: Case) -> Limit:
    """The limit for silence where the trial was: stall while it trained, start-up before that and while it ended."""
    return pace.silence_limit(case.trial.budget, training=training(case))


def watched_out(case: Case) -> bool:
    """Whether the silence lasted so many times its limit that watching on would add nothing."""
    return case.evidence.silence_s >= PATIENCE * silence_limit(case).seconds


def beyond_limit(case: Case) -> bool:
    """Whether the silence is as long as its limit."""
    return case.evidence.silence_s >= silence_limit(case).seconds


def busy_patience_s(case: Case) -> float:
    """Seconds that a silence in which something computes must last to be out of proportion here."""
    evidence = case.evidence
    return pace.busy_patience_s(evidence.pace, evidence.last, case.trial, training=training(case))


def silence_began_s(case: Case) -> float:
    """When the last mark was made, seconds since the trial's start; 0 when there was none."""
    last = case.evidence.last
    return last.t_s if last else 0.0


class _Judging(threading.local):
    """The case that this thread judges and its ranks one by one: rule after rule asks for the same of each.

    ``jobs`` are by the identity of the evidence, which ``evidence_by_id`` holds; ``views`` are of the case ``whole``.
    """

    def __init__(self) -> None:
        self.whole: Case | None = None
        self.views: tuple[Any, ...] = ()
        self.evidence_by_id: dict[int, Evidence] = {}
        self.jobs: dict[int, Job] = {}


_judging = _Judging()


def job_of_case(case: Case) -> Job:
    """The processes of the trial in its silence, and how they depend on each other."""
    key = id(case.evidence)
    if key not in _judging.evidence_by_id:
        remember(case, ())
    if key not in _judging.jobs:
        is_view = _judging.whole is not None and case.evidence is not _judging.whole.evidence
        _judging.jobs[key] = job_in_silence(case.evidence, related=not is_view)
    return _judging.jobs[key]


def remembered(case: Case) -> tuple[Any, ...]:
    """The views of the ranks of ``case`` that were remembered; none of another case."""
    return _judging.views if _judging.whole is case else ()


def remember(case: Case, views: Sequence[Any]) -> None:
    """From now on ``case`` is judged, with these views of its ranks, and the one before it no more."""
    key = id(case.evidence)
    job = _judging.jobs.get(key)
    _judging.whole, _judging.views = case, tuple(views)
    _judging.evidence_by_id = {key: case.evidence}
    for view in views:
        _judging.evidence_by_id[id(view.case.evidence)] = view.case.evidence
    _judging.jobs = {key: job} if job is not None else {}


def has_done_its_steps(case: Case) -> bool:
    """Whether a stranger's program, which leaves no result, was seen to make the steps that it was asked for."""
    return case.trial.target == STRANGERS and case.evidence.steps_done >= case.evidence.steps_wanted


def ranks_of(case: Case) -> int:
    """How many ranks there are: by what they say, also where some were not seen."""
    return max(len(case.evidence.ranks), case.evidence.world)


def main_pid(case: Case) -> int | None:
    """The PID of the process that trains; of older recordings, as its own marks say, or else the one looked at last."""
    return main_of(case.evidence)


def place(case: Case) -> str:
    """Where the trial was by its last mark: ``in backward of step 1``, ``after step 2``, ``before its first mark``."""
    return pace.place(case.evidence.last, steps_done=case.evidence.steps_done)


def silence(case: Case, *, of_rank: int | None = None) -> str:
    """``rank 0 silent for 9.2 s in backward of step 1 (stall limit 4.0 s)``; without ranks ``silent for 9.2 s ...``.

    ``of_rank`` is whose silence it is; else it is that of the rank that was last heard of.
    """
    silence_s = case.evidence.silence_s
    last = case.evidence.last or next(iter(case.evidence.processes), None)
    seen_rank = last.rank if last is not None else 0
    is_one_of_several = of_rank is not None or max(case.evidence.world - 1, seen_rank) > 0
    rank = seen_rank if of_rank is None else of_rank
    if case.outcome.ending is Ending.STILL_RUNNING:
        who = f"rank {rank}" if case.evidence.world > 1 else f"process {main_pid(case)}"
        one = job_of_case(case).leader
        moved = one is not None and ((one.motion is not None and not one.motion.still) or one.ran_at > 0)
        return f"{who} {'got no further' if moved else 'did not move'} in {silence_s:.1f} s of watching"
    limit = silence_limit(case)
    name = "stall limit" if training(case) else "start-up limit"
    waited = "" if beyond_limit(case) else ", not waited for"
    budget = case.trial.budget
    if pace.awaits_a_step(budget, begun=begun(case)):
        waited += f"; the stall limit of {budget.stall.seconds:.1f} s counts from the first step on, and none was seen"
    silent = f"rank {rank} silent" if is_one_of_several else "silent"
    return f"{silent} for {silence_s:.1f} s {place(case)} ({name} {limit.seconds:.1f} s{waited})"


def who_sleeps(one: Standing) -> str:
    """Whose sleep counts: ``all 3 threads``, or ``2 threads (of the other 3 none can let it go on)``."""
    count = len(one.motion.threads) if one.motion is not None else 1
    others = max(len(one.looks[-1].threads) - count, 0)
    if not others:
        return "its only thread" if count == 1 else f"all {count} threads"
    counted = "its main thread" if count == 1 else f"{count} threads"
    return f"{counted} (of the other {others} none can let it go on)"


def threads_slept(one: Standing) -> str:
    """``all 3 threads slept at 6 of 6 looks``."""
    return f"{who_sleeps(one)} slept at {looks_asleep(one)}"


def looks_asleep(one: Standing) -> str:
    """``6 of 6 looks``: at so many none of the threads that count ran."""
    return f"{len(one.looks) - one.ran_at} of {len(one.looks)} looks"


def ids_of(records: Iterable[_Record]) -> list[EvidenceId]:
    """What to cite of each of these."""
    return [record.id for record in records]


def log_with(case: Case, shows: Callable[[str], object]) -> LogTail | None:
    """The first of the output streams whose text ``shows`` what is looked for."""
    for log in case.evidence.logs:
        if shows(log.text):
            return log
    return None


def first_verdict(rules: Iterable[Callable[[Case], Verdict | None]], case: Case) -> Verdict | None:
    """That of the first of these rules which fires; the rules behind it are not asked."""
    for rule in rules:
        verdict = rule(case)
        if verdict is not None:
            return verdict
    return None


def conclude(
    case: Case,
    kind: Kind,
    *,
    because: str,
    cites: Iterable[EvidenceId],
    confidence: Confidence,
    cause: str | None = None,
    names: Iterable[str] | None = None,
    path: tuple[str, ...] = (),
    phase: str | None = None,
    rule: str = "",
) -> Verdict:
    """A verdict with phase, step and rank filled in from the last mark, and each citation once.

    ``names`` are the functions by which its like is known again, the innermost first; without them it has no signature.
    ``path`` are those of the program's own, where it failed in one place.
    ``rule`` is for one that is no row of the table by itself; to the others the engine gives their name there.
    """
    last = case.evidence.last
    return Verdict(
        kind=kind,
        rule=rule,
        because=because,
        cites=tuple(dict.fromkeys(cites)),
        confidence=confidence,
        cause=cause,
        phase=phase or (last.phase if last else None),
        step=last.step if last else None,
        rank=last.rank if last else None,
        signature=None if names is None else signature(kind, cause, names),
        path=path,
    )
