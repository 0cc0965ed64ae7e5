"""NCCL's RAS service: threads inside the ranks that tell each other who is alive and how many operations each launched.

It is asked over TCP in its own line protocol, because its client program is not part of every NCCL. Equal counts do
not say that nothing is wrong (they advance when an operation is launched), and an answer names the smaller group even
when the larger one is late: it is a second witness, never the only one.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from harness.core.devices import RasReport
from harness.core.evidence import SourceFailure
from harness.core.ports import DeviceSample
from harness.observe.procfs import Files

if TYPE_CHECKING:
    from harness.core.ports import WatchedJob

ADDRESS = ("127.0.0.1", 28028)
"""Where the first rank of a machine listens, unless NCCL_RAS_ADDR says otherwise."""

ANSWER_S = 1
"""How long RAS itself may wait for its peers; our own limit is one second more."""

LISTENING = "0A"
"""The state of a socket in ``/proc/net/tcp`` that takes connections."""

MAX_BYTES = 1 << 20

_COMPLAINT = re.compile(r"MISMATCH|INCOMPLETE|ERROR|ABORT|TIMEOUT|DEAD|missing|unreachable|not respond", re.IGNORECASE)
_NO_COMPLAINT = re.compile(
    r"^(Errors|Warnings)?[ =]*$|Status  Errors$|no (errors|warnings)|^(Errors|Warnings) *(\(0\)|: *(none|OK|0))"
)
_MISSING = re.compile(
    r"(?:missing|not respond\w*)[^\n]*?\branks?:? (\d[\d, -]*)|\branks?:? (\d[\d, -]*)[^\n]*missing", re.IGNORECASE
)


_LAUNCHED = re.compile(r"Rank (\d+) has launched up to operation (\d+)")
_ADDRESS = re.compile(r"\bnode [\w.:%-]+")


class NcclRas:
    """Asks the RAS service of a job of several ranks, if nobody else's listens at the same port.

    All jobs use one port unless told otherwise, and share it: the kernel hands a question to any of those who listen.
    """

    name = "nccl-ras"
    repeated = False

    def __init__(self, *, address: tuple[str, int] = ADDRESS) -> None:
        self._address = address
        self._files = Files()
        self._is_mute = False

    def see(self, job: WatchedJob) -> DeviceSample:
        """Its verbose status; nothing for a job that uses no NCCL (nobody listens)."""
        if job.world < 2 or self._is_mute:
            return DeviceSample()
        port = self._address[1]
        try:
            if not self._listening(port):
                return DeviceSample()
            if self._of_others(port, job):
                return self._cannot(f"port {port} is another job's, too: whose service would answer nobody knows")
            text = ask(self._address)
            if self._of_others(port, job):
                return self._cannot(f"port {port}: another job's service began to listen there meanwhile")
        except ConnectionRefusedError:
            return DeviceSample()
        except TimeoutError:
            # With a rank that is stopped it takes its time for nothing, and would again.
            self._is_mute = True
            return self._cannot(f"port {port}: no answer within {ANSWER_S + 1} s")
        except (OSError, ValueError) as error:
            return self._cannot(f"port {port}: {error or type(error).__name__}")
        return DeviceSample(ras=(parse_ras(text, t_s=job.t_s),))

    def _cannot(self, reason: str) -> DeviceSample:
        return DeviceSample(failures=(SourceFailure(id="", source=self.name, reason=reason),))

    def _listening(self, port: int) -> set[str]:
        """The sockets of this machine that take connections on ``port``, as links to them read."""
        sockets: set[str] = set()
        for line in self._files.lines("net/tcp")[1:] + self._files.lines("net/tcp6")[1:]:
            row = line.split()
            if row[3] == LISTENING and int(row[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{row[9]}]")
        return sockets

    def _of_others(self, port: int, job: WatchedJob) -> set[str]:
        """The sockets that take connections on ``port`` and are none of the job's ranks'."""
        sockets = self._listening(port)
        for pid in job.ranks.values():
            sockets.difference_update(self._files.link(f"{pid}/fd/{fd}") for fd in self._files.names(f"{pid}/fd"))
        return sockets

    def close(self) -> None:
        """Nothing is held open between two questions."""


def ask(address: tuple[str, int]) -> str:
    """The answer to ``VERBOSE STATUS``.

    Raises:
        OSError: nobody listens, or it took too long. ValueError: it is not RAS that answers.
    """
    with socket.create_connection(address, timeout=1.0) as connection:
        connection.settimeout(ANSWER_S + 1.0)
        lines = connection.makefile("rwb")
        lines.write(b"CLIENT PROTOCOL 2\n")
        lines.flush()
        if not lines.readline(1000).startswith(b"SERVER PROTOCOL"):
            raise ValueError("what listens there is not NCCL's RAS")
        lines.write(f"TIMEOUT {ANSWER_S}\n".encode())
        lines.flush()
        if lines.readline(1000).strip().upper() != b"OK":
            raise ValueError("it did not take the time limit")
        lines.write(b"VERBOSE STATUS\n")
        lines.flush()
        return lines.read(MAX_BYTES).decode(errors="replace")


def parse_ras(text: str, *, t_s: float) -> RasReport:
    """The lines that complain, the ranks that are said to be missing, and how far each one came."""
    text = _ADDRESS.sub("node (hidden)", text)
    complaining = filter(_COMPLAINT.search, text.splitlines())
    complaints = tuple(line.strip()[:300] for line in complaining if not _NO_COMPLAINT.search(line))
    launched = tuple((int(match[1]), int(match[2])) for match in _LAUNCHED.finditer(text))
    missing: set[int] = set()
    for match in _MISSING.finditer(text):
        for first, _, last in re.findall(r"(\d+)(-(\d+))?", match[1] or match[2] or ""):
            missing.update(range(int(first), int(last or first) + 1))
    return RasReport(
        id="", t_s=t_s, text=text, missing=tuple(sorted(missing)), complaints=complaints[:20], launched=launched
    )
