"""A job of Slurm that runs already, seen from all of its nodes at once: one case, as if all ranks were here.

An agent is put into the job on each of its nodes (``srun --overlap``), asks Slurm there which processes are the job's
(``scontrol listpids``), and looks at them as ``nsa-harness watch`` does, all beginning at one moment. Nobody is
signalled, nothing is ended, and when the head goes the agents go. What several nodes saw is joined as a trial's parts
are (``harness.reading.join``).

What does not work: finding the job's processes by the variables that Slurm gave them. For that the environment of every
process of the user is opened, also of those that are none of the job's.
"""

from __future__ import annotations

import secrets
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from harness.cluster.engines import SlurmEngine
from harness.cluster.head import agents
from harness.core.errors import HarnessError
from harness.observe.job import JobTree, Member, NoJobError, ProcessTable, find_job, read_member

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from harness.cluster.head import AgentLink
    from harness.core.node import Node

LIMIT_S = 180.0
"""How long nodes may take for one look: importing from a shared disk, then some seconds of watching."""


class NoSlurmJobError(HarnessError):
    """There is no such job of Slurm, it does not run, or nothing of it can be looked at."""

    help = "squeue --me lists your jobs; only one that runs can be looked at, by the user that it belongs to"


def state_of(job: str) -> tuple[str, int]:
    """What Slurm says of a job, and on how many nodes it is; ``("", 0)`` where it knows none.

    Raises:
        NoSlurmJobError: Slurm cannot be asked, or does not answer.
    """
    ask = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T %D"]
    try:
        squeue = subprocess.run(ask, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoSlurmJobError("there is no squeue here: ask on a machine from which jobs are submitted") from None
    if squeue.returncode and "Invalid job id" not in squeue.stderr:
        raise NoSlurmJobError(f"Slurm does not answer: {squeue.stderr.strip()}")
    state, _, nodes = squeue.stdout.strip().partition(" ")
    return (state, int(nodes)) if nodes else ("", 0)


def nodes_of(job: str) -> int:
    """On how many nodes a job of Slurm runs.

    Raises:
        NoSlurmJobError: it does not run.
    """
    state, nodes = state_of(job)
    if state != "RUNNING":
        raise NoSlurmJobError(f"job {job} does not run: it is {state}" if state else f"Slurm knows no job {job}")
    return nodes


@contextmanager
def onlookers(job: str, *, note: Callable[[str], None]) -> Generator[list[AgentLink]]:
    """An agent on each node of a job that runs, in the engine's order; gone when the block is left.

    Raises:
        LaunchError: Slurm refuses.
        NodesLostError: they do not come.
        NoSlurmJobError: there is no such job.
    """
    nodes = nodes_of(job)
    with agents(SlurmEngine(job=job), nodes=nodes, note=note) as head:
        yield head.take(nodes, interrupted=lambda: False) or []


def ask(members: list[AgentLink], order: Mapping[str, Any]) -> tuple[list[tuple[Node, dict[str, Any]]], list[str]]:
    """What the agents answer to ``order``, all begun at one moment, and why some did not.

    Raises:
        NoSlurmJobError: none of them could.
    """
    id, inbox = secrets.token_hex(8), SimpleQueue[tuple["AgentLink", dict[str, Any]]]()
    answers: dict[int, dict[str, Any]] = {}
    failures: dict[int, str] = {}
    ready: set[int] = set()
    place = {member: number for number, member in enumerate(members)}
    for member, number in place.items():
        member.inbox = inbox
        member.send(id=id, order={**order, "node": number, "nodes": len(members)})
    until_s = time.monotonic() + LIMIT_S
    while len(answers) + len(failures) < len(members):
        try:
            member, message = inbox.get(timeout=max(until_s - time.monotonic(), 0.0))
        except Empty:
            failures |= {n: f"no answer in {LIMIT_S:g} s" for n in place.values() if n not in answers}
            break
        number = place[member]
        if "lost" in message or "failed" in message:
            failures[number] = f"{member.node.host}: {message.get('failed') or message['lost']}"
        elif message.get("id") == id and "ready" in message:
            ready.add(number)
        elif message.get("id") == id and "done" in message:
            answers[number] = message["done"]
        if ready and len(ready) + len(failures) == len(members):
            _go(id, [members[number] for number in sorted(ready)])
            ready = set()
    if not answers:
        raise NoSlurmJobError("nothing of the job could be looked at: " + "; ".join(failures.values()))
    parts: list[tuple[Node, dict[str, Any]]] = []
    for number in sorted(answers):
        node = replace(members[number].node, number=number)
        parts.append((node, answers[number]))
    return parts, list(failures.values())


def slurm_job_tree(job: str, answers: Sequence[tuple[Node, object]]) -> JobTree:
    """A job of Slurm, on the nodes that answered, as what its ranks are below."""
    hosts = ", ".join(node.host for node, _ in answers)
    command = f"job {job} of Slurm, on {hosts}"
    return JobTree(launcher=Member(pid=0, started=0, parent=0, state="", command=command), workers=())


def _go(id: str, members: list[AgentLink]) -> None:
    now_s = time.monotonic()
    for member in members:
        member.send(id=id, go=now_s + member.node.offset_s)


# -- on a node of the job


def job_here(job: str, *, own_step: str, node: str = "") -> JobTree:
    """What a job of Slurm runs on this node, ``own_step`` left out: the step with the most ranks.

    ``node`` is this one's name to Slurm. Which processes are the job's, Slurm says; no other one is looked at, also of
    the same user. Ranks of other nodes are known to be elsewhere, and not to have ended.

    Raises:
        NoJobError: none of its processes here is Python, or may be looked at by this user.
        NoSlurmJobError: Slurm does not say which they are.
    """
    members: dict[int, Member] = {}
    for pid, step in _listed(job, node):
        member = read_member(pid) if step != own_step else None
        if member is not None:
            members[member.pid] = member
    # What has started a step's processes is Slurm's own, and known only as their parent.
    steps: dict[int, Member] = {}
    for member in members.values():
        if member.parent not in members:
            pid = member.pid if member.parent <= 1 else member.parent
            steps[pid] = replace(member, pid=pid, parent=0, command="slurmstepd", **_NOTHING)
    tree = ProcessTable({**steps, **members})
    trees: list[JobTree] = []
    for pid in steps:
        with suppress(NoJobError):  # a shell, or srun
            trees.append(find_job(pid, tree=tree))
    if not trees:
        raise NoJobError(f"job {job} has no Python process on this node that this user may look at")
    chosen = max(trees, key=lambda one: (one.workers[0].member.rank is not None, len(one.workers)))
    absent = tuple((rank, why, False) for rank, why, _ in chosen.absent)
    return replace(chosen, absent=absent, gone=frozenset[int]())


_NOTHING: Mapping[str, Any] = {"started": 0, "inner": 0, "argv": "", "python": False, "env": {}}


def _listed(job: str, node: str) -> list[tuple[int, str]]:
    """The processes of a job on this node, each with its step: ``PID JOBID STEPID LOCALID GLOBALID``, a line each."""
    ask = ["scontrol", "listpids", job, *([node] if node else [])]
    try:
        scontrol = subprocess.run(ask, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoSlurmJobError("there is no scontrol on this node, which says what a job runs here") from None
    processes: list[tuple[int, str]] = []
    for line in scontrol.stdout.splitlines():
        row = line.split()
        if len(row) > 2 and row[0].isdecimal() and row[1] == job:
            processes.append((int(row[0]), row[2]))
    if not processes and scontrol.stderr.strip():
        raise NoSlurmJobError(f"Slurm does not say what job {job} runs on this node: {scontrol.stderr.strip()}")
    return processes
