"""The timeline: what each rank was doing, around a hang or from start to end, and when we looked and ended it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from harness.core.verdict import Kind
from harness.report.figures.draw import FAINT, INK, Figure, drawing, finish
from harness.report.stacks import rank_name
from harness.report.text import listed, seconds
from harness.report.tried import grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from harness.core.evidence import Evidence, Heartbeat
    from harness.core.outcome import Outcome
    from harness.core.record import TrialRecord
    from harness.report.findings import Findings

TINTS = {"forward": "#2f78c4", "backward": "#7a52b3", "optim": "#2c9a86", "reduce": "#d99a00", "data": "#b0793a",
         "build": "#8a9099", "save": "#5d7a3a"}  # fmt: skip
MOST_RANKS = 16


@dataclass(frozen=True, slots=True)
class Span:
    """A rank in one phase from ``start`` to ``end`` seconds; ``silent`` when nothing more was heard of it."""

    phase: str
    start: float
    end: float
    silent: bool = False


def figure(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """The timeline of the trial that the report is about; None when it left no marks."""
    subject = findings.subject_evidence
    return draw(*subject, hide=hide) if subject and by_rank(subject[1]) else None


def draw(record: TrialRecord, evidence: Evidence, *, hide: Callable[[str], str]) -> Figure:
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
            _row(axes, spans_of(marks[rank], end=end), y=-row, start=start, width=end - start)
            names.append(rank_name(rank, record, evidence))
        axes.set_xlim(start, end + 0.02 * (end - start))
        _looks(axes, evidence, record.outcome, y=-len(ranks) + 0.28)
        axes.set_ylim(-len(ranks) - 0.45, 0.6)
        axes.set_yticks([*range(0, -len(ranks), -1), -len(ranks) + 0.05], [*names, "harness"])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("seconds since the start of the trial")
        title = "Ranks and phases around the stall" if is_stuck else "Ranks and phases, from the start to the end"
        alt = _alt(record, evidence, last)
        return finish(canvas, name="timeline", title=title, alt=alt, section="failures", hide=hide)


def by_rank(evidence: Evidence) -> dict[int, list[Heartbeat]]:
    """The marks of each rank, oldest first; ranks that left none are not there."""
    marks: list[Heartbeat] = []
    for facts in evidence.ranks:
        marks += facts.heartbeats
    return grouped(sorted(marks or evidence.heartbeats, key=lambda mark: (mark.t_s, mark.seq)), lambda mark: mark.rank)


def spans_of(marks: Sequence[Heartbeat], *, end: float) -> list[Span]:
    """What a rank's marks say it was doing, without gaps; after the last one it is silent."""
    spans: list[Span] = []
    for mark, after in pairwise(marks):
        phase = "" if mark.edge == "end" else mark.phase
        if spans and spans[-1].phase == phase:
            spans[-1] = Span(phase, spans[-1].start, after.t_s)
        else:
            spans.append(Span(phase, mark.t_s, after.t_s))
    if marks:
        phase = "" if marks[-1].edge == "end" else marks[-1].phase
        spans.append(Span(phase, marks[-1].t_s, end, silent=True))
    return spans


def _row(axes: Axes, spans: list[Span], *, y: float, start: float, width: float) -> None:
    for span in spans:
        left, right = max(span.start, start), span.end
        if right <= left or (not span.phase and not span.silent):
            continue
        tint = TINTS.get(span.phase, FAINT)
        bar = partial(axes.barh, y, right - left, left=left, height=0.62)
        if span.silent:
            bar(facecolor="none", edgecolor=INK, linewidth=1.2)
            bar(facecolor="none", edgecolor=FAINT, hatch="////", linewidth=0)
            text = _silence(span, room=(right - left) / width)
            axes.text(
                (left + right) / 2, y, text, ha="center", va="center", fontsize=9, weight="bold",
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "none", "edgecolor": "none"},
            )  # fmt: skip
        else:
            bar(facecolor=tint, alpha=0.4, edgecolor=tint, linewidth=0.8)
            if (right - left) / width > 0.14:
                axes.text((left + right) / 2, y, span.phase, ha="center", va="center", fontsize=8)


def _silence(span: Span, *, room: float) -> str:
    """As much of the sentence as fits into this share of the width."""
    silent = f"silent {seconds(span.end - span.start)}"
    whole = f"{silent} in {span.phase}" if span.phase else silent
    for text in (whole, silent, seconds(span.end - span.start)):
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


def _alt(record: TrialRecord, evidence: Evidence, last: dict[int, float]) -> str:
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
