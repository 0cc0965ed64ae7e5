"""Signs: single things that a case shows, each as a sentence, or nothing. What rivals are held against."""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from harness.classify.facts import job_of_case, main_pid, silence_began_s, threads_slept
from harness.classify.messages import spoken
from harness.classify.rules.oom import memory_marks, steady_growth
from harness.core.dotted import leaves
from harness.core.node import in_words
from harness.core.outcome import Ending, StopReason
from harness.reading.desync import of_this_silence
from harness.reading.frames import bare, different_stacks, is_own, own_line, python_frames, spell, traceback_frames
from harness.reading.gpus import NO_TRAFFIC, GpuView, gpus_of_pids
from harness.reading.loops import changes, progress
from harness.reading.pace import deciding_total_s, instead_of_time
from harness.reading.printed import HEADING
from harness.reading.ranks import no_limit_decides

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.evidence import EvidenceId
    from harness.core.verdict import Case
    from harness.reading.standing import Standing
    from harness.reading.stillness import Motion

_LONGEST_ERROR = 160

HALF_A_CORE = 0.5
"""CPU seconds per second that are more than any polling."""

_TRACEBACK = r"(Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)+)(?!KeyboardInterrupt)(\w[^\n]*)"
_ENDED = re.compile(r"^(?:Exception in (thread [^\n]+)|Process ([^\n]+)):\n" + _TRACEBACK, re.MULTILINE)
"""What Python prints of a thread that an exception ends, and multiprocessing of a process."""

_PRINTED = re.compile(rf"^()(){_TRACEBACK}", re.MULTILINE)

JUST_S = 3.0
"""So long after a stop a failure may come of it: two seconds, and one for what taking the stacks lasts beside it."""

LATE_S = 0.5
"""The workers of a pool are started one after the other at once; one that began so much later came for another."""

_ASKERS = ("get", "next", "wait")
"""The functions in which whoever asked a pool waits for its answer."""

_CUT_SHORT = re.compile(
    r"\bEINTR\b|\b[Ii]nterrupted|\[Errno (4|11)\]|\b[Tt]imed[ -]?out\b|\b[Tt]ime-?[Oo]ut|\bEmpty\b|\bEOF|[Ii]ncomplete|"
    r"[Tt]runcated|\b[Ss]hort (read|write)|\b[Uu]nexpected end\b|Resource temporarily unavailable|BlockingIOError"
)
"""What is said of a call that ended early: it was interrupted, its time was up, or it got less than was asked for."""

_SECONDS = re.compile(r"(\d+(?:\.\d+)?) ?(ms|milliseconds|s|sec|secs|seconds)\b")

Sign: TypeAlias = "Callable[[Case], str]"
"""A sentence about the case, empty when it does not show this."""


def gpus_of(case: Case, *, silent: bool = True) -> tuple[GpuView, ...]:
    """The GPUs of the processes that train, since the last mark or (``silent`` False) all the time."""
    pids = {rank.pid for rank in case.evidence.ranks} or {main_pid(case)}
    return gpus_of_pids(case.evidence, pids, since_s=silence_began_s(case) if silent else 0.0)


def _motion(case: Case) -> Motion | None:
    one = job_of_case(case).leader
    return one.motion if one is not None else None


def ended_well(case: Case) -> str:
    """That the whole ended with exit status 0."""
    is_well = case.outcome.exit is not None and case.outcome.exit.code == 0
    return "the whole ended with exit status 0" if is_well else ""


def of_several_ranks(case: Case) -> str:
    """How many ranks it has, if several."""
    return f"{len(case.evidence.ranks)} ranks" if len(case.evidence.ranks) > 1 else ""


def gpu_occupied(case: Case) -> str:
    """A kernel is resident that works on nothing."""
    return "; ".join(str(gpu) for gpu in gpus_of(case) if gpu.occupied_by_nothing)


def gpu_works(case: Case) -> str:
    """The GPU moves memory: whatever it reads otherwise, that is work."""
    moving: list[str] = []
    for gpu in gpus_of(case):
        moves = any((sample.memory_utilisation or 0) > NO_TRAFFIC for sample in gpu.samples)
        if moves:
            moving.append(str(gpu))
    return "; ".join(moving)


def gpu_shared(case: Case) -> str:
    """Somebody else is on the GPU."""
    pids: list[str] = []
    for gpu in gpus_of(case, silent=False):
        pids += [str(process.pid) for process in gpu.foreign]
    return f"process {', '.join(pids)} of somebody else is on its GPU" if pids else ""


def gpu_alone(case: Case) -> str:
    """Nobody else is on the GPU."""
    gpus = gpus_of(case, silent=False)
    return "no other process is on its GPU" if gpus and not gpu_shared(case) else ""


def pending(case: Case) -> str:
    """A collective is not over, by the flight recorders."""
    calls: list[str] = []
    for state in of_this_silence(case.evidence):
        still_open = state.pending
        if still_open:
            calls.append(f"rank {state.rank}: {still_open[0]}")
    return f"flight recorder: not over is {'; '.join(calls)}" if calls else ""


def none_pending(case: Case) -> str:
    """No collective is open, by the flight recorders."""
    states = of_this_silence(case.evidence)
    return "flight recorder: every collective is over" if states and not pending(case) else ""


def stacks_move(case: Case) -> str:
    """Native stacks differ: something runs."""
    one = job_of_case(case).leader
    native = one.native if one is not None else ()
    different = different_stacks(native)
    return f"{different} different native stacks in {len(native)} samples" if different > 1 else ""


def stacks_stay(case: Case) -> str:
    """All stacks are the same."""
    one = job_of_case(case).leader
    count = len(one.samples) if one is not None else 0
    return f"{count} of {count} stacks are the same" if one is not None and one.stays else ""


def asleep(case: Case) -> str:
    """Every thread sleeps."""
    job = job_of_case(case)
    one = job.leader
    if one is None or one.motion is None or not one.motion.still:
        return ""
    return threads_slept(one) if len(job.stand) == 1 else f"process {in_words(one.pid)}: {threads_slept(one)}"


def computes(case: Case) -> str:
    """The process uses its CPU."""
    moved = _motion(case)
    return f"{moved.cpu_s:.1f} s CPU in {moved.seconds:.1f} s" if moved and moved.cpu_share > HALF_A_CORE else ""


def memory_moves(case: Case) -> str:
    """Page faults, memory or I/O change during the silence."""
    moved = _motion(case)
    if moved is None or moved.counters_still:
        return ""
    return f"{moved.faults} page faults, {moved.rss_bytes / 1e6:+.1f} MB, {moved.io_bytes} bytes of I/O"


def gets_further(case: Case) -> str:
    """A loop counts on, or what its condition asks for changes."""
    one = job_of_case(case).leader
    if one is None or one.motion is None:
        return ""
    counts, changing = progress(one.samples), changes(one.samples)
    if counts or changing is None:
        return ", ".join(map(str, counts))
    at = f"{changing.function} ({changing.file.rpartition('/')[2]}:{changing.header_line})"
    return f"the variables of `{changing.header}` in {at} change from sample to sample"


def moves(case: Case) -> str:
    """The process computes, or is woken again and again."""
    moved = _motion(case)
    if moved is None:
        return ""
    if moved.busy:
        return f"{moved.cpu_s:.1f} s CPU in {moved.seconds:.1f} s"
    return "" if moved.still else f"woken {moved.switches} times in {moved.seconds:.1f} s, {moved.cpu_s:.2f} s CPU"


def may_be_ended(case: Case) -> str:
    """What it waits for may come by itself, or from somebody else."""
    one = job_of_case(case).leader
    if one is None or one.motion is None:
        return ""
    ways = [chance.how for chance in one.chances if chance.ender is not None]
    stand = job_of_case(case).stand
    for pid in sorted(one.depends_on & stand.keys()):
        other = stand[pid]
        if other.chances:
            ways.append(f"process {in_words(pid)} ({other.command}): {other.chances[0].how}")
    return ", ".join(ways)


def memory_grew(case: Case) -> str:
    """Memory came with every step."""
    growth = steady_growth([mark.rss_bytes for mark in memory_marks(case, rank=0)])
    return f"memory grew by {growth / 2**20:.1f} MiB with every step" if growth else ""


def within_prediction(case: Case) -> str:
    """A healthy trial may be silent for as long."""
    prediction = case.trial.prediction
    if prediction is None or case.evidence.silence_s > prediction.silence_high_s:
        return ""
    return f"a healthy trial may be silent for {prediction.silence_high_s:.0f} s (from {prediction.source})"


def beyond_prediction(case: Case) -> str:
    """A healthy trial would have made a mark long ago."""
    prediction = case.trial.prediction
    if prediction is None or case.evidence.silence_s <= prediction.silence_high_s:
        return ""
    return (
        f"silent for {case.evidence.silence_s:.0f} s, a healthy trial for {prediction.silence_high_s:.1f} s at most "
        f"(from {prediction.source})"
    )


def memory_limit(case: Case) -> str:
    """A limit of the kernel's for memory was hit."""
    hits = case.evidence.memory_limit_hits
    return f"the memory limit was hit {hits} time(s), and the kernel ended a process for it each time" if hits else ""


def no_memory_limit(case: Case) -> str:
    """No limit of the kernel's for memory was hit."""
    return "" if case.evidence.memory_limit_hits else "no memory limit of this trial was hit"


def names_last_block(case: Case) -> str:
    """The parameter that an error names belongs to the last block of the model."""
    match = re.search(r"with name (\S*blocks\.(\d+)\S*) has been marked", text_of(case))
    layers = leaves(case.trial.config).get("model.n_layers")
    if match is None or not isinstance(layers, int) or int(match[2]) != layers - 1:
        return ""
    return f"the parameter that is named, {match[1]}, is in the last of {layers} blocks"


def setting(path: str, *values: object) -> Sign:
    """The trial was asked for with one of ``values`` at ``path``."""

    def sign(case: Case) -> str:
        value = leaves(case.trial.config).get(path)
        return f"{path} = {value}" if value in values else ""

    return sign


def says(pattern: str, sentence: str) -> Sign:
    """Output or exception match ``pattern``; ``sentence`` may name its groups as ``{0}``."""
    wanted = re.compile(pattern)

    def sign(case: Case) -> str:
        match = wanted.search(text_of(case))
        return sentence.format(*match.groups()) if match else ""

    return sign


def in_stack(part: str, sentence: str) -> Sign:
    """A frame of some stack, of any rank, has ``part`` in its name."""

    def sign(case: Case) -> str:
        for sample in case.evidence.stacks:
            for thread in sample.threads:
                if any(part in frame.function for frame in thread.frames):
                    return sentence
        return ""

    return sign


def text_of(case: Case) -> str:
    """Everything that the trial said: exceptions of all ranks, then its output."""
    exceptions = [f"{result.exception}: {result.message}" for result in case.evidence.results if result.exception]
    return "\n".join([*exceptions, case.evidence.output])


def stopped_just_before(case: Case, rank: int | None) -> tuple[str, tuple[EvidenceId, ...]]:
    """That we had stopped a process for its stacks shortly before the trial, or that rank of it, ended; and the stacks.

    A stop ends some calls early. Those that we know are left alone (``harness.reading.waits``); there may be others.
    Any other error, and a limit longer than a stop, is the program's own.
    """
    result = case.evidence.result_of(rank)
    if not _may_be_cut_short(spoken(result) if result is not None else case.evidence.output):
        return "", ()
    for sample in reversed(case.evidence.stacks):
        before_s = _ended_s(case, sample.rank) - sample.t_s - sample.stopped_s
        if sample.stopped_s and rank in (None, sample.rank) and 0 <= before_s <= JUST_S:
            stopped = f"process {in_words(sample.pid)} had been stopped by us for {1000 * sample.stopped_s:.0f} ms"
            why = "to see its stacks, which may have ended a call of it early"
            tells = "whether it fails without that, a run without nsa-harness tells"
            return f"{stopped}, {before_s:.1f} s before, {why}: {tells}", (sample.id,)
    return "", ()


def _may_be_cut_short(text: str) -> bool:
    """Whether a program speaks of a call that ended early, and names no limit that is longer than a stop."""
    for amount, unit in _SECONDS.findall(text):
        if float(amount) / (1000 if unit.startswith("m") else 1) > JUST_S:
            return False
    return _CUT_SHORT.search(text) is not None


def _ended_s(case: Case, rank: int) -> float:
    """When a rank ended by itself, or the whole trial where nobody says so; infinite where we ended it."""
    for facts in case.evidence.ranks:
        if facts.rank == rank and facts.ended_s is not None:
            return facts.ended_s
    by_itself = case.outcome.ending in (Ending.EXITED, Ending.SIGNALLED)
    return case.outcome.duration_s if by_itself else inf


def ended_by_exception(case: Case) -> str:
    """A thread or child of the program ended by an exception, by what it printed before we ended it.

    So did its main thread, if one that trains is at its exit, in no function of the program any more: it joins what it
    started. Elsewhere a traceback alone may be of an exception that was dealt with.
    """
    for log in case.evidence.logs:
        match = _ENDED.search(log.before_end)
        if match is None and _is_at_its_exit(case):
            match = next(reversed([*_PRINTED.finditer(log.before_end)]), None)
        if match is not None:
            return _tells_of(match)
    return ""


def failed_before(case: Case) -> str:
    """A thread or child of the program ended by an exception before the program did, by what was printed of it."""
    for log in case.evidence.logs:
        text = log.before_end
        match = _ENDED.search(text)
        came_later = match is not None and HEADING in text[: match.start()] and HEADING not in text[match.end() :]
        if match is not None and not came_later:
            return _tells_of(match)
    return ""


def _tells_of(match: re.Match[str]) -> str:
    """Who ended by an exception, where, and what it was."""
    thread, process, traceback, error = match.groups()
    frames = traceback_frames(traceback)[::-1]
    where = f" in {spell(own_line(frames))}" if frames else ""
    short = error if len(error) <= _LONGEST_ERROR else f"{error[:_LONGEST_ERROR]}..."
    who = thread or (f"process {process}" if process else "its main thread, which is at its exit,")
    return f"before that {who} had ended by an exception{where}: {short}"


def replaced_worker(case: Case) -> str:
    """A worker of a pool of multiprocessing began after the others, while the main thread waits for an answer of it.

    A pool starts another worker where one has ended. The task of one that was killed is answered by nobody, and no
    process knows.
    """
    stand = job_of_case(case).stand
    for one in stand.values():
        if not _runs_in_a_pool(one, *_ASKERS):
            continue
        workers = [other for other in stand.values() if other.parent == one.pid and _runs_in_a_pool(other, "worker")]
        begun_s = {other.pid: other.looks[-1].t_s - other.looks[-1].age_s for other in workers}
        late = [pid for pid, began_s in begun_s.items() if began_s - min(begun_s.values()) > LATE_S]
        if late:
            pids = ", ".join(map(in_words, late))
            who = f"process {pids} of its pool" if len(late) == 1 else f"processes {pids} of its pool"
            after_s = min(begun_s[pid] for pid in late) - min(begun_s.values())
            return (
                f"{who} began {after_s:.1f} s after the others: a pool starts another worker where one has ended, and "
                "nobody answers the task of one that was killed"
            )
    return ""


def _runs_in_a_pool(one: Standing, *functions: str) -> bool:
    """Whether its deciding thread is in one of these functions of multiprocessing's pool."""
    frames = python_frames(one.thread) if one.thread is not None else ()
    return any(frame.file.endswith("multiprocessing/pool.py") and bare(frame) in functions for frame in frames)


def _is_at_its_exit(case: Case) -> bool:
    """Whether the main thread of one that trains runs Python, and nothing of the program's: no module is run any more.

    A program may be a package as a whole (``python -m package``): then there is a module below all that it runs.
    """
    for one in job_of_case(case).stand.values():
        frames = python_frames(one.thread) if one.thread is not None else ()
        if one.rank >= 0 and frames and not any(is_own(frame) or bare(frame) == "<module>" for frame in frames):
            return True
    return False


# -- what would decide


def given_time(then: str, *, watched: str = "") -> Sign:
    """More time, and what is seen ``then``; of a job that was only watched, ``watched``, if that is another thing."""

    def sign(case: Case) -> str:
        return _instead_of_time(case) or f"{_more_time(case)}: {(_is_watched(case) and watched) or then}"

    return sign


def _is_watched(case: Case) -> bool:
    return case.outcome.ending is Ending.STILL_RUNNING


def _instead_of_time(case: Case) -> str:
    """What decides where no limit would; empty where one may, of a hang, and of a job that has none of ours."""
    why = ""
    if case.outcome.stopped_by in (StopReason.STARTUP, StopReason.STALL, StopReason.TOTAL):
        why = no_limit_decides(case.evidence, predicted=case.trial.prediction is not None)
    return f"no limit does, as {why}: {instead_of_time(has_marks=bool(case.evidence.heartbeats))}" if why else ""


def _more_time(case: Case) -> str:
    """How it gets more time: a watched job by a later look, a trial by more than the limit that it really had."""
    if _is_watched(case):
        return "watch it again later, or with --follow"
    budget, reason = case.trial.budget, case.outcome.stopped_by
    limits = {
        StopReason.STARTUP: ("start-up", budget.startup),
        StopReason.STALL: ("stall", budget.stall),
        StopReason.TOTAL: ("total", budget.total),
    }
    total_s = deciding_total_s(budget, ran_s=case.outcome.duration_s) if reason is StopReason.TOTAL else None
    if total_s is not None:
        return f"run it again with a total limit of {total_s:.0f} s, by which a standstill is decided"
    if reason is not None and reason in limits and not limits[reason][1].is_endless:
        return f"run it again with ten times the {limits[reason][0]} limit"
    if reason is StopReason.PACE:
        return "run it again with a stall limit of a minute (--stall 60s), which watches it for four"
    return "start it without nsa-harness, and look later with nsa-harness watch PID"


def alone(case: Case) -> str:
    """How to learn what other work took of the time; a program with nothing varied has no smaller trial."""
    between = ", with a smaller trial between" if case.trial.point.settings else ""
    return f"run it alone, twice{between}: times that differ are the machine's"


def of_its_size(case: Case) -> str:
    """How to learn what a healthy trial of this size takes; a program with nothing varied has no smaller sizes."""
    if not case.trial.point.settings:
        return "give it more time: a healthy trial comes to its end"
    return "run three smaller sizes and fit their times: a healthy trial lies on that line"


def ranks_unseen(case: Case) -> str:
    """Some rank's stack was not seen."""
    with_stack = {sample.rank for sample in case.evidence.stacks}
    unseen = sorted(set(range(case.evidence.world)) - with_stack)
    if case.evidence.world > 1 and not unseen:
        return ""
    return f"no stack of rank {', '.join(map(str, unseen))} was seen" if unseen else "its ranks are not known"


def longer_with_native_frames(case: Case) -> str:
    """More time, and native frames where none were taken."""
    if instead := _instead_of_time(case):
        return instead
    again = _more_time(case)
    if _is_watched(case):
        again += ": what is stuck is where it was"
    if any(sample.native for sample in case.evidence.stacks):
        return again
    if _is_watched(case):
        return f"{again}; see why no native frames could be taken with: nsa-harness doctor"
    return f"{again}, and let it be looked at with native frames"


FOR_SLOW: tuple[Sign, ...] = (gets_further, moves, memory_moves, stacks_move, may_be_ended)
"""What speaks for a silence that ends by itself."""
