"""The agent: on one node, conducts the parts of trials that the head sends, until the head is lost.

``python -m harness.cluster.agent``, with the head's addresses and the run's token in the environment. The main thread
listens and answers at any time; trials are conducted in another one, as in a lane. It is one for all trials: the kernel
ends a fork server with the thread that started it, not with the process, and the next trial would have to import torch
again, or be sent to a server that is just dying. Whatever happens to the head, the connection or the agent, the trial's
processes end (see ``harness.cluster``).
"""

from __future__ import annotations

import base64
import io
import os
import signal
import socket
import sys
import tarfile
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NoReturn

from harness.classify.engine import classify
from harness.clock import WallClock
from harness.cluster.onlook import job_here
from harness.cluster.wire import HEADS, ORDER, TOKEN, LostError, Wire, crowd, greet
from harness.conduct import Parts, conduct
from harness.core.codec import from_json, to_json
from harness.core.columns import to_columns
from harness.core.trial import Trial
from harness.core.verdict import Case, Kind, Verdict
from harness.launch.table import EXECUTORS
from harness.observe.attach import SOURCES, Looker, eyes
from harness.observe.identity import here
from harness.observe.job import is_same
from harness.observe.proc import Proc
from harness.observe.runner import never_ends
from harness.observe.stacks.table import load_sources
from harness.observe.survey import Survey
from harness.reading.join import numbered
from harness.settings import surroundings
from harness.store.folder import scratch
from harness.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from harness.core.evidence import Evidence
    from harness.core.outcome import Outcome
    from harness.core.ports import Executor

JOIN_S = 60.0
"""How long a new agent looks for its head."""

REJOIN_S = 15.0
"""How long an agent that lost its head tries to come back before it ends."""

CONNECT_S = 3.0
BETWEEN_S = 0.5
ENDING_S = 20.0
"""How long the end of a trial may take before the agent ends without it; its supervisors then end the trial."""

FACTS_S = 0.5
"""How often the head is told how a trial stands, when there is no news."""

MOST_FILE_BYTES, MOST_FILES_BYTES = 1 << 25, 1 << 26
"""What goes back of a trial's folder: files up to this size, so much of them in all."""

OF_THE_NODE = ("SLURM_", "CUDA_VISIBLE", "ROCR_VISIBLE", "HIP_VISIBLE", "NVIDIA_VISIBLE", "TMPDIR", "HOSTNAME")
"""Beginnings of variables that a node's engine sets: of these a trial gets the node's own, never the head's."""

OF_THE_AGENT = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP")
"""Of those the ones that speak of the agent as a task of its own, and not of the trial."""

PART, PARTS = "NSA_HARNESS_PART", "NSA_HARNESS_PARTS"
"""Which part of how many a node has, as our own trainer reads it; torchrun's names may be those of the caller's job."""

LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")
"""Programs that give ranks themselves, and read their share from PET_* or the command line."""


@dataclass(slots=True)
class TrialPart:
    """A trial's part that is under way."""

    id: str
    order: dict[str, Any]
    end: Event = field(default_factory=Event)
    called: Event = field(default_factory=Event)
    go: Event = field(default_factory=Event)
    over: Event = field(default_factory=Event)
    begins_s: float = 0.0

    def is_called(self) -> bool:
        """Whether another part is being looked into; said once."""
        was, _ = self.called.is_set(), self.called.clear()
        return was


def environment(order: Mapping[str, Any], *, command: str, own: Mapping[str, str], target: str) -> dict[str, str]:
    """What a part of a trial is given: the head's variables, the node's where they are the node's, and its share.

    With several nodes every copy of a program is told its rank, as ``srun`` would; a launcher (torchrun) is told which
    node of how many it is, and our own trainer likewise.
    """
    env = {name: text for name, text in order["env"].items() if not name.startswith(OF_THE_NODE)}
    env |= {n: text for n, text in own.items() if n.startswith(OF_THE_NODE) and not n.startswith(OF_THE_AGENT)}
    node, nodes = str(order["node"]), str(order["nodes"])
    if order["nodes"] == 1:
        return env
    address, port = order["master"]
    env |= {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    if target == "nsa":
        return env | {PART: node, PARTS: nodes}
    env |= {"PET_NNODES": nodes, "PET_NODE_RANK": node, "PET_MASTER_ADDR": address, "PET_MASTER_PORT": str(port)}
    if any(word in command for word in LAUNCHERS):
        return env
    tasks = {"SLURM_PROCID": node, "SLURM_NTASKS": nodes, "SLURM_NODEID": node, "SLURM_LOCALID": "0"}
    ranks = {"RANK": node, "WORLD_SIZE": nodes, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    return env | ranks | (tasks if "SLURM_JOB_ID" in own else {})


class Agent:
    """One node's side of the connection ``wire``; ``folder`` is where trials run."""

    def __init__(self, *, folder: Path, token: str) -> None:
        self.folder, self.token = folder, token
        self.wire: Wire | None = None
        self.task: TrialPart | None = None
        self.done: set[str] = set()
        self.executors: dict[str, Executor] = {}
        self.tasks: SimpleQueue[TrialPart] = SimpleQueue()
        Thread(target=self._work, daemon=True).start()

    def serve(self, wire: Wire) -> None:
        """Do what the head asks, until it is lost; then nothing of its trials is left."""
        self.wire = wire
        try:
            while True:
                self._take(wire.receive())
        finally:
            self.finish()

    def finish(self) -> None:
        """End the trial that runs, and wait for its end."""
        if self.task is not None:
            self.task.end.set()
            self.task.go.set()
            self.task.over.wait(ENDING_S)
        self.task = None

    def close(self) -> None:
        """Give the executors back."""
        for executor in self.executors.values():
            executor.close()

    def _take(self, message: dict[str, Any]) -> None:
        wire, id, task = self.wire, str(message.get("id", "")), self.task
        assert wire is not None, "messages come over it"
        if "ping" in message:
            wire.send(pong=message["ping"], t=time.monotonic(), crowd=crowd())
        elif "port" in message:
            wire.send(id=id, port=free_port())
        elif "order" in message:
            self._begin(id, message["order"])
        elif task is None or task.id != id:
            return  # of a trial that is over
        elif "go" in message:
            task.begins_s = float(message["go"])
            task.go.set()
        elif "end" in message:
            task.end.set()
            task.go.set()
        elif "look" in message:
            task.called.set()

    def _begin(self, id: str, order: dict[str, Any]) -> None:
        if id in self.done:
            return  # it was given up: nothing runs twice
        self.finish()
        self.done.add(id)
        self.task = TrialPart(id=id, order=order)
        self.tasks.put(self.task)

    def _work(self) -> None:
        while True:
            task = self.tasks.get()
            try:
                if "slurm" in task.order:
                    self._attend(task)
                else:
                    self._conduct(task)
            except Exception as error:  # noqa: BLE001 - the head waits for an answer, and the next trial for this thread
                self._tell(task, failed=f"{type(error).__name__}: {error}")
            finally:
                task.over.set()

    def _conduct(self, task: TrialPart) -> None:
        order, own = task.order, dict(surroundings())
        trial = from_json(Trial, order["trial"])
        if not Path(order["cwd"]).is_dir():
            raise OSError(
                f"there is no folder {order['cwd']} on {socket.gethostname()}; nodes share the working folder"
            )
        os.chdir(order["cwd"])
        words = str(trial.config.get("command", ""))
        folder = self.folder / task.id
        several = order["nodes"] > 1
        last_sent_s = 0.0

        def watched(facts: Mapping[str, object]) -> None:
            nonlocal last_sent_s
            if facts.get("note") or time.monotonic() - last_sent_s >= FACTS_S:
                last_sent_s = time.monotonic()
                self._tell(task, facts=dict(facts))

        def begin() -> float:
            self._tell(task, ready=True)
            task.go.wait()
            return task.begins_s or time.monotonic()

        def judge(outcome: Outcome, evidence: Evidence) -> Verdict:
            """The head's judgement comes as an end; here only whether this part gets on is of use."""
            self._tell(task, seen=_part(task, outcome, evidence))
            return _judged(trial, order, outcome, evidence)

        done = conduct(
            trial,
            trial_dir=folder,
            parts=Parts(
                target=TARGETS.load(trial.target)(python=sys.executable),
                executor=self._executor(order["executor"]),
                sources=load_sources(),
                clock=WallClock(),
                child_env=environment(order, command=words, own=own, target=trial.target),
            ),
            watched=watched,
            interrupted=task.end.is_set,
            examine=bool(order["examine"]),
            judge=judge if several else None,
            begin=begin,
            called=task.is_called,
        )
        last = _part(task, done.outcome, done.evidence)
        self._tell(task, done=last, started_at=done.started_at, files=packed(folder))

    def _attend(self, task: TrialPart) -> None:
        """Look at what a job of Slurm runs on this node, and leave it as it is."""
        order, clock = task.order, WallClock()
        own = dict(surroundings())
        job = job_here(order["slurm"], own_step=own.get("SLURM_STEP_ID", ""), node=own.get("SLURMD_NODENAME", ""))
        self._tell(task, ready=True)
        task.go.wait()
        if "samples" in order:
            survey = Survey(
                job=job, clock=clock, view=Proc(), is_same=is_same, neutral=load_sources(SOURCES), note=lambda _: None
            )
            ranks = list(map(to_columns, survey.take(samples=order["samples"])))
            self._tell(task, done={"launcher": job.launcher.pid, "command": job.launcher.command, "seen": ranks})
            return
        trial, folder = from_json(Trial, order["trial"]), self.folder / task.id
        folder.mkdir()
        looker = Looker(
            job=job,
            trial=trial,
            folder=folder,
            clock=clock,
            eyes=eyes(keeps_locals=bool(order["locals"])),
            is_same=is_same,
            judge=partial(_judged, trial, order),
            began_s=task.begins_s,
        )
        part = _part(task, *looker.run())
        self._tell(task, done={**part, "launcher": job.launcher.pid, "command": job.workers[0].member.argv})

    def _executor(self, name: str) -> Executor:
        if name not in self.executors:
            self.executors[name] = EXECUTORS.load(name)(python=sys.executable, clock=WallClock())
        return self.executors[name]

    def _tell(self, task: TrialPart, **message: Any) -> None:
        """Tell the head; one that is lost is the listener's business."""
        try:
            if self.wire is not None:
                self.wire.send(id=task.id, **message)
        except LostError:
            task.end.set()


def _judged(trial: Trial, order: Mapping[str, Any], outcome: Outcome, evidence: Evidence) -> Verdict:
    """The verdict on a part. That it stands still for ever is for the head to say, which sees the others."""
    verdict = classify(Case(trial=trial, outcome=outcome, evidence=evidence))
    is_part = order["nodes"] > 1 and never_ends(verdict)
    return replace(verdict, kind=Kind.UNRESOLVED, cause=None) if is_part else verdict


def _part(task: TrialPart, outcome: Outcome, evidence: Evidence) -> dict[str, Any]:
    columns = to_columns(evidence, change=partial(numbered, node=task.order["node"]))
    return {"outcome": to_json(outcome), "evidence": columns}


def packed(folder: Path) -> str:
    """The plain files of a trial's folder as a compressed archive in base64, the small ones first."""
    files: list[tuple[int, Path]] = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            size = path.stat().st_size
            files.append((size, path))
    room = MOST_FILES_BYTES
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for size, path in sorted(files):
            if size <= min(room, MOST_FILE_BYTES):
                archive.add(path, path.relative_to(folder))
                room -= size
    return base64.b64encode(buffer.getvalue()).decode()


def free_port() -> int:
    """A port that nobody listens on at this moment; whoever gets it takes it soon."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def connect(heads: str, *, token: str, order: int, limit_s: float) -> Wire:
    """A connection to the first of ``heads`` that knows the token, tried for ``limit_s``.

    ``order`` is this node's place among those that the engine gave.

    Raises:
        LostError: none answers as it should.
    """
    until_s, why = time.monotonic() + limit_s, "no address was given"
    while True:
        for head in heads.split(","):
            address, _, port = head.rpartition(":")
            try:
                wire = Wire(socket.create_connection((address, int(port)), CONNECT_S))
                greet(wire, token, node=to_json(here()), address=wire.address, order=order)
            except (OSError, ValueError, LostError) as error:
                why = f"{head}: {error}"
            else:
                return wire
        if time.monotonic() >= until_s:
            raise LostError(f"no head answers ({why})")
        time.sleep(BETWEEN_S)  # noqa: TID251 - an agent has a clock of its own


def _ended(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(0)


def main() -> int:
    """Serve until the head has no more use for this node."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _ended)
    env = dict(surroundings())
    heads, token = env.get(HEADS, ""), env.get(TOKEN, "")
    limit_s = JOIN_S
    with scratch("nsa-harness-agent-") as folder:
        agent = Agent(folder=folder, token=token)
        try:
            while True:
                wire = connect(
                    heads, token=token, order=int(env.get(ORDER) or env.get("SLURM_PROCID") or 0), limit_s=limit_s
                )
                limit_s = REJOIN_S
                try:
                    agent.serve(wire)
                except LostError as error:
                    sys.stderr.write(f"nsa-harness agent on {socket.gethostname()}: the head is lost: {error}\n")
                finally:
                    wire.close()
        except LostError as error:
            sys.stderr.write(f"nsa-harness agent on {socket.gethostname()} ends: {error}\n")
            return 1
        finally:
            agent.finish()
            agent.close()


if __name__ == "__main__":
    sys.exit(main())
