"""SupervisedHandle: a running trial, seen from the controller's end of its supervisor's socket."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import signal
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import LaunchError, NoAnswerError, SpoiledError, StoreError
from harness.core.outcome import Cleanup, Exit, Survivor
from harness.core.ports import ProcessRef
from harness.launch import cgroup, leftovers, procs
from harness.launch.program import why_not_startable
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.core.command import Command
    from harness.core.ports import Clock
    from harness.launch.procs import Process


log = logging.getLogger(__name__)

START_LIMIT_S = 30.0
"""How long a supervisor may take to start its worker; measured: 0.02 s."""

ANSWER_LIMIT_S = 5.0
"""How long a supervisor may take to answer."""

DESCRIPTORS = ("supervisor", "guard", "worker")
"""Of which processes the supervisor's introduction brings a pidfd."""

SPARE_S = 1.0
"""How long the helpers of a program that has ended may take to end by themselves; a resource tracker takes 0.1 s."""

LATE = 5
"""Looks, a second apart, after which a supervisor that is stopped or silent is lost."""


def lay_out(command: Command) -> None:
    """Make the trial's folder and write the command's files.

    Raises:
        StoreError: the run directory cannot be written.
    """
    folder = Path(command.trial_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in command.files:
            (folder / name).write_text(text)
    except OSError as error:
        raise StoreError(f"the trial's folder {folder} cannot be written: {error}") from error


MOST_BYTES = 1 << 26
_READ = re.compile(
    r"(?:heartbeat_|faulthandler_|result|effective|kernels|gradients|ranks|trial|environment|evidence).*"
)
"""What of a trial's folder is read while it runs or afterwards."""


def refuse_traps(folder: Path) -> None:
    """Take what nobody could read to its end out of the way of all readers: a pipe, a device, a file without end.

    Raises:
        SpoiledError: there was one.
    """
    traps: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not _READ.fullmatch(entry.name) or entry.name.endswith(REFUSED):
                continue
            try:
                at = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                at = None  # what is written whole has another name at first
            if at is None:
                continue
            is_hollow = at.st_size > MOST_BYTES and at.st_blocks * 512 < at.st_size // 2
            is_endless = at.st_size > MOST_BYTES and entry.name.endswith(".json")
            if stat.S_ISREG(at.st_mode) and not is_hollow and not is_endless:
                continue
            (folder / entry.name).rename(folder / f"{entry.name}{REFUSED}")
            what = f"has {at.st_size} bytes" if stat.S_ISREG(at.st_mode) else "is no file"
            traps.append(f"{entry.name} in the trial's folder {what}, and whoever reads it would not end")
    if traps:
        raise SpoiledError(traps[0])


REFUSED = ".refused"
"""Behind the name of what was taken out of the way."""


def begin(
    control: socket.socket,
    command: Command,
    *,
    entry: str | None,
    token: str,
    clock: Clock,
    started_s: float,
    complaint: Callable[[], str],
) -> SupervisedHandle:
    """Hand ``command`` to the supervisor at the other end of ``control`` and wait until its worker runs.

    ``started_s`` is when it was asked for, on ``clock``: what is done to it is timed from there, as its marks are.
    ``complaint`` gives what a supervisor that ended without an answer has written to its standard error.

    Raises:
        LaunchError: the program cannot be started, or the supervisor does not answer.
    """
    folder = Path(command.trial_dir)
    request = {
        "argv": command.argv,
        "env": {**dict(command.env), procs.TOKEN: token},
        "entry": entry,
        "descriptors": command.descriptors,
        "controller": os.getpid(),
        "cwd": command.directory or str(Path.cwd()),
        "trial_dir": command.trial_dir,
        "token": token,
        "output": [_output_files(folder, "stdout"), _output_files(folder, "stderr")],
        "max_output_bytes": command.max_output_bytes,
        "max_address_space_bytes": command.max_address_space_bytes,
    }
    before = leftovers.before(dict(command.env))
    control.settimeout(START_LIMIT_S)
    try:
        control.sendall(json.dumps(request).encode() + b"\n")
        data, descriptors, _, _ = socket.recv_fds(control, 1 << 16, len(DESCRIPTORS))
    except TimeoutError:
        control.close()
        raise NoAnswerError(f"the supervisor did not start {command.argv[0]!r} in {START_LIMIT_S:g} s") from None
    except OSError as error:
        control.close()
        raise NoAnswerError(f"the supervisor was lost: {error}; it wrote: {_last_line(complaint())}") from error
    line, _, rest = data.partition(b"\n")
    if not line:
        control.close()
        raise NoAnswerError(f"the supervisor ended; it wrote: {_last_line(complaint())}")
    answer = json.loads(line)
    if "failed" in answer:
        control.close()
        raise LaunchError(_why_never(command, entry, failed=answer["failed"]))
    if "pid" not in answer or len(descriptors) != len(DESCRIPTORS):
        control.close()
        for descriptor in descriptors:
            os.close(descriptor)
        raise NoAnswerError("the supervisor did not say which processes the trial has")
    return SupervisedHandle(
        control,
        answer,
        descriptors=descriptors,
        token=token,
        before=before,
        clock=clock,
        started_s=started_s,
        place=folder,
        unread=rest,
    )


def _why_never(command: Command, entry: str | None, *, failed: str) -> str:
    """Why ``command`` did not start: in the words of who typed it, where that shows; else as the system said it."""
    why = ""
    if entry is None:
        why = why_not_startable(
            command.argv[0], path=dict(command.env).get("PATH"), directory=command.directory or str(Path.cwd())
        )
    return why or f"cannot start {entry or command.argv[0]!r}: {failed}"


def _output_files(folder: Path, stream: str) -> tuple[str, str]:
    """Where the beginning and the end of what is written to ``stream`` are kept."""
    return str(layout.output(folder, stream)), str(layout.output_tail(folder, stream))


def _last_line(complaint: str) -> str:
    """Of a traceback the line that says what it was; it may not all be written yet."""
    for line in reversed(complaint.splitlines()):
        if line.strip() and not line.startswith((" ", "Traceback")):
            return line
    return "nothing"


class SupervisedHandle:
    """A trial below a supervisor. See :class:`harness.core.ports.Handle`."""

    def __init__(
        self,
        control: socket.socket,
        introduction: dict[str, Any],
        *,
        descriptors: Sequence[int],
        token: str,
        before: leftovers.Before,
        clock: Clock,
        started_s: float,
        place: Path,
        unread: bytes = b"",
    ) -> None:
        self.pid: int = introduction["pid"]
        self._supervisor_fd, self._guard_fd, self._worker_fd = descriptors
        self._guard = _live_process(introduction["guard"], self._guard_fd)
        self._supervisor = _live_process(introduction["supervisor"], self._supervisor_fd)
        self._control, self._group = control, str(introduction["group"])
        self._token, self._before, self._started_s = token, before, started_s
        self._clock, self._place = clock, place
        self._checked_s, self._late = clock.now(), 0
        self._unread = unread
        self._exit: Exit | None = None
        self._alone: bool | None = None
        self._lost = False
        self._cleanup: Cleanup | None = None
        control.settimeout(0.0)

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` has done its work."""
        return self._cleanup is not None

    def poll(self) -> Exit | None:
        """How the worker ended, or None. ``Exit()`` with neither code nor signal: the supervisor was lost.

        Raises:
            SpoiledError: what the trial has put into its folder would stop whoever reads it.
        """
        if self._exit is None and self._cleanup is None:
            self._listen()
            if self._exit is None and self._lost and _ended(self._worker_fd):
                self._exit = Exit()
            if self._exit is None:
                self._look_after_supervisor()
            refuse_traps(self._place)
        return self._exit

    def _look_after_supervisor(self) -> None:
        """End a supervisor that is stopped, or that does not say how its worker ended, for LATE seconds.

        It drains the trial's output: a trial under a stopped one stands still and looks like a hang. Its guard ends
        the rest, and the trial says nothing about the program.
        """
        if self._clock.now() < self._checked_s + 1.0:
            return
        self._checked_s = self._clock.now()
        process = procs.read(self._supervisor.pid) if self._supervisor is not None else None
        is_stopped = process is not None and process.state in "Tt"
        self._late = self._late + 1 if is_stopped or _ended(self._worker_fd) else 0
        if self._late >= LATE:
            log.warning("the supervisor of trial process %d is stopped or stuck; it is ended", self.pid)
            signal.pidfd_send_signal(self._supervisor_fd, signal.SIGKILL)

    def processes(self) -> tuple[ProcessRef, ...]:
        """Every live process of the trial, the supervisor left out."""
        return tuple(ProcessRef(p.pid, p.started) for p in self._live())

    def signal(self, number: int) -> None:
        """Send one signal to the worker; nothing happens when it is gone."""
        if self._cleanup is not None:
            return
        try:
            signal.pidfd_send_signal(self._worker_fd, number)
        except ProcessLookupError:
            log.debug("signal %d: process %d has ended", number, self.pid)

    def stop(self, *, grace_s: float, clock: Clock) -> Cleanup:
        """End the whole tree and the supervisor. A second call gives the first one's result."""
        if self._cleanup is None:
            used = leftovers.Leftovers()

            def live() -> list[procs.Process]:
                nonlocal used
                processes = self._live()
                if used == leftovers.Leftovers():  # while they live, they can be asked what they use
                    used = leftovers.used_by([process.pid for process in processes], since=self._before)
                return processes

            done = end_tree(
                live=live,
                confirm=lambda: self._ask(end=False),
                grace_s=grace_s,
                clock=clock,
                since_s=self._started_s,
                spare_s=0.0 if self._exit is None else SPARE_S,
            )
            self._dismiss()
            self._cleanup = replace(done, removed=leftovers.remove(used), kept=leftovers.remaining(used))
        return self._cleanup

    def _live(self) -> list[procs.Process]:
        """The live processes of the trial, without its guard and its supervisor."""
        guard = self._guard
        if guard is not None and procs.same(guard):
            tree = procs.below(guard.pid)
        elif self._group:
            tree = list(filter(None, map(procs.read, cgroup.members(self._group))))
        elif not _ended(self._supervisor_fd):
            return []  # it has been told to end, and ends everything
        else:
            since = guard.started if guard is not None else 0
            tree = procs.carrying(self._token, [p for p in procs.everything().values() if p.started >= since])
        supervisor = self._supervisor.pid if self._supervisor is not None else 0
        return [process for process in tree if process.pid != supervisor]

    def _ask(self, *, end: bool) -> bool:
        """Whether the supervisor has no descendant left; it then ends, and with ``end`` in any case.

        A supervisor that is gone cannot be asked: True, nothing was found that lives.
        """
        self._alone = None
        try:
            self._control.sendall(json.dumps({"end": end}).encode() + b"\n")
        except OSError:
            self._listen()
            return True
        while self._alone is None and not self._lost:
            if not readable(self._control.fileno(), ANSWER_LIMIT_S):
                log.warning("the supervisor of trial process %d does not answer", self.pid)
                return False
            self._listen()
        return self._alone is not False  # pyrefly: ignore[unnecessary-comparison] - _listen sets it

    def _listen(self) -> None:
        """Take in what the supervisor has said; never blocks."""
        while not self._lost:
            try:
                data = self._control.recv(1 << 16)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            self._lost = not data
            self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            message: dict[str, Any] = json.loads(line)
            if "code" in message or "signal" in message:
                self._exit = Exit(code=message.get("code"), signal=message.get("signal"))
            self._alone = message.get("alone", self._alone)
            if "output_lost" in message:
                log.warning("output of trial process %d is not kept: %s", self.pid, message["output_lost"])

    def _dismiss(self) -> None:
        """See the supervisor and its guard gone; by then it has said how the worker ended."""
        if not _ended(self._supervisor_fd) and not self._lost:
            self._ask(end=True)
        for descriptor in (self._supervisor_fd, self._guard_fd):
            if not readable(descriptor, ANSWER_LIMIT_S):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                readable(descriptor, ANSWER_LIMIT_S)
        if self._group:
            cgroup.remove(self._group)  # the guard has done so, unless it was killed
        self._listen()
        if self._exit is None and _ended(self._worker_fd):
            self._exit = Exit()
        self._control.close()
        for descriptor in (self._supervisor_fd, self._guard_fd, self._worker_fd):
            os.close(descriptor)


def _live_process(pid: int, pidfd: int) -> procs.Process | None:
    """The process that ``pidfd`` is of; None when it has ended, and its PID may be another's by now."""
    process = procs.read(pid)
    return None if _ended(pidfd) else process


def _ended(pidfd: int) -> bool:
    return readable(pidfd, 0.0)


def readable(fd: int, limit_s: float) -> bool:
    """Whether there is something to read within ``limit_s``; of a pidfd: whether its process has ended.

    By poll: select takes no descriptor above 1023, which many trials at a time on a large host do reach.
    """
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(1000 * limit_s))


KILL_LIMIT_S = 5.0
"""How long to go on after the first KILL; what is left then is in the kernel (state D) or not ours."""

RUNNABLE_LIMIT_S = 30.0
"""The same while one of them is runnable (state R): who was killed ends once it gets the CPU, which others may have."""

_SHORTEST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.05


def end_tree(
    *,
    live: Callable[[], Sequence[Process]],
    confirm: Callable[[], bool],
    grace_s: float,
    clock: Clock,
    since_s: float,
    spare_s: float = 0.0,
    send: Callable[[Process, int], bool] = procs.send,
    read: Callable[[int], Process | None] = procs.read,
    waiting: Callable[[Process], tuple[str, str]] = procs.waiting,
) -> Cleanup:
    """End everything that ``live`` lists, and look again until it lists nothing and ``confirm`` agrees.

    What was seen once must be seen dead: a process that is on its way out has lost its environment, and with it
    its token, while a driver may still hold it in the kernel.

    Until ``grace_s`` is over, each process gets TERM once (CONT after it if it is stopped, or it could not act on
    it); from then on KILL, in rounds, because a process may fork while we look. ``since_s`` is the trial's start on
    ``clock``; the seconds in the result count from it. For ``spare_s`` nothing is signalled: who ends by itself in that
    time, as a resource tracker does whose program has ended, was not left behind.
    """
    sent_signals: dict[tuple[int, int], set[int]] = {}

    def remaining_processes() -> list[Process]:
        listed = {(process.pid, process.started): process for process in live()}
        for pid, started in sent_signals.keys() - listed.keys():
            now = read(pid)
            if now is not None and now.started == started and not now.dead:
                listed[pid, started] = now
        return list(listed.values())

    spared_until_s = clock.now() + spare_s
    while clock.now() < spared_until_s and live():
        clock.sleep(_LONGEST_PAUSE_S)
    signals: list[tuple[float, str, int]] = []
    begun_s = clock.now()
    pause_s = _SHORTEST_PAUSE_S
    killing = False
    while True:
        remaining = remaining_processes()
        now_s = clock.now()
        for process in remaining:
            sent_signals.setdefault((process.pid, process.started), set())
        limit_s = RUNNABLE_LIMIT_S if any(process.state == "R" for process in remaining) else KILL_LIMIT_S
        if (not remaining and confirm()) or now_s - begun_s > grace_s + limit_s:
            break
        if not killing and now_s - begun_s >= grace_s:
            killing, pause_s = True, _SHORTEST_PAUSE_S
        stopped = [process for process in remaining if process.state in "Tt"]
        steps = ((signal.SIGKILL, remaining),) if killing else ((signal.SIGTERM, remaining), (signal.SIGCONT, stopped))
        for number, processes in steps:
            count = 0
            for process in processes:
                sent = sent_signals[process.pid, process.started]
                if number not in sent and send(process, number):
                    sent.add(number)
                    count += 1
            if count:
                signals.append((round(now_s - since_s, 3), number.name, count))
        clock.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
    survivors: list[Survivor] = []
    for process in remaining:
        state, where = waiting(process)
        survivors.append(Survivor(pid=process.pid, state=state, command=process.command, waits_in=where))
    return Cleanup(signals=tuple(signals), ended=len(sent_signals) - len(survivors), survivors=tuple(survivors))
