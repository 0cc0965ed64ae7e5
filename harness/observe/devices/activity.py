"""What the units of a GPU did between two looks, by NVML's performance monitor: Hopper and newer.

It needs no rights and nothing of the trial; a sample takes .2 to .7 ms on an H200. Older cards, parts of a card (MIG)
and old drivers do not tell, and none does of a moment: of .06 s an H200 answers nought for every unit and no number for
its memory.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from harness.core.devices import GpuActivity

INTEGER, TENSOR, MEMORY, FP64, FP32, FP16 = UNITS = (4, 5, 10, 11, 12, 13)
"""NVML's numbers of what it counts (``NVML_GPM_METRIC_...``): each a percentage of the peak."""

TENSOR_FLOOR = 2.0
"""Percent of the tensor cores' time that means nothing: atomic operations of whole numbers read .76 there."""

SHORTEST_S = 0.25
"""Seconds below which nothing is asked; NVML's own bound is .1."""


class Activity:
    """Counts from look to look, for one GPU; ``nvml`` is the library."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._before: Any = None
        self._before_s = 0.0
        self._tells = bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)

    def until(self, now_s: float) -> GpuActivity | None:
        """What was done since it was asked before; None the first time, too soon, and where the card does not tell.

        Who asked too soon is told of that time, too, when it asks again.

        Raises:
            NVMLError: the driver tells no longer.
        """
        if not self._tells or (self._before is not None and now_s - self._before_s < SHORTEST_S):
            return None
        now = self._nvml.nvmlGpmSampleAlloc()
        self._nvml.nvmlGpmSampleGet(self._handle, now)
        percent = None if self._before is None else self._between(self._before, now)
        if self._before is not None:
            spare = self._before if percent is not None else now  # without an answer the next one is of this time, too
            self._nvml.nvmlGpmSampleFree(spare)
        if self._before is None or percent is not None:
            self._before, self._before_s = now, now_s
        if percent is None:
            return None
        tensor = percent[TENSOR] if percent[TENSOR] > TENSOR_FLOOR else 0.0
        floating = max(tensor, percent[FP64], percent[FP32], percent[FP16])
        return GpuActivity(floating=floating, integer=percent[INTEGER], memory=percent[MEMORY])

    def close(self) -> None:
        """Give the last sample back; NVMLError where the driver does not take it."""
        before, self._before = self._before, None
        if before is not None:
            self._nvml.nvmlGpmSampleFree(before)

    def _between(self, before: Any, now: Any) -> dict[int, float] | None:
        """What each unit did between two samples, in percent; None where one of them is not counted."""
        question = self._nvml.c_nvmlGpmMetricsGet_t()
        question.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics, question.sample1, question.sample2 = len(UNITS), before, now
        for place, unit in enumerate(UNITS):
            question.metrics[place].metricId = unit
        self._nvml.nvmlGpmMetricsGet(question)
        answers = question.metrics[: len(UNITS)]
        if any(answer.nvmlReturn or not isfinite(answer.value) for answer in answers):
            return None
        return {answer.metricId: float(answer.value) for answer in answers}
