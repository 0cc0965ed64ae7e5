"""Claims: GPUs and ports of this machine, each held by at most one of all the processes that ask here.

Two controllers, or a controller and a pytest session, know nothing of each other. What they share is a folder with one
file for each GPU and port; whoever has the kernel's lock on a file (flock) has the thing. The kernel gives a lock back
when its holder ends, whatever ended it, so nobody ever finds a lease of the dead. A child that was forked without exec
keeps its parent's claims until it has ended, too: it may still use them.

Who wants several GPUs takes his turn on all of those that he may get, in one order that is everybody's, and only then
collects: nobody waits for anybody while he holds what others collect, so nobody waits in a circle, and whoever wants
many is not overtaken for ever by those who want one. Those whose GPUs do not overlap do not meet.

A GPU is known by its UUID where the driver tells it, so that "1" and "GPU-0a1b..." are the same one.

What does not work: writing PIDs into files (a PID is given to somebody else, and a dead holder has to be guessed),
and taking each GPU as it comes while others do so too (two who want two of two have one each, for ever). Nobody sees
these claims from a container with a /tmp of its own: set ``NSA_HARNESS_LEASES`` to a folder that both see.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.core.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

AGAIN_S = 0.2
"""Seconds between two attempts to get what somebody else holds."""

PORTS = range(20_000, 30_000)
"""Below the ports that the kernel gives away by itself."""


class Stopped(Exception):
    """The user asked to stop while something was waited for."""


@dataclass(slots=True)
class Hold:
    """What is held, by name, until it is released or this process ends."""

    names: tuple[str, ...]
    fds: list[int] = field(default_factory=list[int])

    def taken(self, names: tuple[str, ...]) -> Hold:
        """What this one has collected, as another's that calls it ``names``; this one has nothing afterwards."""
        fds, self.fds = self.fds, []
        return Hold(names, fds)

    def release(self) -> None:
        """Let others have it, whatever was forked meanwhile."""
        while self.fds:
            fd = self.fds.pop()
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Claims:
    """The claims in ``folder``. ``identity`` is what a GPU's name stands for, the same whoever asks."""

    def __init__(self, folder: Path, *, identity: Callable[[str], str], sleep: Callable[[float], None]) -> None:
        self._folder, self._identity, self._sleep = folder, identity, sleep

    def try_gpus(self, n: int, *, among: Sequence[str]) -> Hold | None:
        """``n`` GPUs of ``among`` if they are free now and nobody else has been waiting for them."""
        keys = self._keys(n, among)
        with ExitStack() as turns, Hold(()) as hold:
            for key in sorted(keys):
                fd = self._lock(f"turn-{key}")
                if fd is None:
                    return None
                turns.callback(os.close, fd)
            return self._collect(n, keys, hold)

    def gpus(
        self,
        n: int,
        *,
        among: Sequence[str],
        stop: Callable[[], bool] = lambda: False,
        waits: Callable[[str], None] = lambda who: None,
    ) -> Hold:
        """``n`` GPUs of ``among``, in the order of ``among``, as soon as they are free.

        ``waits`` is told once who holds what is waited for.

        Raises:
            LaunchError: there are not so many, or the folder cannot be used.
            Stopped: ``stop`` said so meanwhile.
        """
        keys = self._keys(n, among)
        with ExitStack() as turns, Hold(()) as hold:
            for key in sorted(keys):
                while (fd := self._lock(f"turn-{key}")) is None:
                    self._wait(stop, waits, f"turn-{key}")
                    waits = _ignore
                turns.callback(os.close, fd)
            while (claim := self._collect(n, keys, hold)) is None:
                self._wait(stop, waits, next(key for key in keys if key not in hold.names))
                waits = _ignore
            return claim

    def ports(self, n: int) -> Hold:
        """``n`` ports that nobody listens on and nobody else gets here meanwhile; names are their numbers.

        Raises:
            LaunchError: no so many are free.
        """
        with Hold(()) as hold:
            begin = (os.getpid() * 97) % len(PORTS)
            for port in (*PORTS[begin:], *PORTS[:begin]):
                if len(hold.names) == n:
                    break
                if (fd := self._lock(f"port-{port}")) is None:
                    continue
                hold.fds.append(fd)
                if _is_free(port):
                    hold.names = (*hold.names, str(port))
            if len(hold.names) < n:
                raise LaunchError(f"{n} free ports were asked for, and {len(hold.names)} are free")
            return hold.taken(hold.names)

    def holder(self, name: str) -> str:
        """Who holds the lock of that name, in words; empty when nobody can be named."""
        with suppress(OSError):
            status = (self._folder / name).stat()
            place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
            with open("/proc/locks", encoding="ascii") as file:  # noqa: PTH123 - a file of the kernel's
                for line in file:
                    words = line.split()
                    if "FLOCK" in words and place in words and "->" not in words:
                        return f"process {words[words.index(place) - 1]}"
        return ""

    def _keys(self, n: int, among: Sequence[str]) -> dict[str, str]:
        """The locks of these GPUs, each with the name that the GPU has here."""
        if n > len(among):
            raise LaunchError(f"{n} GPUs are wanted, but {len(among)} are visible here")
        return {f"gpu-{self._identity(name)}": name for name in among} if n else {}

    def _collect(self, n: int, keys: dict[str, str], hold: Hold) -> Hold | None:
        """Take what is free into ``hold``; the whole claim once that is ``n``."""
        for key in keys:
            if len(hold.names) < n and key not in hold.names and (fd := self._lock(key)) is not None:
                hold.names = (*hold.names, key)
                hold.fds.append(fd)
        if len(hold.names) < n:
            return None
        return hold.taken(tuple(name for key, name in keys.items() if key in hold.names))

    def _wait(self, stop: Callable[[], bool], waits: Callable[[str], None], name: str) -> None:
        if stop():
            raise Stopped
        waits(self.holder(name))
        self._sleep(AGAIN_S)

    def _lock(self, name: str) -> int | None:
        """The lock ``name``; None while somebody has it."""
        path = self._folder / name
        try:
            fd = _open(path)
        except OSError as error:
            raise LaunchError(f"{path} cannot be used: {error.strerror}; NSA_HARNESS_LEASES names another") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd


def _open(path: Path) -> int:
    """A descriptor that may lock the file, whoever made it; it is never written to."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    if not path.parent.exists():
        path.parent.mkdir(exist_ok=True)
        path.parent.chmod(0o1777)  # as /tmp: everybody's, and only the owner removes a file
    return os.open(path, flags | os.O_CREAT, 0o644)


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True


def _ignore(who: str) -> None:
    """Whoever was told once is not told again."""
