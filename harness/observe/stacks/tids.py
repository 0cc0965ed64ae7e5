"""Which of the kernel's threads each one is that a dumper shows.

A dumper prints the number that the process itself knows: in a container that is not the one in our ``/proc``. Of Python
before 3.11 py-spy knows only the address at which the C library keeps what it knows of a thread, its number among it.
Where in it differs from one library to another: the main thread tells, whose number is the PID, and all numbers must be
those of the process's threads.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.observe.procfs import MOST_PIDS, Files

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from harness.core.evidence import ThreadStack

_SIZE = 1024
"""Bytes that are looked at; the number stands at 720 in the C library of most machines."""


def with_tids(threads: Sequence[ThreadStack], pid: int, files: Files | None = None) -> tuple[ThreadStack, ...]:
    """The threads that a dumper shows of a process, each by its number in our ``/proc``, or as it is without one."""
    files = files or Files()
    outer = {files.inner(f"{pid}/task/{name}"): int(name) for name in files.names(f"{pid}/task")}
    inner = _numbers(pid, {thread.tid for thread in threads if thread.tid > MOST_PIDS}, outer, files)
    shown: list[ThreadStack] = []
    for thread in threads:
        number = inner.get(thread.tid, thread.tid)
        shown.append(replace(thread, tid=outer.get(number, number)))
    return tuple(shown)


def _numbers(pid: int, addresses: Collection[int], outer: Mapping[int, int], files: Files) -> dict[int, int]:
    """The number that the process has for each thread, by its address; empty where they cannot be read."""
    memory: dict[int, bytes] = {}
    for address in addresses:
        data = files.memory(pid, address, _SIZE)
        if data is None:
            return {}
        memory[address] = data
    main = files.inner(f"{pid}")
    for at in range(0, _SIZE if memory else 0, 4):
        tids = {address: int.from_bytes(data[at : at + 4], sys.byteorder) for address, data in memory.items()}
        own = set(tids.values())
        if main in own and len(own) == len(tids) and own <= outer.keys():
            return tids
    return {}
