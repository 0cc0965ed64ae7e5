"""What a trial's pace says nothing about, though it was in this phase before: work that its stacks show to be new."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.classify.frames import plain
from harness.core.stacks import python_frames

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.evidence import StackSample, ThreadStack

_RARE = re.compile(
    r"save|checkpoint|evaluat|(^|_)eval(_|$)|validat|upload|download|export|compile|autotune|warm_?up|^_*init|^set_?up",
    re.IGNORECASE,
)
"""Functions that a program comes to now and then: a first save may take minutes however quick the steps are."""

_RARE_FILE = re.compile(
    r"/torch/(serialization|distributed/checkpoint|_inductor|_dynamo/convert_frame)|/triton/(compiler|runtime/build)"
    r"|/safetensors/|^<frozen importlib"
)
"""Saving, compiling and importing, whatever the functions are called."""

_EVERY_STEP = "/torch/utils/checkpoint.py"
"""Recomputes activations, and saves nothing."""

_WORKER = "/torch/utils/data/_utils/worker.py"
"""Where a loader's worker begins."""

_GPU = re.compile(r"cuda|nccl|cudnn|cublas|hip[A-Z]|rocm", re.IGNORECASE)
"""Native frames of whoever waits for a GPU: how long its kernels take is no matter of the steps before."""


def unusual(thread: ThreadStack, samples: Iterable[StackSample] = ()) -> str:
    """The rare work in which ``thread`` is by its stack, in a few words; empty when that shows none.

    Of a loader's worker only what it does for the loader counts, not how it was started. Native frames are looked for
    in ``samples``.
    """
    for frame in python_frames(thread):
        if frame.file.endswith(_WORKER):
            break
        if frame.file.endswith(_EVERY_STEP):
            continue
        if _RARE.search(plain(frame.function)) or _RARE_FILE.search(frame.file):
            return f"it is in {plain(frame.function)}"
    native = [frame for sample in samples for t in sample.threads if t.tid == thread.tid for frame in t.frames]
    found = next((f for f in native if f.native and _GPU.search(f"{f.function} {f.file}")), None)
    return f"it waits for a GPU in {plain(found.function)}" if found is not None else ""
