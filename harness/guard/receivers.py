"""Who is told: anything that apprise knows the address of, and Prometheus by way of a page of metrics."""

from __future__ import annotations

import hashlib
import json
import time
import urllib.request
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import HarnessError
from harness.guard.policy import What

if TYPE_CHECKING:
    from collections.abc import Callable


EXTRA = "pip install 'nsa-harness[guard]'"
FIRST_AGAIN_S, LONGEST_AGAIN_S = 10.0, 600.0
HOST = "127.0.0.1"

TYPES: dict[str, str] = {What.HANG: "failure", What.BLIND: "warning", What.GOES_ON: "success"}
"""What apprise calls an event, which is where a pager is set off; ``info`` else."""


class ReceiverError(HarnessError):
    """An address that nobody understands, or a library that is missing."""

    help = f"Addresses are those of apprise: json://host/path, slack://..., mailto://...; it comes with {EXTRA}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is told of an incident: its id, what happened (a value of ``policy.What``), and the words."""

    id: str
    what: str
    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Receiver:
    """Somebody who is told: ``tell`` says whether the message was taken.

    ``name`` is what names it in the ledger; since an address may hold a secret, it has a fingerprint of that.
    """

    name: str
    tell: Callable[[Message], bool]


def address(url: str) -> Receiver:
    """The receiver at ``url``: ``tensorboard:FOLDER``, ``otlp:http://HOST:4318``, or whatever apprise knows.

    Raises:
        ReceiverError: the library that it needs is not installed, or none knows such an address.
    """
    scheme, _, rest = url.partition(":")
    name = f"{scheme}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"
    if scheme == "otlp":
        if not rest.startswith(("http://", "https://")):
            raise ReceiverError(f"--notify: otlp:{rest} is no address; write for example otlp:http://127.0.0.1:4318")
        return Receiver(name, partial(collect, rest))
    if scheme == "tensorboard":
        if find_spec("tensorboard") is None:
            raise ReceiverError("--notify tensorboard: needs tensorboard, which is not installed")
        return Receiver(name, partial(mark, Path(rest)))
    try:
        import apprise
    except ImportError:
        raise ReceiverError(f"--notify needs apprise, which is not installed: {EXTRA}") from None
    one: Any = apprise.Apprise()
    if not one.add(url):
        raise ReceiverError(f"--notify: apprise does not understand this {scheme} address")

    def deliver(message: Message) -> bool:
        try:
            kind = TYPES.get(message.what, "info")
            return bool(one.notify(title=message.title, body=message.body, notify_type=kind))
        except Exception:  # noqa: BLE001 - whatever a plug-in raises, the message was not taken
            return False

    return Receiver(name, deliver)


@dataclass(slots=True)
class Delivery:
    """A message on its way to one receiver."""

    message: Message
    receiver: Receiver
    due_s: float = 0.0
    wait_s: float = FIRST_AGAIN_S

    def tried(self, now_s: float) -> bool:
        """Try to deliver it if that is due; whether it is over."""
        if now_s < self.due_s:
            return False
        if self.receiver.tell(self.message):
            return True
        self.due_s, self.wait_s = now_s + self.wait_s, min(2.0 * self.wait_s, LONGEST_AGAIN_S)
        return False


class Metrics:
    """What Prometheus reads at ``http://127.0.0.1:PORT/metrics``; without a port nothing is served."""

    def __init__(self, *, port: int | None = None) -> None:
        self._gauges: dict[str, Any] = {}
        if port is None:
            return
        try:
            import prometheus_client as prometheus
        except ImportError:
            raise ReceiverError(f"--metrics needs prometheus-client, which is not installed: {EXTRA}") from None
        registry: Any = prometheus.CollectorRegistry()
        for name, text in (
            ("jobs", "Jobs that are guarded."),
            ("hanging", "Jobs of which a hang was told and that have not gone on."),
            ("unseen", "Jobs of which no stack can be seen."),
            ("looks_total", "Full looks since the guard began."),
            ("looks_cpu_seconds_total", "CPU seconds that they have cost."),
            ("hangs_total", "Hangs told since the guard began."),
            ("undelivered", "Messages that a receiver has not taken yet."),
        ):
            self._gauges[name] = prometheus.Gauge(f"nsa_harness_guard_{name}", text, registry=registry)
        try:
            prometheus.start_http_server(port, addr=HOST, registry=registry)
        except OSError as error:
            raise ReceiverError(f"--metrics: cannot listen on {HOST}:{port}: {error.strerror}") from error

    def set(self, **values: float) -> None:
        """Show these numbers from now on."""
        for name, value in values.items():
            if name in self._gauges:
                self._gauges[name].set(value)


LIMIT_S = 10.0
"""How long a collector may take."""

TAG = "nsa-harness/guard"
NAME = "nsa-harness guard"


def mark(folder: Path, message: Message) -> bool:
    """Mark a run in TensorBoard, a text in an event file of its own, without network; whether it was written."""
    writer: Any = import_module("tensorboard.summary.writer.event_file_writer")
    event: Any = import_module("tensorboard.compat.proto.event_pb2")
    summary: Any = import_module("tensorboard.compat.proto.summary_pb2")
    tensor: Any = import_module("tensorboard.compat.proto.tensor_pb2").TensorProto
    shape: Any = import_module("tensorboard.compat.proto.tensor_shape_pb2").TensorShapeProto
    text = f"**{message.title}**\n\n{message.body}"
    value = summary.Summary.Value(
        tag=TAG,
        metadata=summary.SummaryMetadata(plugin_data={"plugin_name": "text"}),
        tensor=tensor(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape(dim=[shape.Dim(size=1)])),
    )
    try:
        file = writer.EventFileWriter(str(folder), filename_suffix=".guard")
        file.add_event(event.Event(wall_time=time.time(), step=0, summary=summary.Summary(value=[value])))
        file.close()
    except OSError:
        return False
    return True


def collect(url: str, message: Message) -> bool:
    """Give a message to the collector of OpenTelemetry at ``url``; whether it has taken it."""
    request = urllib.request.Request(
        f"{url.rstrip('/')}/v1/logs",
        data=json.dumps(_record(message, now_ns=time.time_ns())).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return 200 <= answer.status < 300
    except (OSError, ValueError):
        return False


def _record(message: Message, *, now_ns: int) -> dict[str, Any]:
    """One event as OTLP's JSON, of severity ERROR for a hang, else INFO: an ExportLogsServiceRequest.

    Source: opentelemetry.io/docs/specs/otlp.
    """

    def text(key: str, value: str) -> dict[str, Any]:
        return {"key": key, "value": {"stringValue": value}}

    hangs = message.what == What.HANG
    one = {
        "timeUnixNano": str(now_ns),
        "severityNumber": 17 if hangs else 9,
        "severityText": "ERROR" if hangs else "INFO",
        "body": {"stringValue": f"{message.title}\n{message.body}"},
        "attributes": [text("event.name", "nsa_harness.guard"), text("incident", message.id)],
    }
    resource = {"attributes": [text("service.name", NAME)]}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": {"name": NAME}, "logRecords": [one]}]}]}
