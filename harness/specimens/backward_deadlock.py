"""backward-deadlock: the backward pass waits for a lock that another thread never gives back."""

from __future__ import annotations

import threading

from harness.specimens.catalog import Scene, hang


def hold_forever(lock: threading.Lock, held: threading.Event) -> None:
    """Take ``lock``, say so, and never give it back."""
    with lock:
        held.set()
        threading.Event().wait()


@hang(
    cause="deadlock",
    phase="backward",
    inside_backward=True,
    expect_frame="acquire_forever",
    imitates="a gradient hook that shares a lock with a thread which never releases it",
)
def acquire_forever(scene: Scene) -> None:
    """Wait, inside the autograd engine, for a lock that another thread holds."""
    lock, held = threading.Lock(), threading.Event()
    threading.Thread(target=hold_forever, args=(lock, held), name="holder", daemon=True).start()
    held.wait()
    lock.acquire()
