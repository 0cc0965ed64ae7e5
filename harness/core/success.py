"""Success: what a trial must show beyond exit status 0 to count as a pass."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """What a trial must also show to pass; missing it is BELOW_TARGET or NONFINITE, never HANG.

    ``require`` and ``forbid`` are regular expressions on its output. ``loss`` is ``finite`` or ``decreasing``.
    ``gradients`` is ``true`` where the first step's are to be compared with those of a plain pass.
    """

    steps: int | None = None
    max_memory_gb: float | None = None
    min_tokens_per_s: float | None = None
    loss: str | None = None
    gradients: str | None = None
    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()


PASSES = Success()
