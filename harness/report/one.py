"""One program, run or watched: the verdict and its evidence for a tired engineer, in 80 columns and as Markdown."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from harness.core.codec import to_json
from harness.core.dotted import leaves
from harness.core.evidence import latest_rate_s
from harness.core.node import in_words
from harness.core.outcome import Ending
from harness.core.verdict import FAILURES, Confidence, Kind
from harness.reading.frames import is_noise, telling_frame
from harness.reading.standing import LOADER_WORKER
from harness.report import seen
from harness.report.clean import clean
from harness.report.findings import Findings, to_tell_of
from harness.report.stacks import (
    busy_threads,
    deciding_stack,
    elsewhere,
    place,
    rank_by_pid,
    sentences_of,
    thread_name,
    variables,
    who_tells,
    why_no_variables,
)
from harness.report.summary import place_in
from harness.report.text import command, count, line_width, named_path, ranges, seconds, size, wrap
from harness.report.tried import grouped
from harness.report.watched import NAMED, OVER, job_lines, stops_in_words, stops_of, watched_step
from harness.report.words import how_often_in, passes_and_failures, so_far

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.core.campaign import ForeignJob
    from harness.core.evidence import Evidence
    from harness.core.record import Run, TrialRecord
    from harness.core.verdict import Verdict
    from harness.report.words import NextStep

FRAMES = 8
THREADS = 6
LOG_LINES = 6
LONGEST = 1200
"""Characters of one line of output that are shown; the report has all of it."""
RIVALS = 2
"""Other causes that a reader must know of now; the report has all."""


def text(run: Run, by_key: Mapping[str, Evidence], *, where: Path, steps: Sequence[NextStep]) -> str:
    """The end of the command on a terminal, in lines that fit; ``steps`` are what its report says to do next.

    A program that passed asks for nothing here.
    """
    records = run.records
    record = to_tell_of(records) or records[-1]
    evidence = by_key.get(record.trial.key)
    out = [*_headline(record, evidence), *_indented(clean(record.verdict.because)), *_tally(run)]
    if evidence is not None and record.verdict.kind is not Kind.PASS:
        out += _evidence_lines(record, evidence)
        reason = why_no_variables(run, record, evidence)
        out += ["", *_indented(reason)] if reason else []
    out += ["", *_indented(_numbers(record, evidence))]
    if record.outcome.cleanup.ended or record.outcome.cleanup.survivors:
        out += _indented(f"cleaned up: {clean(seen.cleanup(record.outcome.cleanup, is_page=False))}")
    out += ["", *named_path("report", where)]
    step = next(iter(steps), None) if record.verdict.kind is not Kind.PASS else None
    out += wrap(f"next: {clean(step.text)}") if step else []
    out += [] if step and step.command else ["again:"]
    out += command((step and step.command) or run.argv, indent="  ")
    return "\n".join(out)


def data(run: Run, evidence: Mapping[str, Evidence]) -> dict[str, Any]:
    """The same for a program, what failed and where first."""
    records, often = run.records, how_often_in(Findings(run=run))
    record = to_tell_of(records) or records[-1]
    place = place_in(record, evidence.get(record.trial.key))
    first = {"verdict": str(record.verdict), "rank": record.verdict.rank, "place": place.text if place.is_line else ""}
    rate = {"how_often": often} if often else {}
    return {**first, **rate, "trials": to_json(records)}


def watched(
    record: TrialRecord,
    by_key: Mapping[str, Evidence],
    *,
    job: ForeignJob,
    where: Path,
    argv: Sequence[str],
    label: str = "report",
    stuck: Sequence[Verdict] = (),
) -> str:
    """What ``watch`` prints: the verdict, where every rank is, what to do next, and what lies ``where``.

    ``by_key`` has the evidence of every look. ``argv`` is the command that asks again, empty where there is none.
    ``stuck`` are verdicts on processes that hang in a job that may go on.
    """
    verdict, evidence = record.verdict, by_key.get(record.trial.key)
    head = _headline(record, evidence)
    if verdict.kind in (Kind.UNRESOLVED, Kind.SLOW):
        head = [f"{so_far(verdict)}  (watched for {seconds(record.outcome.duration_s)})"]
    out = [*head, *_indented(OVER if job.is_over else ""), *_indented(clean(verdict.because))]
    for part in stuck:
        out += _indented(clean(f"a part of it can never go on: {part.because}"))
    if evidence is not None:
        out += _evidence_lines(record, evidence)
        if not evidence.stacks:
            for failure in evidence.failures:
                out += _indented(clean(f"{failure.source} could not look: {failure.reason}"))
    stopped = stops_in_words(stops_of(by_key.values()), most=NAMED)
    out += ["", *_indented(stopped), "", *_next(record, evidence, job)]
    out += job_lines(job)
    out += ["", *named_path(label, where)]
    if argv:
        out += ["again:", *command(argv, indent="  ")]
    return "\n".join(out)


def _next(record: TrialRecord, evidence: Evidence | None, job: ForeignJob) -> list[str]:
    """What to do next as a terminal says it, which shows the line to look at above."""
    step = watched_step(record.verdict, evidence, job)
    if step is None:
        return _indented("nothing was ended")
    if step.command:
        return [*_indented(f"nothing was ended. {step.text}"), *command(step.command, indent="    ")]
    return _indented(f"{step.text[0].lower()}{step.text[1:].rstrip('.')}")


def _tally(run: Run) -> list[str]:
    """How the runs of a program ended, where there were several, and how often it fails."""
    records, often = run.records, how_often_in(Findings(run=run))
    if len(records) < 2:
        return ["", *_indented(often)] if often else []
    alike = grouped(records, lambda record: str(record.verdict))
    rows: list[str] = []
    for verdict, runs in alike.items():
        numbers = ranges([record.trial.repeat + 1 for record in runs])
        took = median(record.outcome.duration_s for record in runs)
        usual = " in the median" if len(runs) > 1 else ""
        rows += _indented(f"{verdict}: {count(len(runs), 'run')} ({numbers}), {took:.1f} s{usual}")
    passes, _ = passes_and_failures(records)
    return ["", f"{passes} of {len(records)} runs passed", *rows, *_indented(often)]


def _headline(record: TrialRecord, evidence: Evidence | None) -> list[str]:
    """``HANG (deadlock), rank 1: next_shard (train.py:36)  (confidence: high; after 9 s)``, a failure's line in it."""
    verdict = record.verdict
    if verdict.kind is Kind.PASS:
        return [str(verdict)]
    rank = f", rank {verdict.rank}" if verdict.rank is not None and evidence and evidence.ranks else ""
    place = place_in(record, evidence)
    line = f": {clean(place.brief)}" if place.is_line and verdict.kind in FAILURES else ""
    what = f"{verdict}{rank}{line}"
    when = "watched for" if record.outcome.ending is Ending.STILL_RUNNING else "after"
    how = f"(confidence: {verdict.confidence}; {when} {seconds(record.outcome.duration_s)})"
    one = f"{what}  {how}"
    return [one] if len(one) <= line_width() else [*wrap(what), *_indented(how)]


def _evidence_lines(record: TrialRecord, evidence: Evidence) -> list[str]:
    kind = record.verdict.kind
    out = [] if kind in (Kind.CRASH, Kind.OOM, Kind.NONFINITE) else _places(record, evidence)
    if kind in (Kind.CRASH, Kind.OOM, Kind.NONFINITE, Kind.INFRA, Kind.BELOW_TARGET):
        out += _last_words(evidence, record.verdict.rank)
    sure = record.verdict.confidence in (Confidence.PROOF, Confidence.HIGH)
    rivals = () if sure or record.verdict.cause == "moving" else record.verdict.alternatives[:RIVALS]
    for number, other in enumerate(rivals):
        also = "" if record.verdict.kind is Kind.UNRESOLVED and number == 0 else "also "
        out += ["", *_indented(f"it may {also}be {other.cause}: {clean(other.because)}")]
        out += _indented(f"to decide: {clean(other.experiment)}") if other.experiment else []
    return out


def _places(record: TrialRecord, evidence: Evidence) -> list[str]:
    """Where each rank is or was, with the stack that decides."""
    sentences = sentences_of(who_tells(evidence, record.verdict))
    if not sentences:
        return []
    out = ["", "where it is:" if record.outcome.ending is Ending.STILL_RUNNING else "where it was:"]
    for sentence_ in sentences:
        out += _behind("  ", wrap(clean(sentence_), width=line_width() - 4), more="    ")
    others = _listed("elsewhere in the program's own code:", elsewhere(evidence, record.verdict))
    return [*out, *_stack(record, evidence), *others, *_variables(evidence)]


def _stack(record: TrialRecord, evidence: Evidence) -> list[str]:
    decides = deciding_stack(evidence, record.verdict)
    if decides is None:
        return []
    sample, thread = decides
    telling = telling_frame(thread)
    frames = [frame for frame in thread.frames if not is_noise(frame) and not frame.native]
    name = f"rank {sample.rank}, " if evidence.ranks else ""
    if sample.pid not in (rank_by_pid(evidence) or {evidence.main or sample.pid}):
        name = f"{_kind_of_process(evidence, sample.pid)} {in_words(sample.pid)} of {name or 'it, '}"
    frames_are = "innermost frame first" if frames else "no frame of Python was seen"
    title = f"{name}{thread_name(thread, sample.pid)}, {frames_are}, by {sample.source}{':' if frames else ''}"
    out = ["", *_indented(title)]
    for frame in frames[:FRAMES]:
        pointer = "  => " if frame is telling else "     "
        out += _behind(pointer, _broken(clean(place(frame)), room=line_width() - 5), more="       ")
    if len(frames) > FRAMES:
        out.append(f"     ... {len(frames) - FRAMES} more in the report")
    return out + _listed("other threads at that moment:", busy_threads(sample, beside=thread))


def _kind_of_process(evidence: Evidence, pid: int) -> str:
    """What a process is that is not the program itself, by its command when it was last looked at."""
    for look in reversed(evidence.processes):
        if look.pid == pid:
            return "DataLoader worker" if look.command.startswith(LOADER_WORKER) else "process"
    return "process"


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    """The threads that may hold what the deciding one waits for, or the processes."""
    if not lines:
        return []
    out = ["", f"  {title}"]
    for line in lines[:THREADS]:
        out += _behind("     ", _broken(line, room=line_width() - 5))
    return out + ([f"     ... {len(lines) - THREADS} more in the report"] if len(lines) > THREADS else [])


def _variables(evidence: Evidence) -> list[str]:
    """The locals that the user asked for, by frame, each value in as many lines as it needs."""
    out: list[str] = []
    for at, values in variables(evidence):
        out += ["", *_indented(f"in {clean(at)}:")]
        for value in values:
            out += _behind("    ", _pieces(" ".join(clean(value).split()), line_width() - 4))
    return out


def _broken(text_: str, *, room: int) -> list[str]:
    """``function (a/long/path.py:3)`` as it is, or with its place in lines of its own."""
    if len(text_) <= room:
        return [text_]
    function, _, at = text_.rpartition(" (")
    return [*_pieces(function, room), *_pieces(f"({at}", room - 2)]


def _pieces(text_: str, room: int) -> list[str]:
    """``text_`` cut wherever a line is full."""
    return [text_[at : at + room] for at in range(0, len(text_), room)]


def _last_words(evidence: Evidence, rank: int | None) -> list[str]:
    """The traceback that ended it, of ``rank`` where one is at fault, or else the last lines that it printed."""
    result = evidence.result_of(rank)
    if result is not None and result.traceback:
        return ["", "raised:", *_quoted(result.traceback)]
    for log in reversed(evidence.logs):
        if log.text.strip():
            return ["", f"last lines of {log.stream}:", *_quoted(log.text)]
    return []


def _quoted(output: str) -> list[str]:
    """The last lines of what a program said; long ones go on in the next line, and are never cut."""
    lines: list[str] = []
    for line in list(filter(str.strip, clean(output).splitlines()))[-LOG_LINES:]:
        whole = line.rstrip()
        shown = whole if len(whole) <= LONGEST else f"{whole[:LONGEST]} .. (the report has all of it)"
        lines += _behind("  | ", _pieces(shown, line_width() - 4))
    return lines


def _numbers(record: TrialRecord, evidence: Evidence | None) -> str:
    measurement, parts = record.measurement, list[str]()
    if evidence is not None and (evidence.steps_done or evidence.steps_wanted):
        wanted = evidence.steps_wanted
        steps = f"{evidence.steps_done} of {wanted} steps" if wanted else count(evidence.steps_done, "step")
        parts.append(f"{steps} seen")
    steps_s = evidence.whole_steps_s if evidence is not None else measurement.step_s
    if steps_s:
        parts.append(f"{seconds(latest_rate_s(steps_s))} a step")
    if measurement.startup_s is not None:
        parts.append(f"first step began after {seconds(measurement.startup_s)}")
    if measurement.peak_rss_bytes:
        parts.append(f"peak memory {size(measurement.peak_rss_bytes)}")
    has_ended = record.outcome.ending is not Ending.STILL_RUNNING
    if has_ended and evidence is not None and not evidence.heartbeats_total:
        asked = [f"--progress '{clean(pattern)}' matched no line"] if (pattern := _asked(record, "pattern")) else []
        asked += [f"--progress-file {clean(file)} did not grow"] if (file := _asked(record, "file")) else []
        advice = "; ".join(asked) or "name one with --progress or --progress-file"
        parts.append(f"no sign of progress was seen ({advice})")
    return "; ".join(parts) or "no step was seen"


def _asked(record: TrialRecord, how: str) -> str:
    """The pattern or the file by which the user named progress; empty where none was named."""
    return str(leaves(record.trial.config).get(f"progress.{how}") or "")


def _behind(start: str, lines: Sequence[str], *, more: str = "") -> list[str]:
    """The lines with ``start`` before them; before all but the first ``more``, where that is another."""
    out: list[str] = []
    for line in lines:
        out.append(f"{(more or start) if out else start}{line}")
    return out


def _indented(sentence_: str) -> list[str]:
    return wrap(sentence_, indent="  ")
