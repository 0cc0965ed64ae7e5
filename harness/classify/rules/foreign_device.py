"""Somebody else's process was on the GPU of a trial that ran out of memory or time: no fault of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import conclude
from harness.classify.rules.oom import gpu_oom
from harness.classify.rules.slow import slow
from harness.classify.signs import gpus_of
from harness.classify.views import cited
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict


def foreign_device(case: Case) -> Verdict | None:
    """Only where it can be the reason: a GPU's memory and speed are shared, a deadlock or an exception is its own."""
    shared = [gpu for gpu in gpus_of(case, silent=False) if gpu.foreign]
    own = (gpu_oom(case) or slow(case)) if shared else None
    if own is None:
        return None
    holders: list[str] = []
    for gpu in shared:
        for other in gpu.foreign:
            uses = f" and uses {other.sm_percent} % of its time" if other.sm_percent is not None else ""
            mib = (other.memory_bytes or 0) / 2**20
            holders.append(f"GPU {gpu.index}: PID {other.pid} holds {mib:.0f} MiB{uses}")
    return conclude(
        case,
        Kind.INFRA,
        cause="foreign-process",
        because=f"the trial shared its GPU with a process that is not part of it ({'; '.join(holders)}); without that "
        f"it would be called {own}: {own.because}",
        cites=(*cited(shared), *own.cites),
        confidence=Confidence.HIGH,
    )
