"""Native code: locks that are held, loops with and without the GIL, a state that no signal ends, an abort."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys

from harness.specimens.catalog import LATER, Scene, crash, hang
from harness.specimens.waits import TOTAL_S

MUTEX_BYTES = 64
"""At least sizeof(pthread_mutex_t) on every Linux ABI; all zeros is PTHREAD_MUTEX_INITIALIZER."""

STALL_S = 2.0
"""Whether a device answers, only patience tells, whatever the pace was: it is watched for four times this."""

STACK_BYTES = 1 << 16
CLONE_VM, CLONE_VFORK, CLONE_PARENT = 0x100, 0x4000, 0x8000


@hang(
    cause="native-lock",
    expect_frame="lock_mutex_twice",
    imitates="a library that takes a mutex its own callback already holds",
)
def lock_mutex_twice(scene: Scene) -> None:
    """Lock a C mutex twice; the GIL is released around the call."""
    libc = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(MUTEX_BYTES)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


@hang(
    cause="gil-held",
    step=LATER,
    total_s=TOTAL_S,
    expect_frame="match_for_ages",
    imitates="a regular expression that backtracks without end, so that no other thread runs either",
)
def match_for_ages(scene: Scene) -> None:
    """Match an expression that takes 2 to the power of 60 attempts, in C and with the GIL held."""
    re.fullmatch("(a?){60}a{60}", "a" * 59 + "b")


@hang(
    cause="infinite-loop",
    step=LATER,
    total_s=TOTAL_S,
    expect_frame="search_without_end",
    imitates="a loop in C whose end condition never holds",
)
def search_without_end(scene: Scene) -> None:
    """Look for a word in a list of 2 to the power of 64 others, in C; the GIL is released around the call."""
    libc = ctypes.CDLL(None)
    many, no_stride = ctypes.c_size_t(2**64 - 1), ctypes.c_size_t(0)
    libc.lfind(b"not there", b"what is there", ctypes.byref(many), no_stride, libc.strcmp)


@hang(
    cause="uninterruptible-io",
    stall_s=STALL_S,
    expect_frame="wait_beyond_signals",
    imitates="a driver or a network file system that does not answer (state D)",
)
def wait_beyond_signals(scene: Scene) -> None:
    """Be in state D: who waits for a vfork that neither executes nor ends is not interruptible.

    What it made is a child of our parent, so that nobody can tell whom it waits for, as with a device.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    stack = ctypes.create_string_buffer(STACK_BYTES)
    top = ctypes.c_void_p((ctypes.addressof(stack) + STACK_BYTES) & ~0xFF)
    pause = ctypes.cast(libc.pause, ctypes.c_void_p)
    libc.clone(pause, top, CLONE_VM | CLONE_VFORK | CLONE_PARENT | signal.SIGCHLD, None)


@crash(
    cause="SIGABRT",
    expect_frame="abort",
    imitates="a failed check in C++",
)
def abort(scene: Scene) -> None:
    """End as a failed assertion in C++ does."""
    sys.stderr.write("terminate called after throwing an instance of 'c10::Error'\n")
    sys.stderr.flush()
    os.abort()


@hang(
    cause="gil-held",
    expect_frame="lock_mutex_twice_with_gil",
    imitates="an extension that blocks without releasing the GIL",
)
def lock_mutex_twice_with_gil(scene: Scene) -> None:
    """Lock a C mutex twice through PyDLL, which does not release the GIL around the call."""
    libc = ctypes.PyDLL(None)
    mutex = ctypes.create_string_buffer(MUTEX_BYTES)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)
