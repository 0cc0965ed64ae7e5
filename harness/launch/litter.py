"""What a killed process tree leaves on disk: shared memory and the temporary folders of torchrun and multiprocessing.

Only what demonstrably belongs to the tree is taken: it is open, mapped, listened on, or named by the environment in a
process of the tree, or carries the PID of one in its name. Before it is removed, no other process may use it. A
program's own temporary files are its own business. Standard library only: the supervisor uses it too.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHARED = "/dev/shm/"
_FOLDERS = re.compile(r"^(/.*/(?:torchelastic_|pymp-)[A-Za-z0-9_]+)(?:/|$)")
_NAMED = re.compile(r"^torch_(\d+)_\d+_\d+$")
"""Shared tensors with the strategy file_system: torch_PID_RANDOM_NUMBER."""


def traces(pids: Iterable[int]) -> frozenset[str]:
    """The files in shared memory and the temporary folders that these processes use now."""
    pids = set(pids)
    found = {path for pid in pids for path in (*_used(pid), *_promised(pid))}
    with suppress(OSError):
        names = os.listdir(SHARED)  # noqa: PTH208 - pathlib is slow to import
        found |= {SHARED + name for name in names if (m := _NAMED.match(name)) and int(m[1]) in pids}
    return frozenset(place for path in found if (place := _place(path)))


def sweep(paths: Iterable[str]) -> tuple[str, ...]:
    """Remove those that are left and that no living process uses; what was removed."""
    left = [path for path in sorted(paths) if _ours(path)]
    if not left:
        return ()
    with os.scandir("/proc") as entries:
        others = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    used = {place for pid in others for path in _used(pid) if (place := _place(path))}
    return tuple(path for path in left if path not in used and _remove(path))


def orphans() -> tuple[str, ...]:
    """Shared tensors whose process is gone, whoever left them: doctor names them, nobody removes them."""
    try:
        names = os.listdir(SHARED)  # noqa: PTH208
    except OSError:
        return ()
    dead = (name for name in names if (m := _NAMED.match(name)) and not os.path.exists(f"/proc/{m[1]}"))  # noqa: PTH110
    return tuple(sorted(SHARED + name for name in dead))


def _place(path: str) -> str:
    """What is to be removed of ``path``: the file itself in shared memory, the whole folder elsewhere; or nothing."""
    if path.endswith(" (deleted)"):
        return ""
    if path.startswith(SHARED):
        return path
    folder = _FOLDERS.match(path)
    return folder[1] if folder else ""


def _used(pid: int) -> Iterator[str]:
    """The paths that a process has open, mapped or listens on."""
    with suppress(OSError), open(f"/proc/{pid}/maps") as maps:  # noqa: PTH123
        yield from (line.split(None, 5)[5].rstrip("\n") for line in maps if SHARED in line)
    sockets: set[str] = set()
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            with suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115
                if target.startswith("socket:["):
                    sockets.add(target[8:-1])
                else:
                    yield target
    if sockets:
        with suppress(OSError), open(f"/proc/{pid}/net/unix") as table:  # noqa: PTH123
            rows = (line.split() for line in table)
            yield from (row[7] for row in rows if len(row) > 7 and row[6] in sockets)


def _promised(pid: int) -> Iterator[str]:
    """The folder that torchrun made for a rank, which its environment names."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
        for entry in file.read().split(b"\0"):
            if entry.startswith(b"TORCHELASTIC_ERROR_FILE="):
                yield entry.partition(b"=")[2].decode(errors="replace")


def _ours(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))


def _remove(path: str) -> bool:
    try:
        if os.path.isdir(path):  # noqa: PTH112
            import shutil

            shutil.rmtree(path)
        else:
            os.unlink(path)  # noqa: PTH108
    except OSError:
        return False
    return True
