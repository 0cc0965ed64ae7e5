"""The system call that a thread is blocked in, from the kernel's line about it (``/proc/PID/task/TID/syscall``).

A thread in ``futex`` without a time-out wakes only when somebody wakes it; one in ``clock_nanosleep`` wakes by itself.
The numbers are those of the kernel's system call tables.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

_NAMES: dict[str, dict[int, str]] = {
    "x86_64": {
        0: "read", 1: "write", 2: "open", 3: "close", 7: "poll", 17: "pread", 19: "readv", 20: "writev",
        23: "select", 34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect", 43: "accept", 44: "sendto",
        45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 56: "clone", 58: "vfork", 61: "wait4", 65: "semop", 69: "msgsnd",
        70: "msgrcv", 72: "fcntl", 73: "flock", 128: "rt_sigtimedwait", 130: "rt_sigsuspend", 202: "futex",
        208: "io_getevents", 219: "restart", 220: "semtimedop", 230: "clock_nanosleep", 232: "epoll_wait",
        242: "mq_timedsend", 243: "mq_timedreceive", 247: "waitid", 257: "openat", 270: "pselect6", 271: "ppoll",
        275: "splice", 281: "epoll_pwait", 288: "accept4", 299: "recvmmsg", 426: "io_uring_enter", 435: "clone3",
        441: "epoll_pwait2", 449: "futex_waitv",
    },
    "aarch64": {
        22: "epoll_pwait", 25: "fcntl", 32: "flock", 56: "openat", 57: "close", 63: "read", 64: "write",
        65: "readv", 66: "writev", 67: "pread", 71: "sendfile", 72: "pselect6", 73: "ppoll", 76: "splice",
        95: "waitid", 98: "futex",
        101: "nanosleep", 115: "clock_nanosleep", 128: "restart", 133: "rt_sigsuspend", 137: "rt_sigtimedwait",
        182: "mq_timedsend", 183: "mq_timedreceive", 188: "msgrcv", 189: "msgsnd", 192: "semtimedop", 193: "semop",
        202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg",
        220: "clone", 242: "accept4", 243: "recvmmsg", 260: "wait4", 426: "io_uring_enter", 435: "clone3",
        441: "epoll_pwait2", 449: "futex_waitv",
    },
}  # fmt: skip

_LIMIT_BEHIND_POINTER = {
    "futex": 3, "ppoll": 2, "select": 4, "pselect6": 4, "rt_sigtimedwait": 2, "semtimedop": 3, "epoll_pwait2": 3,
    "futex_waitv": 3, "mq_timedsend": 4, "mq_timedreceive": 4, "recvmmsg": 4,
}  # fmt: skip
"""Index of the argument that points to the time limit; NULL means none."""

_LIMIT_IN_MILLISECONDS = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}
"""Index of the argument with the limit in milliseconds; negative means none."""


@dataclass(frozen=True, slots=True)
class Call:
    """A blocked system call: its name, its six arguments, and whether it ends by itself (None: not to be told).

    ``stack`` is the address of the thread's stack, 0 where the kernel does not tell.
    """

    name: str
    arguments: tuple[int, ...]
    timed: bool | None
    stack: int = 0

    @property
    def limit_s(self) -> float | None:
        """The time limit that it was given, seconds, where that is one of its arguments."""
        index = _LIMIT_IN_MILLISECONDS.get(self.name)
        return self.arguments[index] / 1000 if index is not None and self.timed else None


_REPEATS = {"poll_schedule_timeout": "poll", "do_sys_poll": "poll", "nanosleep": "nanosleep", "futex": "futex"}
"""By a part of the kernel function that a thread waits in: which call it is that the kernel goes on with."""


def blocked_call(line: str, *, wchan: str = "", machine: str | None = None) -> Call | None:
    """The call in the kernel's ``line``; None for a thread that runs, a hidden line, or an unknown machine.

    Of a call that was interrupted, by a stop for example, the kernel changes the number when it goes on with it, and
    leaves the arguments in their registers; ``wchan``, the kernel function that the thread waits in, tells which it is.
    """
    names = _NAMES.get(machine or platform.machine())
    fields = line.split()
    if names is None or len(fields) < 7 or not fields[0].isdecimal():
        return None
    name = names.get(int(fields[0]), f"call {fields[0]}")
    if name == "restart":
        name = next((call for function, call in _REPEATS.items() if function in wchan), name)
    arguments = tuple(int(field, 16) for field in fields[1:7])
    return Call(name, arguments, _timed(name, arguments), int(fields[7], 16) if len(fields) > 7 else 0)


def _timed(name: str, arguments: tuple[int, ...]) -> bool | None:
    if name in ("nanosleep", "clock_nanosleep"):
        return True
    if name in _LIMIT_BEHIND_POINTER:
        return arguments[_LIMIT_BEHIND_POINTER[name]] != 0
    if name in _LIMIT_IN_MILLISECONDS:
        return arguments[_LIMIT_IN_MILLISECONDS[name]] & 0x80000000 == 0
    return None if name == "restart" else False  # goes on with a call of which the kernel does not tell which it is
