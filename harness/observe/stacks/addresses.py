"""The kernel's numbers of threads of which py-spy knows only the address: Python before 3.11 keeps no others.

At that address the C library keeps what it knows of a thread, its number among it. Where in it differs from one library
to another: the main thread tells, whose number is the PID, and all numbers must be those of the process's threads.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from harness.observe.procfs import Files

if TYPE_CHECKING:
    from collections.abc import Collection

_SIZE = 1024
"""Bytes that are looked at; the number stands at 720 in the C library of most machines."""


def with_numbers(text: str, pid: int) -> str:
    """What ``py-spy dump --json`` printed of a process, with the kernel's number of each thread that it has none of.

    What is no such text comes back as it is: whoever reads it says so.
    """
    if '"os_thread_id": null' not in text:
        return text
    try:
        threads = json.loads(text)
        tids = numbers(pid, {int(thread["thread_id"]) for thread in threads})
        for thread in threads:
            thread["os_thread_id"] = thread["os_thread_id"] or tids.get(int(thread["thread_id"]))
    except (ValueError, KeyError, TypeError):
        return text
    return json.dumps(threads)


def numbers(pid: int, addresses: Collection[int], files: Files | None = None) -> dict[int, int]:
    """The number of each thread of a process by its address; empty where they cannot be read."""
    files = files or Files()
    outer = {files.inner(f"{pid}/task/{name}"): int(name) for name in files.names(f"{pid}/task")}
    memory: dict[int, bytes] = {}
    for address in addresses:
        data = files.memory(pid, address, _SIZE)
        if data is None:
            return {}
        memory[address] = data
    main = files.inner(f"{pid}")
    for at in range(0, _SIZE, 4):
        tids = {address: int.from_bytes(data[at : at + 4], sys.byteorder) for address, data in memory.items()}
        own = set(tids.values())
        if main in own and len(own) == len(tids) and own <= outer.keys():
            return {address: outer[tid] for address, tid in tids.items()}
    return {}
