"""/proc as text: what is gone, or what this user may not read, is empty or None, and never an error."""

from __future__ import annotations

import errno
import os
import stat

PROC = "/proc"
"""Where the kernel of this machine tells of its processes."""

MOST_PIDS = 1 << 22
"""The largest number of a process or thread that Linux gives."""

_SCRIPT_BYTES = 1 << 20
"""More is not read of a script: it is asked for a word in it."""

_GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EINVAL})
"""What the kernel answers of what is gone, or not ours to read; EINVAL of the mounts of a process that has ended."""


class Files:
    """The kernel's files about processes below ``root``; ``at`` is a path in it, ``4711/status``."""

    def __init__(self, root: str = PROC) -> None:
        self.root = root

    def text(self, at: str) -> str | None:
        """The whole file; None where there is none to be read."""
        try:
            fd = os.open(f"{self.root}/{at}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            return _none_of_what_is_gone(error)
        try:
            return b"".join(iter(lambda: os.read(fd, 1 << 16), b"")).decode(errors="replace")
        except OSError as error:
            return _none_of_what_is_gone(error)
        finally:
            os.close(fd)

    def script(self, at: str) -> str:
        """The beginning of a program's own file; empty of a pipe (``bash <(make_it)``), which nobody reads twice."""
        path = f"{self.root}/{at}"
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a link into another root
                return ""
            with open(path, "rb") as file:  # noqa: PTH123 - likewise
                return file.read(_SCRIPT_BYTES).decode(errors="replace")
        except (OSError, ValueError):
            return ""

    def lines(self, at: str) -> list[str]:
        """Its lines."""
        return (self.text(at) or "").splitlines()

    def parts(self, at: str) -> list[str]:
        """What zero bytes divide in it, as words of a command line and variables are."""
        return [part for part in (self.text(at) or "").split("\0") if part]

    def link(self, at: str) -> str:
        """Where a link leads to, which need not be a path: ``pipe:[4711]``."""
        try:
            return os.readlink(f"{self.root}/{at}")  # noqa: PTH115 - "pipe:[4711]" is no path
        except OSError:
            return ""

    def names(self, at: str) -> list[str]:
        """What is in a folder."""
        try:
            return os.listdir(f"{self.root}/{at}")  # noqa: PTH208 - thousands of times in a silence
        except OSError as error:
            return _none_of_what_is_gone(error) or []

    def stat(self, at: str) -> list[str] | None:
        """``stat`` after the name: [0] state, [1] parent, [7] faults, [11] [12] CPU, [19] start, [21] pages."""
        # The name is in parentheses and may hold spaces and parentheses itself.
        fields = (self.text(f"{at}/stat") or "").rpartition(")")[2].split()
        return fields if len(fields) > 21 else None

    def signals(self, at: str, kind: str) -> frozenset[int]:
        """``SigCgt``, ``SigBlk`` or ``SigIgn`` of a process, or ``SigPnd`` of a thread (``7/task/8``), by number."""
        mask = self.fields(f"{at}/status").get(kind, "0")
        return frozenset(bits_of(int(mask, 16), first=1))

    def inner(self, at: str) -> int:
        """The number of a process, or of a thread of it (``7/task/8``), in its own namespace; 0 of one that is gone."""
        return next(reversed(self.numbers(at)), 0)

    def numbers(self, at: str) -> tuple[int, ...]:
        """The same in each namespace that it is in, from ours to its own."""
        for line in self.lines(f"{at}/status"):
            if line.startswith("NSpid:"):
                return tuple(map(int, line.split()[1:]))
        return ()

    def memory(self, pid: int, address: int, size: int) -> bytes | None:
        """What lies in the memory of a process; None where this user may not read it. Nobody is stopped for that."""
        try:
            fd = os.open(f"{self.root}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            data = os.pread(fd, size, address)
        except (OSError, OverflowError):
            return None
        finally:
            os.close(fd)
        return data if len(data) == size else None

    def fields(self, at: str) -> dict[str, str]:
        """The first word behind each name in a file of lines such as ``VmHWM: 4711 kB``."""
        fields: dict[str, str] = {}
        for line in self.lines(at):
            name, _, value = line.partition(":")
            fields[name] = next(iter(value.split()), "")
        return fields


def _none_of_what_is_gone(error: OSError) -> None:
    """Nothing; or the error itself, where it says something of us: no descriptor of ours is free."""
    if error.errno not in _GONE:
        raise error


def bits_of(mask: int, *, first: int = 0) -> list[int]:
    """The numbers of the bits that are set in a mask whose lowest bit has the number ``first``."""
    return [first + bit for bit in range(mask.bit_length()) if mask >> bit & 1]
