"""Bounded output: the beginning of a stream in one file, its end in another, however much is written.

Standard library only; runs in the supervisor.
"""

from __future__ import annotations

import os
from contextlib import suppress

DROPPED = "[... {} bytes dropped ...]\n"
"""First line of a tail file when bytes between the beginning and the end were not kept."""

_MARK_BYTES = 64


class BoundedFile:
    """Keeps at most ``bound`` bytes of a stream: the first half in ``head``, the last bytes in ``tail``.

    ``head`` is there from the start; ``tail`` only once the stream outgrew the first half, and it is replaced as a
    whole by :meth:`flush`, so that a reader never sees half of it. ``error`` says why bytes could not be
    written (disk full); draining goes on regardless.
    """

    def __init__(self, *, head: str, tail: str, bound: int) -> None:
        self._head = os.open(head, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._tail_path = tail
        with suppress(FileNotFoundError):
            os.unlink(tail)  # noqa: PTH108 - pathlib is slow to import
        self._head_room = bound // 2
        self._ring_bytes = max(bound - bound // 2 - _MARK_BYTES, 0)
        self._ring = bytearray()
        self._dropped = 0
        self.dirty = False
        self.error: str | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._head_room:
            written = self._write(self._head, data[: self._head_room])
            # What could not be written may still fit into the tail later.
            self._head_room = self._head_room - written if written == len(data[: self._head_room]) else 0
            data = data[written:]
        if data:
            self._ring += data
            surplus = len(self._ring) - self._ring_bytes
            if surplus > 0:
                del self._ring[:surplus]
                self._dropped += surplus
            self.dirty = True

    def flush(self) -> None:
        """Bring the tail file up to date."""
        if not self.dirty:
            return
        self.dirty = False
        fresh = f"{self._tail_path}.new"
        try:
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self.error = str(error)
            return
        mark = DROPPED.format(self._dropped).encode() if self._dropped else b""
        text = mark + self._ring
        complete = self._write(fd, text) == len(text)
        os.close(fd)
        if complete:
            os.replace(fresh, self._tail_path)  # noqa: PTH105 - pathlib is slow to import
        else:
            os.unlink(fresh)  # noqa: PTH108 - pathlib is slow to import

    def close(self) -> None:
        """Give the descriptor back, without a flush."""
        os.close(self._head)

    def _write(self, fd: int, data: bytes | bytearray) -> int:
        written = 0
        while written < len(data):
            try:
                written += os.write(fd, data[written:])
            except OSError as error:
                self.error = str(error)
                break
        return written
