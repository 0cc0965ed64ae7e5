"""A probe of the trainer that times steps and profiles a few more; what a way of training took, by step."""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from gpu_trace import KIND_BY_NAME, MARK, busy_us, by_name, host_calls, launches_of
from model_marks import is_opaque, marked

TOP = 40
"""How many of the longest kernels are kept."""


@dataclass
class Watch:
    """A probe of the trainer: times steps, then has the profiler look at a few more."""

    steps: tuple[int, int, int]
    ends: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    forward_s: list[float] = field(default_factory=list)
    kernels: dict[str, str] = field(default_factory=dict)
    trace: dict | None = None
    profiled_s: float = 0.0

    def __post_init__(self):
        self._undo = contextlib.ExitStack()
        self._profiler = self._phase = None

    def resolved(self, table):
        """Keep which kernels run."""
        self.kernels = {row["op"]: row["kernel"] for row in table}

    def built(self, state):
        """Keep the model."""
        self.state = state

    def mark(self, *, phase, edge, step, detail=None):
        """Time forward, which ends with a wait for the loss; show the optimizer's part to the profiler."""
        import torch

        if edge == "begin" and phase == "forward":
            self._began = time.perf_counter()
        if edge == "end" and phase == "forward":
            self.forward_s.append(time.perf_counter() - self._began)
        if self._profiler is not None and phase == "optim" and edge != "progress":
            if edge == "begin":
                self._phase = torch.profiler.record_function(MARK + "optimizer")
                self._phase.__enter__()
            elif self._phase is not None:
                self._phase.__exit__(None, None, None)

    def step_done(self, *, step, facts):
        """Note the time and the loss; begin and end profiling."""
        import torch

        warm, timed, profiled = self.steps
        self.ends.append(time.perf_counter())
        self.losses.append(facts["loss"])
        if step + 1 == warm + timed:
            if not is_opaque(self.state):
                self._undo.enter_context(marked(self.state.model))
            activities = [torch.profiler.ProfilerActivity.CPU]
            activities += [torch.profiler.ProfilerActivity.CUDA] * torch.cuda.is_available()
            self._profiler = torch.profiler.profile(activities=activities)
            self._profiler.__enter__()
            self._profiled_from = time.perf_counter()
        elif step + 1 == warm + timed + profiled:
            self.profiled_s = time.perf_counter() - self._profiled_from
            self._profiler.__exit__(None, None, None)
            self._undo.close()
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "trace.json"
                self._profiler.export_chrome_trace(str(file))
                self.trace = json.loads(file.read_text())
            self._profiler = None


def summary(watch: Watch) -> dict:
    """What a way took, by step."""
    warm, timed, profiled = watch.steps
    ends = watch.ends[warm - 1 : warm + timed]
    steps_ms = [1e3 * (b - a) for a, b in pairwise(ends)]
    found = launches_of(watch.trace)
    calls, waited_us = host_calls(watch.trace)
    kernels: dict[tuple[str, str], list[float]] = defaultdict(list)
    parts: dict[str, Counter] = defaultdict(Counter)
    for launch in found:
        kernels[launch.name, launch.part].append(launch.us)
        kind = by_name(launch.name, KIND_BY_NAME, "kernels of ours")
        parts[launch.part]["backward_ms" if launch.is_backward else "forward_ms"] += launch.us / 1e3 / profiled
        parts[launch.part]["launches"] += 1 / profiled
        parts[launch.part][kind] += launch.us / 1e3 / profiled
    gpu_ms = busy_us(found) / 1e3 / profiled
    top = sorted(kernels.items(), key=lambda item: -sum(item[1]))[:TOP]
    host_ms = 1e3 * watch.profiled_s / profiled - waited_us / 1e3 / profiled
    return {
        "step_ms": statistics.median(steps_ms), "step_ms_least": min(steps_ms), "step_ms_most": max(steps_ms),
        "forward_ms": 1e3 * statistics.median(watch.forward_s[warm : warm + timed]),
        "profiled_step_ms": 1e3 * watch.profiled_s / profiled, "gpu_ms": gpu_ms,
        "gpu_busy": gpu_ms / statistics.median(steps_ms), "host_ms_profiled": host_ms,
        "launches": calls / profiled, "is_marked": not is_opaque(watch.state),
        "loss": watch.losses[warm + timed - 1], "kernels": watch.kernels,
        "parts": {name: dict(counts) for name, counts in sorted(parts.items(), key=lambda p: -_ms(p[1]))},
        "top": [
            {"kernel": name, "part": part, "ms": sum(us) / 1e3 / profiled, "count": len(us) / profiled}
            for (name, part), us in top
        ],
    }  # fmt: skip


def _ms(part: dict) -> float:
    return part.get("forward_ms", 0.0) + part.get("backward_ms", 0.0)
