"""What a killed process tree leaves on disk, and which of it may be removed.

Libraries put files into shared memory and into the temporary folder and take them away when they end well: torch its
shared tensors, OpenMP its registration, multiprocessing and torchrun their folders. A tree that is killed leaves them,
and a search that kills a hundred trees fills ``/dev/shm``. So they are removed with the trial. But a data set that
somebody copied to ``/dev/shm`` is open in the trial's processes too, and a folder of checkpoints may be called
``torchelastic_experiments``. Being *used* by the trial, or being *called* something, shows nothing about who made it.

A path is removed only when all of this is shown:

- it lies in a place that a library made for itself: directly in ``/dev/shm``, or in a folder directly in the trial's
  temporary folder, under a name that the library makes up (``_KINDS``);
- no such name was there before the trial began (``before``);
- a process of the trial made it: the name carries the PID of one, one of them listens on a socket in it, or the
  environment of one names it as torchrun does;
- it is a file or folder of this user, and no symbolic link leads to it.

Of a folder only the files that the library itself puts there are unlinked, one by one, and the folder goes only when it
is empty then: nothing here removes a tree. What a process of the trial used in shared memory and changed since the
trial began, but what is not shown to be the trial's, stays and is named.

What does not work: asking which process created a file (the kernel does not keep it); the time of birth alone (another
program may have made the file meanwhile); a private ``/dev/shm`` for each trial (it hides the user's data set).

Standard library only, and few modules of it: the supervisor of every trial uses it too.
"""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

SHARED = "/dev/shm"

_BY_PID = re.compile(r"(?:torch_|__KMP_REGISTERED_LIB_|pym-)(\d+)[_-]\w+")
"""Shared tensors with the strategy file_system, OpenMP's registration, arenas of multiprocessing: the maker's PID is in
the name."""

_FOLDER = re.compile(r"(?:pymp-|torchelastic_|torch-shm-dir-)[A-Za-z0-9_]{6,8}")
"""Folders of multiprocessing, torchrun and torch's shared memory manager: mkdtemp makes up the rest of the name."""

_INSIDE = re.compile(r"listener-\w+|manager\.sock|pym-\d+-\w+|error\.json")
"""The files that those libraries put into such a folder."""


class Before(NamedTuple):
    """What stood in the places of libraries when a trial began."""

    temporary: str
    names: frozenset[str]
    began_s: float


class Leftovers(NamedTuple):
    """Paths that processes of a trial used: those shown to be the trial's own, and those changed but not shown."""

    own: frozenset[str] = frozenset()
    unclear: frozenset[str] = frozenset()

    def __or__(self, other: Leftovers) -> Leftovers:
        """Both together; what is shown once is shown."""
        own = self.own | other.own
        return Leftovers(own=own, unclear=(self.unclear | other.unclear) - own)


def before(env: Mapping[str, str]) -> Before:
    """What is in the places of libraries now, before a trial with the environment ``env`` begins."""
    temporary = _temporary(env)
    return Before(
        temporary=temporary,
        names=frozenset([*_matching(SHARED, _BY_PID), *_matching(temporary, _FOLDER)]),
        began_s=time.time(),
    )


def used_by(pids: Iterable[int], *, since: Before) -> Leftovers:
    """What these living processes of a trial use, have made, or have put their PID on, that may be left by them."""
    pids = frozenset(pids)
    own: set[str] = set()
    unclear: set[str] = set()
    for path in _matching(SHARED, _BY_PID) - since.names:
        if _pid_in(path) in pids:
            own.add(path)
    for pid in pids:
        for path in (*_bound(pid), *_error_file(pid)):
            folder = _folder_of(path, since=since)
            if folder:
                own.add(folder)
        for path in _open(pid):
            if path.startswith(f"{SHARED}/") and _changed_since(path, since):
                unclear.add(path)
    return Leftovers(own=frozenset(own), unclear=frozenset(unclear - own))


def remove(leftovers: Leftovers) -> tuple[str, ...]:
    """Remove what is shown to be the trial's; the paths that were removed."""
    removed: list[str] = []
    for path in sorted(leftovers.own):
        removed += _remove_folder(path) if _is_own(path, stat.S_ISDIR) else _remove_file(path)
    return tuple(removed)


def remaining(leftovers: Leftovers) -> tuple[str, ...]:
    """What is still there of all that the trial may have left: it was not shown to be the trial's, or is in use."""
    return tuple(filter(os.path.lexists, sorted(leftovers.own | leftovers.unclear)))


def orphans() -> tuple[str, ...]:
    """Shared tensors whose process is gone, whoever left them: doctor names them, nobody removes them."""
    return tuple(sorted(path for path in _matching(SHARED, _BY_PID) if not os.path.exists(f"/proc/{_pid_in(path)}")))  # noqa: PTH110 - pathlib is slow to import


def _temporary(env: Mapping[str, str]) -> str:
    """The folder that ``tempfile`` takes in a program with this environment."""
    for name in ("TMPDIR", "TEMP", "TMP"):
        folder = env.get(name, "")
        if folder.startswith("/") and os.path.isdir(folder):  # noqa: PTH112
            return os.path.realpath(folder)
    return "/tmp"


def _matching(folder: str, pattern: re.Pattern[str]) -> frozenset[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return frozenset()
    return frozenset(f"{folder}/{name}" for name in names if pattern.fullmatch(name))


def _pid_in(path: str) -> int:
    match = _BY_PID.fullmatch(path.rpartition("/")[2])
    return int(match[1]) if match else 0


def _folder_of(path: str, *, since: Before) -> str:
    """The library's folder that ``path`` lies in, if it lies directly in the temporary folder and is new there."""
    prefix = f"{since.temporary}/"
    path = f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}"  # noqa: PTH119, PTH120
    if not path.startswith(prefix):
        return ""
    name = path[len(prefix) :].partition("/")[0]
    folder = prefix + name
    return folder if _FOLDER.fullmatch(name) and folder not in since.names else ""


def _changed_since(path: str, since: Before) -> bool:
    try:
        return os.stat(path).st_ctime >= since.began_s  # noqa: PTH116
    except OSError:  # unlinked already, as well-behaved libraries do at once
        return False


def _open(pid: int) -> Iterator[str]:
    """The paths that a process has open or mapped."""
    with suppress(OSError), open(f"/proc/{pid}/maps") as maps:  # noqa: PTH123
        for line in maps:
            if SHARED in line:
                yield line.split(None, 5)[5].rstrip("\n")
    yield from _descriptors(pid)


def _bound(pid: int) -> Iterator[str]:
    """The paths of the UNIX sockets that a process listens on."""
    sockets = {target[8:-1] for target in _descriptors(pid) if target.startswith("socket:[")}
    if not sockets:
        return
    with suppress(OSError), open(f"/proc/{pid}/net/unix") as table:  # noqa: PTH123
        for line in table:
            row = line.split()
            if len(row) > 7 and row[6] in sockets:
                yield row[7]


def _descriptors(pid: int) -> list[str]:
    targets: list[str] = []
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            with suppress(OSError):
                targets.append(os.readlink(f"/proc/{pid}/fd/{number}"))  # noqa: PTH115
    return targets


def _error_file(pid: int) -> Iterator[str]:
    """The file in torchrun's own folder that a rank's environment names."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
        for entry in file.read().split(b"\0"):
            if entry.startswith(b"TORCHELASTIC_ERROR_FILE="):
                yield entry.partition(b"=")[2].decode(errors="replace")


def _is_own(path: str, kind: Callable[[int], bool]) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and kind(status.st_mode)


def _remove_file(path: str) -> list[str]:
    if not (_is_own(path, stat.S_ISREG) or _is_own(path, stat.S_ISSOCK)):
        return []
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        return []
    return [path]


def _remove_folder(folder: str) -> list[str]:
    """Remove the library's files in ``folder`` and in the folders below it, and those folders that are empty then."""
    removed: list[str] = []
    for here, _, files in os.walk(folder, topdown=False):
        for name in files:
            if _INSIDE.fullmatch(name):
                removed += _remove_file(f"{here}/{name}")
        if _is_own(here, stat.S_ISDIR):
            with suppress(OSError):  # not empty: it holds what is not the library's
                os.rmdir(here)  # noqa: PTH106
                removed.append(here)
    return removed
