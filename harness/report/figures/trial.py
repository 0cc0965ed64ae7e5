"""One trial: what each rank was doing, around a hang or from start to end, and its stacks as icicles."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from harness.core.verdict import Kind
from harness.reading.frames import bare, deciding_thread, python_frames, telling_frame
from harness.report.figures.draw import COLOURS, FAINT, INK, Figure, box, drawing, finish
from harness.report.stacks import deciding_sample, deciding_stack, place, rank_name
from harness.report.text import count, listed, seconds
from harness.report.tried import grouped, latest_of_each
from harness.report.viewer.data import StretchKind, by_rank, stretches_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from matplotlib.axes import Axes

    from harness.core.evidence import Evidence, Frame, Heartbeat, ThreadStack
    from harness.core.outcome import Outcome
    from harness.core.record import TrialRecord
    from harness.core.verdict import Verdict
    from harness.report.findings import Findings
    from harness.report.viewer.data import Stretch


TINTS = {"forward": "#2f78c4", "backward": "#7a52b3", "optim": "#2c9a86", "reduce": "#d99a00", "data": "#b0793a",
         "build": "#8a9099", "save": "#5d7a3a"}  # fmt: skip
MOST_RANKS = 16


def timeline(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """The timeline of the trial that the report is about; None when it left no marks."""
    subject = findings.subject_evidence
    return draw_timeline(*subject, hide=hide) if subject and by_rank(subject[1]) else None


def draw_timeline(record: TrialRecord, evidence: Evidence, *, hide: Callable[[str], str]) -> Figure:
    """One row per rank, the first to fall silent at the top."""
    end = record.outcome.duration_s
    marks = by_rank(evidence)
    last = {rank: rank_marks[-1].t_s for rank, rank_marks in marks.items()}
    ranks = sorted(last, key=lambda rank: (last[rank], rank))[:MOST_RANKS]
    stall = min(last.values())
    is_stuck = record.verdict.kind is Kind.HANG
    start = max(0.0, stall - max(0.25 * (end - stall), 0.3)) if is_stuck else 0.0
    with drawing(1.25 + 0.36 * len(ranks)) as (canvas, axes):
        names: list[str] = []
        for row, rank in enumerate(ranks):
            _row(axes, marks[rank], y=-row, start=start, end=end)
            names.append(rank_name(rank, record, evidence))
        axes.set_xlim(start, end + 0.02 * (end - start))
        _looks(axes, evidence, record.outcome, y=-len(ranks) + 0.28)
        axes.set_ylim(-len(ranks) - 0.45, 0.6)
        axes.set_yticks([*range(0, -len(ranks), -1), -len(ranks) + 0.05], [*names, "harness"])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("seconds since the start of the trial")
        title = "Ranks and phases around the stall" if is_stuck else "Ranks and phases, from the start to the end"
        alt = _timeline_in_words(record, evidence, last)
        return finish(canvas, name="timeline", title=title, alt=alt, section="failures", hide=hide)


def _row(axes: Axes, marks: Sequence[Heartbeat], *, y: float, start: float, end: float) -> None:
    """What a rank's marks say it was doing, whatever the step; after the last one it is silent."""
    of_any_step = [replace(mark, step=None) for mark in marks]
    for stretch in stretches_of(of_any_step, not_kept=0, until_s=end):
        left, right = max(stretch.start_s, start), stretch.end_s
        is_silent = stretch.kind is StretchKind.NO_MARK
        if right <= left or not (stretch.phase or is_silent):
            continue
        tint, room = TINTS.get(stretch.phase, FAINT), (right - left) / (end - start)
        bar = partial(axes.barh, y, right - left, left=left, height=0.62)
        if is_silent:
            bar(facecolor="none", edgecolor=INK, linewidth=1.2)
            bar(facecolor="none", edgecolor=FAINT, hatch="////", linewidth=0)
            text = _silence(stretch, room=room)
            axes.text(
                (left + right) / 2, y, text, ha="center", va="center", fontsize=9, weight="bold",
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "none", "edgecolor": "none"},
            )  # fmt: skip
        else:
            bar(facecolor=tint, alpha=0.4, edgecolor=tint, linewidth=0.8)
            if room > 0.14:
                axes.text((left + right) / 2, y, stretch.phase, ha="center", va="center", fontsize=8)


def _silence(stretch: Stretch, *, room: float) -> str:
    """As much of the sentence as fits into this share of the width."""
    lasted = seconds(stretch.end_s - stretch.start_s)
    silent = f"silent {lasted}"
    whole = f"{silent} in {stretch.phase}" if stretch.phase else silent
    for text in (whole, silent, lasted):
        if len(text) < 52 * room:
            return text
    return ""


def _looks(axes: Axes, evidence: Evidence, outcome: Outcome, *, y: float) -> None:
    """When stacks were taken, and below it when we ended the trial."""
    room = axes.get_xlim()
    times: list[float] = []
    for sample in evidence.stacks:
        axes.plot(sample.t_s, y, marker="v", color=INK, markersize=5)
        times.append(sample.t_s)
    if times:
        _beside(axes, "stacks taken", first=min(times), last=max(times), y=y, room=room)
    for t_s, name, _ in outcome.cleanup.signals[:1]:
        axes.plot(t_s, y - 0.45, marker="x", color=INK, markersize=6)
        _beside(axes, f"{name} sent", first=t_s, last=t_s, y=y - 0.45, room=room)


def _beside(axes: Axes, text: str, *, first: float, last: float, y: float, room: tuple[float, float]) -> None:
    """``text`` before the first marker, or behind the last one where it would cover the names of the rows."""
    is_early = first - room[0] < 0.3 * (room[1] - room[0])
    axes.annotate(
        text, (last if is_early else first, y), xytext=(6 if is_early else -6, -1), textcoords="offset points",
        ha="left" if is_early else "right", va="center", fontsize=8,
    )  # fmt: skip


def _timeline_in_words(record: TrialRecord, evidence: Evidence, last: dict[int, float]) -> str:
    end = record.outcome.duration_s
    order = sorted(last, key=lambda rank: (last[rank], rank))
    parts: list[str] = []
    for rank in order:
        name, silent_s = rank_name(rank, record, evidence), end - last[rank]
        parts.append(f"{name} last heard of at {seconds(last[rank])}, then silent for {seconds(silent_s)}")
    stacks = f" Stacks were taken at {listed(seconds(s.t_s) for s in evidence.stacks)}." if evidence.stacks else ""
    signals = ""
    for t_s, name, _ in record.outcome.cleanup.signals[:1]:
        signals = f" We sent {name} at {seconds(t_s)}."
    return f"{record.trial.point}: {listed(parts, most=8)}.{stacks}{signals} The trial ended at {seconds(end)}."


WRAPPERS = frozenset({"_call_impl", "_wrapped_call_impl", "inner", "decorate_context", "_fn", "wrapper"})
"""Functions that only pass a call on; torch has two or three around each module."""

DEEPEST = 16
"""Frames shown of each stack, counted from the innermost."""


def stacks(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """The icicles of the trial that the report is about; None without two stacks to compare."""
    subject = findings.subject_evidence
    return draw_stacks(subject[1], subject[0].verdict, hide=hide) if subject else None


def draw_stacks(evidence: Evidence, verdict: Verdict, *, hide: Callable[[str], str]) -> Figure | None:
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
        title, alt = f"Where the {unit}s were", _stacks_in_words(paths, telling, unit)
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


def _stacks_in_words(paths: Sequence[tuple[Frame, ...]], telling: Sequence[Frame | None], unit: str) -> str:
    where: Counter[str] = Counter()
    for frame in telling:
        where[place(frame) if frame else "an unnamed place"] += 1
    shared = _shared(paths)
    text = listed(f"{count(n, unit)} in {name}" for name, n in where.most_common())
    common = f" They share the outermost {count(shared, 'call')}." if len(paths) > 1 and shared else ""
    return f"Call stacks, outermost call on top: {text}.{common}"
