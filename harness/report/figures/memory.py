"""Memory: of the trial that the report is about over time, its GPUs included; else the peak along the axis."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from harness.core.point import word_of
from harness.core.verdict import Kind
from harness.report.figures.draw import COLOURS, INK, Figure, drawing, finish, whole_ticks
from harness.report.stacks import rank_name
from harness.report.text import listed, size
from harness.report.tried import grouped

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.evidence import Evidence
    from harness.core.record import TrialRecord
    from harness.report.findings import Findings

MIB = 2**20
LINES = ("-", "--", "-.", ":")


def figure(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    """Curves where memory was looked at three times at least; else the peaks along the axis; None without either."""
    subject = findings.subject_evidence
    curves = _curves(*subject) if subject else {}
    if subject and curves:
        return _over_time(curves, str(subject[0].trial.point), hide)
    return _along(findings, hide) if findings.is_line else None


def _curves(record: TrialRecord, evidence: Evidence) -> dict[str, list[tuple[float, float]]]:
    curves: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for look in evidence.processes:
        name = f"{rank_name(look.rank, record, evidence)}, process"
        curves[name].append((look.t_s, look.rss_bytes / MIB))
    for sample in evidence.gpus:
        if sample.memory_used_bytes is not None:
            name = f"GPU {sample.index}, all processes"
            curves[name].append((sample.t_s, sample.memory_used_bytes / MIB))
    return {name: sorted(points) for name, points in curves.items() if len(points) > 2}


def _over_time(curves: dict[str, list[tuple[float, float]]], where: str, hide: Callable[[str], str]) -> Figure:
    with drawing(2.3) as (canvas, axes):
        highest = 0.0
        parts: list[str] = []
        for number, (name, points) in enumerate(curves.items()):
            colour = COLOURS[("good", "bad", "slow", "unsure")[number % 4]]
            times_s, sizes = zip(*points, strict=True)
            axes.plot(times_s, sizes, color=colour, linestyle=LINES[number % 4], linewidth=1.8, marker=".", label=name)
            highest = max(highest, *sizes)
            parts.append(f"{name} from {size(int(sizes[0] * MIB))} to {size(int(sizes[-1] * MIB))}")
        axes.set(ylim=(0, 1.25 * highest), xlabel="seconds since the start of the trial", ylabel="MiB")
        axes.legend(loc="lower left")
        alt = f"Memory over time at {where}: {listed(parts)}."
        return finish(canvas, name="memory", title="Memory over time", alt=alt, section="failures", hide=hide)


def _along(findings: Findings, hide: Callable[[str], str]) -> Figure | None:
    axis = findings.run.axis
    points = _points(findings)
    values, sizes, _ = zip(*points, strict=True) if points else ((), (), ())
    if len(set(values)) < 3:
        return None
    by_end = grouped(points, lambda point: point[2])
    with drawing(2.3) as (canvas, axes):
        for has_passed, marker, label in ((True, "o", "passed"), (False, "x", "did not pass")):
            if has_passed in by_end:
                xs, ys, _ = zip(*by_end[has_passed], strict=True)
                axes.scatter(xs, ys, marker=marker, s=26, color=INK, linewidths=1.4, label=label)
        axes.set(ylim=(0, 1.25 * max(sizes)), xlabel=axis.name, ylabel="peak memory, MiB")
        whole_ticks(axes, values)
        axes.legend(loc="lower right")
        low, high = min(points), max(points)
        text = f"{low[1]:.0f} MiB at {word_of(low[0])}, {high[1]:.0f} MiB at {word_of(high[0])}"
        alt = f"Peak memory of each trial along {axis.name}: {text}."
        title = f"Peak memory along {axis.name}"
        return finish(canvas, name="memory", title=title, alt=alt, section="trials", hide=hide)


def _points(findings: Findings) -> list[tuple[float, float, bool]]:
    """Value, MiB and whether it passed, of every trial at a number whose memory was measured."""
    points: list[tuple[float, float, bool]] = []
    for trial in findings.trials:
        at = findings.run.axis.size(trial.cell.get(findings.run.axis.name))
        peak_bytes = trial.record.measurement.peak_rss_bytes
        if at is not None and peak_bytes:
            points.append((at, peak_bytes / MIB, trial.verdict.kind is Kind.PASS))
    return points
