"""The worker's last word: whether training finished or raised."""

from __future__ import annotations

import json
import traceback
from typing import TYPE_CHECKING

from harness.core.codec import to_json
from harness.core.evidence import WorkerResult
from harness.shim.nsa_harness_shim import name_of
from harness.worker.files import put

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from harness.worker.heartbeat import HeartbeatProbe


class LastWord:
    """A context that writes the result to ``path`` when it is left, and lets every exception pass.

    ``written`` tells whether it could; a process that ends inside (``os._exit``, a signal) leaves no result.
    """

    def __init__(self, path: Path, progress: HeartbeatProbe) -> None:
        self._path, self._progress = path, progress
        self.written = False

    def __enter__(self) -> LastWord:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        progress = self._progress
        note = f"{progress.lost} heartbeats were lost: {progress.lost_why}"
        result = WorkerResult(
            id="result",
            status="finished" if error is None else "raised",
            steps_done=progress.steps_done,
            phase=progress.phase,
            exception=None if kind is None else name_of(kind),
            message=None if error is None else str(error),
            traceback=None if error is None else "".join(traceback.format_exception(kind, error, tb)),
            notes=(note,) if progress.lost else (),
        )
        self.written = put(self._path, json.dumps(to_json(result), indent=1))
