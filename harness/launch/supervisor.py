"""The supervisor: one small process per trial that owns the trial's whole process tree.

It is started with one socket to the controller and nothing on its standard input, leads its own session, and is the
subreaper of all it starts, so that nothing can leave its tree by forking twice or by changing the session. Its parent
is a guard (``harness.launch.guard``), which ends the tree when the supervisor dies. On the socket, one JSON object a
line:

    controller -> supervisor   the request, then any number of {"end": false | true}
    supervisor -> controller   {"failed": why}  or  {"pid": worker, "supervisor": pid, "guard": pid,
                               "group": control group or ""} with pidfds of supervisor, guard and worker,
                               {"code": n} or {"signal": n} when the worker has ended,
                               {"output_lost": why} when output could not be written,
                               {"alone": bool} in answer to "end"

It ends itself when it is asked to and nothing of the trial is left, or at once for ``{"end": true}``. When the
controller dies (the socket ends, or is reset), when the guard dies, on SIGTERM, or when something unexpected happens to
it, it kills the whole tree first.

Standard library only, and few modules of it: it is on the way of every trial.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from harness.launch import cgroup, prctl
from harness.launch.guard import childless, end_descendants, fork_supervisor, reap
from harness.shim.nsa_harness_shim import OUTPUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.launch.guard import Owned


LISTENER, LISTENER_ID = "LISTEN_PID", "LISTEN_PIDFDID"
"""Variables by which a program knows that the sockets that systemd opened are for itself (``sd_listen_fds``)."""

_CHUNK_BYTES = 1 << 16
_PIPE_BYTES = 1 << 20
_QUIET_MS = 50
_FLUSH_S = 0.5


def supervise(control: int, *, keep: frozenset[int] = frozenset()) -> Callable[[], int | None]:
    """Run a trial for the controller at the other end of the socket ``control``.

    It returns only in the worker, when that was forked and not executed: with what the worker is to run. The
    caller unwinds its own stack and then calls it, so that no frame of ours is below the trial's. ``keep``
    names descriptors that a forked worker must not lose.
    """
    os.set_inheritable(control, False)  # noqa: FBT003 - positional only
    if os.getsid(0) != os.getpid():
        os.setsid()
    request = _receive_request(control)
    if request is None:
        os._exit(0)
    owned = fork_supervisor(
        token=request["token"], env=request["env"], control=control, descriptors=request["descriptors"]
    )
    prctl.set_name("nsa-supervisor")
    wake = _watch_signals()
    reads, writes = zip(os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC), strict=True)  # stdout, stderr
    try:
        files = [
            BoundedFile(head=head, tail=tail, bound=request["max_output_bytes"]) for head, tail in request["output"]
        ]
    except OSError as error:
        _say(control, {"failed": f"the output files cannot be made: {error}"})
        os._exit(1)
    failed, fail = os.pipe2(os.O_CLOEXEC)
    supervisor = os.getpid()
    worker = os.fork()
    if worker == 0:
        return _become_worker(request, owned, supervisor=supervisor, output=list(writes), fail=fail, keep=keep)
    for descriptor in (fail, *writes, *request["descriptors"]):
        os.close(descriptor)
    why = _read_all(failed)
    if why:
        _say(control, {"failed": why})
        os._exit(1)
    _introduce(control, owned, supervisor=supervisor, worker=worker)
    watch = _Watch(
        control=control,
        wake=wake,
        worker=worker,
        owned=owned,
        pipes=dict(zip(reads, files, strict=True)),
    )
    try:
        watch.run()
    except BaseException:  # noqa: BLE001 - whatever it is, nothing of the trial may be left
        traceback.print_exc()
        watch.end_everything()


def _watch_signals() -> int:
    """Have SIGCHLD and SIGTERM wake us through a pipe; Ctrl-C and a lost terminal are the controller's business."""
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return read


def _receive_request(control: int) -> dict[str, Any] | None:
    text = b""
    while not text.endswith(b"\n"):
        chunk = _hear(control)
        if not chunk:
            return None
        text += chunk
    return json.loads(text)


def _hear(control: int) -> bytes:
    """What the controller has said; nothing when it is gone, whether it had read all that we said or not."""
    try:
        return os.read(control, _CHUNK_BYTES)
    except ConnectionResetError:
        return b""


def _say(control: int, message: dict[str, Any], *, descriptors: tuple[int, ...] = ()) -> None:
    line = json.dumps(message).encode() + b"\n"
    end = socket.socket(fileno=os.dup(control))
    try:
        socket.send_fds(end, [line], descriptors)
    except (BrokenPipeError, ConnectionResetError):
        return  # the controller is gone; the next read says so too, and there everything is ended
    finally:
        end.close()


def _introduce(control: int, owned: Owned, *, supervisor: int, worker: int) -> None:
    # We have not waited for the worker yet, so its PID cannot have been given to another process. The guard may be dead
    # by now: our parent is then a stranger, whose children the controller must never take for the trial's.
    descriptors = (os.pidfd_open(supervisor), owned.guard_fd, os.pidfd_open(worker))
    facts = {"pid": worker, "supervisor": supervisor, "guard": owned.guard, "group": owned.group}
    _say(control, facts, descriptors=descriptors)
    for fd in descriptors:
        os.close(fd)


def _read_all(fd: int) -> str:
    text = b""
    while chunk := os.read(fd, _CHUNK_BYTES):
        text += chunk
    os.close(fd)
    return text.decode(errors="replace")


# --- the worker's side of the fork ---------------------------------------------------------------------------------


def _become_worker(
    request: dict[str, Any], owned: Owned, *, supervisor: int, output: list[int], fail: int, keep: frozenset[int]
) -> Callable[[], int | None]:
    """Turn the fork into the worker: own session, output into the pipes, default signals, limits."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    prctl.die_with_parent(signal.SIGKILL, parent=supervisor)
    if owned.group:
        cgroup.enter(owned.group)
    os.dup2(output[0], 1)
    os.dup2(output[1], 2)
    limit = request["max_address_space_bytes"]
    try:
        os.chdir(request["cwd"])
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        if request["entry"] is None:
            for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the latter two
                signal.signal(number, signal.SIG_DFL)
            env = request["env"]
            if OUTPUT in env:
                pipe = os.fstat(1)
                env[OUTPUT] = f"{pipe.st_dev}:{pipe.st_ino}"
            if request["descriptors"] and env.get(LISTENER) == str(request["controller"]):
                env[LISTENER] = str(os.getpid())
                env.pop(LISTENER_ID, None)
            os.execvpe(request["argv"][0], request["argv"], env)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        prctl.set_name("nsa-worker")
        from importlib import import_module

        module, _, name = request["entry"].partition(":")
        run = partial(getattr(import_module(module), name), request["trial_dir"])
        sys.argv = list(request["argv"])
    except (OSError, ValueError, ImportError, AttributeError) as error:
        os.write(fail, f"{type(error).__name__}: {error}".encode())
        os._exit(127)
    for fd in open_descriptors() - keep - {0, 1, 2}:
        os.close(fd)
    return run


def inherited() -> tuple[int, ...]:
    """The descriptors above 2 that whoever started this process has handed to it, as long as it has made none so."""
    return tuple(sorted(fd for fd in open_descriptors() if fd > 2 and os.get_inheritable(fd)))


def open_descriptors() -> frozenset[int]:
    """The descriptors of this process that are open now."""
    descriptors = set[int]()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib is slow to import
        with suppress(OSError):  # the listing's own descriptor is in it, and closed by now
            os.fstat(int(name))
            descriptors.add(int(name))
    return frozenset(descriptors)


# --- the supervisor's side -----------------------------------------------------------------------------------------


class _Watch:
    """The loop: drain output for ever, reap, answer the controller."""

    def __init__(self, *, control: int, wake: int, worker: int, owned: Owned, pipes: dict[int, BoundedFile]) -> None:
        self.control, self.wake, self.worker, self.owned = control, wake, worker, owned
        self.pipes = pipes
        self.files = tuple(pipes.values())
        self.commands = b""
        self.complained = False

    def run(self) -> NoReturn:
        poller = select.poll()
        for fd in (self.control, self.wake, *self.pipes):
            poller.register(fd, select.POLLIN)
        for fd in self.pipes:
            os.set_blocking(fd, False)
            with suppress(PermissionError):  # beyond the user's pipe quota; the default of 64 KiB works too
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)  # a burst of output must not wait for us
        flushed_s = time.monotonic()
        while True:
            dirty = any(file.dirty for file in self.files)
            ready = dict(poller.poll(_QUIET_MS if dirty else None))
            for fd in ready.keys() & self.pipes.keys():
                if not self.drain(fd, limit=_PIPE_BYTES):
                    poller.unregister(fd)
                    del self.pipes[fd]
            if dirty and (not ready or time.monotonic() - flushed_s > _FLUSH_S):
                self.flush()
                flushed_s = time.monotonic()
            if self.wake in ready:
                self.woken()
            if self.control in ready:
                self.answer()

    def drain(self, fd: int, *, limit: int) -> bool:
        """Take what is in the pipe, at most about ``limit`` bytes; False when every writer has closed it."""
        while limit > 0:
            try:
                data = os.read(fd, _CHUNK_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.pipes[fd].feed(data)
            limit -= len(data)
        return True

    def flush(self) -> None:
        for file in self.files:
            file.flush()
        for file in self.files:
            if file.error and not self.complained:
                self.complained = True
                _say(self.control, {"output_lost": file.error})

    def woken(self) -> None:
        numbers = os.read(self.wake, _CHUNK_BYTES)
        if signal.SIGTERM in numbers:
            self.end_everything()
        self.collect()

    def collect(self) -> None:
        """Reap, and tell the controller when the worker was among the dead."""
        status = reap().get(self.worker)
        if status is not None:
            self.take_the_rest()
            code = os.waitstatus_to_exitcode(status)
            _say(self.control, {"code": code} if code >= 0 else {"signal": -code})

    def take_the_rest(self) -> None:
        """Drain what is there now; not until the end of file, which a grandchild may keep away for ever."""
        for fd in self.pipes:
            self.drain(fd, limit=2 * _PIPE_BYTES)
        self.flush()

    def answer(self) -> None:
        data = _hear(self.control)
        if not data:
            self.end_everything()
        self.commands += data
        while b"\n" in self.commands:
            line, _, self.commands = self.commands.partition(b"\n")
            self.collect()
            alone = childless()
            done = alone or json.loads(line)["end"]
            if done:
                self.take_the_rest()
            _say(self.control, {"alone": alone})
            if done:
                os._exit(0)

    def end_everything(self) -> NoReturn:
        """Nobody is left to ask: kill the tree in rounds until nothing of it is left, then end."""
        end_descendants(self.owned)
        self.take_the_rest()
        os._exit(1)


def main(control: int) -> NoReturn:
    """The whole program of a supervisor that was started as a process of its own."""
    supervise(control)
    raise AssertionError("a fresh supervisor executes its worker")


DROPPED = "[... {} bytes dropped ...]\n"
"""First line of a tail file when bytes between the beginning and the end were not kept."""

_MARK_BYTES = 64


class BoundedFile:
    """Keeps at most ``bound`` bytes of a stream: the first half in ``head``, the last bytes in ``tail``.

    ``head`` is there from the start; ``tail`` only once the stream outgrew the first half, and it is replaced as a
    whole by :meth:`flush`, so that a reader never sees half of it. ``error`` says why bytes could not be
    written (disk full); draining goes on regardless.
    """

    def __init__(self, *, head: str, tail: str, bound: int) -> None:
        self._head = os.open(head, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._tail_path = tail
        with suppress(FileNotFoundError):
            os.unlink(tail)  # noqa: PTH108 - pathlib is slow to import
        self._head_room = bound // 2
        self._ring_bytes = max(bound - bound // 2 - _MARK_BYTES, 0)
        self._ring = bytearray()
        self._dropped = 0
        self.dirty = False
        self.error: str | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._head_room:
            written = self._write(self._head, data[: self._head_room])
            # What could not be written may still fit into the tail later.
            self._head_room = self._head_room - written if written == len(data[: self._head_room]) else 0
            data = data[written:]
        if data:
            self._ring += data
            surplus = len(self._ring) - self._ring_bytes
            if surplus > 0:
                del self._ring[:surplus]
                self._dropped += surplus
            self.dirty = True

    def flush(self) -> None:
        """Bring the tail file up to date."""
        if not self.dirty:
            return
        self.dirty = False
        fresh = f"{self._tail_path}.new"
        try:
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self.error = str(error)
            return
        mark = DROPPED.format(self._dropped).encode() if self._dropped else b""
        text = mark + self._ring
        complete = self._write(fd, text) == len(text)
        os.close(fd)
        if complete:
            os.replace(fresh, self._tail_path)  # noqa: PTH105 - pathlib is slow to import
        else:
            os.unlink(fresh)  # noqa: PTH108 - pathlib is slow to import

    def close(self) -> None:
        """Give the descriptor back, without a flush."""
        os.close(self._head)

    def _write(self, fd: int, data: bytes | bytearray) -> int:
        written = 0
        while written < len(data):
            try:
                written += os.write(fd, data[written:])
            except OSError as error:
                self.error = str(error)
                break
        return written
