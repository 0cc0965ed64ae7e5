"""What an exception or an output line says about its cause, where the exception's type alone says too little."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.reading.printed import quoted_in

if TYPE_CHECKING:
    from harness.core.evidence import WorkerResult

_BY_CUDA = r"(?:CUDA|[Cc]uda|HIP)[^\n]{0,80}"
"""Whoever passes on what a GPU's driver says names it before."""

_OF_A_KERNEL = (
    ("device-assert", r"CUDA error: device-side assert triggered|cudaErrorAssert"),
    ("illegal-address", rf"{_BY_CUDA}an illegal memory access was encountered|cudaErrorIllegalAddress"),
    ("misaligned-address", r"CUDA error: misaligned address|cudaErrorMisalignedAddress"),
    ("launch-failure", rf"{_BY_CUDA}unspecified launch failure|cudaErrorLaunchFailure"),
)
GPU_FAULTS = frozenset(cause for cause, _ in _OF_A_KERNEL)
"""What a kernel did wrong, and not the call that was told of it."""

WRITE_FAILED = "write-failed"
"""torch.save could not write its file whole; the exception does not tell why."""

CAUSES: tuple[tuple[str, str], ...] = (
    (
        "ready-twice",
        r"\bmark a variable ready only once|^Parameter at index \d+.{0,200} has been marked as ready twice",
    ),
    ("unused-parameter", r"\bExpected to have finished reduction in the prior iteration"),
    (
        "recomputation-mismatch",
        r"Recomputed values for the following tensors have different metadata|"
        r"A different number of tensors was saved during the original forward and recomputation|"
        r"torch\.utils\.checkpoint: trying to save more tensors during recomputation",
    ),
    (
        "collective-mismatch",
        r"Detected mismatch between collectives on ranks|\bop\.preamble\.length <= op\.nbytes|"
        r"Mismatch between collective operation types",
    ),
    *_OF_A_KERNEL,
    (
        "port-in-use",
        r"\bEADDRINUSE\b|\[Errno 98\]|\b(bind|listen)(ed|ing)?\b[^\n]{0,200}\b[Aa]ddress already in use",
    ),
    (
        "rendezvous",
        r"\b[Tt]he client socket has (timed out|failed to connect)|\bTCP client failed to connect|"
        r"\bconnect\(\) timed out\. Original timeout|\bconnectFullMesh\b.{0,200}(timed out|refused|timeout)|"
        r"\b((TCP|File|Hash|Prefix)Store\b|[Cc]10d[\w -]* store\b|store->\w+\().{0,200}"
        r"(timed out|refused|[Tt]imeout|failed)|"
        r"waiting for clients\. \d+/\d+ clients joined|\bwait timeout after \d+ms, keys: |"
        r"\bRendezvous(Timeout|Connection|Closed)?Error\b",
    ),
    ("loader-worker-dead", r"\bDataLoader worker \(pid\(?s?\)? [^)]*\) (is killed by signal|exited unexpectedly)"),
    (
        WRITE_FAILED,
        r"\binline_container\.cc:\d+\] \. unexpected pos \d+ vs \d+|\bPytorchStreamWriter failed writing file",
    ),
    ("loader-stall", r"\bDataLoader timed out after \d+(\.\d+)? seconds"),
)
"""Cause and the words that give it away, the most telling first.

They are sentences of libraries, or name one: a program of its own words may also have a store, or wait for clients.
"""

OUT_OF_MEMORY = re.compile(
    r"DefaultCPUAllocator: (can't allocate|not enough) memory|\bstd::bad_alloc\b|"
    r"(^|: )(CUDA|HIP|XPU|MPS backend) out of memory\b|\bout of memory\. Tried to allocate |"
    r"\b(CUDA|HIP) error: out of memory|\b(Cuda|HIP) failure (\d+ )?'out of memory'|"
    r"\b(CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory)\b|"
    r"\b(CU|HIP|ROC)[A-Z]+(_STATUS)?_ALLOC_FAILED\b|"
    r"\bRESOURCE_EXHAUSTED: Out of memory|\bOOM when allocating tensor|\bOut of memory allocating \d|"
    r"\[Errno 12\]|: Cannot allocate memory( \(12\))?$|"
    r"\bmemory allocation of \d+ bytes failed|\bheap out of memory$",
    re.MULTILINE,
)
"""What allocators say, each in its own form: of torch, CUDA and its libraries, JAX, TensorFlow, CuPy, the C library,
C++, Rust and JavaScript."""

CONSEQUENCE = re.compile(
    r"Connection closed by peer|Connection reset by peer|Broken pipe|Timed out waiting \d+ ?ms|"
    r"failed to pass monitoredBarrier|NCCL (error|communicator was aborted)|"
    r"Watchdog caught collective operation timeout|ProcessGroup\w* .{0,40}(timeout|aborted)|wait timeout after \d+ms|"
    r"Application timeout caused pair closure|Failed to recv, got 0 bytes",
)
"""What a rank says when another one did not come or is gone: its end is not where the trouble began."""

RANK_LOST = "RankLost"
"""Our own trainer's word for the same."""

_TELLING = re.compile(r"Parameter (?:at index|indices which did not receive).*?(?= This means|\n|$)")
"""The sentence that names the parameter, which torch puts last."""

_QUOTED = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?\Z", re.MULTILINE | re.DOTALL)
"""The error below the frames of a traceback, which all stand to the right of it."""

_ACCUSED = re.compile(r"[Rr]anks? ([\d, ]+) (?:does not answer|failed to pass)")


def cause_of(text: str) -> str | None:
    """The cause that ``text`` names, or None."""
    for cause, pattern in CAUSES:
        if re.search(pattern, text, re.DOTALL | re.MULTILINE):
            return cause
    return None


def spoken(result: WorkerResult) -> str:
    """The exception as Python prints it: its name, and what it says."""
    return f"{result.exception}: {result.message or ''}"


def carried(result: WorkerResult) -> tuple[str, str]:
    """The exception's bare name and message: those of the one whose traceback it quotes (a loader's, a spawned rank's).

    Whoever raises it again says no more than where it came from.
    """
    message = result.message or ""
    error = _QUOTED.search(quoted_in(message).rstrip())
    if error is None:
        return result.bare or "an exception", message
    return error["name"].rpartition(".")[2], error["message"] or ""


def is_consequence(result: WorkerResult) -> bool:
    """Whether this is what a rank says that lost another one."""
    return result.bare == RANK_LOST or bool(CONSEQUENCE.search(result.message or ""))


def first_line(text: str | None) -> str:
    """The first line of ``text`` that is not empty, at most 200 characters."""
    for line in (text or "").splitlines():
        if line.strip():
            return line.strip()[:200]
    return ""


def headline(message: str | None) -> str:
    """The first line of a message, at most 200 characters; behind the sentence in it that names a parameter, if any."""
    first = first_line(message)
    telling = _TELLING.search(message or "")
    if telling is None or telling[0] in first:
        return first
    return f"{telling[0][:200]} ({first.partition('. ')[0]})"


def accused_ranks(message: str) -> tuple[int, ...]:
    """The ranks that a message says did not come; empty when it names none."""
    match = _ACCUSED.search(message)
    return tuple(map(int, match[1].replace(",", " ").split())) if match else ()
