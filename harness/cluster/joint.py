"""One trial on the nodes that it was given: the parts are begun together, judged together, and ended together."""

from __future__ import annotations

import base64
import io
import secrets
import tarfile
import time
from contextlib import suppress
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from harness.classify.engine import classify
from harness.core.codec import from_json, to_json
from harness.core.columns import from_columns
from harness.core.evidence import Evidence
from harness.core.outcome import Cleanup, Ending, Exit, Outcome, StopReason
from harness.core.trial import NEVER_S
from harness.core.verdict import Case
from harness.observe.answers import steps_wanted
from harness.observe.runner import never_ends
from harness.observe.watch import AFTERMATH_S, CLOSING_S
from harness.reading import pace
from harness.reading.join import CUT_S, cut_s, join, until
from harness.worker.world import world_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.cluster.head import AgentLink, Head
    from harness.core.node import Node
    from harness.core.ports import Clock, Watched
    from harness.core.trial import Trial

ENDING_S = 25.0
"""How long a part may take to end; then its agent is given up, which ends what it runs."""

READY_S = 300.0
"""How long parts may take until all of them can begin: importing torch from a shared disk is slow."""

PORT_S = 5.0


@dataclass(slots=True)
class Part:
    """What is known of one node's part: ``facts`` as its agent told last, ``interim`` and ``done`` with evidence.

    ``by_itself`` says whether it was done before anybody was told to end.
    """

    member: AgentLink
    node: Node
    ready: bool = False
    facts: Mapping[str, Any] | None = None
    interim: tuple[Outcome, Evidence] | None = None
    done: tuple[Outcome, Evidence] | None = None
    by_itself: bool = True
    started_at: str = ""

    @property
    def last(self) -> tuple[Node, Outcome, Evidence] | None:
        """The last that was seen of it."""
        latest = self.done or self.interim
        return None if latest is None else (self.node, *latest)

    def at_the_end(self, age_s: float, reason: StopReason) -> tuple[Node, Outcome, Evidence]:
        """Its part when the trial was ended at ``age_s``; all of it where it had ended by itself.

        As it was last seen, where nothing has happened since: what came later is half a round of looks, and a process
        in the middle of a look shows less than it did.
        """
        assert self.done is not None, "asked when all is over"
        outcome, evidence = self.done
        if self.by_itself:
            return self.node, outcome, evidence
        stopped = replace(outcome, ending=Ending.STOPPED_BY_US, exit=None, stopped_by=reason, duration_s=age_s)
        before = self.interim[1] if self.interim is not None else None
        whole = until(outcome, evidence, t_s=age_s, before=before)
        if before is None or _news(before) != _news(whole):
            return self.node, stopped, whole
        return self.node, stopped, replace(before, silence_s=whole.silence_s)


def _news(evidence: Evidence) -> object:
    """What tells whether anything has happened in a part: its last mark, and which ranks have ended."""
    return evidence.last, [facts.rank for facts in evidence.ranks if facts.exit is not None]


@dataclass(frozen=True, slots=True)
class Crew:
    """Runs trials on the nodes of ``head``, ``nodes`` of them for each; started by ``executor`` there."""

    head: Head
    executor: str
    nodes: int
    clock: Clock

    def conduct(
        self,
        trial: Trial,
        *,
        trial_dir: Path,
        env: Mapping[str, str],
        watched: Watched | None,
        interrupted: Callable[[], bool],
        examine: bool,
    ) -> tuple[Outcome, Evidence, str]:
        """See :class:`harness.core.ports.Elsewhere`."""
        most = world_of(trial.config) if trial.target == "nsa" else self.nodes  # no more nodes than ranks
        members = self.head.take(min(self.nodes, most), interrupted=interrupted)
        if members is None:
            outcome = Outcome(ending=Ending.NEVER_STARTED, stopped_by=StopReason.INTERRUPT, why="asked to stop")
            return outcome, Evidence(steps_wanted=steps_wanted(trial)), self.clock.wall()
        try:
            joint = Joint(
                trial, members, trial_dir=trial_dir, executor=self.executor, env=env, watched=watched,
                interrupted=interrupted, examine=examine, clock=self.clock,
            )  # fmt: skip
            return joint.run()
        finally:
            self.head.give(members)


@dataclass(eq=False, slots=True)
class Joint:
    """One trial. ``members`` are its nodes, in the order of their ranks."""

    trial: Trial
    members: InitVar[list[AgentLink]]
    trial_dir: Path
    executor: str
    env: Mapping[str, str]
    watched: Watched | None
    interrupted: Callable[[], bool]
    examine: bool
    clock: Clock
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    inbox: SimpleQueue[tuple[AgentLink, dict[str, Any]]] = field(
        default_factory=SimpleQueue[tuple["AgentLink", dict[str, Any]]]
    )
    parts: dict[AgentLink, Part] = field(default_factory=dict["AgentLink", Part])
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    created_s: float = field(default_factory=time.monotonic)
    began_s: float | None = None
    looked_s: float = 0.0
    marked_s: float = 0.0
    failed_s: float | None = None
    ended_s: float | None = None
    reason: StopReason | None = None
    why: str = ""
    lost: str = ""
    is_news: bool = False
    is_interrupted: bool = False
    gets_on: bool = False

    def __post_init__(self, members: list[AgentLink]) -> None:
        for number, member in enumerate(members):
            member.inbox = self.inbox
            self.parts[member] = Part(member=member, node=replace(member.node, number=number))

    @property
    def several(self) -> bool:
        """Whether the trial spans nodes."""
        return len(self.parts) > 1

    def run(self) -> tuple[Outcome, Evidence, str]:
        """Follow the trial to its end, whatever that is."""
        master = self._meeting_place()
        for part in self.parts.values():
            part.member.send(id=self.id, order=self._order(part, master))
        while not all(part.done for part in self.parts.values()):
            with suppress(Empty):
                self._take(*self.inbox.get(timeout=0.1))
                while True:  # whatever has come, before anything is asked of the whole
                    self._take(*self.inbox.get_nowait())
            self._decide()
        outcome, evidence = self._whole()
        started_at = min((p.started_at for p in self.parts.values() if p.started_at), default=self.clock.wall())
        return outcome, evidence, started_at

    def _order(self, part: Part, master: tuple[str, int] | None) -> dict[str, Any]:
        budget = self.trial.budget
        if self.several:  # only the whole is silent, or too late
            budget = replace(
                budget,
                startup=replace(budget.startup, seconds=NEVER_S),
                stall=replace(budget.stall, seconds=NEVER_S),
                total=replace(budget.total, seconds=NEVER_S),
            )
        return {
            "trial": to_json(replace(self.trial, budget=budget)),
            "env": dict(self.env),
            "executor": self.executor,
            "examine": self.examine and not self.several,
            "node": part.node.number,
            "nodes": len(self.parts),
            "master": master,
            "cwd": str(Path.cwd()),
        }

    def _meeting_place(self) -> tuple[str, int] | None:
        """Where the ranks meet: a free port of the first node, at the address by which it found this head."""
        if not self.several:
            return None
        first = next(iter(self.parts))
        first.send(id=self.id, port=True)
        until_s = time.monotonic() + PORT_S
        while time.monotonic() < until_s:
            try:
                member, message = self.inbox.get(timeout=PORT_S)
            except Empty:
                break
            if "port" in message:
                return first.address, int(message["port"])
            self._take(member, message)
        return first.address, 29500

    # -- what agents say

    def _take(self, member: AgentLink, message: dict[str, Any]) -> None:
        part = self.parts[member]
        if "lost" in message:
            self._gone(part, f"node {member.node.host} was lost: {message['lost']}")
        elif message.get("id") != self.id:
            return  # of a trial before this one
        elif "ready" in message:
            part.ready = True
        elif "facts" in message:
            self._hear(part, message["facts"])
        elif "seen" in message:
            self._see(part, message["seen"])
        elif "done" in message:
            self._is_done(part, message)
        elif "failed" in message:
            self._gone(part, f"node {member.node.host}: {message['failed']}")

    def _go(self) -> None:
        """All parts are prepared: they begin at one moment, each by its own clock."""
        self.began_s = time.monotonic()
        for part in self.parts.values():
            part.node = replace(part.member.node, number=part.node.number)
            part.member.send(id=self.id, go=self.began_s + part.node.offset_s)

    def _hear(self, part: Part, facts: Mapping[str, Any]) -> None:
        if self.ended_s is not None:
            return  # what a rank does after another one's end is our doing
        part.facts, self.facts = facts, facts
        self.marked_s = max(self.marked_s, facts["elapsed_s"] - facts["silence_s"])
        if facts.get("looks") and self.several and self._silence_s() > pace.SUSPICIOUS_S - 0.5:
            self._look()
        if self.watched is not None:
            self.watched(self._of_whole(part, facts) if self.several else facts)

    def _see(self, part: Part, content: Mapping[str, Any]) -> None:
        if self.ended_s is None:  # afterwards a rank may show, or say, that it has lost the one that we ended first
            part.interim, self.is_news = _read(content), True

    def _of_whole(self, part: Part, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """How the whole trial stands, told when ``part`` did."""
        whole = {**facts, "silence_s": self._silence_s()}
        note = whole.pop("note", None)
        if note is None or self.ended_s is not None:  # a part ends because the whole does, and that was told
            return whole
        return {**whole, "note": f"node {part.node.number} ({part.node.host}): {note}"}

    def _is_done(self, part: Part, message: dict[str, Any]) -> None:
        part.by_itself = self.ended_s is None
        part.done, part.started_at = _read(message["done"]), str(message["started_at"])
        folder = self.trial_dir if part.node.number == 0 else self.trial_dir / f"node{part.node.number}"
        unpack(message["files"], folder)
        outcome, _ = part.done
        failed = outcome.stopped_by is None and outcome.exit != Exit(code=0)
        if failed and self.failed_s is None:
            self.failed_s = time.monotonic()
            self._look()
        if failed and outcome.ending is Ending.NEVER_STARTED:
            self._end(None, outcome.why)

    def _gone(self, part: Part, why: str) -> None:
        """A part of which nothing will be heard any more: what the others do now says nothing."""
        if part.done is None:
            ending = Ending.EXITED if self.began_s is not None else Ending.NEVER_STARTED
            part.done = part.interim or (Outcome(ending=ending), Evidence(steps_wanted=steps_wanted(self.trial)))
            self.lost = self.lost or why
            self._end(None, why)

    # -- what follows

    def _decide(self) -> None:
        now_s = time.monotonic()
        if self.interrupted() and not self.is_interrupted:
            self.is_interrupted = True
            self._end(StopReason.INTERRUPT, "asked to stop")
        if self.ended_s is not None:
            allowed_s = ENDING_S + (CLOSING_S * 2 if self.examine else 0.0)
            for part in self.parts.values():
                if part.done is None and now_s - self.ended_s > allowed_s:
                    part.member.wire.close()
                    self._gone(part, f"node {part.node.host} did not end its part in {allowed_s:g} s")
            return
        if self.began_s is None:
            if all(part.ready or part.done for part in self.parts.values()):
                self._go()
            elif now_s - self.created_s > READY_S:
                self._end(None, f"not every node was ready to begin within {READY_S:g} s")
            return
        if self.is_news:
            self.is_news = False
            self._judge()
        if self.several and self.ended_s is None:
            self._hold_to_limits(now_s)

    def _hold_to_limits(self, now_s: float) -> None:
        """The limits of the whole trial, as a watch on one machine holds them."""
        budget, silence_s, age_s = self.trial.budget, self._silence_s(), now_s - (self.began_s or now_s)
        training = self._is_training()
        limit_s = pace.silence_limit(budget, training=training).seconds
        name = StopReason.STALL if training else StopReason.STARTUP
        if self.failed_s is not None and now_s - self.failed_s > 2 * AFTERMATH_S:
            self._end(StopReason.CERTAIN, "a rank failed, and the others did not move on")
        elif age_s >= budget.total.seconds:
            self._end(StopReason.TOTAL, f"it ran for {age_s:.1f} s (limit {budget.total.seconds:g} s)")
        elif silence_s >= pace.WATCHED * limit_s and not self.gets_on:
            self._end(name, f"silent for {silence_s:.1f} s ({pace.WATCHED:g} times the limit of {limit_s:g} s)")
        elif min(limit_s, budget.total.seconds - age_s) - silence_s < 2 * CLOSING_S < silence_s:
            self._look()

    def _is_training(self) -> bool:
        """Whether a part is in a step, and not every part that was heard of has done all that are wanted."""
        steps: list[int] = []
        in_step = False
        for part in self.parts.values():
            if part.facts is not None:
                steps.append(int(part.facts["steps_done"]))
                in_step = in_step or part.facts.get("step") is not None
        return in_step and not 0 < steps_wanted(self.trial) <= min(steps, default=0)

    def _silence_s(self) -> float:
        """Seconds since the last mark of any part, as far as was told."""
        return 0.0 if self.began_s is None else max(time.monotonic() - self.began_s - self.marked_s, 0.0)

    def _look(self) -> None:
        """Have all parts looked into at one time, so that there is a moment at which all were seen."""
        now_s = time.monotonic()
        if now_s - self.looked_s > 2 * CLOSING_S:
            self.looked_s = now_s
            for part in self.parts.values():
                part.member.send(id=self.id, look=True)

    def _judge(self) -> None:
        """Ask the rules what the parts show together; a hang needs a moment at which all of them stood still."""
        parts = self._last_rows()
        if len(parts) < len(self.parts):
            return
        outcome = Outcome(
            ending=Ending.STOPPED_BY_US,
            stopped_by=StopReason.CERTAIN,
            duration_s=lasted_s(parts),
        )
        verdict = classify(Case(trial=self.trial, outcome=outcome, evidence=join(parts)))
        self.gets_on = verdict.gets_on
        if never_ends(verdict) and cut_s((node, e) for node, o, e in parts if o.exit is None) >= CUT_S:
            self._end(StopReason.CERTAIN, verdict.because)

    def _end(self, reason: StopReason | None, why: str) -> None:
        if self.ended_s is None:
            if self.watched is not None and self.facts:
                self.watched({**self.facts, "note": f"ending it: {why}"})
            self.ended_s, self.reason, self.why = time.monotonic(), reason, why
            for part in self.parts.values():
                part.member.send(id=self.id, end=True)

    # -- the end

    def _last_rows(self) -> list[tuple[Node, Outcome, Evidence]]:
        """The last that was seen of each part; of one that has shown nothing yet, nothing."""
        return list(filter(None, (part.last for part in self.parts.values())))

    def _whole(self) -> tuple[Outcome, Evidence]:
        rows = self._last_rows()
        if not self.several and not self.lost:
            return rows[0][1], join(rows)
        if self.reason is not None:
            age_s = (self.ended_s or 0.0) - (self.began_s or self.ended_s or 0.0)
            rows = [part.at_the_end(age_s, self.reason) for part in self.parts.values()]
        evidence = join(rows)
        cleanup = Cleanup()
        for _, one, _ in rows:
            cleanup = Cleanup(
                signals=tuple(sorted(cleanup.signals + one.cleanup.signals)),
                ended=cleanup.ended + one.cleanup.ended,
                survivors=cleanup.survivors + one.cleanup.survivors,
                removed=cleanup.removed + one.cleanup.removed,
                kept=cleanup.kept + one.cleanup.kept,
            )
        if self.reason is None and not self.lost:
            return replace(_worst(rows), duration_s=lasted_s(rows), cleanup=cleanup), evidence
        ending = Ending.STOPPED_BY_US
        if self.reason is None:
            ending = Ending.NEVER_STARTED if self.began_s is None else Ending.EXITED
        why = self.lost or self.why
        outcome = Outcome(ending=ending, stopped_by=self.reason, duration_s=lasted_s(rows), cleanup=cleanup, why=why)
        return outcome, evidence


def lasted_s(parts: Sequence[tuple[Node, Outcome, Evidence]]) -> float:
    """How long the longest of ``parts`` lasted."""
    return max(outcome.duration_s for _, outcome, _ in parts)


def _worst(parts: Sequence[tuple[Node, Outcome, Evidence]]) -> Outcome:
    """The first outcome that is no success; the first of all where every one is."""
    for _, outcome, _ in parts:
        if outcome.exit != Exit(code=0):
            return outcome
    return parts[0][1]


def _read(message: Mapping[str, Any]) -> tuple[Outcome, Evidence]:
    return from_json(Outcome, message["outcome"]), from_columns(Evidence, message["evidence"])


def unpack(files: str, folder: Path) -> None:
    """The files of a trial's folder where they belong; what leads out of it is refused by tarfile."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(files)), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")
