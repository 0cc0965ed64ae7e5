"""The driver reported that a GPU itself failed: nothing that the trial did afterwards speaks about the program."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import conclude
from harness.classify.signs import gpus_of
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict

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


def xid(case: Case) -> Verdict | None:
    """An Xid of the hardware during the trial, on a GPU that it used."""
    faults = [(gpu, number) for gpu in gpus_of(case, silent=False) for number in gpu.xids if number in HARDWARE]
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
    pids = {process.pid for sample in gpu.samples for process in sample.processes}
    return replace(verdict, rank=next((r.rank for r in case.evidence.ranks if r.pid in pids), verdict.rank))
