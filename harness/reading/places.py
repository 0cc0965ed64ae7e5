"""Groups: which ranks of a job are at the same place, and whether they moved. It says where they are, never why."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from harness.reading.frames import (
    bare,
    deciding_thread,
    is_stdlib,
    moved_between,
    named_frames,
    python_frames,
    telling_frame,
)
from harness.reading.stillness import STILL_CPU_S, STILL_SWITCHES, background, quiet_windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.evidence import Frame, ProcessState, StackSample, ThreadStack, ThreadState

_INSTALLED = re.compile(r"^.*/(?:site-packages|dist-packages)/")
_WRAPPERS = frozenset(
    {"wrapper", "inner", "_fn", "new_func", "decorate_context", "_call_impl", "_wrapped_call_impl", "__call__"}
)
"""Functions that only pass a call on: nobody means them when asked what was called."""

_STOPPED = {"T": "stopped (state T)", "t": "held by a debugger (state t)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSeen:
    """What was seen of one rank; ``rank`` is None for a process that has no rank, ``pid`` for one that is not here.

    ``missing`` says why there are no stacks; ``refused``: it is there, and nobody could look into it, ``not_allowed``:
    as the kernel let nobody. ``looks`` come in windows, as ``ProcessState.undisturbed_since`` says. ``required`` is
    False for a rank that need not be here, such as one of another machine. ``node`` is the host on which it is, where
    several were looked at.
    """

    rank: int | None
    pid: int | None
    stacks: tuple[StackSample, ...] = ()
    looks: tuple[ProcessState, ...] = ()
    missing: str = ""
    refused: bool = False
    not_allowed: bool = False
    required: bool = True
    node: str = ""

    @property
    def name(self) -> str:
        """``rank 3``, or ``process 4711``."""
        return f"process {self.pid}" if self.rank is None else f"rank {self.rank}"

    @property
    def state(self) -> str:
        """The main thread's state at the last look; empty when there was none."""
        return self.looks[-1].state if self.looks else ""

    @property
    def thread(self) -> ThreadStack | None:
        """The thread that decides, in the last sample."""
        return deciding_thread(self.stacks[-1]) if self.stacks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """Ranks whose deciding threads are in the same functions; ``frames`` are the first rank's, innermost first.

    A frame's line is 0 where the ranks are at different lines; ``telling`` is the index of the frame that tells most,
    None without frames. ``missing`` says why a group has no frames.
    """

    ranks: tuple[RankSeen, ...]
    frames: tuple[Frame, ...] = ()
    telling: int | None = None
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMotion:
    """What one rank did while nobody disturbed it: the deciding thread by itself, and the whole process."""

    seconds: float
    cpu_s: float
    switches: int
    still: bool
    thread_still: bool
    wchan: str


def group_ranks(ranks: Iterable[RankSeen]) -> tuple[RankGroup, ...]:
    """The ranks by place, the fewest first: the odd one out is read first."""
    by_place: dict[tuple[object, ...], list[RankSeen]] = {}
    for rank in ranks:
        by_place.setdefault(_place(rank), []).append(rank)
    groups = list(map(_group, by_place.values()))
    return tuple(sorted(groups, key=lambda group: (len(group.ranks), not group.missing, _order(group.ranks[0]))))


_PLURALS = (("is not", "are not"), ("it belongs", "they belong"), ("has ended", "have ended"), ("it was", "they were"))


def _of_several(missing: str) -> str:
    """What is said of one rank that cannot be seen, of several."""
    for one, several in _PLURALS:
        missing = missing.replace(one, several)
    return missing.replace("it have", "they have")


def sentence(group: RankGroup, *, total: int) -> str:
    """Where the group is and what moved; ``total`` counts the job's ranks."""
    who, one = subject(group.ranks, total=total), len(group.ranks) == 1
    if group.missing:
        return f"{who} {group.missing if one else _of_several(group.missing)}"
    stopped = _STOPPED.get(group.ranks[0].state)
    motions = list(filter(None, map(motion_of, group.ranks)))
    waits = bool(motions) and all(motion.thread_still for motion in motions)
    if stopped:
        verb = f"{'is' if one else 'are'} {stopped} in"
    elif waits:
        verb = "waits in" if one else "wait in"
    else:
        verb = "is in" if one else "are in"
    return f"{who} {verb} {_where_of_all(group)}; {_moved(group.ranks, motions)}"


def subject(ranks: Sequence[RankSeen], *, total: int) -> str:
    """``rank 3``, ``all 8 ranks``, ``7 of 8 ranks (0-2, 4-7)``."""
    if len(ranks) == 1:
        return ranks[0].name
    noun = "processes" if ranks[0].rank is None else "ranks"
    if len(ranks) == total:
        return f"{'both' if total == 2 else f'all {total}'} {noun}"
    return f"{len(ranks)} of {total} {noun} ({numbers(ranks)})"


def numbers(ranks: Sequence[RankSeen]) -> str:
    """Their numbers with runs folded, ``0-2, 4``; PIDs where there are no ranks."""
    runs: list[list[int]] = []
    for number in sorted(map(_order, ranks)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words: list[str] = []
    for run in runs:
        words += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
    return ", ".join(words)


def where(thread: ThreadStack) -> str:
    """Where a thread is: what its program called and from where, ``all_reduce at trainer.py:120 (train_step)``."""
    frame = telling_frame(thread)
    return "no frame that can be named" if frame is None else _where(thread.frames, frame)


def motion_of(rank: RankSeen) -> RankMotion | None:
    """What the rank did in all its undisturbed windows together; None when there was no window."""
    windows = quiet_windows(rank.looks, behind=background(rank.looks, rank.stacks)) if rank.looks else ()
    if not windows:
        return None
    tid = rank.thread.tid if rank.thread else rank.pid
    looks = {look.id: look for look in rank.looks}
    cpu_s, switches, runs, wchan = 0.0, 0, False, ""
    thread_still = not moved_between(rank.stacks)
    for window in windows:
        first, last = _thread(looks[window.first], tid), _thread(looks[window.last], tid)
        if first is None or last is None:
            thread_still, wchan = False, ""
            break
        cpu_s += last.cpu_s - first.cpu_s
        switches += last.switches - first.switches
        runs = runs or "R" in (first.state, last.state)
        wchan = last.wchan
    rests = cpu_s <= STILL_CPU_S and switches <= STILL_SWITCHES * len(windows) and not runs
    thread_still = thread_still and rests
    return RankMotion(
        seconds=sum(window.seconds for window in windows),
        cpu_s=sum(window.cpu_s for window in windows),
        switches=sum(window.switches for window in windows),
        still=thread_still and all(window.still for window in windows),
        thread_still=thread_still,
        wchan=wchan,
    )


def _thread(look: ProcessState, tid: int | None) -> ThreadState | None:
    # A sample that names no kernel thread number (faulthandler's) is of the main thread at best.
    own = None if tid is None else look.thread.get(tid)
    return own or look.thread.get(look.pid)


def _own(thread: ThreadStack) -> tuple[Frame, ...]:
    """The Python frames outside the standard library, else those inside, else the native ones with a name."""
    python = python_frames(thread)
    own = tuple(frame for frame in python if not is_stdlib(frame))
    return own or python or named_frames(thread)


def _place(rank: RankSeen) -> tuple[object, ...]:
    if rank.missing or rank.thread is None:
        return ("missing", rank.missing)
    return (rank.state in _STOPPED, *((bare(frame), frame.file) for frame in _own(rank.thread)))


def _order(rank: RankSeen) -> int:
    return (rank.pid or 0) if rank.rank is None else rank.rank


def _group(ranks: list[RankSeen]) -> RankGroup:
    ranks = sorted(ranks, key=_order)
    thread = ranks[0].thread
    if ranks[0].missing or thread is None:
        return RankGroup(ranks=tuple(ranks), missing=ranks[0].missing or "showed no thread")
    telling = telling_frame(thread)
    index = None if telling is None else thread.frames.index(telling)
    lines = [_lines(rank.thread) for rank in ranks if rank.thread]
    frames: list[Frame] = []
    for key, frame in zip(_lines(thread), thread.frames, strict=True):
        differ = any(line.get(key, frame.line) != frame.line for line in lines)
        frames.append(replace(frame, line=0) if differ else frame)
    return RankGroup(ranks=tuple(ranks), frames=tuple(frames), telling=index)


def _lines(thread: ThreadStack) -> dict[tuple[str, str, int], int]:
    """The line of every frame, by function, file and how often it came before: recursion gives many of the same."""
    counts: Counter[tuple[str, str]] = Counter()
    lines: dict[tuple[str, str, int], int] = {}
    for frame in thread.frames:
        key = bare(frame), frame.file
        lines[*key, counts[key]] = frame.line
        counts[key] += 1
    return lines


def _where_of_all(group: RankGroup) -> str:
    """The place, with every line and who is there when the ranks are at different lines of the same function."""
    by_text: dict[str, list[RankSeen]] = {}
    for rank in group.ranks:
        by_text.setdefault(where(rank.thread) if rank.thread else "", []).append(rank)
    if len(by_text) == 1:
        return next(iter(by_text))
    return ", ".join(f"{text} [{numbers(ranks)}]" for text, ranks in by_text.items())


def _where(frames: Sequence[Frame], telling: Frame) -> str:
    libraries: list[Frame] = []
    for frame in frames:
        if frame.native or is_stdlib(frame):
            continue
        if _INSTALLED.match(frame.file):
            libraries.append(frame)
            continue
        if libraries:
            called = next((inner for inner in reversed(libraries) if bare(inner) not in _WRAPPERS), libraries[-1])
            return f"{_spoken(called)} at {short_file(frame)} ({_spoken(frame)})"
        break
    return f"{_spoken(telling)} ({short_file(telling)})"  # the innermost is the program's own, or all are a library's


def _spoken(frame: Frame) -> str:
    if bare(frame) == "__next__" and frame.file.endswith("/dataloader.py"):
        return "DataLoader next"
    return frame.function.rpartition("<locals>.")[2]


def short_file(frame: Frame) -> str:
    """``trainer.py:120``; a library's file with its package, ``torch/autograd/graph.py:829``."""
    file = _INSTALLED.sub("", frame.file)
    short = file if file != frame.file else PurePosixPath(file).name
    return f"{short}:{frame.line}" if frame.line else short


def _moved(ranks: Sequence[RankSeen], motions: Sequence[RankMotion]) -> str:
    if not motions:
        return "whether anything moves was not seen"
    seconds = f"{max(motion.seconds for motion in motions):.1f} s"
    channels = sorted({motion.wchan.partition(".")[0] for motion in motions if motion.wchan})
    kernel = f" (kernel: {', '.join(channels)})" if channels else ""
    used = f"CPU {_span([m.cpu_s for m in motions], '.2f')} s, {_span([m.switches for m in motions], 'd')} switches"
    if all(motion.still for motion in motions):
        return f"nothing moved in {seconds}{kernel}"
    if all(motion.thread_still for motion in motions):
        return f"did not move there in {seconds}{kernel}; the rest moved: {used}"
    changed = sum(moved_between(rank.stacks) for rank in ranks)
    stack = "" if not changed else ", the stack changed" if changed == len(ranks) else f", {changed} stacks changed"
    return f"moved in {seconds}: {used}{stack}"


def _span(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low}-{high}"
