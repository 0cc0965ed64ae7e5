"""The head: meets agents, keeps their clocks in step with its own, gives nodes to trials; and what ``--on`` says."""

from __future__ import annotations

import fcntl
import secrets
import socket
import struct
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from harness.cluster import ENGINES
from harness.cluster.wire import HEADS, PING_S, TOKEN, LostError, Wire, crowd, meet, welcome
from harness.core.codec import from_json
from harness.core.errors import CommandError, NodesLostError
from harness.core.node import Node
from harness.observe.identity import here, same_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from contextlib import AbstractContextManager
    from queue import SimpleQueue

    from harness.core.ports import Engine, Placement


_SIOCGIFADDR = 0x8915
NOTE_S = 5.0
"""How often somebody who waits for nodes is told why."""

MOST_PINGS = 100
CALM_S = 30.0
"""How long a head without any agent waits for lost ones to come back when its engine still runs them."""


@dataclass(eq=False, slots=True)
class AgentLink:
    """One agent. ``node`` is who it is; its offset is the quickest answer's so far, ``timed`` that there was one."""

    wire: Wire
    node: Node
    address: str = ""
    order: int = 0
    lost: str = ""
    busy: bool = False
    timed: bool = False
    inbox: SimpleQueue[tuple[AgentLink, dict[str, Any]]] | None = None
    pings: dict[int, float] = field(default_factory=dict[int, float])

    def send(self, **message: Any) -> None:
        """Hand it a message; one that is lost by now is its receiver's business."""
        try:
            self.wire.send(**message)
        except LostError as error:
            self.lost = self.lost or str(error)


class Head:
    """Listens for agents that know ``token``. ``placement`` is asked why none comes; ``note`` tells the user."""

    def __init__(self, *, note: Callable[[str], None] = lambda _: None) -> None:
        self.token = secrets.token_hex(16)
        self.members: list[AgentLink] = []
        self.placement: Placement | None = None
        self.note = note
        self.number = 0
        self._changed = Condition()
        self._closed = False
        self._listener = socket.create_server(("", 0), backlog=128)
        self._own = here()
        for work in (self._accept, self._ping):
            Thread(target=work, daemon=True).start()

    @property
    def addresses(self) -> str:
        """Where agents find it: every address of this machine, the loopback's last."""
        port = self._listener.getsockname()[1]
        return ",".join(f"{address}:{port}" for address in addresses())

    def close(self) -> None:
        """Let all agents go; they end what they run."""
        self._closed = True
        no_more(self._listener)
        for member in list(self.members):
            member.wire.close()

    def take(self, count: int, *, interrupted: Callable[[], bool]) -> list[AgentLink] | None:
        """``count`` free nodes, waited for, in the engine's order; None when the user interrupts.

        Raises:
            NodesLostError: so many will never come.
        """
        alone_s, last_note_s = time.monotonic(), time.monotonic()
        with self._changed:
            while not interrupted():
                free = [member for member in self.members if member.timed and not member.busy and not member.lost]
                if len(free) >= count:
                    nodes = sorted(free, key=lambda member: member.order)[:count]
                    for member in nodes:
                        member.busy = True
                    return nodes
                over = self.placement.over() if self.placement is not None else ""
                if over and len(self.members) < count:
                    raise NodesLostError(f"{count} node(s) are needed and {len(self.members)} are here: {over}")
                why = self.placement.waits_for() if self.placement is not None else ""
                if len(self.members) >= count or why:
                    alone_s = time.monotonic()
                elif time.monotonic() - alone_s > CALM_S:
                    raise NodesLostError(
                        f"{count} node(s) are needed, and {len(self.members)} are here after {CALM_S:g} s"
                    )
                if time.monotonic() - last_note_s >= NOTE_S:
                    last_note_s = time.monotonic()
                    self.note(f"waiting for {count} node(s), {len(self.members)} are here{f': {why}' if why else ''}")
                self._changed.wait(0.25)
        return None

    def give(self, members: list[AgentLink]) -> None:
        """Take nodes back."""
        with self._changed:
            for member in members:
                member.busy, member.inbox = False, None
            self._changed.notify_all()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._hear, args=(Wire(connection),), daemon=True).start()

    def _hear(self, wire: Wire) -> None:
        try:
            hello = meet(wire, self.token)
            with self._changed:
                number, self.number = self.number, self.number + 1
            member = AgentLink(
                wire=wire,
                node=replace(from_json(Node, hello["node"]), number=number),
                address=str(hello["address"]),
                order=int(hello["order"]),
            )
            welcome(wire, self.token, hello, number=number)
        except (LostError, KeyError, ValueError):
            wire.close()
            return
        with self._changed:
            self.members.append(member)
        try:
            while True:
                self._take(member, wire.receive())
        except LostError as error:
            member.lost = member.lost or str(error)
        wire.close()
        with self._changed:
            self.members.remove(member)
            self._changed.notify_all()
        inbox = member.inbox
        if inbox is not None:
            inbox.put((member, {"lost": member.lost}))

    def _take(self, member: AgentLink, message: dict[str, Any]) -> None:
        inbox = member.inbox
        if "pong" in message:
            self._compare(member, int(message["pong"]), float(message["t"]))
        elif inbox is not None:
            inbox.put((member, message))

    def _compare(self, member: AgentLink, number: int, theirs_s: float) -> None:
        """Keep the offset of the quickest answer: nothing else bounds how far it may be off."""
        sent_s, now_s = member.pings.pop(number, None), time.monotonic()
        if sent_s is None:
            return
        error_s = (now_s - sent_s) / 2
        if same_clock(member.node, self._own):
            member.timed = True
        elif not member.node.error_s or error_s < member.node.error_s:
            member.node = replace(member.node, offset_s=theirs_s - (sent_s + now_s) / 2, error_s=error_s)
            member.timed = True

    def _ping(self) -> None:
        number = 0
        while not self._closed:
            number += 1
            for member in list(self.members):
                member.pings[number] = time.monotonic()
                member.pings.pop(number - MOST_PINGS, None)
                member.send(ping=number, crowd=crowd())
            time.sleep(PING_S if all(m.timed for m in self.members) else PING_S / 10)  # noqa: TID251 - real time


def no_more(listener: socket.socket) -> None:
    """Close ``listener``. Closed alone, it would still let in one who comes while somebody waits in ``accept``."""
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def addresses() -> list[str]:
    """Every IPv4 address of this machine, the loopback's last."""
    addresses: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without one
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                addresses.append(socket.inet_ntoa(answer[20:24]))
    return sorted(dict.fromkeys(addresses), key=lambda address: address.startswith("127."))


AGENT = (sys.executable, "-P", "-m", "harness.cluster.agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class On:
    """Where trials run: ``nodes`` of ``engine``, ``per_trial`` for each; an empty engine is this machine."""

    engine: str = ""
    nodes: int = 1
    per_trial: int = 1
    resources: str = ""

    @classmethod
    def of(cls, options: Mapping[str, Any], *, whole: bool = False) -> On:
        """What ``--on --nodes --nodes-per-trial --gres`` say; ``whole`` gives every trial all nodes.

        Raises:
            CommandError: they do not fit together.
        """
        engine, nodes = str(options.get("on") or ""), options.get("nodes")
        per_trial = nodes if whole else options.get("nodes_per_trial")
        if not engine and (nodes or per_trial or options.get("gres")):
            raise CommandError("--nodes and --gres say what an engine is to give: name one with --on, e.g. --on slurm")
        nodes, per_trial = nodes or per_trial or 1, per_trial or 1
        if per_trial > nodes:
            raise CommandError(f"a trial on {per_trial} nodes does not fit on --nodes {nodes}")
        return cls(engine=engine, nodes=nodes, per_trial=per_trial, resources=options.get("gres") or "")

    @property
    def lanes(self) -> int:
        """How many trials run at once."""
        return self.nodes // self.per_trial


HERE = On()


def placed(on: On, *, note: Callable[[str], None]) -> AbstractContextManager[Head]:
    """A head whose agents an engine was asked to start; all of them are gone when the block is left.

    Raises:
        LaunchError: the engine cannot be had, or refuses.
    """
    name, _, where = on.engine.partition(":")
    return agents(ENGINES.load(name)(where=where, resources=on.resources), nodes=on.nodes, note=note)


@contextmanager
def agents(engine: Engine, *, nodes: int, note: Callable[[str], None]) -> Generator[Head]:
    """The same of an engine that is there already."""
    head = Head(note=note)
    try:
        head.placement = engine.place(AGENT, env={HEADS: head.addresses, TOKEN: head.token}, nodes=nodes)
        yield head
    finally:
        head.close()
        if head.placement is not None:
            head.placement.stop()
