"""What an exception or an output line says about its cause, where the exception's type alone says too little."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.reading.printed import quoted_in

if TYPE_CHECKING:
    from harness.core.evidence import WorkerResult

_OF_A_KERNEL = (
    ("device-assert", r"CUDA error: device-side assert triggered|cudaErrorAssert"),
    ("illegal-address", r"an illegal memory access was encountered|cudaErrorIllegalAddress"),
    ("misaligned-address", r"CUDA error: misaligned address|cudaErrorMisalignedAddress"),
    ("launch-failure", r"unspecified launch failure|cudaErrorLaunchFailure"),
)
GPU_FAULTS = frozenset(cause for cause, _ in _OF_A_KERNEL)
"""What a kernel did wrong, and not the call that was told of it."""

CAUSES: tuple[tuple[str, str], ...] = (
    ("ready-twice", r"mark a variable ready only once|has been marked as ready twice"),
    ("unused-parameter", r"Expected to have finished reduction in the prior iteration"),
    (
        "recomputation-mismatch",
        r"Recomputed values for the following tensors have different metadata|"
        r"A different number of tensors was saved during the original forward and recomputation|"
        r"torch\.utils\.checkpoint: trying to save more tensors during recomputation",
    ),
    (
        "collective-mismatch",
        r"Detected mismatch between collectives on ranks|op\.preamble\.length <= op\.nbytes|"
        r"Mismatch between collective operation types|found different (tensor )?(shape|dtype)s? across ranks",
    ),
    *_OF_A_KERNEL,
    ("port-in-use", r"EADDRINUSE|[Aa]ddress already in use"),
    (
        "rendezvous",
        r"(client socket|connect\(\)|connectFullMesh|[Ss]tore).{0,200}(timed out|refused|timeout)|"
        r"waiting for clients\. \d+/\d+ clients joined|"
        r"wait timeout after \d+ms|[Rr]endezvous.{0,80}(timed out|timeout|failed)",
    ),
    ("loader-worker-dead", r"DataLoader worker \(pid\(?s?\)? [^)]*\) (is killed by signal|exited unexpectedly)"),
    ("loader-stall", r"DataLoader timed out after"),
)
"""Cause and the words that give it away, the most telling first."""

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
        if re.search(pattern, text, re.DOTALL):
            return cause
    return None


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
