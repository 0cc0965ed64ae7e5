"""What a process in which nothing moves waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.movement import OUTSIDE_WAITS
from harness.core.stacks import native_leaf, python_frames

if TYPE_CHECKING:
    from harness.classify.motion import Motion
    from harness.core.evidence import StackSample, ThreadStack

PIPE_WRITE = ("pipe_write", "anon_pipe_write")
CHILD_WAIT = ("do_wait", "kernel_wait4")
PIPE_READ = ("pipe_read", "anon_pipe_read")
IO_WAIT = (*OUTSIDE_WAITS, "poll", "epoll", "select", "unix_stream", "wait_for_partner", "io_schedule")
OUTSIDE = frozenset({"blocked-io", "uninterruptible-io", "waiting-for-child"})
"""Causes that something outside the process may end."""
PYTHON_LOCK = ("PyThread_acquire_lock", "lock_PyThread", "rlock_acquire")
NATIVE_LOCK = ("pthread_mutex_lock", "pthread_rwlock", "lll_lock_wait", "std::mutex::lock")
LOCK_FILES = ("threading.py", "queue.py", "synchronize.py", "queues.py")


def waiting_cause(
    moved: Motion, thread: ThreadStack, samples: tuple[StackSample, ...], *, phase: str | None = None
) -> str:
    """What the deciding ``thread`` of a motionless process waits for; the most specific evidence first."""
    wchan = moved.main_wchan
    leaf = " ".join(frame.function for frame in native_leaf(thread))
    innermost = next(iter(python_frames(thread)), None)
    if wchan in PIPE_WRITE:
        return "blocked-pipe"
    if holds_gil(samples):
        return "gil-held"
    if wchan in PIPE_READ and moved.dead_children:
        return "loader-worker-dead" if phase == "data" else "child-dead"
    if wchan in CHILD_WAIT or (wchan in PIPE_READ and moved.children):
        return "waiting-for-child"
    if any(name in leaf for name in PYTHON_LOCK):
        return "deadlock"
    if "D" in moved.states:
        return "uninterruptible-io"
    if any(part in wchan for part in (*IO_WAIT, *PIPE_READ)):
        return "blocked-io"
    if innermost is not None and innermost.file.endswith(LOCK_FILES):
        return "deadlock"
    if any(name in leaf for name in NATIVE_LOCK):
        return "native-lock"
    # A lock taken by the program's own function looks, without native frames, like a wait in C.
    return "native-wait" if any(sample.native for sample in samples) else "unseen-wait"


def holds_gil(samples: tuple[StackSample, ...]) -> bool:
    """Whether some thread owns the GIL in every sample that can tell."""
    telling = [sample for sample in samples if any(thread.owns_gil is not None for thread in sample.threads)]
    return bool(telling) and all(any(thread.owns_gil for thread in sample.threads) for sample in telling)
