"""Waits for other ranks, as stacks show them: which collective a thread is in, or that it waits for its GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.reading.frames import (
    bare,
    deciding_thread,
    is_stdlib,
    named_frames,
    native_leaf,
    native_samples,
    own_frame,
    python_frames,
    same_stacks,
)
from harness.reading.stillness import SAMPLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.evidence import Frame, StackSample, ThreadStack

NEW_GROUP = "new_group"
MEETINGS = frozenset({"init_process_group", "rendezvous", NEW_GROUP, "_store_based_barrier"})
"""Where ranks wait for each other to come to life."""

STORE = "the store for a key"
"""A wait for what a rank, or who started them, puts into the store."""

AWAITS_ID = "waits for the id of a communicator"
GATHERS = "waits for the ranks of a communicator"
CONNECTS = "makes a communicator"
"""How far a rank is with the communicator of NCCL that the first call of a group makes: the group's first rank puts an
id into the store, the others wait for that key; all come to the first one's address, and connect."""

EARLY = frozenset({AWAITS_ID, GATHERS})
"""Of these: while it waits for other ranks to make it with, and has launched nothing of the call."""

PAIRS = frozenset({"send", "isend", "recv", "irecv", "batch_isend_irecv"})
"""Calls that another call completes: two ranks in different ones of these may well meet. ``isend`` and ``irecv`` return
at once, but for the first between two ranks, in which NCCL waits for the other to make their communicator."""

ROOTED = PAIRS | {
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "reduce",
    "scatter",
    "scatter_object_list",
}
"""Calls in which a rank may have done its part and gone on while what it sent is still on its way."""

COLLECTIVES = (
    MEETINGS
    | ROOTED
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
        "monitored_barrier",
        "reduce_scatter",
        "reduce_scatter_tensor",
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
    r"c10d::(?!Logger)|gloo::|ProcessGroup(Gloo|NCCL|Wrapper)|ncclGroupEnd|ncclAll|ncclBroadcast|ncclReduce"
)
_STORE = re.compile(r"c10d::(TCP|File|Hash|Prefix)?Store::|c10d::detail::TCPClient")
_MAKES_A_COMMUNICATOR = re.compile(r"ProcessGroupNCCL::(initNCCLComm|broadcastUniqueNCCLID)|NCCLComm::create")
_GATHERS = re.compile(r"^bootstrapInit$")
_NAMES = re.compile(r"\b(getaddrinfo|getnameinfo|gethostby(name|addr)\w*|__res_\w+)\b")
"""The resolver: whoever asks a name server waits for that, and no longer than its time-outs."""

_GPU = re.compile(
    r"^(cu|cuda)(Stream|Ctx|Device|Event)Synchronize|^hip(Stream|Device|Event)Synchronize|"
    r"^cudaMemcpy|^cuMemcpyDtoH|_local_scalar_dense_cuda"
)

_OF_CUDA = re.compile(r"(^|/)torch/cuda/")
"""Where torch's own ``synchronize`` of a device, a stream or an event is: enough without native frames."""

_CHECKPOINT = "/torch/distributed/checkpoint/"
"""Here methods have the names of collectives, ``reduce_scatter``, and call others."""

_LAUNCH = re.compile(r"^cu(da)?Launch\w*Kernel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """What a thread waits for.

    ``kind``: ``collective``, ``gradients`` (DDP's own all-reduce in backward), ``pair`` (for one other rank) or
    ``gpu``. ``name`` is what to call it, ``all_reduce``; ``frame`` the program's own frame that called it, or None.
    ``stage`` is ``AWAITS_ID``, ``GATHERS`` or ``CONNECTS`` in a call that makes its communicator first; empty where it
    makes none, or no native frames show it.
    """

    kind: str
    name: str
    frame: Frame | None
    stage: str = ""


@lru_cache(maxsize=4096)  # a stack is asked again at every later look
def meeting_of(thread: ThreadStack) -> Meeting | None:
    """The wait for other ranks, or for the GPU, that ``thread`` is in; None when its stack shows none."""
    caller = _caller(thread)
    leaf = native_leaf(thread)
    if _calls(leaf, _NAMES):
        return None
    reducer = [bare(frame).rpartition("::")[2] for frame in leaf if _REDUCER.search(frame.function)]
    for function in reducer:
        if function in _OUTSIDE_BACKWARD:
            return Meeting(kind="collective", name=_OUTSIDE_BACKWARD[function], frame=caller)
    if reducer:
        return Meeting(kind="gradients", name="the all-reduce of gradients", frame=caller)
    called = [frame for frame in _inside(thread) if bare(frame) in COLLECTIVES and _CHECKPOINT not in frame.file]
    if called:
        name = bare(called[-1])
        return Meeting(kind="pair" if name in PAIRS else "collective", name=name, frame=caller, stage=_stage(leaf))
    if _calls(leaf, _STORE):
        return Meeting(kind="collective", name=STORE, frame=caller)
    if _calls(leaf, _GPU):  # before what calls it: NCCL waits so for all that was queued before it takes a group apart
        return Meeting(kind="gpu", name="its GPU", frame=caller)
    if _calls(leaf, _TRANSPORT):
        return Meeting(kind="collective", name="a collective", frame=caller)
    innermost = next(iter(python_frames(thread)), None)
    if innermost is not None and bare(innermost) == "synchronize" and _OF_CUDA.search(innermost.file):
        return Meeting(kind="gpu", name="its GPU", frame=caller)
    if innermost is not None and innermost.file.endswith(_DDP) and bare(innermost) in _IN_DDP:
        return Meeting(kind="collective", name=_IN_DDP[bare(innermost)], frame=caller)
    return None


def are_at_the_gpu(samples: Sequence[StackSample]) -> bool:
    """Whether the deciding thread waits for the GPU by every sample with native frames, whatever Python called for it.

    NCCL's barrier does, and burns a core like any other such wait.
    """
    native = native_samples(samples)
    threads = [deciding_thread(sample) for sample in native]
    return bool(native) and all(thread is not None and _calls(native_leaf(thread), _GPU) for thread in threads)


def agreed_meeting(samples: Sequence[StackSample]) -> Meeting | None:
    """What the deciding thread waits for in the last samples; None where they do not agree, or show no such wait.

    Samples with native frames say more: one is enough where the Python frames are the same in all.
    """
    last = list(samples[-SAMPLES:])
    native = [sample for sample in last if sample.native]
    chosen = native if len(native) > 1 or (native and same_stacks(last)) else last
    meetings: set[Meeting | None] = set()
    for sample in chosen:
        thread = deciding_thread(sample)
        meetings.add(None if thread is None else meeting_of(thread))
    return meetings.pop() if len(meetings) == 1 and len(last) > 1 else None


def launches_in_vain(samples: Sequence[StackSample]) -> bool:
    """Whether the deciding thread is at the same line in all samples, and launches a kernel in all native ones.

    That is a wait for the GPU where an operation on it does not end: its queue is full, or what a kernel needs is
    loaded only when nothing else runs. Of a loop that launches small ones one after the other it is true, too.
    """
    native = native_samples(samples)
    if len(native) < 2 or len(samples) < SAMPLES:
        return False
    places: set[tuple[Frame, ...]] = set()
    for sample in samples:
        thread = deciding_thread(sample)
        if thread is None or (sample.native and not _calls(native_leaf(thread), _LAUNCH)):
            return False
        places.add(tuple(replace(frame, function=bare(frame)) for frame in python_frames(thread)))
    return len(places) == 1


def _stage(leaf: Sequence[Frame]) -> str:
    if not _calls(leaf, _MAKES_A_COMMUNICATOR):
        return ""
    if _calls(leaf, _STORE):
        return AWAITS_ID
    return GATHERS if _calls(leaf, _GATHERS) else CONNECTS


def _calls(leaf: Sequence[Frame], pattern: re.Pattern[str]) -> bool:
    """Whether a function of this name is among them."""
    return any(pattern.search(frame.function) for frame in leaf)


def _inside(thread: ThreadStack) -> tuple[Frame, ...]:
    """The innermost Python frames as long as they are torch.distributed's or the standard library's."""
    frames: list[Frame] = []
    for frame in python_frames(thread):
        if _DISTRIBUTED.search(frame.file):
            frames.append(frame)
        elif not is_stdlib(frame):
            break
    return tuple(frames)


def _caller(thread: ThreadStack) -> Frame | None:
    """The program's own frame that called, or the innermost that is neither torch's nor the standard library's."""
    own = own_frame(thread)
    if own is not None:
        return own
    for frame in python_frames(thread):
        if not is_stdlib(frame) and "/torch/" not in frame.file:
            return frame
    return next(iter(named_frames(thread)), None)
