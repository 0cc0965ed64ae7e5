"""The guard: the parent of a trial's supervisor, so that nothing of a trial is left whichever of the two is killed.

A supervisor is the subreaper of its trial: whatever leaves the tree by forking twice becomes its child. But it is one
process, and it can die: by the OOM killer, by a program that kills its parent, by a bug of ours. What it had adopted
would then go to init, and a process without the trial's environment could no longer be told from a stranger's. So the
supervisor has a parent of its own, which does nothing but wait for it, is a subreaper too, and ends what is left.

- The supervisor dies: the guard adopts everything below it and kills that in rounds until it has no child.
- The guard dies: the kernel sends the supervisor TERM, and it does the same.
- The controller dies: the supervisor reads the end of its socket, or that the peer has reset it, and does the same. A
  supervisor that does not, because somebody has stopped it, is killed by the guard.
- Both die in one moment: the trial's control group, where the kernel offers one; else the search by token in
  ``harness.launch.procs``, which is all that is left to the controller then.

What does not work: the controller as the subreaper (it may be a notebook or somebody's test session, whose children are
not ours to reap), and reading nothing but the end of file (a UNIX stream whose peer died with a message unread gives
ECONNRESET; of five controllers that were stopped, then killed, five left a process behind).

Standard library only, and few modules of it: it is on the way of every trial.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from harness.launch import cgroup, leftovers, prctl, procs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_KILL_ROUNDS = 500
_ROUND_S = 0.02
_ORPHANED_S = 5.0
"""How long the supervisor may take to end everything once the controller is gone."""


class Owned(NamedTuple):
    """What names a trial's processes and files: its token, its control group (or ""), what stood there before.

    ``guard`` is the guard's PID, and ``guard_fd`` a pidfd of it that was opened while it was certain to live.
    """

    token: str
    group: str
    before: leftovers.Before
    guard: int
    guard_fd: int


def fork_supervisor(*, token: str, env: Mapping[str, str], control: int, descriptors: Sequence[int]) -> Owned:
    """Become the guard of a supervisor and return in the supervisor only, a child of this process.

    ``env`` is the trial's environment; ``control`` is the socket to the controller, which the guard gives up, as it
    does ``descriptors``, which are for the trial.
    """
    prctl.become_subreaper()
    guard = os.getpid()
    owned = Owned(
        token=token,
        group=cgroup.make(f"nsa-{token}"),
        before=leftovers.before(env),
        guard=guard,
        guard_fd=os.pidfd_open(guard),
    )
    controller = _peer(control)
    supervisor = os.fork()
    if supervisor != 0:
        for descriptor in descriptors:
            os.close(descriptor)
        _guard(supervisor, owned, control=control, controller=controller)
    prctl.become_subreaper()
    prctl.die_with_parent(signal.SIGTERM, parent=guard)
    return owned


def _guard(supervisor: int, owned: Owned, *, control: int, controller: int) -> NoReturn:
    prctl.set_name("nsa-guard")
    os.close(control)
    os.close(owned.guard_fd)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: os.kill(supervisor, signal.SIGTERM))
    if controller >= 0:
        select.select([os.pidfd_open(supervisor), controller], [], [])
        select.select([os.pidfd_open(supervisor)], [], [], _ORPHANED_S)
        if os.waitid(os.P_PID, supervisor, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            os.kill(supervisor, signal.SIGKILL)  # somebody has stopped it: it does not see that the controller is gone
    os.waitpid(supervisor, 0)
    end_descendants(owned)
    if owned.group:
        cgroup.remove(owned.group)
    os._exit(0)


def _peer(control: int) -> int:
    """A pidfd of the controller, which made the socket ``control``; -1 when it is gone."""
    end = socket.socket(fileno=os.dup(control))
    pid, _, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    end.close()
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def end_descendants(owned: Owned) -> None:
    """Kill everything below this process in rounds until it has no child, then remove what the trial left."""
    remains = leftovers.Leftovers()
    for _ in range(_KILL_ROUNDS):
        reap()
        if childless():
            break
        below = procs.below(os.getpid())
        remains |= leftovers.used_by([process.pid for process in below], since=owned.before)
        if owned.group:
            cgroup.kill(owned.group)
        for process in below:
            procs.send(process, signal.SIGKILL)
        select.select([], [], [], _ROUND_S)
    leftovers.remove(remains)


def reap() -> dict[int, int]:
    """Collect every dead child: exit status by PID."""
    statuses: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return statuses
        if pid == 0:
            return statuses
        statuses[pid] = status


def childless() -> bool:
    """Whether this process has no child, dead or alive. Of a subreaper this proves that no descendant is left."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False
