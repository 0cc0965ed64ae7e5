"""Memory ran out: the allocator said so, or the kernel killed the process for it. And whether it had leaked before."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from signal import SIGABRT, SIGKILL
from typing import TYPE_CHECKING

from harness.classify.facts import OF_A_SIGNAL, conclude, log_with
from harness.classify.messages import OUT_OF_MEMORY, carried, first_line
from harness.classify.signature import fatal_names, raised_names
from harness.core.outcome import Ending
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.devices import MemoryMark
    from harness.core.evidence import LogTail, WorkerResult
    from harness.core.verdict import Case, Verdict

EXCEPTIONS = frozenset({"MemoryError", "_ArrayMemoryError", "OutOfMemoryError"})
"""What they are called that allocators raise; the second is numpy's."""

_ON_A_GPU = re.compile(r"CU(DA|DNN|BLAS)|HIP|GPU|NCCL|XPU|Cuda")
"""What such a message names where the memory was a GPU's; torch's own exception is of no other."""

_KILLED_CHILD = re.compile(
    r"died with <Signals\.SIGKILL: 9>|returned non-zero exit status 137\b|is killed by signal: Killed|"
    r"terminated abruptly while|process \d+ terminated with signal SIGKILL"
)
"""What whoever waited for a process says of it when SIGKILL ended it: subprocess, torch's loader, its spawn, a pool of
concurrent.futures, which does not tell the signal."""

MARKS = 5
"""Steps that it takes to speak of growth; the first one, which builds caches and optimizer state, not counted."""

STEADY = 0.5
"""How far a step's growth may be from the typical one's, as a share of it, for most steps."""

LARGE = 0.25
"""Share of what it held in the end that must have come by this growth."""


def oom(case: Case) -> Verdict | None:
    """An allocator's exception, an abort by it, or a SIGKILL that we did not send and a memory limit that was hit."""
    result, outcome = case.evidence.result, case.outcome
    raised = result if result is not None and result.status == "raised" else None
    if case.evidence.memory_limit_hits and (ended := _who_was_killed(case, raised)):
        return _killed(case, ended, raised)
    if raised is not None:
        return _raised(case, raised)
    if outcome.ending is Ending.SIGNALLED and outcome.exit is not None and outcome.exit.signal == SIGABRT:
        log = log_with(case, OUT_OF_MEMORY.search)
        return _aborted(case, log) if log is not None else None
    return None


def gpu_oom(case: Case) -> Verdict | None:
    """The OOM verdict where it was a GPU's memory that ran out: what other processes hold there has a part in it."""
    verdict, result = oom(case), case.evidence.result
    if verdict is None or result is None:
        return verdict if verdict is not None and _ON_A_GPU.search(verdict.because) else None
    is_a_gpus = result.bare == "OutOfMemoryError" or _ON_A_GPU.search(result.message or "")
    return verdict if is_a_gpus else None


def memory_leak(case: Case) -> Verdict | None:
    """The OOM verdict with this cause, when the same amount came with nearly every step and makes up a large part."""
    verdict = oom(case)
    if verdict is None:
        return None
    marks = memory_marks(case, rank=verdict.rank or 0)[1:]
    for where, sizes in (
        ("on the GPU", [mark.gpu_allocated_bytes for mark in marks]),
        ("of the process", [mark.rss_bytes for mark in marks]),
    ):
        if (growth := steady_growth(sizes)) is not None:
            return _leak(verdict, marks, growth, sizes, where=where)
    return None


def memory_marks(case: Case, *, rank: int) -> list[MemoryMark]:
    """What one rank said of its memory at the ends of steps, in order."""
    return [mark for mark in case.evidence.measurement.memory if mark.rank == rank]


def steady_growth(sizes: Sequence[float]) -> float | None:
    """Bytes that came with nearly every step; None when memory did not grow so."""
    if len(sizes) < MARKS:
        return None
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    typical = sorted(steps)[len(steps) // 2]
    steady = sum(abs(step - typical) <= STEADY * typical for step in steps)
    if typical <= 0 or steady < 0.8 * len(steps) or sizes[-1] - sizes[0] < LARGE * sizes[-1]:
        return None
    return typical


def _leak(
    verdict: Verdict, marks: Sequence[MemoryMark], growth: float, sizes: Sequence[float], *, where: str
) -> Verdict:
    mib = 2**20
    because = (
        f"memory {where} grew by {growth / mib:.1f} MiB with every step, from {sizes[0] / mib:.0f} MiB after step "
        f"{marks[0].step} to {sizes[-1] / mib:.0f} MiB after step {marks[-1].step}, until it ran out: {verdict.because}"
    )
    cites = tuple(dict.fromkeys((*verdict.cites, "progress")))
    name = (verdict.signature or "OOM").replace("OOM", "OOM memory-leak", 1)
    return replace(
        verdict,
        cause="memory-leak",
        because=because,
        cites=cites,
        confidence=Confidence.HIGH,
        signature=name,
    )


def _raised(case: Case, result: WorkerResult) -> Verdict | None:
    if EXCEPTIONS.isdisjoint((result.bare, carried(result)[0])) and not OUT_OF_MEMORY.search(result.message or ""):
        return None
    names = raised_names(result)
    exception = f"{result.bare}: {first_line(result.message)}" if result.message else result.bare
    where = f" in {names[0]}" if names else ""
    return conclude(
        case,
        Kind.OOM,
        because=f"the allocator refused{where}: {exception}",
        cites=(result.id, "exit"),
        confidence=Confidence.PROOF,
        phase=result.phase,
        names=names,
    )


def _who_was_killed(case: Case, raised: WorkerResult | None) -> str:
    """Whom SIGKILL ended, by the end of the whole or the exception of whoever waited for it; empty for any other end.

    A shell hands on that its command was killed.
    """
    if raised is not None:
        tells = _KILLED_CHILD.search(raised.message or "") is not None
        return f"a process of it ({raised.bare}: {first_line(raised.message)})" if tells else ""
    exit_ = case.outcome.exit
    if exit_ is None or case.outcome.ending not in (Ending.SIGNALLED, Ending.EXITED):
        return ""
    if exit_.signal == SIGKILL:
        return "it"
    return f"a command of it (exit status {exit_.code})" if exit_.code == OF_A_SIGNAL + SIGKILL else ""


def _killed(case: Case, ended: str, raised: WorkerResult | None) -> Verdict:
    hits, peak = case.evidence.memory_limit_hits, case.evidence.measurement.peak_rss_bytes
    return conclude(
        case,
        Kind.OOM,
        cause="killed-by-kernel",
        because=f"the kernel ended {ended} with SIGKILL after {hits} hit(s) of the memory limit, at a peak of "
        f"{peak} bytes",
        cites=("exit", "progress", *((raised.id,) if raised else ())),
        confidence=Confidence.PROOF,
        phase=raised.phase if raised else None,
        names=raised_names(raised) if raised else (),
    )


def _aborted(case: Case, log: LogTail) -> Verdict:
    line = next(filter(OUT_OF_MEMORY.search, log.text.splitlines())).strip()
    return conclude(
        case,
        Kind.OOM,
        because=f"SIGABRT, and {log.stream} says: {line}",
        cites=("exit", log.id),
        confidence=Confidence.PROOF,
        names=fatal_names(log.text),
    )
