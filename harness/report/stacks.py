"""Stacks for people: which thread to look at, where it and every rank waits, what to call that, frames as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from harness.core.outcome import Ending
from harness.core.verdict import Kind
from harness.reading.fault import CAUSES, threads_at_fault
from harness.reading.frames import (
    deciding_thread,
    is_stdlib,
    own_frame,
    python_frames,
    same_frames,
    telling_frame,
    thread_of,
)
from harness.reading.places import RankSeen, group_ranks, sentence, where
from harness.report.clean import clean
from harness.report.text import short_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.evidence import Evidence, Frame, ProcessState, RankFacts, StackSample, ThreadStack
    from harness.core.record import Run, TrialRecord
    from harness.core.verdict import Verdict


Look = TypeVar("Look", "StackSample", "ProcessState")

MOST_LINES = 40
"""Frames of a stack that are shown."""

WIDEST = 160
"""Characters of a frame that are shown."""


ENDED_BY_ITSELF = frozenset({Kind.CRASH, Kind.OOM, Kind.NONFINITE})
"""Of these an exception has the line, or nothing has."""


def deciding_sample(evidence: Evidence, verdict: Verdict) -> StackSample | None:
    """The stack sample that the verdict cites, of the rank that it names and with native frames if there is one.

    Of several processes of a rank the one that it cites first: the worker, rather than the rank that waits for it.
    Where it cites none, the last sample of a rank; but none where the trial ended by itself, for it has gone on since.
    """
    by_id = {sample.id: sample for sample in evidence.stacks}
    cited = [by_id[id] for id in verdict.cites if id in by_id]
    of_rank = [sample for sample in cited if sample.rank == verdict.rank]
    if verdict.kind not in ENDED_BY_ITSELF:
        of_rank = of_rank or cited or _last_working(evidence)
    of_process = [sample for sample in of_rank if sample.pid == of_rank[0].pid]
    return max(of_process, key=lambda sample: (_has_frames(sample), sample.native, sample.t_s), default=None)


def _has_frames(sample: StackSample) -> bool:
    """Whether it shows any: of a process that runs, a dumper that does not stop it may read none."""
    return any(thread.frames for thread in sample.threads)


def deciding_stack(evidence: Evidence, verdict: Verdict) -> tuple[StackSample, ThreadStack] | None:
    """That sample with the thread in it to look at; None without one."""
    sample = deciding_sample(evidence, verdict)
    thread = thread_to_show(evidence, verdict, sample) if sample else None
    return (sample, thread) if sample and thread else None


def thread_to_show(evidence: Evidence, verdict: Verdict, sample: StackSample) -> ThreadStack | None:
    """The thread of a sample to look at: the one that decides, or that is at fault for its wait in a hang."""
    if verdict.kind is Kind.HANG and verdict.cause in CAUSES:
        looks = [look for look in evidence.processes if look.pid == sample.pid]
        for thread in threads_at_fault(sample, looks[-1] if looks else None):
            return thread
    return deciding_thread(sample)


def _last_working(evidence: Evidence) -> list[StackSample]:
    """The last sample of a process that is a rank, else of the one that trains, else of any; none without samples."""
    ranks = rank_by_pid(evidence)
    for sample in reversed(evidence.stacks):
        if sample.pid in ranks:
            return [sample]
    mains = [sample for sample in evidence.stacks if sample.pid == evidence.main]
    return (mains or list(evidence.stacks))[-1:]


def rank_by_pid(evidence: Evidence) -> dict[int | None, int]:
    """The rank that each process is."""
    return {facts.pid: facts.rank for facts in evidence.ranks}


def same_in(evidence: Evidence, sample: StackSample, thread: ThreadStack) -> tuple[int, int]:
    """In how many of the samples from this source the stack of ``thread`` is the same, line by line."""
    same = alike = 0
    for other in evidence.stacks:
        if (other.source, other.native, other.pid) == (sample.source, sample.native, sample.pid):
            alike += 1
            same += same_frames(thread_of(other, thread.tid), thread)
    return same, alike


def thread_name(thread: ThreadStack, pid: int | None) -> str:
    """``main thread``, or ``thread Thread-1 (prefetch)``."""
    return "main thread" if thread.tid == pid else f"thread {clean(thread.name) or thread.tid}"


def busy_threads(sample: StackSample, *, beside: ThreadStack) -> list[str]:
    """Where each thread beside the deciding one is, if it is in the program's code or a library's and not parked."""
    texts: list[str] = []
    for other in sample.threads:
        is_parked = all(map(is_stdlib, python_frames(other)))
        if other.tid != beside.tid and not is_parked:
            texts.append(f"{thread_name(other, sample.pid)}: {clean(where(other))}")
    return texts


def elsewhere(evidence: Evidence, verdict: Verdict) -> list[str]:
    """Where processes that ``who_tells`` passes over are in the program's own code, a line for each such thread.

    For a reader who must decide what the evidence does not: empty where it is decided.
    """
    if verdict.kind is not Kind.UNRESOLVED:
        return []
    beside = {one.pid for one in who_tells(evidence, verdict)}
    since_s = evidence.last.t_s if evidence.last else -1.0
    last = {sample.pid: sample for sample in evidence.stacks if sample.t_s > since_s and _has_frames(sample)}
    texts: list[str] = []
    for pid, sample in last.items():
        if pid in beside:
            continue
        own = [thread for thread in sample.threads if own_frame(thread) is not None]
        texts += [f"process {pid}, {thread_name(thread, pid)}: {clean(where(thread))}" for thread in own]
    return texts


def place(frame: Frame) -> str:
    """``acquire_forever (harness/specimens/backward_deadlock.py:27)``."""
    at = f"{short_path(frame.file)}:{frame.line}" if frame.line else short_path(frame.file)
    return f"{frame.function} ({at})" if at else frame.function


def variables(evidence: Evidence) -> list[tuple[str, list[str]]]:
    """The locals that were kept, of the last sample of each process: a frame's place, then ``name = value`` each."""
    in_time = sorted(evidence.stacks, key=lambda one: one.t_s)
    last = {sample.pid: sample for sample in in_time if sample.variables}
    ranks = rank_by_pid(evidence)
    blocks: list[tuple[str, list[str]]] = []
    for pid, sample in last.items():
        whose = f"rank {ranks[pid]}, " if pid in ranks else ""
        frames = {thread.tid: thread.frames for thread in sample.threads}
        for frame_locals in sample.variables:
            at = place(frames[frame_locals.tid][frame_locals.depth])
            blocks.append((f"{whose}{at}", [f"{name} = {value}" for name, value in frame_locals.locals]))
    return blocks


def why_no_variables(run: Run, record: TrialRecord, evidence: Evidence) -> str:
    """Why none are shown though they were asked for (``--locals``); empty where they are, and where nobody did."""
    if run.invocation is None or not run.invocation.has("--locals") or variables(evidence):
        return ""
    if record.outcome.ending in (Ending.EXITED, Ending.SIGNALLED):
        return "no variables: --locals reads them where a program is stuck, and this one ended by itself"
    return "no variables: none were read of the frames in which it is stuck"


def lines(thread: ThreadStack) -> str:
    """A thread's stack, innermost first; native frames are marked, the telling one is pointed at."""
    telling = telling_frame(thread)
    text: list[str] = []
    for frame in thread.frames[:MOST_LINES]:
        mark = "=> " if frame is telling else "[C]" if frame.native else "   "
        text.append(f"{mark} {shortened(place(frame))}")
    if len(thread.frames) > MOST_LINES:
        text.append(f"   ... {len(thread.frames) - MOST_LINES} more frames")
    return "\n".join(text) or "   (no frames)"


def rank_name(rank: int, record: TrialRecord, evidence: Evidence) -> str:
    """``rank 1``; the program itself where it has no ranks; of what is none beside them, a launcher say, that."""
    if record.trial.target != "nsa" and not evidence.ranks:
        return "the program"
    return f"rank {rank}" if rank >= 0 else "outside the ranks"


def shortened(text: str) -> str:
    """A C++ template can fill a page with its own name; its ends say what it is."""
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 41]} .. {text[-37:]}"


def ranks_of(evidence: Evidence) -> tuple[RankSeen, ...]:
    """Every rank with its stacks and looks of the last silence."""
    return tuple(_rank_seen(evidence, facts) for facts in evidence.ranks)


def who_tells(evidence: Evidence, verdict: Verdict) -> tuple[RankSeen, ...]:
    """The same; of a program without ranks the processes whose stacks the verdict cites, that which decides first."""
    if evidence.ranks:
        return ranks_of(evidence)
    sample = deciding_sample(evidence, verdict)
    if sample is None:
        return ()
    pids = dict.fromkeys((sample.pid, *(other.pid for other in evidence.stacks if other.id in verdict.cites)))
    since_s = evidence.last.t_s if evidence.last else -1.0
    return tuple(_latest(evidence, rank=None, pid=pid, since_s=since_s, missing="") for pid in pids)


def _rank_seen(evidence: Evidence, facts: RankFacts) -> RankSeen:
    missing = ""
    if facts.ended_s is not None or facts.exit is not None:
        how = facts.exit.words if facts.exit else ""
        missing = f"has ended with {how}" if how else "has ended"
    since_s = facts.last.t_s if facts.last else -1.0
    return _latest(evidence, rank=facts.rank, pid=facts.pid, since_s=since_s, missing=missing)


def _latest(evidence: Evidence, *, rank: int | None, pid: int | None, since_s: float, missing: str) -> RankSeen:
    stacks = _since(evidence.stacks, pid=pid, since_s=since_s)
    stacks = tuple(filter(_has_frames, stacks)) or stacks
    looks = _since(evidence.processes, pid=pid, since_s=since_s)
    reason = missing if missing or stacks else "showed no stack"
    return RankSeen(rank=rank, pid=pid, stacks=stacks, looks=looks, missing=reason)


def _since(looks: Sequence[Look], *, pid: int | None, since_s: float) -> tuple[Look, ...]:
    """Those of one process that were taken later."""
    return tuple(look for look in looks if look.pid == pid and look.t_s > since_s)


def sentences_of(ranks: Sequence[RankSeen]) -> list[str]:
    """Where the ranks are, a sentence for each group, the odd one out first; empty when nothing was seen."""
    if not any(rank.stacks for rank in ranks):
        return []
    return [sentence(group, total=len(ranks)) for group in group_ranks(ranks)]
