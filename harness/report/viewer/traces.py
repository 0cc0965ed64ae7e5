"""Traces: the marks and stacks of a run for other people's viewers: Perfetto (Chrome's trace format) and Speedscope.

Formats: "Trace Event Format" (Chromium, JSON object form) and https://www.speedscope.app/file-format-schema.json.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from harness import __version__
from harness.core.errors import NothingToShowError
from harness.core.point import assignment
from harness.core.verdict import Kind
from harness.reading.frames import deciding_thread
from harness.report.render.json import hidden
from harness.report.text import short_path
from harness.report.tried import grouped
from harness.report.viewer.data import StretchKind, axes, tracks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harness.core.evidence import Evidence, ThreadStack
    from harness.core.record import TrialRecord
    from harness.report.viewer.data import Stretch, Track
    from harness.report.write import Report

US = 1e6
HARNESS = 9999
"""The row of a trial's trace that is the harness's own, below all ranks."""


def perfetto(report: Report, *, hide: Callable[[str], str]) -> str:
    """Every trial that was run as a process, its ranks as threads; phases, parts, stacks taken and signals sent.

    Trials stand where they began. Those taken over from an earlier run are not in it: they have no place in this time.
    """
    records = report.run.own
    start_s = {record.trial.key: dt.datetime.fromisoformat(record.started_at).timestamp() for record in records}
    first_s = min(start_s.values(), default=0.0)
    events: list[dict[str, Any]] = []
    for number, record in enumerate(records, start=1):
        evidence = report.findings.evidence_of(record)
        offset_s = start_s[record.trial.key] - first_s
        events += _of_trial(number, record, evidence, name=_name(report, record), offset_s=offset_s)
    about = {"run": report.run.id, "question": report.title, "answer": report.summary.answer, "made_by": _maker()}
    return _text({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}, hide)


def _of_trial(
    pid: int, record: TrialRecord, evidence: Evidence | None, *, name: str, offset_s: float
) -> Iterator[dict[str, Any]]:
    title = f"trial {pid}: {name}: {record.verdict}"
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": title}}
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}}
    end_s = record.outcome.duration_s
    whole = {"verdict": str(record.verdict), "because": record.verdict.because}
    yield _thread_name(pid, HARNESS, "harness")
    yield _complete(pid, HARNESS, "trial", (0.0, end_s), offset_s, whole)
    for track in tracks(evidence, end_s=end_s) if evidence else ():
        has_ranks = evidence is not None and bool(evidence.ranks)
        yield _thread_name(pid, track.rank, f"rank {track.rank}" if has_ranks else "the program")
        yield from _of_track(pid, track, offset_s)
    for sample in evidence.stacks if evidence else ():
        facts = {"source": sample.source, "id": sample.id, "rank": sample.rank}
        yield _instant(pid, "stacks taken", sample.t_s + offset_s, facts)
    for t_s, signal, processes in record.outcome.cleanup.signals:
        yield _instant(pid, f"{signal} sent", t_s + offset_s, {"processes": processes})


def _of_track(pid: int, track: Track, offset_s: float) -> Iterator[dict[str, Any]]:
    for stretch in track.stretches:
        if stretch.kind is not StretchKind.BETWEEN:
            facts = {} if stretch.step is None else {"step": stretch.step}
            span = (stretch.start_s, stretch.end_s)
            yield _complete(pid, track.rank, words(stretch), span, offset_s, facts)
    for part in track.parts:
        yield _complete(pid, track.rank, part.name, (part.start_s, part.end_s), offset_s, {"phase": part.phase})
    if track.ended_s is not None:
        yield _instant(pid, f"rank {track.rank} ended: {track.how or 'how is not known'}", track.ended_s + offset_s, {})


def words(stretch: Stretch) -> str:
    """What is known of a stretch, in a few words."""
    inside = f" (in {stretch.phase})" if stretch.phase else ""
    return {
        StretchKind.PHASE: stretch.phase,
        StretchKind.BETWEEN: "between two phases",
        StretchKind.STARTING: "no mark yet",
        StretchKind.NOT_KEPT: f"{stretch.marks} marks not kept",
        StretchKind.NO_MARK: f"no mark any more{inside}",
    }[stretch.kind]


def _complete(
    pid: int, tid: int, name: str, span: tuple[float, float], offset_s: float, args: dict[str, Any]
) -> dict[str, Any]:
    ts, dur = round((span[0] + offset_s) * US), round((span[1] - span[0]) * US)
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": ts, "dur": dur, "args": args}


def _instant(pid: int, name: str, at_s: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "i", "s": "p", "pid": pid, "tid": HARNESS, "name": name, "ts": round(at_s * US), "args": args}


def _thread_name(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}


def speedscope(report: Report, *, hide: Callable[[str], str]) -> str:
    """A profile for each rank of each trial whose stacks were taken, of the thread that decides, sample by sample.

    Every sample weighs one: stacks of a stuck program say where it was, not how long it was there.

    Raises:
        NothingToShowError: no stack was taken in any trial of the run, so there is nothing to show.
    """
    frames: dict[tuple[str, str, int], int] = {}
    profiles: list[dict[str, Any]] = []
    first_of: dict[int, int] = {}
    for number, record in enumerate(report.run.records, start=1):
        evidence = report.findings.evidence_of(record)
        name = f"trial {number}: {_name(report, record)}: {record.verdict}"
        if evidence is not None and (of_trial := _profiles(evidence, frames, name=name)):
            first_of[number] = len(profiles)
            profiles += of_trial
    if not profiles:
        raise NothingToShowError(
            f"{report.run.id}: no stack was taken in any of its trials, so there is no profile to write. "
            "Its marks are in --format perfetto."
        )
    locations: list[dict[str, Any]] = []
    for function, file, line in frames:
        facts = {"name": function, "file": file, "line": line}
        locations.append({name: fact for name, fact in facts.items() if fact})  # without what is not known
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": f"{report.run.id}: {report.title}",
        "exporter": _maker(),
        "activeProfileIndex": _active(report, first_of),
        "shared": {"frames": locations},
        "profiles": profiles,
    }
    return _text(document, hide)


def _active(report: Report, first_of: Mapping[int, int]) -> int:
    """The place of the profile to begin with: of the first trial that did not pass, where it has one."""
    for trial in report.findings.trials:
        if trial.verdict.kind is not Kind.PASS:
            return first_of.get(trial.number, 0)
    return 0


def _profiles(evidence: Evidence, frames: dict[tuple[str, str, int], int], *, name: str) -> list[dict[str, Any]]:
    samples = sorted(evidence.stacks, key=lambda sample: sample.t_s)
    by_process = grouped(samples, lambda sample: (sample.rank, sample.pid))
    profiles: list[dict[str, Any]] = []
    for (rank, pid), of_process in sorted(by_process.items()):
        threads = map(deciding_thread, of_process)
        stacks = [_stack(thread, frames) for thread in threads if thread and thread.frames]
        if not stacks:
            continue
        of_rank = f"rank {rank}, " if evidence.ranks else ""
        about = {"type": "sampled", "name": f"{name}: {of_rank}process {pid}", "unit": "none"}
        weights = {"startValue": 0, "endValue": len(stacks), "samples": stacks, "weights": [1] * len(stacks)}
        profiles.append(about | weights)
    return profiles


def _stack(thread: ThreadStack, frames: dict[tuple[str, str, int], int]) -> list[int]:
    """The frames' numbers, outermost first."""
    numbers: list[int] = []
    for frame in reversed(thread.frames):
        location = (frame.function, short_path(frame.file), frame.line)
        numbers.append(frames.setdefault(location, len(frames)))
    return numbers


def _name(report: Report, record: TrialRecord) -> str:
    names = axes(report.run)
    at = ", ".join(assignment(name, record.trial.point.get(name)) for name in names) or "the program"
    return f"{at}, {record.trial.role}" if record.trial.is_control else at


def _maker() -> str:
    return f"nsa-harness {__version__}"


def _text(document: dict[str, Any], hide: Callable[[str], str]) -> str:
    """``document`` as JSON without names, secrets and controls."""
    return json.dumps(hidden(document, hide), ensure_ascii=False, separators=(",", ":")) + "\n"
