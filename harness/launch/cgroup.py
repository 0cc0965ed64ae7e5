"""A control group for a trial, where the kernel offers one: membership that no program of the trial can leave.

A process may change its session, its environment and its parent; it may kill its supervisor. Its group in cgroup v2 it
can only change with the rights to do so. So where this process may make a group below its own, the trial gets one, and
``cgroup.kill`` ends all of it at once, also what forks faster than we can look. Where it may not (most containers,
cgroup v1, a service that systemd has not delegated), subreapers, parent-death signals and the trial's token do.

Standard library only, and few modules of it: the guard of every trial uses it.
"""

from __future__ import annotations

import os
from contextlib import suppress

_SYSTEMD = "/run/systemd/system"
_DELEGATED = ("user.delegate", "trusted.delegate")


def make(name: str) -> str:
    """A new group called ``name`` below our own; its folder, or nothing where we may not make one."""
    ours = _ours()
    if not ours or not _may_divide(ours):
        return ""
    folder = f"{ours}/{name}"
    try:
        os.mkdir(folder)  # noqa: PTH102 - pathlib is slow to import
    except OSError:
        return ""
    if not os.access(f"{folder}/cgroup.kill", os.W_OK):  # before Linux 5.14
        remove(folder)
        return ""
    return folder


def enter(folder: str) -> bool:
    """Move this process into the group; what it starts from now on is born there. Whether that was allowed."""
    try:
        _write(f"{folder}/cgroup.procs", "0")
    except OSError:
        return False
    return True


def members(folder: str) -> list[int]:
    """The PIDs in the group and in the groups that the trial made below it."""
    pids: list[int] = []
    for here, _, _ in os.walk(folder):
        with suppress(OSError), open(f"{here}/cgroup.procs") as file:  # noqa: PTH123
            pids += list(map(int, file))
    return list(filter(None, pids))  # 0: a process of a namespace that we cannot see into


def kill(folder: str) -> None:
    """Send KILL to everything in the group at once."""
    with suppress(OSError):
        _write(f"{folder}/cgroup.kill", "1")


def remove(folder: str) -> None:
    """Remove the group; it stays while a process is in it."""
    for here, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            os.rmdir(here)  # noqa: PTH106


def _ours() -> str:
    """The folder of the cgroup v2 group that this process is in, or nothing."""
    group = mount = ""
    with suppress(OSError), open("/proc/self/cgroup") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("0::"):
                group = line[3:].rstrip("\n")
    with suppress(OSError), open("/proc/self/mounts") as file:  # noqa: PTH123
        for line in file:
            fields = line.split()
            if fields[2] == "cgroup2":
                mount = fields[1]
    return (mount + group).rstrip("/") if group and mount else ""


def _may_divide(folder: str) -> bool:
    """Whether the group is ours to divide: nobody manages groups here, or systemd has handed this one over."""
    if not os.access(folder, os.W_OK):
        return False
    if not os.path.isdir(_SYSTEMD):  # noqa: PTH112
        return True
    for attribute in _DELEGATED:
        with suppress(OSError):
            if os.getxattr(folder, attribute) == b"1":
                return True
    return False


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)
