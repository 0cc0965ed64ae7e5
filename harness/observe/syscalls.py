"""Whether a blocked system call has a time limit, from /proc's line about it.

A thread in ``futex`` without a time-out wakes only when somebody wakes it; one in ``clock_nanosleep`` wakes by
itself. The numbers are those of the kernel's system call tables.
"""

from __future__ import annotations

import platform

_ALWAYS: dict[str, frozenset[int]] = {
    "x86_64": frozenset({35, 230}),
    "aarch64": frozenset({101, 115}),
}
"""nanosleep, clock_nanosleep: the limit is the call's purpose."""

_POINTER: dict[str, dict[int, int]] = {
    # number -> index of the argument that points to the time limit; NULL means none
    "x86_64": {202: 3, 271: 2, 23: 4, 270: 4, 128: 2, 220: 3, 441: 3, 449: 3},
    "aarch64": {98: 3, 73: 2, 72: 4, 137: 2, 192: 3, 441: 3, 449: 3},
}
"""futex ppoll select pselect6 rt_sigtimedwait semtimedop epoll_pwait2 futex_waitv."""

_MILLISECONDS: dict[str, dict[int, int]] = {
    # number -> index of the argument with the limit in milliseconds; negative means none
    "x86_64": {7: 2, 232: 3, 281: 3},
    "aarch64": {22: 3},
}
"""poll epoll_wait epoll_pwait."""


_RESTART = {"x86_64": 219, "aarch64": 128}
"""restart_syscall: the kernel repeats an interrupted call and no longer shows which."""


def timed_wait(line: str, *, machine: str | None = None) -> bool | None:
    """Whether the call in ``line`` (``/proc/PID/task/TID/syscall``) ends by itself; None when it cannot be told."""
    machine = machine or platform.machine()
    fields = line.split()
    if machine not in _ALWAYS or len(fields) < 7 or not fields[0].isdecimal():
        return None
    number, arguments = int(fields[0]), [int(field, 16) for field in fields[1:7]]
    if number in _ALWAYS[machine]:
        return True
    if number in _POINTER[machine]:
        return arguments[_POINTER[machine][number]] != 0
    if number in _MILLISECONDS[machine]:
        return arguments[_MILLISECONDS[machine][number]] & 0x80000000 == 0
    return None if number == _RESTART[machine] else False


_ACCEPT = {"x86_64": frozenset({43, 288}), "aarch64": frozenset({202, 242})}


def listens(line: str, *, machine: str | None = None) -> bool:
    """Whether the call in ``line`` waits for somebody to connect: accept, accept4."""
    number = line.split(None, 1)[0] if line.strip() else ""
    return number.isdecimal() and int(number) in _ACCEPT.get(machine or platform.machine(), frozenset())
