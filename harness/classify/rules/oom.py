"""Memory ran out: the allocator said so, or the kernel killed the process for it."""

from __future__ import annotations

import re
from signal import SIGABRT, SIGKILL
from typing import TYPE_CHECKING

from harness.classify.facts import conclude
from harness.classify.signature import fatal_names, signature, traceback_names
from harness.core.outcome import Ending
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.evidence import LogTail, WorkerResult
    from harness.core.verdict import Case, Verdict

EXCEPTIONS = frozenset({"MemoryError", "OutOfMemoryError"})
MESSAGE = re.compile(r"can't allocate memory|cannot allocate memory|out of memory|std::bad_alloc", re.IGNORECASE)
"""What torch's CPU and CUDA allocators, the C library and C++ say."""


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
        log = next((log for log in case.evidence.logs if MESSAGE.search(log.text)), None)
        return _aborted(case, log) if log is not None else None
    return None


def _raised(case: Case, result: WorkerResult) -> Verdict | None:
    if result.bare not in EXCEPTIONS and not MESSAGE.search(result.message or ""):
        return None
    names = traceback_names(result.traceback or "")
    said = f"{result.bare}: {first_line(result.message)}" if result.message else result.bare
    where = f" in {names[0]}" if names else ""
    return conclude(
        case,
        Kind.OOM,
        because=f"the allocator refused{where}: {said}",
        cites=(result.id, "exit"),
        confidence=Confidence.PROOF,
        phase=result.phase,
        signature=signature(Kind.OOM, None, names),
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
        signature=signature(Kind.OOM, "killed-by-kernel", ()),
    )


def _aborted(case: Case, log: LogTail) -> Verdict:
    line = next(line.strip() for line in log.text.splitlines() if MESSAGE.search(line))
    return conclude(
        case,
        Kind.OOM,
        because=f"SIGABRT, and {log.stream} says: {line}",
        cites=("exit", log.id),
        confidence=Confidence.PROOF,
        signature=signature(Kind.OOM, None, fatal_names(log.text)),
    )


def first_line(text: str | None) -> str:
    """The first line of ``text`` that is not empty, at most 200 characters."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[0][:200] if lines else ""
