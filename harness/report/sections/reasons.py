"""Reasons: explanations that compete for what was seen, and the questions that the evidence answers in turn."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from harness.core.cause import AxisFinding
from harness.core.outcome import Ending, StopReason
from harness.core.point import assignment
from harness.core.ports import Block
from harness.core.verdict import FAILURES, Kind
from harness.reading.frames import deciding_thread, different_places, same_frames
from harness.reading.pace import TEN_TIMES, is_training, silence_limit
from harness.reading.stillness import quiet_windows
from harness.report import seen
from harness.report.asked import where
from harness.report.next_steps import more_time_along
from harness.report.text import bullets, code, count, fence, listed, md, seconds, table
from harness.report.tried import grouped
from harness.report.words import at, of

if TYPE_CHECKING:
    from harness.core.campaign import FailureTable
    from harness.core.cause import AxisVerdict
    from harness.core.evidence import Evidence, ThreadStack, WorkerResult
    from harness.core.point import Point
    from harness.core.record import TrialRecord
    from harness.reading.stillness import Window
    from harness.report.findings import Findings
    from harness.report.tried import TrialSet


AGAINST = (AxisFinding.NOT_NECESSARY, AxisFinding.NOT_SUFFICIENT, AxisFinding.INERT)

HEAD = ("hypothesis", "for", "against", "missing", "what would decide")


def hypotheses_section(findings: Findings) -> Block | None:
    """One row each; None when nothing failed. Over many cells each axis is a hypothesis."""
    if not findings.is_line:
        parts = [_of_failure(findings, failure) for failure in findings.answer.failures]
        parts += [_of_pairs(findings)] if findings.pairs else []
        others = of_verdict(findings.subject)
        parts += [f"Other explanations of what the trial showed:\n\n{table(HEAD, others)}"] if others else []
        return Block(title="Hypotheses", markdown="\n\n".join(parts)) if parts else None
    record = findings.subject
    if record is None:
        return None
    rows = _of_controls(findings)
    if record.verdict.kind is Kind.HANG:
        rows.append(_slow_not_hung(findings, record))
    elif record.verdict.kind is Kind.SLOW:
        rows.append(_hung_not_slow(findings, record))
    rows += of_verdict(record)
    return Block(title="Hypotheses", markdown=table(HEAD, rows)) if rows else None


def of_verdict(record: TrialRecord | None) -> list[tuple[str, ...]]:
    """The competing causes that the verdict itself names."""
    rows: list[tuple[str, ...]] = []
    for other in record.verdict.alternatives if record else ():
        missing = "-" if other.supports and other.against else "a trial that tells it from the others"
        supports, against = listed(map(md, other.supports)) or "-", listed(map(md, other.against)) or "-"
        name = f"{md(other.cause)}: {md(other.because)}"
        rows.append((name, supports, against, missing, md(other.experiment) or "-"))
    return rows


def _of_controls(findings: Findings) -> list[tuple[str, ...]]:
    group = findings.failing
    if group is None:
        return []
    here = f"{md(at(findings, group.value))} failed {of(len(group.trials), len(group.trials))}"
    if findings.controls:
        return [_of_control(name, trials, here) for name, trials in findings.controls.items()]
    alone = f"{md(findings.run.axis.name)} alone is enough"
    return [(alone, here, "-", "a control with one other thing changed", "the same value with one thing changed")]


def _of_control(name: str, trials: TrialSet, here: str) -> tuple[str, ...]:
    """Whether the failure needs what a control takes away: decided where it passed every time, and more than once."""
    passes = f"control {code(name)}: {of(trials.passed, len(trials))} passed"
    claim = f"it needs what control {code(name)} takes away"
    again = f"control {code(name)} again"
    if not trials.has_passed:
        return (claim, here, passes, "more passes of the control", again)
    if len(trials) == 1:
        return (claim, f"{here}; {passes}", "-", "more passes of the control", again)
    return (claim, f"{here}; {passes}", "-", "-", "decided at this value")


def _slow_not_hung(findings: Findings, record: TrialRecord) -> tuple[str, ...]:
    predicted = record.trial.prediction
    against: list[str] = []
    evidence = findings.evidence_of(record)
    if evidence is not None and seen.used_no_cpu(evidence):
        against.append("nothing moved while it was watched")
    if predicted:
        against.append(f"a silence of up to {seconds(predicted.silence_high_s)} was taken as healthy here")
    return (
        "a slow step, not a hang",
        "-",
        md("; ".join(against)) or "-",
        "-" if predicted else "a trial that passed nearby, to predict from",
        _longer_silence(findings, record),
    )


def _longer_silence(findings: Findings, record: TrialRecord) -> str:
    """More of the limit that ended a silence, or none of it; where no limit ended it, none would: the program alone."""
    budget, reason = record.trial.budget, record.outcome.stopped_by
    option, name, enough_s = "--stall", "stall", 60.0  # of a silence that its own pace ended: a limit takes its place
    if reason in (StopReason.STALL, StopReason.STARTUP):
        is_stall = reason is StopReason.STALL
        option, name = ("--stall", "stall") if is_stall else ("--startup", "start-up")
        enough_s = TEN_TIMES * (budget.stall if is_stall else budget.startup).seconds
    elif reason is not StopReason.PACE:
        text = "start it without nsa-harness, and look later with nsa-harness watch PID: a slow step comes to its end"
        commands = findings.answer.commands
        return f"{text}: {code(' '.join(commands[0].line))}" if commands else text
    invocation = findings.run.invocation
    again = "" if invocation is None else invocation.having(option, f"{math.ceil(enough_s)}s").argv
    text = f"the same with the {name} limit at {seconds(enough_s)}"
    return f"{text}: {code(shlex.join(again))}" if again else text


def _hung_not_slow(findings: Findings, record: TrialRecord) -> tuple[str, ...]:
    steps = len(record.measurement.step_s)
    longer = more_time_along(findings) if record.outcome.stopped_by is StopReason.TOTAL else None
    if longer is None:
        decides = _longer_silence(findings, record)
    elif longer.command:
        decides = f"the same with more time: {code(shlex.join(longer.command))}"
    else:
        decides = f"the same with a total limit above {seconds(4 * record.trial.budget.total.seconds)}"
    return (
        "a hang, not a slow step",
        "-",
        md(f"{steps} steps were finished, and it still made progress when the limit ran out"),
        "the end of the trial: it was cut off",
        decides,
    )


def _of_pairs(findings: Findings) -> str:
    """Every axis with the cells that differ in nothing else, slow ones too."""
    rows: list[tuple[object, ...]] = []
    for pairs in sorted(findings.pairs, key=lambda pairs: -len(pairs.different)):
        one, other = (pairs.different or pairs.alike or pairs.incomparable)[0]
        example = f"{_end(findings, one, pairs.axis)} and {_end(findings, other, pairs.axis)}"
        alike, different, incomparable = len(pairs.alike), len(pairs.different), len(pairs.incomparable)
        rows.append((code(pairs.axis), pairs.total, alike, different, incomparable, md(example)))
    head = ("only this differs", "pairs", "ended alike", "differently", "other limits", "for example")
    body = table(head, rows, right=(1, 2, 3, 4))
    return f"Pairs of cells that differ in one axis only, whatever they ended in:\n\n{body}"


def _end(findings: Findings, cell: Point, axis: str) -> str:
    return f"{assignment(axis, cell.get(axis))} {findings.endings[cell]}"


def _of_failure(findings: Findings, failure: FailureTable) -> str:
    by_axis: dict[str, dict[AxisFinding, AxisVerdict]] = {}
    for verdict in failure.axes:
        by_axis.setdefault(verdict.axis, {})[verdict.finding] = verdict
    in_pairs = {axis: _in_pairs(findings, axis, failure.failure) for axis in by_axis}

    def weight(axis: str) -> tuple[bool, bool]:
        return (AxisFinding.IMPLICATED not in by_axis[axis], in_pairs[axis][0] == "-")

    rows = [_row(findings, axis, by_axis[axis], in_pairs[axis]) for axis in sorted(by_axis, key=weight)]
    head = f"**{md(failure.failure)}**, in {count(failure.cells, 'cell')} and {count(failure.trials, 'trial')}. "
    text = f"{head}Each row asks whether the failure depends on one axis; a pair of cells that differ only there tells."
    return f"{text}{_where(findings, failure)}\n\n{table(HEAD, rows)}"


def _where(findings: Findings, failure: FailureTable) -> str:
    """In which settings a failure of several cells was seen, or in which combinations; empty where nothing tells."""
    if failure.cells < 2:
        return ""
    place = where(findings, failure.failure)
    if place:
        return f"\n\nIt was seen {md(place)}."
    combinations = [str(one) for one in failure.interactions if one.failed][:8]
    return f"\n\nCombinations that failed and never passed: {md('; '.join(combinations))}." if combinations else ""


def _in_pairs(findings: Findings, axis: str, failure: str) -> tuple[str, str]:
    """For and against: pairs that differ in ``axis`` only, one side failed so and the other passed or failed too."""
    named, pairs = findings.named, findings.pairs_along(axis)
    other = alike = 0
    for one, two in pairs.different:
        sides = (named.get(one), named.get(two))
        other += {failure} in sides and {"PASS"} in sides
    for one, two in pairs.alike:
        alike += named.get(one) == named.get(two) == {failure}
    of_all = f"of {count(other + alike, 'pair')} that differ only here ended"
    return (f"{other} {of_all} differently" if other else "-", f"{alike} {of_all} alike" if alike else "-")


def _row(
    findings: Findings, axis: str, by_kind: dict[AxisFinding, AxisVerdict], in_pairs: tuple[str, str]
) -> tuple[str, ...]:
    against = (_sentence(findings, by_kind[finding]) for finding in AGAINST if finding in by_kind)
    for_, missing = by_kind.get(AxisFinding.IMPLICATED), by_kind.get(AxisFinding.UNTESTED)
    return (
        f"depends on {code(axis)}",
        _sentence(findings, for_) if for_ else in_pairs[0],
        "; ".join(against) or in_pairs[1],
        md(missing.because) if missing else "-",
        _decides(findings, axis, by_kind),
    )


def _sentence(findings: Findings, verdict: AxisVerdict) -> str:
    cells = listed((code(findings.name_of(c.cell)) for c in verdict.cells), most=2)
    return f"{verdict.finding.value}: {md(verdict.because)}" + (f" ({cells})" if cells else "")


def _decides(findings: Findings, axis: str, by_kind: dict[AxisFinding, AxisVerdict]) -> str:
    factor = findings.run.spec.matrix.space.factor(axis)
    if AxisFinding.INERT in by_kind:
        return "a value that changes what runs"
    if AxisFinding.IMPLICATED in by_kind:
        return "decided for the cells named"
    if AxisFinding.NOT_NECESSARY in by_kind:
        return "decided: it failed without it"
    changed = code(axis if factor.good == factor.bad else assignment(axis, factor.good))
    return f"the failing cell with only {changed} changed, passing as often as the certificate asks"


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A question, its answer, and what the answer rests on; ``other`` is what the other branch would have meant."""

    question: str
    answer: str
    rests_on: str
    other: str


def tree_section(findings: Findings) -> Block | None:
    """The tree of the trial that the report is about; None when there is none, or nothing was kept of it."""
    subject = findings.subject_evidence
    if subject is None:
        return None
    record, evidence = subject
    lines: list[str] = []
    for depth, node in enumerate(branch(record, evidence)):
        pad = "   " * depth
        lines += [
            f"{pad}{node.question}",
            f"{pad}├─ {node.answer}   ({node.rests_on})",
            f"{pad}│     else: {node.other}",
        ]
    lines.append("   " * (len(lines) // 3) + f"└─ {record.verdict}, confidence {record.verdict.confidence}")
    gaps = missing(record, evidence)
    text = bullets(gaps) if gaps else "Nothing that this harness knows to look at."
    return Block(title="Decision tree", markdown=f"{fence(chr(10).join(lines))}\n\n**Missing:**\n\n{text}")


def branch(record: TrialRecord, evidence: Evidence) -> list[TreeNode]:
    """The questions up to the verdict, in order."""
    outcome = record.outcome
    if outcome.ending is Ending.NEVER_STARTED:
        return [TreeNode("Did it start?", "no", md(outcome.why) or "exit", "its end would tell")]
    if outcome.ending in (Ending.EXITED, Ending.SIGNALLED):
        how = f"yes, {(outcome.exit and outcome.exit.words) or 'exit code ?'}"
        by_itself = TreeNode("Did it end by itself?", how, "exit", "a limit would have ended it: slow or hung")
        return [by_itself, *_raised(evidence.result_of(record.verdict.rank))]
    goes_on = outcome.ending is Ending.STILL_RUNNING
    answer = "no, we ended it"
    if goes_on:
        answer = "no, it was still running" if outcome.exit is None else "yes, while it was watched"
    nodes = [
        TreeNode("Did it end by itself?", answer, "exit", "its exit code or signal would tell"),
        _progress(record, evidence),
    ]
    if record.verdict.kind not in (Kind.SLOW, Kind.BELOW_TARGET):
        nodes += list(filter(None, (_moved(evidence), _same(evidence), _together(evidence))))
    return nodes


def _raised(result: WorkerResult | None) -> list[TreeNode]:
    title = "Did the worker say why?"
    if result is None:
        return [TreeNode(title, "no", "result", "an exception with its traceback")]
    if result.exception is None:
        return [TreeNode(title, f"it said: {result.status}", result.id, "an exception")]
    where = f" in {result.phase}" if result.phase else ""
    return [TreeNode(title, f"yes, {result.exception}{where}", result.id, "killed from outside, or in C code")]


def _progress(record: TrialRecord, evidence: Evidence) -> TreeNode:
    training = is_training(evidence)
    limit = silence_limit(record.trial.budget, training=training)
    silent = evidence.silence_s
    watched_s = record.outcome.duration_s if record.outcome.ending is Ending.STILL_RUNNING else None
    is_moving = record.verdict.kind in (Kind.SLOW, Kind.BELOW_TARGET)
    silence = f"silent for {seconds(silent)}"
    if not limit.is_endless:
        silence += f", the {'stall' if training else 'start-up'} limit is {seconds(limit.seconds)}"
    answer = "yes, still" if is_moving else "no"
    if watched_s is not None and not evidence.heartbeats_total:
        silence = ", ".join([f"watched for {seconds(watched_s)}", *_did(evidence)])
        if not is_moving and record.verdict.kind not in FAILURES:
            answer = "not known: of a job that it did not start, a watch sees no marks"
    other = "silent: hung, or one long step" if is_moving else "progress: slow, however long it takes"
    until = "to the end" if watched_s is None else "while it was watched"
    return TreeNode(f"Did it make progress {until}?", answer, f"progress: {silence}", other)


def _did(evidence: Evidence) -> list[str]:
    """What it read and wrote meanwhile, where nothing disturbed it."""
    io_bytes = sum(window.io_bytes for window in _windows(evidence))
    return [f"{io_bytes} bytes of I/O"] if io_bytes else []


def _windows(evidence: Evidence) -> list[Window]:
    by_rank = grouped(evidence.processes, lambda look: look.rank)
    return list(chain.from_iterable(map(quiet_windows, by_rank.values())))


def _moved(evidence: Evidence) -> TreeNode | None:
    windows = _windows(evidence)
    if not windows:
        return None
    still = all(window.still for window in windows)
    cpu_s, watched_s = sum(window.cpu_s for window in windows), sum(window.seconds for window in windows)
    ids = dict.fromkeys(window.last for window in windows)
    usage = f"{cpu_s:.2f} s CPU in {seconds(watched_s)}, {listed(ids, most=3)}"
    answer = "no, everything waits" if still else "yes"
    return TreeNode("Did anything move while nobody disturbed it?", answer, usage, "busy" if still else "waiting")


def _same(evidence: Evidence) -> TreeNode | None:
    by_source: dict[tuple[int, str, bool], list[ThreadStack]] = {}
    for sample in evidence.stacks:
        thread = deciding_thread(sample)
        if thread:
            by_source.setdefault((sample.rank, sample.source, sample.native), []).append(thread)
    number, is_same = 0, True
    for threads in by_source.values():
        if len(threads) > 1:
            number += len(threads)
            is_same = is_same and all(same_frames(threads[0], other) for other in threads)
    if not number:
        return None
    samples = f"{count(number, 'sample')}: {listed(sample.id for sample in evidence.stacks)}"
    title = "Were the stacks the same each time?"
    if is_same:
        return TreeNode(title, "yes, line by line", samples, "moving: slow or looping")
    return TreeNode(title, "no, they differ", samples, "stuck in one place")


def _together(evidence: Evidence) -> TreeNode | None:
    latest = {sample.rank: deciding_thread(sample) for sample in evidence.stacks}
    if len(latest) < 2:
        return None
    places = different_places(filter(None, latest.values()))
    answer = "yes" if places == 1 else f"no, in {count(places, 'place')}"
    ranks = f"{count(len(latest), 'rank')}, last sample of each"
    other = "they wait for each other" if places == 1 else "all alike"
    return TreeNode("Were all ranks in the same place?", answer, ranks, other)


def missing(record: TrialRecord, evidence: Evidence) -> list[str]:
    """What was not seen and could have been."""
    gaps = [f"{md(f.source)}: {md(f.reason)}" for f in evidence.failures]
    stopped = record.outcome.ending is Ending.STOPPED_BY_US
    if stopped and not evidence.stacks:
        gaps.append("no stack of any thread")
    elif stopped and not any(sample.native for sample in evidence.stacks):
        gaps.append("no C frames: where a call of compiled code waits is not known")
    goes_on = record.outcome.ending is Ending.STILL_RUNNING
    if record.verdict.kind is Kind.SLOW and not goes_on and not record.measurement.step_s:
        phase = f" after {record.verdict.phase}" if record.verdict.phase else ""
        gaps.append(f"no step came to its end: what comes{phase} was not seen")
    if stopped and record.verdict.kind is Kind.HANG and record.trial.prediction is None:
        gaps.append("no trial like it had passed, so the healthy time was not predicted")
    if evidence.ranks and not evidence.collectives:
        gaps.append("no record of the collectives that each rank had begun")
    if record.trial.target == "nsa" and not evidence.config_seen:
        gaps.append("no echo of the configuration from the worker")
    return gaps
