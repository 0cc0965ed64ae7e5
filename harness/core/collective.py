"""Waits for other ranks, as stacks show them: which collective a thread is in, or that it waits for its GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.stacks import bare, deciding_thread, is_noise, is_stdlib, native_leaf, python_frames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.evidence import Frame, StackSample, ThreadStack

SAMPLES = 3
"""Stack samples that must agree."""

MEETINGS = frozenset({"init_process_group", "rendezvous", "new_group", "_store_based_barrier"})
"""Where ranks wait for each other to come to life."""

PAIRS = frozenset({"send", "recv", "batch_isend_irecv"})
"""Calls that another call completes: two ranks in different ones of these may well meet."""

INCOMPARABLE = frozenset({"gpu", "pair"})
"""Kinds of waits of which a difference says nothing."""

COLLECTIVES = (
    MEETINGS
    | PAIRS
    | {
        "all_gather",
        "all_gather_coalesced",
        "all_gather_into_tensor",
        "all_gather_object",
        "all_reduce",
        "all_reduce_coalesced",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "broadcast",
        "broadcast_object_list",
        "gather",
        "gather_object",
        "monitored_barrier",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "scatter",
        "scatter_object_list",
    }
)
"""Public functions of torch.distributed that return when another rank has done its part."""

_DISTRIBUTED = re.compile(r"(^|/)torch/distributed/")
_REDUCER = re.compile(r"c10d::Reducer::")
_OUTSIDE_BACKWARD = {
    "sync_bucket_indices": "DDP's agreement on buckets",
    "rebuild_buckets": "DDP's agreement on buckets",
}
_DDP = "/torch/nn/parallel/distributed.py"
_IN_DDP = {"_pre_forward": "DDP's agreement on buckets"}
"""Functions of DDP that call C++ themselves, by what other ranks have to answer there: enough without native frames."""

_TRANSPORT = re.compile(
    r"c10d::(?!Reducer|Logger)|gloo::|ProcessGroup(Gloo|NCCL|Wrapper)|ncclGroupEnd|ncclAll|ncclBroadcast|ncclReduce"
)
_GPU = re.compile(
    r"^(cu|cuda)(Stream|Ctx|Device|Event)Synchronize|^hip(Stream|Device|Event)Synchronize|"
    r"^cudaMemcpy|^cuMemcpyDtoH|_local_scalar_dense_cuda"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What a thread waits for.

    ``kind``: ``collective``, ``gradients`` (DDP's own all-reduce in backward), ``pair`` (for one other rank) or
    ``gpu``. ``name`` is what to call it, ``all_reduce``; ``frame`` the program's own frame that called it, or None.
    """

    kind: str
    name: str
    frame: Frame | None


def wait_of(thread: ThreadStack) -> Wait | None:
    """The wait for other ranks, or for the GPU, that ``thread`` is in; None when its stack shows none."""
    caller = _caller(thread)
    leaf = native_leaf(thread)
    reducer = [bare(frame).rpartition("::")[2] for frame in leaf if _REDUCER.search(frame.function)]
    if buckets := next((_OUTSIDE_BACKWARD[name] for name in reducer if name in _OUTSIDE_BACKWARD), None):
        return Wait(kind="collective", name=buckets, frame=caller)
    if reducer:
        return Wait(kind="gradients", name="the all-reduce of gradients", frame=caller)
    called = [frame for frame in _inside(thread) if bare(frame) in COLLECTIVES]
    if called:
        name = bare(called[-1])
        return Wait(kind="pair" if name in PAIRS else "collective", name=name, frame=caller)
    if any(_TRANSPORT.search(frame.function) for frame in leaf):
        return Wait(kind="collective", name="a collective", frame=caller)
    innermost = next(iter(python_frames(thread)), None)
    if innermost is not None and innermost.file.endswith(_DDP) and bare(innermost) in _IN_DDP:
        return Wait(kind="collective", name=_IN_DDP[bare(innermost)], frame=caller)
    if any(_GPU.search(frame.function) for frame in leaf):
        return Wait(kind="gpu", name="its GPU", frame=caller)
    return None


def agreed_wait(samples: Sequence[StackSample]) -> Wait | None:
    """What the deciding thread waits for in the last samples, with native frames if there are two such; or None."""
    last = list(samples[-SAMPLES:])
    native = [sample for sample in last if sample.native]
    chosen = native if len(native) > 1 else last
    threads = [deciding_thread(sample) for sample in chosen]
    waits = {wait_of(thread) if thread is not None else None for thread in threads}
    return waits.pop() if len(waits) == 1 and len(chosen) > 1 else None


def _inside(thread: ThreadStack) -> tuple[Frame, ...]:
    """The innermost Python frames as long as they are torch.distributed's or the standard library's."""
    found: list[Frame] = []
    for frame in python_frames(thread):
        if not (_DISTRIBUTED.search(frame.file) or is_stdlib(frame)):
            break
        found.append(frame)
    return tuple(frame for frame in found if _DISTRIBUTED.search(frame.file))


def _caller(thread: ThreadStack) -> Frame | None:
    """The innermost Python frame that is neither torch's nor the standard library's."""
    own = (frame for frame in python_frames(thread) if not is_stdlib(frame) and "/torch/" not in frame.file)
    return next(own, None) or next((frame for frame in thread.frames if not is_noise(frame)), None)
