"""The trial says nothing about the program: interrupted, never run, lost, not to be ended, or not what was asked for.

Nor does one during which a GPU itself failed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import conclude, stopped_by_limit
from harness.classify.signs import gpus_of
from harness.core.outcome import USER_ASKED, Ending, Exit, StopReason
from harness.core.verdict import NEVER_STARTED, Confidence, Kind
from harness.reading.waits import ASKED_BY

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict
    from harness.reading.gpus import GpuView

DISK_FULL = ("No space left on device", "Disk quota exceeded")
_OF_THE_SYSTEM = re.compile(r"\[Errno (28|122)\]|(^|: |')(No space left on device|Disk quota exceeded)\b")
"""The same as an exception hands it on, and not one that only speaks of it."""

MARKS_LOST = "heartbeats cannot be written"
"""What the worker says on standard error when nobody can see its progress any more."""
NO_TRIAL = "LaunchError: no readable trial"
EX_IOERR = 74
"""The worker's exit code when it could not write its result."""

NAMED = 5
"""Settings that the trial did not have and that are named one by one."""

HARDWARE = {
    48: "double-bit memory error",
    62: "internal micro-controller halted",
    63: "memory row remapped or page retired",
    64: "memory row could not be remapped",
    74: "NVLink error",
    79: "fell off the bus",
    92: "high rate of single-bit errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timed out",
    110: "security fault",
    119: "GSP did not answer",
    120: "GSP failed",
    136: "link training failed",
    140: "unrecovered memory error",
}
"""Xids that the hardware or its firmware causes (NVIDIA, "XID Errors"); the others, 13 31 43 45 ..., programs cause."""


def interrupted(case: Case) -> Verdict | None:
    """The user ended it, or a signal did."""
    if case.outcome.stopped_by is not StopReason.INTERRUPT:
        return None
    who = case.outcome.why or USER_ASKED
    because = f"{who} after {case.outcome.duration_s:.1f} s, before anything was decided"
    return conclude(
        case,
        Kind.UNRESOLVED,
        cause="interrupted",
        because=because,
        cites=("exit",),
        confidence=Confidence.PROOF,
    )


def infra(case: Case) -> Verdict | None:
    """The instrument or the machine failed, not the program."""
    fault = (
        _never_started(case)
        or _without_exit(case)
        or _ended_by_our_look(case)
        or _without_marks(case)
        or _not_written(case)
    )
    if fault is None:
        return None
    cause, because, cites = fault
    return conclude(case, Kind.INFRA, cause=cause, because=because, cites=cites, confidence=Confidence.PROOF)


def _never_started(case: Case) -> tuple[str, str, tuple[str, ...]] | None:
    if case.outcome.ending is not Ending.NEVER_STARTED:
        return None
    return NEVER_STARTED, f"the trial never started: {case.outcome.why or 'no reason was given'}", ("exit",)


def _without_exit(case: Case) -> tuple[str, str, tuple[str, ...]] | None:
    outcome = case.outcome
    if outcome.ending in (Ending.STOPPED_BY_US, Ending.STILL_RUNNING) or outcome.exit not in (None, Exit()):
        return None
    why = f": {outcome.why}" if outcome.why else ""
    return "end-unseen", f"nobody saw how the process ended after {outcome.duration_s:.1f} s{why}", ("exit",)


def _ended_by_our_look(case: Case) -> tuple[str, str, tuple[str, ...]] | None:
    """A process that becomes another program between our look at its handlers and our signal has no handler for it."""
    exit_ = case.outcome.exit
    if exit_ is None or exit_.signal not in ASKED_BY:
        return None
    because = f"ended by signal {exit_.signal}, by which we ask for stacks: the end is ours and not the program's"
    return "ended-by-our-look", because, ("exit",)


def _without_marks(case: Case) -> tuple[str, str, tuple[str, ...]] | None:
    if not stopped_by_limit(case):
        return None
    for log in case.evidence.logs:
        for line in log.text.splitlines():
            if MARKS_LOST in line:
                return "marks-lost", f"its silence is ours: {log.stream} says {line.strip()!r}", (log.id, "progress")
    return None


def _not_written(case: Case) -> tuple[str, str, tuple[str, ...]] | None:
    result = case.evidence.result
    if result is not None and result.status == "raised" and _OF_THE_SYSTEM.search(result.message or ""):
        return "disk-full", f"the worker could not write: {result.exception}: {result.message}", (result.id, "exit")
    exit_ = case.outcome.exit
    if result is not None or exit_ is None or exit_.code in (0, None):
        return None
    if exit_.code == EX_IOERR:
        return "result-lost", f"exit code {EX_IOERR}: the worker was done but could not write its result", ("exit",)
    for log in case.evidence.logs:
        for text in (*DISK_FULL, NO_TRIAL):
            if text in log.text:
                cause = "no-trial" if text == NO_TRIAL else "disk-full"
                return cause, f"the worker left no result, and {log.stream} says {text!r}", (log.id, "exit")
    return None


def xid(case: Case) -> Verdict | None:
    """An Xid of the hardware during the trial, on a GPU that it used."""
    faults: list[tuple[GpuView, int]] = []
    for gpu in gpus_of(case, silent=False):
        faults += [(gpu, number) for number in gpu.xids if number in HARDWARE]
    if not faults:
        return None
    gpu, number = faults[0]
    description = "; ".join(f"GPU {g.index}: Xid {n} ({HARDWARE[n]})" for g, n in faults)
    verdict = conclude(
        case,
        Kind.INFRA,
        cause=f"xid-{number}",
        because=f"the driver reported a fault of the hardware during the trial: {description}",
        cites=(*(s.id for s in gpu.samples if number in s.xids), "exit"),
        confidence=Confidence.PROOF,
    )
    return _of_its_rank(case, gpu, verdict)


def _of_its_rank(case: Case, gpu: GpuView, verdict: Verdict) -> Verdict:
    """The same of the first rank that was on the GPU, where one was."""
    pids: set[int | None] = set()
    for sample in gpu.samples:
        pids.update(process.pid for process in sample.processes)
    for facts in case.evidence.ranks:
        if facts.pid in pids:
            return replace(verdict, rank=facts.rank)
    return verdict


def misconfigured(case: Case) -> Verdict | None:
    """Requested settings that the effective configuration does not have."""
    differences = case.evidence.config_differences
    if not differences:
        return None
    more = f" and {len(differences) - NAMED} more" if len(differences) > NAMED else ""
    return conclude(
        case,
        Kind.UNRESOLVED,
        cause="misconfigured",
        because=f"the trial did not run what was asked: {'; '.join(differences[:NAMED])}{more}",
        cites=("config",) if case.evidence.config_seen else ("progress",),
        confidence=Confidence.PROOF,
    )
