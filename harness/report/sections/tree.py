"""Decision tree: the questions that the evidence answers in turn, the branch it took, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from harness.core.outcome import Ending
from harness.core.ports import Block
from harness.core.verdict import FAILURES, Kind
from harness.reading.frames import deciding_thread, different_places, same_frames
from harness.reading.pace import is_training, silence_limit
from harness.reading.stillness import quiet_windows
from harness.report.text import bullets, count, fence, listed, md, seconds
from harness.report.tried import grouped

if TYPE_CHECKING:
    from harness.core.evidence import Evidence, ThreadStack, WorkerResult
    from harness.core.record import TrialRecord
    from harness.reading.stillness import Window
    from harness.report.findings import Findings


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
    still = True
    cpu_s: list[float] = []
    watched_s: list[float] = []
    ids: dict[str, None] = {}
    for window in windows:
        still = still and window.still
        cpu_s.append(window.cpu_s)
        watched_s.append(window.seconds)
        ids[window.last] = None
    usage = f"{sum(cpu_s):.2f} s CPU in {seconds(sum(watched_s))}, {listed(ids, most=3)}"
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
