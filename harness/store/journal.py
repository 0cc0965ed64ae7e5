"""Journal: one JSON object a line, each written at once and fsynced, so that a crash costs at most the last line."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from harness.core.codec import SCHEMA
from harness.core.errors import JournalError, NoRunError, StoreError, suggestion
from harness.store.files import sync_folder, write_failed

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = ("header", "plan", "start", "record", "reuse", "said", "undo", "decision", "note", "end")


@dataclass(frozen=True, slots=True)
class Line:
    """One event as it stands in the file; ``number`` counts from 1."""

    number: int
    event: str
    wall: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Torn:
    """A last line that is not whole: its number, where it begins, how many bytes it has, and what is wrong."""

    number: int
    offset: int
    size: int
    why: str

    def __str__(self) -> str:
        return f"journal line {self.number} was incomplete ({self.why}); {self.size} bytes of it were dropped"


def read(path: Path) -> tuple[tuple[Line, ...], Torn | None]:
    """Every event of the journal, and its last line if that one is torn.

    Raises:
        JournalError: a line before the last is corrupt, or any line says something this version cannot read.
        StoreError: the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise NoRunError(f"{path.parent} is not a run directory, or was never begun: it holds no journal") from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}. Nothing was changed.") from error
    lines: list[Line] = []
    offset = 0
    raw_lines = content.split(b"\n")
    last = max((n for n, raw in enumerate(raw_lines) if raw.strip()), default=-1)
    for index, raw in enumerate(raw_lines[: last + 1]):
        if raw.strip():
            parsed = _parse(raw)
            if isinstance(parsed, dict):
                lines.append(_line(path, index + 1, parsed))
            elif index == last:
                return tuple(lines), Torn(index + 1, offset, len(content) - offset, parsed)
            else:
                raise JournalError(
                    f"{path}:{index + 1}: {parsed}, and {last - index} lines follow it. Only a torn last line can be "
                    "dropped safely; restore the file, or remove this line by hand if you know what it was"
                )
        offset += len(raw) + 1
    return tuple(lines), None


def _parse(raw: bytes) -> dict[str, Any] | str:
    try:
        value: object = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg}, column {error.colno}"
    return cast("dict[str, Any]", value) if isinstance(value, dict) else f"not a JSON object but {type(value).__name__}"


def _line(path: Path, number: int, parsed: dict[str, Any]) -> Line:
    schema, event, wall = parsed.get("schema"), parsed.get("event"), parsed.get("wall")
    data = parsed.get("data")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise JournalError(
            f"{path}:{number}: schema {schema!r}, but this version reads up to {SCHEMA}; use the newer nsa-harness"
        )
    if event not in EVENTS:
        hint = suggestion(str(event), EVENTS)
        raise JournalError(f"{path}:{number}: unknown event {event!r}{hint}")
    if not isinstance(wall, str) or not isinstance(data, dict):
        raise JournalError(f"{path}:{number}: an event needs a text 'wall' and an object 'data'")
    return Line(number, event, wall, cast("dict[str, Any]", data))


class Appender:
    """The writing end of a journal. One ``os.write`` and one fsync per event."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._end = os.fstat(self._fd).st_size
            sync_folder(path.parent)
        except OSError as error:
            raise write_failed(path, error, safe="nothing was lost") from error

    def append(self, *, event: str, wall: str, data: dict[str, Any]) -> None:
        """Write one event; when this returns, it survives a crash and a power cut.

        Raises:
            StoreError: the disk is full or failing. What was appended before stays whole.
        """
        text = json.dumps({"event": event, "schema": SCHEMA, "wall": wall, "data": data}, separators=(",", ":"))
        raw = text.encode() + b"\n"
        try:
            self._cut_failed_write()
            done = os.write(self._fd, raw)
            while done < len(raw):  # a disk that fills up takes what fits; asking again gives the reason
                done += os.write(self._fd, raw[done:])
            os.fsync(self._fd)
        except OSError as error:
            raise write_failed(self.path, error, safe=self._safe()) from error
        self._end += len(raw)

    def repair(self, torn: Torn | None) -> Path | None:
        """Cut a torn last line off, after keeping a copy of it beside the journal; the copy's path."""
        try:
            if torn is None:
                if self._end and os.pread(self._fd, 1, self._end - 1) != b"\n":  # whole, but its newline was lost
                    os.write(self._fd, b"\n")
                    self._end += 1
                return None
            copy = self._free_name()
            copy.write_bytes(os.pread(self._fd, torn.size, torn.offset))
            os.ftruncate(self._fd, torn.offset)
            os.fsync(self._fd)
        except OSError as error:
            raise write_failed(self.path, error, safe="every whole line of the journal") from error
        self._end = torn.offset
        return copy

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _cut_failed_write(self) -> None:
        if os.fstat(self._fd).st_size != self._end:
            os.ftruncate(self._fd, self._end)

    def _safe(self) -> str:
        try:
            self._cut_failed_write()
        except OSError:
            return "every line but the last, which will be cut off on --resume"
        return f"the journal up to byte {self._end}, with every event before this one"

    def _free_name(self) -> Path:
        number = 1
        while (path := self.path.with_name(f"journal.corrupt-{number}")).exists():
            number += 1
        return path
