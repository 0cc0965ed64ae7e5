"""Who holds the other end of what a thread waits for, among the processes of the trial.

A read from a pipe can be ended by whoever can write to it, a wait for a lock on a file by whoever holds it, a ``wait4``
by a child. ``/proc`` tells of each of the trial's own processes what it has open; processes of others are never looked
at, so what nobody of the trial holds is held outside. Only asked of threads that are blocked, while a trial is silent.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import stat
import struct
from bisect import bisect
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from harness.observe.procfs import MOST_PIDS, Files, bits_of
from harness.reading.waits import (
    ADDRESSES,
    BEGINS,
    DESCRIPTORS,
    LETS_NOBODY_ON,
    OWN_CONNECTION,
    OWN_SERVICE,
    SIGNAL_CALLS,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from harness.observe.syscalls import Call

_PRIVATE = 128
"""The flag of a futex that lies in memory of one process alone."""

_SEMAPHORE = "/dev/shm/sem.mp-"
"""How the name of a lock of multiprocessing begins, which it makes up and tells its children alone."""

_NOBODY_ELSES = "/dev/zero"
"""How the kernel calls shared memory of no file and no number (as System V's has): no other program can map it."""

_ANY_SEMAPHORE = "/dev/shm/sem."
_ITS_CODE = re.compile(r"(_multiprocessing\b|(lib)?python[\d.t]*(\.so|$)|$)")
"""Files with the code by which multiprocessing waits for a lock, or not known which: it takes each its name at once."""

_DELETED = " (deleted)"

_P_PID = 1
"""What ``waitid`` calls the wait for one child by its PID."""

_NO_PROCESS = -1
"""Who has a lock, or waits for one, that is an open file's and no process's."""

_TIMER = "anon_inode:[timerfd]"

_EVENT = "eventfd:["
"""How the target of an eventfd begins here."""

_LISTENER = "/pymp-"
"""What the path of a socket has at which multiprocessing listens for processes of the same program."""

_FORKS = "multiprocessing.forkserver"
"""What stands in the command of a process that forks others when it is asked to."""

_STACK_BYTES, _MOST_OF_STACK = 2048, 1 << 17
_WORD = struct.Struct("=Q")
_C_LIBRARY = ("libc.so", "libc-", "libpthread", "ld-linux", "ld-musl", "[v", "libevent")
"""Names of what calls go through: the C library, the kernel's own page (``[vdso]``), and libevent, which calls for
whoever runs its loop."""

_POLLFD = struct.Struct("=ihh")
_MOST_DESCRIPTORS = 256
"""Of a poll for more, of which each would have to be looked up, nobody tells who can end it."""

_MOST_OF_SELECT = 1024

ELSEWHERE = ("fuse", "nfs", "cifs", "smb", "ceph", "lustre", "gpfs", "beegfs", "afs", "9p", "virtiofs", "orangefs")
"""How the kinds of file systems begin that another program or machine serves: one that does not answer lets nobody go
who asks it for anything, not even for what kind of file this is."""

_WRITES = frozenset({"write", "writev"})
TRANSFERS = _WRITES | {
    "read", "readv", "pread", "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "accept", "accept4", "connect",
}  # fmt: skip
"""Calls whose first argument is the descriptor that they wait for."""

_CALLING, _LISTENING = "02", "0A"
_LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
"""Addresses at which only programs of this machine can connect."""

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _UDIAG_SHOW_PEER, _UNIX_DIAG_PEER = 4, 20, 4, 2
_NLMSG_DONE, _NLM_F_REQUEST_DUMP = 3, 0x301


class _Region(NamedTuple):
    """A piece of a process's memory, of the ``file`` that ``key`` names also when it has lost its name."""

    low: int
    high: int
    permissions: str
    key: str
    file: str

    def is_shared(self) -> bool:
        """Whether it is one that other processes may have, too."""
        return "s" in self.permissions and not self.key.endswith(":0")

    def is_code(self) -> bool:
        """Whether it is code of a program or a library, of which it is known which."""
        return "x" in self.permissions and bool(self.file)


_CONNECTED = frozenset({"socket-inet", "socket-unix"})
"""The labels of connections that stand."""


class End(NamedTuple):
    """What a call waits for: a label for the table of waits, words, who of the trial can end it, whether others can.

    ``has_guests`` says that one of several descriptors is a connection whose other end is not the trial's,
    ``has_a_timer`` that one is a timer that runs.
    """

    call: str
    on: str = ""
    holders: tuple[int, ...] = ()
    outside: bool | None = None
    has_guests: bool = False
    has_a_timer: bool = False


class Ends:
    """The open files, sockets and locks of the trial's processes at one moment, looked up when they are asked for.

    ``parents`` gives every live process of the trial with its parent. ``hands_out`` are the words of its source by
    which somebody outside may know where it listens, or have what it opened.
    """

    def __init__(
        self, parents: Mapping[int, int], *, files: Files | None = None, hands_out: Collection[str] = ()
    ) -> None:
        self._parents, self._files = dict(parents), files or Files()
        self._tells_addresses = not ADDRESSES.isdisjoint(hands_out)
        self._sends_descriptors = not DESCRIPTORS.isdisjoint(hands_out)
        self._code: dict[int, list[_Region]] = {}

    def of(self, pid: int, call: Call) -> End:
        """What a thread of ``pid`` that is blocked in ``call`` waits for."""
        first = call.arguments[0]
        name = call.name
        if name in ("futex", "futex_waitv"):
            return self._futex(pid, call)
        if name in ("wait4", "waitid"):
            return self._child(pid, call)
        if name in BEGINS:
            return self._newborn(pid, name)
        if name in ("flock", "fcntl"):
            return self._lock(pid, first)
        if name in TRANSFERS:
            return self._descriptor(pid, first, name)
        if name in ("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"):
            return self._several(pid, call)
        if name in SIGNAL_CALLS:
            return self._signal(pid, name)
        return End(name)

    def library(self, pid: int, call: Call) -> str:
        """The file name of what :meth:`caller` gives."""
        return self.caller(pid, call).rpartition("/")[2]

    def caller(self, pid: int, call: Call) -> str:
        """The path of the program or library whose code made ``call`` by the C library; empty where nothing tells.

        The C library's own functions lie innermost on the stack; what follows first is the address to return to.
        """
        if pid not in self._code:
            self._code[pid] = list(filter(_Region.is_code, self._regions(pid)))
        for word in self._words(pid, call.stack):
            path = _file_at(word, self._code[pid])
            if path and not path.rpartition("/")[2].startswith(_C_LIBRARY):
                return path
        return ""

    def _words(self, pid: int, stack: int) -> Iterator[int]:
        """What lies on a stack, from the innermost frame on, read as it is asked for; nothing where nobody may read it.

        The C library itself needs some kilobytes of it to ask for an address by a name (``getaddrinfo``).
        """
        for start in range(0, _MOST_OF_STACK if stack else 0, _STACK_BYTES):
            data = self._files.memory(pid, stack + start, _STACK_BYTES)
            if data is None:
                return
            for (word,) in _WORD.iter_unpack(data):
                yield word

    def _regions(self, pid: int) -> Iterable[_Region]:
        for line in self._files.lines(f"{pid}/maps"):
            place, permissions, _, device, inode, *file = line.split(None, 5)
            low, _, high = place.partition("-")
            yield _Region(int(low, 16), int(high, 16), permissions, f"{device}:{inode}", "".join(file).rstrip())

    def _region_at(self, pid: int, address: int) -> _Region | None:
        for region in self._regions(pid):
            if region.low <= address < region.high:
                return region
        return None

    # -- memory and children

    def _futex(self, pid: int, call: Call) -> End:
        if call.name == "futex_waitv" or call.arguments[1] & _PRIVATE:
            return End("futex", outside=False)
        at = self._region_at(pid, call.arguments[0])
        if at is None or "s" not in at.permissions:
            return End("futex", outside=False)
        holders = tuple(sorted(self._mapped.get(at.key, set[int]()) - {pid}))
        outside = not self._is_of_nobody_else(pid, call, at)
        return End("futex-shared", "a lock that processes share", holders or (pid,), outside=outside)

    def _is_of_nobody_else(self, pid: int, call: Call, at: _Region) -> bool:
        """Whether no other program can map this memory.

        That has no file and no number, or is a lock of multiprocessing, whose name nobody was told. Any other file may
        have been handed out open (a memfd), or mapped before it lost its name, and any other semaphore opened by it.
        """
        name = self._name_now(pid, at)
        if name or not at.file.startswith(_ANY_SEMAPHORE):
            return name.startswith(_SEMAPHORE) or (not name and at.file.startswith(_NOBODY_ELSES))
        return _ITS_CODE.match(self.library(pid, call)) is not None

    def _name_now(self, pid: int, region: _Region) -> str:
        """The name by which other programs find a piece of shared memory; empty where it has none.

        The C library makes a semaphore under a name of the moment and links it to its own: the kernel calls it deleted.
        """
        path = region.file.removesuffix(_DELETED)
        if path == region.file:
            return path
        folder = path.rpartition("/")[0]
        for name in self._files.names(f"{pid}/root{folder}") if folder else ():
            with suppress(OSError):
                status = os.stat(f"{self._files.root}/{pid}/root{folder}/{name}", follow_symlinks=False)
                device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
                if f"{device}:{status.st_ino}" == region.key:
                    return f"{folder}/{name}"
        return ""

    @cached_property
    def _mapped(self) -> dict[str, set[int]]:
        """Who of the trial has which piece of shared memory."""
        mapped: dict[str, set[int]] = {}
        for pid in self._parents:
            for region in filter(_Region.is_shared, self._regions(pid)):
                mapped.setdefault(region.key, set()).add(pid)
        return mapped

    def _child(self, pid: int, call: Call) -> End:
        children = self._children(pid)
        kind, target = (_P_PID, call.arguments[0]) if call.name == "wait4" else call.arguments[:2]
        child = next((child for child in children if self._number(child, parent=pid) == target), None)
        if kind == _P_PID and child is not None:
            return End(call.name, f"child {child}", (child,), outside=False)
        if kind == _P_PID and 0 < target <= MOST_PIDS:  # what is larger is a group, or any child
            return End(call.name, f"process {target}, which it traces", outside=True)
        return End(call.name, "any child", children, outside=False)

    def _number(self, child: int, *, parent: int) -> int:
        """What a process of the trial is called by its parent, which may be in a container, or make one for it."""
        numbers, depth = self._files.numbers(f"{child}"), len(self._files.numbers(f"{parent}"))
        return numbers[depth - 1] if 0 < depth <= len(numbers) else child

    def _newborn(self, pid: int, name: str) -> End:
        """A process that runs in its parent's memory, and its place, until it begins a program or ends."""
        started = {child: stat for child in self._children(pid) if (stat := self._files.stat(f"{child}")) is not None}
        if not started:
            return End(name)
        newborn = max(started, key=lambda child: int(started[child][19]))
        return End(name, f"child {newborn} to begin its program", (newborn,), outside=False)

    def _children(self, pid: int) -> tuple[int, ...]:
        return tuple(sorted(child for child, parent in self._parents.items() if parent == pid))

    def _signal(self, pid: int, name: str) -> End:
        if self._files.stat(f"{pid}") is None:
            return End(name)
        handled = self._files.signals(f"{pid}", "SigCgt")
        if handled - LETS_NOBODY_ON:
            return End(name, outside=True)
        if signal.SIGCHLD in handled:
            return End(name, "the end of a child", self._children(pid), outside=False)
        return End(name, "a signal, of which it handles none that would let it go on", outside=False)

    # -- files

    def _lock(self, pid: int, fd: int) -> End:
        """A lock on a file: who has it stands in ``/proc/locks``, by PID, also of programs that are not ours."""
        place = self._place(pid, fd)
        if not place:
            return End("flock")
        holders: set[int] = set()
        for lock in self._blocking(pid, place):
            owner = int(lock[3])
            heirs = self._heirs(lock) if "WRITE" in lock and owner not in self._parents else set[int]()
            holders |= heirs or {owner}
        ours = tuple(sorted(holders & self._parents.keys()))
        others = sorted(holders - self._parents.keys())
        what = f"a lock on a file, held by process {others[0]}" if others and others[0] > 0 else "a lock on a file"
        what += ", held by this process itself" if ours == (pid,) and not others else ""
        return End("flock", what, ours, outside=bool(others) or not ours)

    def _descriptor(self, pid: int, fd: int, call: str) -> End:
        target = self._target(pid, fd)
        if target.startswith("pipe:["):
            end = self._pipe(target, reads=call not in _WRITES)
            return (
                end._replace(on=f"{end.on}, its other end open in this process alone") if end.holders == (pid,) else end
            )
        if target.startswith("socket:["):
            end = self._socket(pid, int(target[8:-1]))
            return end._replace(outside=True) if call in TRANSFERS and has_a_limit(pid, fd) else end
        if target.startswith(_EVENT):
            return self._event(pid, target)
        if target == _TIMER:
            left = [line for line in self._files.lines(f"{pid}/fdinfo/{fd}") if line.startswith("it_value:")]
            return End(call, outside=True, has_a_timer=re.search(r"[1-9]", "".join(left)) is not None)
        if target.startswith("/") and self._is_fifo(pid, fd):
            end = self._pipe(target, reads=call not in _WRITES)
            return end if target.endswith(_DELETED) else end._replace(outside=True)  # anybody may open it by its name
        return End(call, target if target.startswith(("/dev/pts", "/dev/tty")) else "")

    def _pipe(self, target: str, *, reads: bool) -> End:
        opposite = "w" if reads else "r"
        holders = self._holding(target, modes=(opposite, "rw"))
        what = "something in a pipe" if reads else "room in a pipe"
        outside = not holders or self._sends_descriptors
        return End("pipe-read" if reads else "pipe-write", what, holders, outside=outside)

    def _event(self, pid: int, target: str) -> End:
        """An eventfd: who has it open may write to it.

        One descriptor is for both ends, so nothing shows who was handed it through a socket, or that the kernel writes
        to it once input and output are done.
        """
        return End("eventfd", "an event", self._holding(target) or (pid,), outside=True)

    def _blocking(self, pid: int, place: str) -> list[list[str]]:
        """The locks on a file that a process waits for, each by kind, owner and range as the kernel writes them.

        Behind the line of each lock come those of who waits for it, with an arrow. One for an open file names nobody.
        """
        blocking: list[list[str]] = []
        lock: list[str] = []
        for line in self._files.lines("locks"):
            _, *fields = line.split()
            if "->" not in fields:
                lock = fields
            elif place in fields and int(fields[4]) in (pid, _NO_PROCESS) and lock not in blocking:
                blocking.append(lock)
        return blocking

    def _heirs(self, lock: Sequence[str]) -> set[int]:
        """Who of the trial has that very lock by an open file, which an ended process took, as ``flock 9`` does."""
        heirs: set[int] = set()
        for pid in self._parents:
            for fd in self._files.names(f"{pid}/fdinfo"):
                for line in self._files.lines(f"{pid}/fdinfo/{fd}"):
                    if line.startswith("lock:") and line.split()[2:] == lock:
                        heirs.add(pid)
        return heirs

    def _place(self, pid: int, fd: int) -> str:
        """Device and number of an open file, as ``/proc/locks`` has them; empty where nobody tells.

        The kernel knows both. Asking the file itself would ask its file system, which may be what does not answer.
        """
        number = self._files.fields(f"{pid}/fdinfo/{fd}").get("ino")
        device, kind = self._mount(pid, fd)
        if number and device:
            major, minor = map(int, device.split(":"))
            return f"{major:02x}:{minor:02x}:{number}"
        if kind.startswith(ELSEWHERE):
            return ""
        try:
            status = os.stat(f"{self._files.root}/{pid}/fd/{fd}")
        except OSError:
            return ""
        return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"

    def _mount(self, pid: int, fd: int) -> tuple[str, str]:
        """Device (``8:1``) and kind (``ext4``) of the file system that an open file is on; empty where nobody tells."""
        mount = self._files.fields(f"{pid}/fdinfo/{fd}").get("mnt_id")
        for line in self._files.lines(f"{pid}/mountinfo"):
            fields = line.split()
            if fields[0] == mount and "-" in fields:
                return fields[2], fields[fields.index("-") + 1]
        return "", ""

    def _is_fifo(self, pid: int, fd: int) -> bool:
        if self._mount(pid, fd)[1].startswith(ELSEWHERE):
            return False
        try:
            return stat.S_ISFIFO(os.stat(f"{self._files.root}/{pid}/fd/{fd}").st_mode)
        except OSError:
            return False

    # -- sockets

    def _socket(self, pid: int, inode: int) -> End:
        for table in ("tcp", "tcp6"):
            rows = [line.split() for line in self._files.lines(f"{pid}/net/{table}")[1:]]
            for row in rows:
                if len(row) > 9 and row[9] == str(inode):
                    return self._of_tcp(row, rows)
        peer_inode = self._peers.get(inode)
        if peer_inode is None:
            if _LISTENER in self._line_of(pid, inode):
                return End("socket-unix", OWN_CONNECTION, self._clients(pid), outside=self._tells_addresses)
            return End("socket-unix", outside=True)
        holders = self._holding(f"socket:[{peer_inode}]")
        outside = not holders or self._sends_descriptors
        return End("socket-unix", "a socket of this machine", holders, outside=outside)

    def _clients(self, pid: int) -> tuple[int, ...]:
        """Who may connect where multiprocessing listens: the whole trial, for an address can be handed on.

        That of a server which forks is told to nobody but the one that started it, and to those below that. What it
        has forked has its command, too, and may be a server of anything.
        """
        parent = self._parents.get(pid)
        if parent not in self._parents or self._forks(parent) or not self._forks(pid):
            return tuple(sorted(self._parents))
        family = {parent}
        while more := {child for child, above in self._parents.items() if above in family} - family:
            family |= more
        return tuple(sorted(family))

    def _forks(self, pid: int) -> bool:
        return any(_FORKS in part for part in self._files.parts(f"{pid}/cmdline"))

    def _of_tcp(self, row: Sequence[str], rows: Sequence[Sequence[str]]) -> End:
        """A socket by its row in the kernel's table of those of TCP, of which ``rows`` are all."""
        if row[3] == _CALLING:
            return End("connect", f"an answer of {_address(row[2])}", outside=True)  # after some tries it gives up
        if row[3] == _LISTENING:
            return self._listener(row[1], rows)
        peer = _peer(row, rows)
        holders = self._holding(f"socket:[{peer}]") if peer != "0" else ()
        address = _address(row[2])
        call = "socket-unix" if address.startswith(("127.", "::1", "::ffff:127.")) else "socket-inet"
        return End(call, f"a socket to {address}", holders, outside=not holders or self._sends_descriptors)

    def _line_of(self, pid: int, inode: int) -> str:
        """What the kernel's table of UNIX sockets says of one; empty where it is not there."""
        for line in self._files.lines(f"{pid}/net/unix"):
            if f" {inode} " in line:
                return line
        return ""

    def _listener(self, address: str, rows: Sequence[Sequence[str]]) -> End:
        """Who may connect: anybody who knows the port.

        One of this machine alone that the kernel chose is known to the program. Where one of its processes is connected
        there, it is a service of its own; that it gave the port to somebody outside as well is not ruled out.
        """
        host, _, port = _address(address).rpartition(":")
        own = any(row[2] == address and f"socket:[{row[9]}]" in self._open for row in rows if len(row) > 9)
        low, high = next(map(str.split, self._files.lines("sys/net/ipv4/ip_local_port_range")), ("1", "0"))
        is_private = own and host in _LOOPBACK and int(low) <= int(port) <= int(high)
        holders = tuple(sorted(self._parents)) if is_private else ()
        name = OWN_SERVICE if is_private else "accept"
        return End(name, f"a connection to port {port}", holders, outside=not is_private)

    @cached_property
    def _peers(self) -> dict[int, int]:
        return _unix_peers()

    def _holding(self, target: str, *, modes: Sequence[str] = ("r", "w", "rw")) -> tuple[int, ...]:
        return tuple(sorted({pid for pid, mode in self._open.get(target, ()) if mode in modes}))

    # -- several descriptors

    def _several(self, pid: int, call: Call) -> End:
        """A poll: whoever can end the wait for any of its descriptors."""
        descriptors = self._polled(pid, call)
        if descriptors is None:
            return End(call.name)
        name, outside, has_guests, has_a_timer = call.name, not descriptors, False, False
        objects, holders = set[str](), set[int]()
        for fd in descriptors:
            end = self._descriptor(pid, fd, call.name)
            name = OWN_SERVICE if end.call == OWN_SERVICE else name
            outside = outside or end.outside is not False
            has_guests = has_guests or (end.outside is True and end.call in _CONNECTED)
            has_a_timer = has_a_timer or end.has_a_timer
            objects.add(end.on)
            holders.update(end.holders)
        objects.discard("")
        what = objects.pop() if len(objects) == 1 else f"one of {len(descriptors)} descriptors"
        return End(name, what, tuple(sorted(holders)), outside, has_guests, has_a_timer)

    def _polled(self, pid: int, call: Call) -> list[int] | None:
        if call.name.startswith("epoll"):
            lines = self._files.lines(f"{pid}/fdinfo/{call.arguments[0]}")
            return [int(line.split()[1]) for line in lines if line.startswith("tfd:")] or None
        if call.name in ("poll", "ppoll"):
            if call.arguments[1] > _MOST_DESCRIPTORS:
                return None
            data = self._files.memory(pid, call.arguments[0], call.arguments[1] * _POLLFD.size)
            return None if data is None else [fd for fd, _, _ in _POLLFD.iter_unpack(data) if fd >= 0]
        descriptors: list[int] = []
        for pointer in call.arguments[1:3]:
            data = self._files.memory(pid, pointer, (call.arguments[0] + 7) // 8) if pointer else b""
            if data is None or call.arguments[0] > _MOST_OF_SELECT:
                return None
            descriptors += bits_of(int.from_bytes(data, "little"))
        return descriptors

    # -- /proc

    @cached_property
    def _open(self) -> dict[str, list[tuple[int, str]]]:
        """Who of the trial has which pipe, socket or file open, and how (``r w rw``)."""
        opened: dict[str, list[tuple[int, str]]] = {}
        for pid in self._parents:
            for fd in self._files.names(f"{pid}/fd"):
                target = self._target(pid, int(fd))
                is_fifo = target.startswith("/") and self._is_fifo(pid, int(fd))
                if is_fifo or target.startswith(("pipe:[", "socket:[", _EVENT)):
                    opened.setdefault(target, []).append((pid, self._mode(pid, fd)))
        return opened

    def _mode(self, pid: int, fd: str) -> str:
        access = int(self._files.fields(f"{pid}/fdinfo/{fd}").get("flags", "02"), 8) & 3
        return {0: "r", 1: "w"}.get(access, "rw")

    def _target(self, pid: int, fd: int) -> str:
        """What a descriptor is open on; ``eventfd:[7]`` by the number that the kernel gives since 5.2, else without."""
        target = self._files.link(f"{pid}/fd/{fd}")
        if target.startswith("anon_inode:[eventfd"):
            return f"{_EVENT}{self._files.fields(f'{pid}/fdinfo/{fd}').get('eventfd-id', '')}]"
        return target


def _file_at(address: int, code: Sequence[_Region]) -> str:
    """The path of the file whose code lies at an address; empty where none does."""
    index = bisect(code, address, key=lambda region: region.low) - 1
    return code[index].file if index >= 0 and address < code[index].high else ""


def _peer(row: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The inode of the socket at the other end of a connection; 0 where it is not on this machine."""
    for other in rows:
        if other[1] == row[2] and other[2] == row[1]:
            if other[9] != "0":
                return other[9]
            break
    # Nobody has accepted it: then whoever of this machine listens there can.
    for other in rows:
        if other[3] == _LISTENING and _serves(other[1], local=row[1], to=row[2]):
            return other[9]
    return "0"


def _serves(listening: str, *, local: str, to: str) -> bool:
    """Whether a socket that listens at ``listening`` takes a connection from ``local`` to ``to``, all as in /proc."""
    host, _, port = listening.rpartition(":")
    here, (there, _, to_port) = local.rpartition(":")[0], to.rpartition(":")
    on_any = not host.strip("0") and (there == here or _address(to).startswith(("127.", "::1")))
    return port == to_port and (host == there or on_any)


def _address(text: str) -> str:
    """``10.0.0.3:29500`` of the kernel's hexadecimal form, in which every word of four bytes is turned around."""
    host, _, port = text.partition(":")
    raw = b""
    for start in range(0, len(host), 8):
        raw += bytes.fromhex(host[start : start + 8])[::-1]
    family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, raw)}:{int(port, 16)}"


def _unix_peers() -> dict[int, int]:
    """The UNIX sockets of this network namespace by inode, each with its peer's; empty where the kernel won't tell."""
    peers: dict[int, int] = {}
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _UDIAG_SHOW_PEER, 0, 0)
    header = struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0)
    with suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(1.0)
        link.send(header + request)
        while True:
            data = link.recv(1 << 17)
            for kind, payload in _records(data, "=IH", head=16):
                if kind == _NLMSG_DONE:
                    return peers
                if kind == _SOCK_DIAG_BY_FAMILY and len(payload) >= 16:
                    inode = struct.unpack_from("=I", payload, 4)[0]
                    for attribute, value in _records(payload[16:], "=HH", head=4):
                        if attribute == _UNIX_DIAG_PEER and len(value) >= 4:
                            peers[inode] = struct.unpack_from("=I", value)[0]
    return peers


def _records(data: bytes, layout: str, *, head: int) -> Iterable[tuple[int, bytes]]:
    """Kind and content of each record in what netlink answers: a ``head`` of so many bytes begins with its length."""
    while len(data) >= head:
        length, kind = struct.unpack_from(layout, data)
        if length < head:
            return
        yield kind, data[head:length]
        data = data[(length + 3) & ~3 :]


_PIDFD_GETFD, _TCP_USER_TIMEOUT = 438, 18


def has_a_limit(pid: int, fd: int) -> bool:
    """Whether a socket of a process has a time limit of its own, after which a blocked call on it gives up.

    Nothing in ``/proc`` tells: the descriptor is borrowed for a moment (``pidfd_getfd``), and asked. Never that of a
    file: to close it asks the file's system, which may be what does not answer.
    """
    if not Files().link(f"{pid}/fd/{fd}").startswith("socket:"):
        return False
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        borrowed = _borrow(pidfd, fd)
    finally:
        os.close(pidfd)
    if borrowed < 0:
        return False
    try:
        ours = socket.socket(fileno=borrowed)
    except OSError:  # another file has that number by now
        os.close(borrowed)
        return False
    with ours:
        asked = [(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16), (socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)]
        if ours.family in (socket.AF_INET, socket.AF_INET6) and ours.proto == socket.IPPROTO_TCP:
            asked.append((socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, 4))
        try:
            return any(any(ours.getsockopt(*one)) for one in asked)
        except OSError:  # of some kinds (vsock) nobody is told: it may have one
            return True


def _borrow(pidfd: int, fd: int) -> int:
    """A descriptor of ours for what ``fd`` is in the process of ``pidfd``; -1 where the kernel will not give one."""
    return ctypes.CDLL(None).syscall(_PIDFD_GETFD, pidfd, fd, 0)
