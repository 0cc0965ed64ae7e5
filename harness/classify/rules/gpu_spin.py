"""The host waits for a kernel that does not end: the GPU is occupied all the time and works on nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import (
    conclude,
    own_busy_patience_s,
    pace_told,
    silence,
    silent_too_long,
    watched_out,
)
from harness.classify.frames import silent_samples, spell
from harness.classify.gpus import gpus_of
from harness.classify.rules.hung_busy import healthy_silence_s
from harness.classify.signature import signature, stack_names
from harness.core.collective import agreed_wait
from harness.core.stacks import deciding_thread
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict

SAMPLES = 2
"""Looks at the GPU that it takes; one could be chance."""

LONGER = 3.0
"""Times a healthy silence that this one must last: less than for a loop in Python, because the GPU says more."""


def gpu_spin(case: Case) -> Verdict | None:
    """Full utilisation without memory traffic and without power, and a host that waits for it at the same place.

    Full utilisation alone says nothing: a rank that waits inside NCCL reads the same. So this is for a process that has
    no operation pending there, and only after three times a healthy silence and four times the limit; where the user
    set none and the card tells its power, after a hundred gaps of this phase.
    """
    paced = not watched_out(case)
    if not silent_too_long(case) or (paced and not _beyond_pace(case)):
        return None
    yardstick = _healthy_silence_s(case)
    if yardstick is not None and case.evidence.silence_s <= LONGER * yardstick[0]:
        return None
    samples = silent_samples(case)
    wait = agreed_wait(samples)
    gpus = [gpu for gpu in gpus_of(case) if gpu.occupied_by_nothing and len(gpu.samples) >= SAMPLES]
    if wait is None or wait.kind != "gpu" or not gpus or any(state.pending for state in case.evidence.collectives):
        return None
    thread = deciding_thread(samples[-1])
    told = all(s.power_w and s.power_limit_w for gpu in gpus for s in gpu.samples)
    if paced and not told:
        return None
    yard = (
        f", {case.evidence.silence_s / max(yardstick[0], 0.01):.0f} times the longest healthy one" if yardstick else ""
    )
    because = (
        f"{silence(case)}{yard}; in {len(samples)} of {len(samples)} samples the host waits for its GPU in "
        f"{spell(wait.frame)}, and {'; '.join(map(str, gpus))}: a kernel is there and works on nothing"
        f"{f'; that is {pace_told(case)}' if paced else ''}"
    )
    return conclude(
        case,
        Kind.HANG,
        rule="gpu_spin",
        cause="gpu-spin",
        because=because,
        cites=(*(s.id for s in samples), *(id for gpu in gpus for id in gpu.ids), "progress"),
        confidence=Confidence.HIGH if told and yardstick and not paced else Confidence.MEDIUM,
        signature=signature(Kind.HANG, "gpu-spin", stack_names(thread) if thread else ()),
    )


def _beyond_pace(case: Case) -> bool:
    patience_s = own_busy_patience_s(case)
    return patience_s is not None and case.evidence.silence_s >= patience_s


def _healthy_silence_s(case: Case) -> tuple[float, str, str] | None:
    """The same phase in this trial's earlier steps if there was one, else the prediction.

    Its own steps are the better measure here: the first trial on a machine also waits for kernels to be compiled.
    """
    own = healthy_silence_s(replace(case, trial=replace(case.trial, prediction=None)))
    return own or healthy_silence_s(case)
