"""To end it: the command that ends a job that somebody else started. Nothing is signalled here.

A shell, or a program that has started others, does not pass a signal on: the processes that hang are named themselves.
A launcher of torch does, and would start ranks again that were ended below it. Nobody is named who has started us.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from harness.observe.job import JobTree, Member, Tree

_PASSES_ON = re.compile(r"(^|/| )(pt_elastic|torchrun|accelerate)( |$)|torch[./]distributed[./](run|launch)\b")
"""The name or command line of a launcher that ends its ranks when it is ended."""

FROM_OUTSIDE = "a stop of its container: no signal from inside ends a process 1"


def to_end(
    job: JobTree, *, stuck: int | None, tree: Tree, above: Collection[int], is_deaf: Callable[[int], bool]
) -> str:
    """``kill 4711 4712``; empty where all of it is above us.

    Args:
        job: what is to be ended.
        stuck: the process that hangs; of a job without ranks only its own family is named.
        tree: where the launchers of the ranks are looked up.
        above: this process and those that it was started by.
        is_deaf: whether SIGTERM does not end a process by itself.
    """
    targets: dict[int, bool] = {}
    for member in _family(job.members, _owner(job, stuck)):
        starter = tree.get(member.parent) if member.rank is not None else None
        if starter is not None and _passes_on(starter):
            targets[starter.pid] = False
        else:
            targets[member.pid] = member.inner == 1 or is_deaf(member.pid)
            if member.pid == 1:
                return FROM_OUTSIDE
    pids = [pid for pid in targets if pid not in above]
    if not pids:
        return ""
    return " ".join(["kill -9" if any(targets[pid] for pid in pids) else "kill", *map(str, pids)])


def _passes_on(member: Member) -> bool:
    return bool(_PASSES_ON.search(member.command) or _PASSES_ON.search(member.argv))


def _owner(job: JobTree, pid: int | None) -> int | None:
    """The worker that a process is, or works for; None for one that is none of the job's."""
    for worker in job.workers:
        if pid == worker.member.pid or any(pid == helper.pid for helper, _ in worker.helpers):
            return worker.member.pid
    return None


def _family(members: Collection[Member], pid: int | None) -> list[Member]:
    """All ranks; without ranks the process ``pid``, those that it was started by, and those below; else all."""
    if pid is None or any(member.rank is not None for member in members):
        return list(members)
    parents = {member.pid: member.parent for member in members}
    family, before = {pid}, 0
    while len(family) > before:
        before = len(family)
        for child, parent in parents.items():
            if parent in parents and (child in family or parent in family):
                family |= {child, parent}
    return [member for member in members if member.pid in family]
