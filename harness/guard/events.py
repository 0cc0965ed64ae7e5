"""Who is told without a message: a run's own TensorBoard, by an event file, and OpenTelemetry, by OTLP over HTTP."""

from __future__ import annotations

import json
import time
import urllib.request
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
