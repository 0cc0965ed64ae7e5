"""Memory ran out: the allocator said so, or the kernel killed the process for it. And whether it had leaked before."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from signal import SIGABRT, SIGKILL
from typing import TYPE_CHECKING

from harness.classify.facts import conclude, log_with
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

MARKS = 5
"""Steps that it takes to speak of growth; the first one, which builds caches and optimizer state, not counted."""

STEADY = 0.5
"""How far a step's growth may be from the typical one's, as a share of it, for most steps."""

LARGE = 0.25
"""Share of what it held in the end that must have come by this growth."""


def oom(case: Case) -> Verdict | None:
    """An allocator's exception, an abort by it, or a SIGKILL that we did not send and a memory limit that was hit."""
    result = case.evidence.result
    if result is not None and result.status == "raised":
        return _raised(case, result)
    outcome = case.outcome
    if outcome.ending is not Ending.SIGNALLED or outcome.exit is None:
        return None
    if outcome.exit.signal == SIGKILL and case.evidence.memory_limit_hits:
        return _killed(case)
    if outcome.exit.signal == SIGABRT:
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


def _killed(case: Case) -> Verdict:
    hits, peak = case.evidence.memory_limit_hits, case.evidence.measurement.peak_rss_bytes
    return conclude(
        case,
        Kind.OOM,
        cause="killed-by-kernel",
        because=f"the kernel ended it with SIGKILL after {hits} hit(s) of the memory limit, at a peak of {peak} bytes",
        cites=("exit", "progress"),
        confidence=Confidence.PROOF,
        names=(),
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
