"""Stack groups as icicles: outermost call on top, each box as wide as the number of ranks (or threads) inside it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from harness.reading.frames import bare, deciding_thread, python_frames, telling_frame
from harness.report.figures.draw import COLOURS, Figure, box, drawing, finish
from harness.report.stacks import deciding_sample, deciding_stack, place
from harness.report.text import count, listed
from harness.report.tried import grouped, latest_of_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from matplotlib.axes import Axes

    from harness.core.evidence import Evidence, Frame, ThreadStack
    from harness.core.verdict import Verdict
    from harness.report.findings import Findings

WRAPPERS = frozenset({"_call_impl", "_wrapped_call_impl", "inner", "decorate_context", "_fn", "wrapper"})
"""Functions that only pass a call on; torch has two or three around each module."""

DEEPEST = 16
"""Frames shown of each stack, counted from the innermost."""


def figure(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """The icicles of the trial that the report is about; None without two stacks to compare."""
    subject = findings.subject_evidence
    return draw(subject[1], subject[0].verdict, hide=hide) if subject else None


def draw(evidence: Evidence, verdict: Verdict, *, hide: Callable[[str], str]) -> Figure | None:
    """With several ranks a column per rank, with one a column per thread; one stack alone is text, not a picture."""
    stacks, unit = columns(evidence, verdict)
    if len(stacks) < 2:
        return None
    paths = _innermost(list(map(_path, stacks)))
    telling = list(map(telling_frame, stacks))
    sample = deciding_stack(evidence, verdict)
    decides = set(telling) if unit == "rank" else {telling_frame(sample[1]) if sample else None}
    rows = sorted(zip(paths, telling, strict=True), key=lambda row: list(map(place, row[0])))
    paths, telling = zip(*rows, strict=True)
    depth = max(map(len, paths))
    with drawing(0.5 + 0.235 * depth) as (canvas, axes):
        _boxes(axes, paths, decides, left=0, depth=0, total=len(paths))
        axes.set(xlim=(0, len(paths)), ylim=(-depth - 0.1, 0.1))
        axes.axis("off")
        title, alt = f"Where the {unit}s were", _alt(paths, telling, unit)
        return finish(canvas, name="stacks", title=title, alt=alt, section="failures", hide=hide)


def _path(thread: ThreadStack) -> tuple[Frame, ...]:
    """The calls from the outside in, without those that only pass a call on."""
    telling = telling_frame(thread)
    calls = reversed(python_frames(thread))
    return tuple(frame for frame in calls if frame is telling or bare(frame) not in WRAPPERS)


def _innermost(paths: Sequence[tuple[Frame, ...]]) -> list[tuple[Frame, ...]]:
    """At most DEEPEST calls: first those that all share go, from the outside in, then each path by itself."""
    too_many = max(map(len, paths)) - DEEPEST
    skip = max(0, min(too_many, _shared(paths) - 1))
    return [path[skip:][-DEEPEST:] for path in paths]


def _shared(paths: Sequence[tuple[Frame, ...]]) -> int:
    """How many of the outermost calls are the same in all."""
    same = 0
    for frames in zip(*paths, strict=False):
        if len(set(map(_call, frames))) > 1:
            break
        same += 1
    return same


def _call(frame: Frame) -> tuple[str, str]:
    """What is called there, on whatever line."""
    return bare(frame), frame.file


def columns(evidence: Evidence, verdict: Verdict) -> tuple[list[ThreadStack], str]:
    """The stacks to compare: the deciding thread of every rank, or every thread of the only rank."""
    latest = latest_of_each(evidence.stacks, lambda sample: sample.rank, by=lambda sample: (sample.native, sample.t_s))
    if len(latest) > 1:
        return _of_python(map(deciding_thread, latest)), "rank"
    sample = deciding_sample(evidence, verdict)
    return _of_python(sample.threads if sample else ()), "thread"


def _of_python(threads: Iterable[ThreadStack | None]) -> list[ThreadStack]:
    """Those that have a frame of Python."""
    return [thread for thread in threads if thread and python_frames(thread)]


def _boxes(
    axes: Axes, paths: Sequence[tuple[Frame, ...]], telling: set[Frame | None], *, left: float, depth: int, total: int
) -> None:
    groups = grouped(filter(None, paths), lambda path: _call(path[0]))
    for inside in groups.values():
        frame, wide = inside[0][0], len(inside)
        is_telling = frame in telling
        colour = COLOURS["bad"] if is_telling else COLOURS["good"]
        edge = {"linewidth": 1.8 if is_telling else 0.5}
        box(axes, left, -depth - 1, wide, 0.92, fill=colour, alpha=0.3 if is_telling else 0.12, edge=edge)
        lines = {path[0].line for path in inside}
        room = int(66 * wide / total)
        text = _label(frame, room=room, line=frame.line if len(lines) == 1 else 0)
        weight = "bold" if is_telling else "normal"
        if room > 3:
            axes.text(left + 0.01 * total, -depth - 0.54, text, ha="left", va="center", fontsize=8, weight=weight)
        _boxes(axes, [path[1:] for path in inside], telling, left=left, depth=depth + 1, total=total)
        left += wide


def _label(frame: Frame, *, room: int, line: int) -> str:
    """The longest name of a frame that fits."""
    file = frame.file.rpartition("/")[2]
    names = [f"{frame.function} ({file}:{line})", f"{frame.function}:{line}"] if line else []
    names = [*([place(frame)] if line else []), *names, frame.function, frame.function.rpartition(".")[2]]
    for name in names:
        if len(name) <= room:
            return name
    return f"{names[-1][: max(room - 1, 1)]}…"


def _alt(paths: Sequence[tuple[Frame, ...]], telling: Sequence[Frame | None], unit: str) -> str:
    where: Counter[str] = Counter()
    for frame in telling:
        where[place(frame) if frame else "an unnamed place"] += 1
    shared = _shared(paths)
    text = listed(f"{count(n, unit)} in {name}" for name, n in where.most_common())
    common = f" They share the outermost {count(shared, 'call')}." if len(paths) > 1 and shared else ""
    return f"Call stacks, outermost call on top: {text}.{common}"
