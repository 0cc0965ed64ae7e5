"""The ranks of a trial: forked from the worker before it has used anything, and reaped by it.

The worker becomes their launcher. It does nothing but wait: a rank that ends ends alone, because what the others do
then (wait for ever, or say who is missing) is what the trial is about. ``ranks.jsonl`` says when each began and how it
ended. The meeting place is a socket that is bound before anybody starts, so that no port is guessed or fought over.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from harness.store import layout
from harness.worker.world import Place, own_share, set_launch, set_missing, variables

if TYPE_CHECKING:
    from pathlib import Path


RANK_FAILED = 1
"""The launcher's exit code when a rank did not end with 0."""


def launch(folder: Path, *, world: int) -> Place | int:
    """Start this node's share of ``world`` ranks: in each its Place, in the launcher the exit code when all have ended.

    The meeting place is on the first node, where rank 0 is; of several nodes an agent has chosen the port.
    """
    share = own_share()
    ranks = share.ranks(world)
    meeting = socket.create_server((share.host, share.port), backlog=world) if share.node == 0 else None
    port = share.port if meeting is None else meeting.getsockname()[1]
    journal = os.open(layout.ranks(folder), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    pids: dict[int, int] = {}
    sys.stdout.flush()
    sys.stderr.flush()
    for rank in ranks:
        pid = os.fork()
        if pid == 0:
            os.close(journal)
            place = Place(rank=rank, world=world, port=port, host=share.host, first=ranks.start, local=len(ranks))
            _take(place, meeting)
            return place
        pids[pid] = rank
        _say(journal, "started", rank=rank, pid=pid, world=world)
    if meeting is not None:
        meeting.close()
    return _wait_for(pids, journal)


def host_meeting(meeting_fd: int, place: Place) -> object:
    """Rank 0's store, on the socket that the launcher bound; the others, and rank 0 itself, find it by its port."""
    from torch.distributed import TCPStore

    return TCPStore(
        place.host, place.port, place.world, is_master=True, wait_for_workers=False, multi_tenant=True,
        master_listen_fd=meeting_fd,
    )  # fmt: skip


_stores: list[object] = []
"""Stores that must live as long as the rank does."""


def _take(place: Place, meeting: socket.socket | None) -> None:
    """Become a rank, as a process that torchrun starts would be: with one thread unless the environment says more."""
    set_launch(place)
    if not variables("OMP_NUM_THREADS"):
        import torch

        torch.set_num_threads(1)
    if meeting is not None and place.rank:
        meeting.close()
    elif meeting is not None:
        _stores.append(host_meeting(meeting.detach(), place))


def _wait_for(pids: dict[int, int], journal: int) -> int:
    """Reap until no rank is left; 0 when all ended with 0."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    failed = False
    while pids:
        pid, status = os.wait()
        if pid in pids:
            code = os.waitstatus_to_exitcode(status)
            how = {"code": code} if code >= 0 else {"signal": -code}
            _say(journal, "ended", rank=pids.pop(pid), pid=pid, **how)
            failed = failed or code != 0
    return RANK_FAILED if failed else 0


def _say(journal: int, event: str, **facts: int) -> None:
    os.write(journal, json.dumps({"event": event, "t": time.monotonic(), **facts}).encode() + b"\n")


_servers: list[Any] = []


def serve(folder: Path, rank: int) -> str:
    """Start torch's own C++ server on a socket in ``folder``; why it could not be started, or nothing.

    It answers without Python, so also while the GIL is held. Call it before the process group is made, which reads the
    recorder's variables from the environment; nothing may fork afterwards.
    """
    set_missing(layout.recorder_environment(folder))
    try:
        from torch._C._distributed_c10d import (
            _WorkerServer,  # private, Linux
        )
    except ImportError as error:
        return f"this torch has no server for the flight recorder: {error}"
    path = layout.recorder_socket(folder, rank)
    path.unlink(missing_ok=True)
    # A socket's name has room for 107 bytes; a descriptor of the folder makes any path short. It stays open.
    parent = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        server = _WorkerServer(f"/proc/self/fd/{parent}/{path.name}")
    except RuntimeError as error:
        os.close(parent)
        return f"the flight recorder cannot be read from outside: {str(error).splitlines()[0]}"
    _servers.append(server)
    atexit.register(server.shutdown)
    return ""
