"""Asks the stack sources in order until one answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.evidence import SourceFailure, StackSample

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.ports import StackSource

NATIVE_BY = "pystack"
"""Who is asked for native frames before all others: with CUDA loaded it takes 0.3 s of CPU for them and a pause of 0.2
s, py-spy 0.9 and 0.5 s (bench/results/native-stacks-2026-11-22.md)."""


def sample_all(
    sources: Sequence[StackSource],
    *,
    pid: int,
    rank: int,
    t_s: float,
    native: bool,
    number: int,
    trial_dir: Path,
) -> tuple[StackSample | None, tuple[SourceFailure, ...]]:
    """The first sample that a source gives, and why those before it gave none.

    With ``native``, all sources are first asked for native frames, ``NATIVE_BY`` before the others; Python frames are
    taken when none has them.
    A source that can only answer by disturbing the process refuses to when native frames are asked for, so it comes
    last of all.
    """
    failures: list[SourceFailure] = []
    second_best: StackSample | None = None
    for want_native in (True, False) if native else (False,):
        for source in sorted(sources, key=lambda s: s.name != NATIVE_BY) if want_native else sources:
            answer = source.sample(pid=pid, rank=rank, t_s=t_s, native=want_native, number=number, trial_dir=trial_dir)
            if isinstance(answer, SourceFailure):
                failures.append(answer)
            elif answer.native or not want_native:
                return _with_stops(answer, failures)
            else:
                second_best = second_best or answer
        if second_best is not None:
            break
    return _with_stops(second_best, failures)


def _with_stops(
    sample: StackSample | None, failures: Sequence[SourceFailure]
) -> tuple[StackSample | None, tuple[SourceFailure, ...]]:
    """The sample, for which the process was also stopped by whoever failed before, and the failures."""
    in_vain_s = sum(failure.stopped_s for failure in failures)
    if sample is not None and in_vain_s:
        sample = replace(sample, stopped_s=sample.stopped_s + in_vain_s)
    return sample, tuple(failures)
