"""The agent: what it does with the orders of its head."""

from __future__ import annotations

import threading

import pytest

from harness.cluster.agent import Agent
from harness.cluster.wire import LostError


class Wire:
    """A head that gives two orders, the second once the first is over, and is lost then."""

    def __init__(self):
        self.said = []
        self.heard = threading.Condition()
        self.orders = [{"id": "a", "order": {"number": 1}}, {"id": "b", "order": {"number": 2}}]

    def send(self, **message):
        with self.heard:
            self.said.append(message)
            self.heard.notify()

    def receive(self):
        with self.heard:
            answers = 2 - len(self.orders)
            assert self.heard.wait_for(lambda: len(self.said) == answers, 10.0)
        if not self.orders:
            raise LostError("over")
        return self.orders.pop(0)


def test_one_thread_conducts_all_trials_so_that_its_fork_server_outlives_each(tmp_path, monkeypatch):
    threads = []

    def conduct(agent, task):
        threads.append(threading.current_thread())
        if task.order["number"] == 1:
            raise RuntimeError("something that nobody has thought of")
        agent.wire.send(id=task.id, done={})

    monkeypatch.setattr(Agent, "_conduct", conduct)
    wire = Wire()

    with pytest.raises(LostError, match="over"):
        Agent(folder=tmp_path, token="").serve(wire)

    assert threads[0] is threads[1] is not threading.main_thread()
    assert threads[0].is_alive()
    assert wire.said == [
        {"id": "a", "failed": "RuntimeError: something that nobody has thought of"},
        {"id": "b", "done": {}},
    ]
