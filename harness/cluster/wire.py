"""JSON objects over a connection, a line each; whoever does not speak for LOST_S seconds is lost.

On a busy machine silence is not death. A head that did not get the CPU for ten seconds has not asked either, and must
not hold the answers that did not come against its agents: only seconds in which this process itself ran count. And
each end says with its pings how crowded its machine is: where tasks queue for a CPU, words take longer (``patience``).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import select
import socket
import time
from contextlib import suppress
from threading import Lock
from typing import Any

from harness.core.errors import HarnessError

LOST_S = 10.0
"""How long the other end of a calm machine may be silent, and a piece of a message take to be handed over."""

SLICE_S = 1.0
"""Silence is counted in pieces of this length; one that took longer by the clock counts as two: nobody woke us."""

CALM, MOST_PATIENCE = 4.0, 2.0
"""Tasks for each CPU up to which a machine answers at once; how many times LOST_S is waited for at most beyond that."""

PING_S = 1.0
"""How often the head asks every agent for a word."""

MOST_BYTES = 1 << 28
_PIECE = 1 << 16

HEADS = "NSA_HARNESS_HEADS"
"""Where the head listens, ``ADDRESS:PORT,...``: an agent tries one after the other."""

ORDER = "NSA_HARNESS_NODE"
"""Which of an engine's nodes an agent is on, from 0; an engine may set it. Ranks go to nodes in this order."""

TOKEN = "NSA_HARNESS_TOKEN"
"""What agents and head of one run know, and nobody else."""


class LostError(HarnessError):
    """The other end of a connection is gone, or has not spoken for too long."""


class Wire:
    """One end of a connection. Anybody may send; one thread receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._lock, self._rest = connection, Lock(), bytearray()
        self._their_crowd = 0.0
        connection.settimeout(LOST_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, **message: Any) -> None:
        """Hand a message over.

        Raises:
            LostError: the other end is gone, or takes nothing.
        """
        data = memoryview(json.dumps(message).encode() + b"\n")
        try:
            with self._lock:
                while data:
                    data = data[self._socket.send(data[:_PIECE]) :]
        except OSError as error:
            self.close()
            raise LostError(f"nothing can be sent: {error}") from error

    def receive(self) -> dict[str, Any]:
        """The next message, waited for.

        Raises:
            LostError: the other end is gone, silent for LOST_S seconds, or speaks something else.
        """
        try:
            end = self._rest.find(b"\n")
            while end < 0:
                data = self._next()
                if not data or len(self._rest) > MOST_BYTES:
                    raise LostError("the connection was closed" if not data else "a message without an end")
                at = data.find(b"\n")
                end = len(self._rest) + at if at >= 0 else -1
                self._rest += data
            line = bytes(self._rest[:end])
            del self._rest[: end + 1]
            message = json.loads(line)
            self._their_crowd = float(message.get("crowd", self._their_crowd))
        except (OSError, ValueError) as error:
            raise LostError(f"the connection broke: {error}") from error
        except (AttributeError, TypeError):
            raise LostError("no message of an agent") from None
        return message

    def _next(self) -> bytes:
        waits = select.poll()
        waits.register(self._socket, select.POLLIN)
        silent_s = 0.0
        while silent_s < (limit_s := LOST_S * patience(crowd(), self._their_crowd)):
            began_s = time.monotonic()
            if waits.poll(1000 * SLICE_S):
                return self._socket.recv(1 << 20)
            silent_s += min(time.monotonic() - began_s, 2 * SLICE_S)
        raise LostError(f"no word for {limit_s:.0f} s")

    def close(self) -> None:
        """End the connection; whoever receives sees it. A second call does nothing."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    @property
    def address(self) -> str:
        """The address of this end."""
        return self._socket.getsockname()[0]


def crowd() -> float:
    """How many tasks this machine has for each of its CPUs, by its load average of a minute."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def patience(*crowds: float) -> float:
    """How many times LOST_S an end may be silent, by how crowded both ends' machines are."""
    return min(max(*crowds, CALM) / CALM, MOST_PATIENCE)


def greet(wire: Wire, token: str, **facts: Any) -> dict[str, Any]:
    """The agent's side of the handshake: it and the head show that they know ``token``; the head's welcome.

    Raises:
        LostError: the other end is no head of this run.
    """
    mine = secrets.token_hex(16)
    theirs = str(wire.receive().get("nonce"))
    wire.send(nonce=mine, proof=_proof(token, "agent", theirs), **facts)
    answer = wire.receive()
    if not hmac.compare_digest(str(answer.get("proof")), _proof(token, "head", mine)):
        raise LostError("what answers there is no head of this run")
    return answer


def meet(wire: Wire, token: str) -> dict[str, Any]:
    """The head's side: what an agent of this run says of itself. Its proof is still owed (:func:`welcome`).

    Raises:
        LostError: whoever connected does not know ``token``.
    """
    mine = secrets.token_hex(16)
    wire.send(nonce=mine)
    hello = wire.receive()
    if not hmac.compare_digest(str(hello.get("proof")), _proof(token, "agent", mine)):
        raise LostError("whoever connected is no agent of this run")
    return hello


def welcome(wire: Wire, token: str, hello: dict[str, Any], **facts: Any) -> None:
    """The end of the handshake, with what the agent is to know."""
    wire.send(proof=_proof(token, "head", str(hello.get("nonce"))), **facts)


def _proof(token: str, side: str, nonce: str) -> str:
    return hmac.new(token.encode(), f"{side}:{nonce}".encode(), hashlib.sha256).hexdigest()
