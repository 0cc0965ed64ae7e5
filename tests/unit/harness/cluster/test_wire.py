"""When the other end of a connection counts as lost."""

from __future__ import annotations

import socket

import pytest

from harness.cluster import wire
from harness.cluster.wire import CALM, LOST_S, LostError, Wire, patience


class Waiting:
    """Polls of a connection on which nothing comes; each takes so many seconds, whatever was asked for."""

    def __init__(self, monkeypatch, *, takes_s, crowd=0.0):
        self.now_s, self.takes_s, self.then = 0.0, takes_s, lambda: None
        monkeypatch.setattr(wire.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(wire, "crowd", lambda: crowd)
        monkeypatch.setattr(wire.select, "poll", lambda: self)

    def register(self, *_):
        pass

    def poll(self, _):
        self.now_s += self.takes_s
        return self.then()


@pytest.fixture
def ends():
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        yield Wire(Tcp(here)), there


class Tcp:
    """A connection that takes TCP's options, too."""

    def __init__(self, connection):
        self.connection = connection

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def setsockopt(self, *_):
        pass


def test_seconds_in_which_this_end_did_not_run_are_not_held_against_the_other(ends, monkeypatch):
    here, there = ends
    waiting = Waiting(monkeypatch, takes_s=15.0)  # this process was not woken for 15 s, twice

    def then():
        if waiting.now_s < 40.0:
            return []
        there.send(b'{"pong": 1}\n')
        return [(0, 1)]

    waiting.then = then
    assert here.receive() == {"pong": 1}


@pytest.mark.parametrize(
    ("ours", "theirs", "lasts_s"),
    [(0.5, 0.0, LOST_S), (0.5, 1.5 * CALM, 1.5 * LOST_S), (9 * CALM, 0.0, 2 * LOST_S), (1.0, 99.0, 2 * LOST_S)],
)
def test_silence_is_a_loss_later_where_a_machine_is_crowded(ends, monkeypatch, ours, theirs, lasts_s):
    here, there = ends
    there.send(f'{{"ping": 1, "crowd": {theirs}}}\n'.encode())
    here.receive()
    waiting = Waiting(monkeypatch, takes_s=1.0, crowd=ours)
    waiting.then = list
    with pytest.raises(LostError, match=f"no word for {lasts_s:.0f} s"):
        here.receive()
    assert waiting.now_s == lasts_s


def test_a_calm_machine_is_given_no_more_than_it_needs():
    assert patience(0.0, CALM) == 1.0


def test_what_is_no_message_is_the_end_of_the_connection(ends):
    here, there = ends
    there.send(b"[1]\n")
    with pytest.raises(LostError, match="no message of an agent"):
        here.receive()
