"""One trial on several nodes, with agents that say what is written here."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from fake_clock import FakeClock
from harness.cluster.agent import packed
from harness.cluster.head import AgentLink, Head
from harness.cluster.joint import Joint, Part
from harness.core.codec import to_json
from harness.core.columns import to_columns
from harness.core.evidence import Evidence, Heartbeat, ProcessState, RankFacts, WorkerResult
from harness.core.node import Node
from harness.core.outcome import Ending, Exit, Outcome, StopReason
from harness.testing.engines import trial


class Connection:
    """A connection over which ``at_the_end`` is heard when the head ends the trial, and nothing before."""

    def __init__(self):
        self.at_the_end = lambda: None

    def send(self, **message):
        if "end" in message:
            self.at_the_end()


def part(outcome, *, rank, result=None):
    facts = RankFacts(id=f"rank-{rank}", rank=rank, pid=7, steps_done=0, result=result)
    evidence = Evidence(steps_wanted=0, silence_s=9.0, ranks=(facts,))
    return {"outcome": to_json(outcome), "evidence": to_columns(evidence)}


def test_what_a_rank_says_after_the_whole_was_ended_is_not_held_against_it(tmp_path):
    members = [AgentLink(wire=Connection(), node=Node(number=n, host=f"n{n}")) for n in range(2)]
    joint = Joint(
        trial("pass"), members, trial_dir=tmp_path, executor="local", env={}, watched=None, examine=False,
        clock=FakeClock(0.0), interrupted=lambda: any(part.interim for part in joint.parts.values()),
    )  # fmt: skip
    then = Outcome(ending=Ending.STOPPED_BY_US, stopped_by=StopReason.CERTAIN, duration_s=9.0)
    after = replace(then, ending=Ending.EXITED, stopped_by=None, exit=Exit(code=1))
    lost = WorkerResult(
        id="result-0", status="raised", steps_done=0, exception="ConnectionResetError", message="reset by peer"
    )
    rest = {"started_at": "", "files": packed(tmp_path)}

    def say(n, **message):
        joint.inbox.put((members[n], {"id": joint.id, **message}))

    def at_the_end():
        say(0, seen=part(then, rank=0, result=lost))
        say(1, done=part(then, rank=1), **rest)
        say(0, done=part(after, rank=0, result=lost), **rest)

    members[1].wire.at_the_end = at_the_end
    say(0, port=1)
    say(0, ready=True)
    say(1, ready=True)
    say(0, seen=part(then, rank=0))

    outcome, evidence, _ = joint.run()

    assert outcome.stopped_by is StopReason.INTERRUPT
    assert [facts.result for facts in evidence.ranks] == [None, None]


def test_half_a_round_of_looks_after_the_last_that_was_judged_does_not_count():
    """A process in the middle of a look shows less than it did: of ten hangs two became undecided."""

    def look(t_s, id):
        return ProcessState(
            id=id, t_s=t_s, rank=0, pid=7, state="S", threads=(), rss_bytes=0, minor_faults=0, read_bytes=0,
            written_bytes=0, children=0,
        )  # fmt: skip

    mark = Heartbeat(seq=1, t_s=2.0, rank=0, pid=7, phase="output", edge="line")
    seen = Evidence(
        steps_wanted=0, silence_s=8.0, heartbeats=(mark,), heartbeats_total=1, processes=(look(9.0, "proc-1"),)
    )
    done = replace(seen, silence_s=9.5, processes=(*seen.processes, look(10.5, "proc-2"), look(11.3, "proc-3")))
    outcome = Outcome(ending=Ending.EXITED, exit=Exit(signal=15), duration_s=11.5)
    one = Part(
        member=AgentLink(wire=Connection(), node=Node(number=0, host="n")),
        node=Node(number=0, host="n"),
        interim=(replace(outcome, duration_s=10.0), seen),
        done=(outcome, done),
        by_itself=False,
    )
    _, stopped, shown = one.at_the_end(11.0, StopReason.CERTAIN)
    assert (stopped.exit, stopped.duration_s) == (None, 11.0)
    assert [item.id for item in shown.processes] == ["proc-1"]
    assert shown.silence_s == pytest.approx(9.0)

    later = replace(mark, seq=2, t_s=10.2)
    one.done = (outcome, replace(done, heartbeats=(mark, later), heartbeats_total=2, silence_s=1.3))
    _, _, shown = one.at_the_end(11.0, StopReason.CERTAIN)
    assert [item.id for item in shown.processes] == ["proc-1", "proc-2"], "what happened since counts"
    assert shown.silence_s == pytest.approx(0.8)


def test_a_head_that_has_closed_lets_in_nobody():
    head = Head()
    port = int(head.addresses.rpartition(":")[2])
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", port)) as agent:
            assert agent.recv(1)
    head.close()  # while it waits for the next one

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
