"""Who is told without a message: a run's own TensorBoard, by an event file, and OpenTelemetry, by OTLP over HTTP."""

from __future__ import annotations

import json
import time
import urllib.request
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from harness.guard.policy import What

if TYPE_CHECKING:
    from pathlib import Path

    from harness.guard.receivers import Message

LIMIT_S = 10.0
"""How long a collector may take."""

TAG = "nsa-harness/guard"
NAME = "nsa-harness guard"


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks a run in TensorBoard: a text at the moment of the event, in an event file of its own. No network."""

    name: str
    folder: Path

    def tell(self, message: Message) -> bool:
        """Whether it was written."""
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
            file = writer.EventFileWriter(str(self.folder), filename_suffix=".guard")
            file.add_event(event.Event(wall_time=time.time(), step=0, summary=summary.Summary(value=[value])))
            file.close()
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Collector:
    """A collector of OpenTelemetry at ``url``: each event is a log record of severity ERROR for a hang, else INFO."""

    name: str
    url: str

    def tell(self, message: Message) -> bool:
        """Whether the collector has taken it."""
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/v1/logs",
            data=json.dumps(record(message, now_ns=time.time_ns())).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return 200 <= answer.status < 300
        except (OSError, ValueError):
            return False


def record(message: Message, *, now_ns: int) -> dict[str, Any]:
    """One event as OTLP's JSON: an ExportLogsServiceRequest. Source: opentelemetry.io/docs/specs/otlp."""

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
