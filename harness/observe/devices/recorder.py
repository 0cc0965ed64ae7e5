"""The flight recorder of NCCL and gloo, read from every rank while the job hangs; no time-out of torch's is needed.

Two ways in. torch's own server in the rank answers on a socket in the trial's folder, in C++: also while some thread
holds the GIL. Without it NCCL's recorder writes to a file when a byte comes through its pipe. A rank that is stopped or
dead does not answer, and that silence is evidence.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
from typing import TYPE_CHECKING

from harness.clock import WallClock
from harness.core.evidence import SourceFailure
from harness.core.ports import DeviceSample
from harness.observe.devices.parse_recorder import parse_recorder
from harness.observe.devices.plain_pickle import MAX_BYTES
from harness.observe.proc import Proc
from harness.store import layout

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.devices import CollectiveState
    from harness.core.ports import Clock, WatchedJob

ANSWER_LIMIT_S = 2.0
"""How long a rank's server may take; measured with gloo: 0.01 s."""

PIPE_LIMIT_S = 6.0
"""How long NCCL's recorder may take to write its file, all ranks together; measured on two H200: up to 4 s."""

LATE_LIMIT_S = 0.5
"""How long those are waited for that were asked before and have not answered."""

OTHERS_S = 2.0
"""How long the others may take once a rank has answered: all were asked at once and have about as much to write."""

HANDLERS = ("dump_nccl_trace_pickle", "dump_nccl_trace_json", "fr_trace_json")
"""What the server may offer, the most telling first: only the pickle has the program's own lines."""

_LOOK_EVERY_S = 0.05


class FlightRecorder:
    """Asks in every round of a silence. Only trials of several ranks have anything to say."""

    name = "flight-recorder"
    repeated = False

    def __init__(self, *, clock: Clock | None = None, proc: Proc | None = None) -> None:
        self._clock, self._proc = clock or WallClock(), proc or Proc()
        self._unanswered: dict[int, int] = {}

    def see(self, job: WatchedJob) -> DeviceSample:
        """The last operations of every rank that answers, and why the others did not."""
        if job.world < 2:
            return DeviceSample()
        states: dict[int, CollectiveState] = {}
        reasons: dict[int, str] = {}
        for rank in range(job.world):
            if why := self._unable(rank, job):
                reasons[rank] = why
                continue
            try:
                states[rank] = ask_server(job.trial_dir, rank, t_s=job.t_s)
            except (OSError, ValueError, http.client.HTTPException) as error:
                reasons[rank] = f"no answer on its server ({_short(error)})"
        by_pipe = [rank for rank in reasons if not self._unable(rank, job)]
        states |= self._by_pipe(job, by_pipe, reasons)
        failures: list[SourceFailure] = []
        for rank in sorted(reasons.keys() - states.keys()):
            reason = f"rank {rank}: {reasons[rank]}"
            failures.append(SourceFailure(id="", source=self.name, reason=reason))
        return DeviceSample(collectives=tuple(states[rank] for rank in sorted(states)), failures=tuple(failures))

    def close(self) -> None:
        """Nothing is held open between two questions."""

    def _unable(self, rank: int, job: WatchedJob) -> str:
        """Why there is no use in asking this rank; empty when there is."""
        if rank not in job.ranks:
            return "it is gone"
        state = self._proc.states(job.ranks[rank])[:1]
        if state in set("Tt"):
            return f"it is stopped (state {state}) and cannot answer"
        return "" if state else "it is gone"

    def _by_pipe(self, job: WatchedJob, ranks: list[int], reasons: dict[int, str]) -> dict[int, CollectiveState]:
        """Wake the recorders of ``ranks`` and wait for their files, all together.

        A rank that has not answered yet is not asked again: a recorder needs the interpreter's lock for its lines, gets
        little of it beside a loop that computes, and would begin anew for each question.
        """
        waiting = {rank: self._unanswered.pop(rank) for rank in ranks if rank in self._unanswered}
        limit_s = LATE_LIMIT_S
        for rank in ranks:
            if rank in waiting:
                continue
            try:
                before = _written_ns(layout.recorder(job.trial_dir, rank))
                _poke(layout.recorder_pipe(job.trial_dir, rank), asked=layout.recorder_asked(job.trial_dir, rank))
            except OSError as error:
                reasons[rank] += f", and no pipe to ask through ({_short(error)})"
            else:
                waiting[rank], limit_s = before, PIPE_LIMIT_S
        states: dict[int, CollectiveState] = {}
        until = self._clock.now() + limit_s
        while waiting and self._clock.now() < until:
            self._clock.sleep(_LOOK_EVERY_S)
            for rank, before in tuple(waiting.items()):
                path = layout.recorder(job.trial_dir, rank)
                if _written_ns(path) == before:
                    continue
                try:
                    states[rank] = parse_recorder(_read(path), t_s=job.t_s, rank=rank, source="pipe")
                except ValueError as error:  # most likely it is still being written
                    reasons[rank] = f"its record cannot be read: {error}"
                else:
                    del waiting[rank]
                    until = min(until, self._clock.now() + OTHERS_S)
        for rank in waiting:
            reasons[rank] += "; asked through its pipe, it has written nothing yet"
        self._unanswered |= waiting
        return states


def ask_server(trial_dir: Path, rank: int, *, t_s: float) -> CollectiveState:
    """What the recorder of ``rank`` holds, from torch's server inside it.

    Raises:
        OSError: nobody listens there or the answer took too long. HTTPException, ValueError: it makes no sense.
    """
    why: Exception = ValueError("it offers no flight recorder")
    offered = json.loads(_request(trial_dir, rank, method="GET", path="/handler/"))
    for handler in HANDLERS:
        if handler not in offered:
            continue
        try:
            data = _request(trial_dir, rank, method="POST", path=f"/handler/{handler}")
            state = parse_recorder(data, t_s=t_s, rank=rank, source=handler)
        except (OSError, ValueError) as error:  # a pickle with Python frames needs the GIL; the others do not
            why = error
            continue
        if state.collectives:
            return state
        why = ValueError(f"{handler} holds no operation")
    raise why


def _request(trial_dir: Path, rank: int, *, method: str, path: str) -> bytes:
    folder = os.open(trial_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = _UnixConnection(f"/proc/self/fd/{folder}/{layout.recorder_socket(trial_dir, rank).name}")
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        data = answer.read(MAX_BYTES + 1)
        if answer.status != http.HTTPStatus.OK:
            raise ValueError(f"status {answer.status} for {path}")
        return data
    finally:
        connection.close()
        os.close(folder)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket file, through a descriptor of its folder: a path of more than 107 bytes does not fit."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_LIMIT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket file."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_LIMIT_S)
        self.sock.connect(self._path)


def _poke(pipe: Path, *, asked: Path) -> None:
    """Write one byte; OSError when nobody reads at the other end.

    torch writes its record in a thread that runs Python, for seconds: one under which the interpreter ends is a crash
    of the program. Its rank waits for that at its end, as long as ``asked`` is newer than the record.
    """
    fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        asked.touch()
        os.write(fd, b"1\n")
    finally:
        os.close(fd)


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _short(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOENT:
        return "not there"
    if isinstance(error, OSError) and error.errno == errno.ENXIO:
        return "nobody listens"
    return str(error) or type(error).__name__
