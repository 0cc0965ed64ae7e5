"""The jobs that a guard was given: by a PID, or by what their command lines say; and their pulse."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cluster.onlook import NoSlurmJobError, nodes_of, state_of
from harness.observe.job import NoJobError, ProcTree, ancestors, find_job, read_member

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from harness.observe.job import Member
    from harness.observe.proc import Proc

RUNS = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "CONFIGURING", "SIGNALING"})
"""States of a job of Slurm that has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """One job: the process that the user named, or that matched; its PID and start time name it for ever.

    One of Slurm has the PID 0, and its number as ``started``.
    """

    pid: int
    started: int
    command: str

    @property
    def key(self) -> str:
        """What names it in the ledger."""
        return f"{self.pid}-{self.started}"

    @property
    def slurm(self) -> str:
        """The number of a job of Slurm; empty for a process of this machine."""
        return "" if self.pid else str(self.started)

    @property
    def name(self) -> str:
        """``process 4711``, ``job 17 of Slurm``."""
        return f"job {self.slurm} of Slurm" if self.slurm else f"process {self.pid}"

    @classmethod
    def of(cls, key: str, text: str) -> Guarded:
        """The job of that key; its command is the first line of what was told of it."""
        pid, started = key.split("-")
        return cls(pid=int(pid), started=int(started), command=text.partition("\n")[0])


def of_slurm(job: int) -> Guarded:
    """A job of Slurm that runs.

    Raises:
        NoSlurmJobError: it does not.
    """
    nodes = nodes_of(str(job))
    return Guarded(pid=0, started=job, command=f"job {job} of Slurm, on {nodes} node(s)")


def job_of(pid: int) -> Guarded:
    """The job of process ``pid``.

    Raises:
        NoJobError: there is none, or no Python process in its tree.
    """
    find_job(pid, tree=ProcTree(named=pid))
    member = read_member(pid)
    if member is None:
        raise NoJobError(f"there is no process {pid}")
    return _guarded(member)


def matching(pattern: re.Pattern[str]) -> list[Guarded]:
    """This user's jobs whose command line fits ``pattern``: of a family that fits, the one that started it.

    This is the only place of the harness that reads command lines of processes that it was not given. Ourselves and
    whoever started us are left out: our own command line has the pattern in it.
    """
    members: dict[int, Member] = {}
    ours = ancestors(os.getpid())
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted
        pid = int(name) if name.isdecimal() else 0
        if pid == 0 or pid in ours or not _is_mine(pid):
            continue
        member = read_member(pid)
        if member is not None and not member.ended and pattern.search(member.argv):
            members[pid] = member
    jobs: list[Guarded] = []
    for member in members.values():
        if member.parent in members or member.is_harness:
            continue
        with suppress(NoJobError):  # a shell, an editor: nothing of it runs Python
            find_job(member.pid, tree=ProcTree())
            jobs.append(_guarded(member))
    return jobs


def lives(job: Guarded) -> bool:
    """Whether the process that was named is there, and is no other one that got its number; of Slurm, it is asked."""
    if job.slurm:
        try:
            return state_of(job.slurm)[0] in RUNS
        except NoSlurmJobError:
            return True  # Slurm itself is away: of the job nothing is known
    member = read_member(job.pid)
    return member is not None and not member.ended and member.started == job.started


def pids(job: Guarded, *, proc: Proc) -> list[int]:
    """Every process of the job now, the named one first; empty once that has ended."""
    if not lives(job):
        return []
    tree = ProcTree(named=job.pid)
    family = [job.pid]
    for pid in family:  # which grows by its children
        family += [child for child in tree.children(pid) if child not in family]
    return [pid for pid in family if proc.state(pid) not in ("", "Z", "X")]


def cpu_s(pids: Sequence[int], *, proc: Proc) -> dict[int, float]:
    """The CPU time of each process so far, its ended threads included, seconds."""
    used: dict[int, float] = {}
    for pid in pids:
        seconds = proc.all_cpu_s(pid)
        if seconds is not None:
            used[pid] = seconds
    return used


def turns(pids: Sequence[int], *, proc: Proc) -> int:
    """How often threads of these processes have stopped running so far: the same again, and none has run since."""
    return sum(map(proc.turns, pids))


def _guarded(member: Member) -> Guarded:
    return Guarded(pid=member.pid, started=member.started, command=member.argv or member.command)


def _is_mine(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    except OSError:
        return False
