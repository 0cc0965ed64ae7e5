"""The guard's memory: every incident is written down before anybody hears of it, and every delivery after."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.core.errors import HarnessError, NotBegunError
from harness.store.files import write_failed

if TYPE_CHECKING:
    from pathlib import Path

NAME = "guard.jsonl"


class GuardedError(HarnessError):
    """Another guard writes into this folder."""

    help = "Give this one another folder with --runs, or end the other"


@dataclass(slots=True)
class Ledger:
    """Events, one JSON object a line; ``lost`` are lines that the disk did not take yet."""

    path: Path
    fd: int = -1
    lost: list[bytes] = field(default_factory=list[bytes])

    @classmethod
    def open(cls, folder: Path) -> Ledger:
        """The ledger in ``folder``, for one guard at a time.

        Raises:
            GuardedError: another guard has it.
            NotBegunError: it cannot be written.
        """
        path = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NotBegunError(write_failed(path, error, safe="no job was touched")) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise GuardedError(f"another guard writes {path}") from None
        return cls(path, fd)

    def events(self) -> list[dict[str, Any]]:
        """Everything that was written; a line that was cut off by a power cut is left out."""
        events: list[dict[str, Any]] = []
        for line in self.path.read_bytes().splitlines():
            with suppress(ValueError):
                events.append(dict(json.loads(line)))
        return events

    def add(self, **event: object) -> bool:
        """Write one event, and those that the disk did not take before; False while it does not."""
        self.lost.append((json.dumps(event, ensure_ascii=True) + "\n").encode())
        return self.flush()

    def flush(self) -> bool:
        """Write what the disk has not taken yet."""
        while self.lost:
            try:
                size = os.fstat(self.fd).st_size
                line = self.lost[0]
                if os.write(self.fd, line) < len(line):
                    os.ftruncate(self.fd, size)  # half a line would spoil the next one
                    return False
                os.fsync(self.fd)
            except OSError:
                return False
            self.lost.pop(0)
        return True

    def close(self) -> None:
        """Let another guard write."""
        os.close(self.fd)
