"""Journal: one JSON object a line, each written at once and fsynced, so that a crash costs at most the last line."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from harness.core.codec import SCHEMA
from harness.core.errors import (
    DamagedError,
    JournalCutError,
    JournalError,
    NewerError,
    NoRunError,
    StoreError,
    suggestion,
)
from harness.store.files import beside, checksum, read_text, sync_folder, write_failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedLine:
    """One line of the file as it is. ``damage`` says what is wrong; ``is_whole``: not with it, but before it."""

    number: int
    offset: int
    parsed: dict[str, Any] | None = None
    damage: str = ""
    is_whole: bool = False
    is_torn: bool = False


def read(path: Path) -> tuple[tuple[Line, ...], Torn | None]:
    """Every event of the journal, and its last line if that one is torn.

    Raises:
        JournalError: a line is damaged, lost, double or not in its place, or says something this version cannot read.
        StoreError: the file cannot be read.
    """
    content = content_of(path)
    lines: list[Line] = []
    for line in scan(content):
        if line.is_torn:
            return tuple(lines), Torn(line.number, line.offset, len(content) - line.offset, line.damage)
        if line.damage:
            refuse_newer(path, content)
            raise DamagedError(f"{path}:{line.number}: {line.damage}")
        lines.append(event_of(path, line))
    return tuple(lines), None


def prove_files(run_dir: Path, lines: Iterable[Line]) -> None:
    """DamagedError for a file that was written when the run began and is not what the journal's header says."""
    proofs: dict[str, object] = {}
    for line in lines:
        if line.event == "header":
            proofs |= cast("dict[str, object]", line.data.get("files") or {})
    for name in sorted(_PROVED & proofs.keys()):
        if checksum(read_text(run_dir / name)) != str(proofs[name]):
            raise DamagedError(f"{run_dir / name}: it is not as it was written: its checksum differs")


_PROVED = frozenset({"spec.json", "machine.json"})


def content_of(path: Path) -> bytes:
    """The bytes of a journal; StoreError where they cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NoRunError(f"{path.parent} is not a run directory, or was never begun: it holds no journal") from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}. Nothing was changed.") from error


def scan(content: bytes) -> Iterator[ScannedLine]:
    """Every line of a journal, proved as far as it goes.

    A line ends with a checksum of itself and has a number; the first that has one also has the checksum of all that is
    before it. So every changed bit, every lost, doubled and moved line shows, but for whole lines lost at the very end:
    a run without its end reads as one that was cut off. Lines of older versions have neither; they come first.
    """
    raw_lines = content.split(b"\n")
    while raw_lines and not raw_lines[-1].strip():
        raw_lines.pop()
    offset = count = 0
    proved = False
    for index, raw in enumerate(raw_lines, start=1):
        at, offset = offset, offset + len(raw) + 1
        if not raw.strip():
            continue
        count += 1
        damage, is_whole = "", False
        seal = _seal(raw)
        holds = seal is not None and _sum(raw[:-SEAL_BYTES] + b"}") == seal[1]
        parsed = _parse(raw)
        if isinstance(parsed, str):
            yield ScannedLine(number=index, offset=at, damage=parsed, is_torn=index == len(raw_lines))
            continue
        number = parsed.get("seq")
        if seal is None:
            is_old = not proved and not parsed.keys() & _PROOF
            damage = "" if is_old else "it is not as it was written: it lacks its checksum"
        elif not holds or not isinstance(number, int):
            damage = "it is not as it was written: its checksum differs"
        elif number != count:
            damage, is_whole = f"it was written as line {number}: lines are lost, doubled or moved", number > count
            count = number
        elif not proved and parsed.get("before") != _sum(content[:at]).decode():
            damage, is_whole = "the lines before it are not as they were written", True
        proved = proved or seal is not None
        yield ScannedLine(number=index, offset=at, parsed=parsed, damage=damage, is_whole=is_whole or not damage)


def refuse_newer(path: Path, content: bytes) -> None:
    """NewerError for a journal that a newer version wrote: one of its whole lines says so, or every line does.

    A single line that says so and is not as it was written is damage; all of them are a journal that is not ours.
    """
    schemas: list[object] = []
    for line in scan(content):
        if line.parsed is not None:
            schema = line.parsed.get("schema")
            schemas.append(schema)
            if line.is_whole and _is_newer(schema):
                raise _newer(path, line.number, schema)
    if schemas and all(map(_is_newer, schemas)):
        raise _newer(path, 1, schemas[0])


def _is_newer(schema: object) -> bool:
    return isinstance(schema, int) and schema > SCHEMA


def _newer(path: Path, number: int, schema: object) -> NewerError:
    what = f"schema {schema!r}, but this version reads up to {SCHEMA}"
    return NewerError(f"{path}:{number}: written by a newer version: {what}. It is left as it is.")


SEAL_BYTES = 26
"""How long the end of a line is that proves it."""

_SEAL = re.compile(rb',"sum":"([0-9a-f]{16})"\}')
_PROOF = frozenset({"seq", "sum", "before"})


def _seal(raw: bytes) -> re.Match[bytes] | None:
    return _SEAL.fullmatch(raw, max(len(raw) - SEAL_BYTES, 0))


def _sum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:16].encode()


def sealed(event: dict[str, Any], *, number: int, before: bytes | None) -> bytes:
    """``event`` as line ``number``; ``before`` is what precedes a first line that has a checksum."""
    proof = {"seq": number} if before is None else {"seq": number, "before": _sum(before).decode()}
    text = json.dumps({**event, **proof}, separators=(",", ":")).encode()
    return text[:-1] + b',"sum":"' + _sum(text) + b'"}\n'


def _parse(raw: bytes) -> dict[str, Any] | str:
    try:
        value: object = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg}, column {error.colno}"
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        return f"not JSON that can be read: {error}"
    return cast("dict[str, Any]", value) if isinstance(value, dict) else f"not a JSON object but {type(value).__name__}"


def event_of(path: Path, line: ScannedLine) -> Line:
    """The event of a line that can be read; JournalError for one that this version does not understand."""
    number, parsed = line.number, line.parsed or {}
    schema, event, wall = parsed.get("schema"), parsed.get("event"), parsed.get("wall")
    data = parsed.get("data")
    if _is_newer(schema):
        raise _newer(path, number, schema)
    if not isinstance(schema, int):
        raise JournalError(f"{path}:{number}: an event needs a whole number 'schema', not {schema!r}")
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
        self._lines: int | None = None
        self._before: bytes | None = None
        self._open()

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._end = os.fstat(self._fd).st_size
            sync_folder(self.path.parent)
        except OSError as error:
            raise write_failed(self.path, error, safe="nothing was lost") from error

    def append(self, *, event: str, wall: str, data: dict[str, Any]) -> None:
        """Write one event; when this returns, it survives a crash and a power cut.

        Raises:
            StoreError: the disk is full or failing. What was appended before stays whole.
        """
        try:
            self._cut_failed_write()
            if self._lines is None:
                content = os.pread(self._fd, self._end, 0)
                lines = list(filter(bytes.strip, content.split(b"\n")))
                self._lines, self._before = len(lines), content
                if lines and _seal(lines[-1]):
                    self._before = None
            row = {"event": event, "schema": SCHEMA, "wall": wall, "data": data}
            raw = sealed(row, number=self._lines + 1, before=self._before)
            done = os.write(self._fd, raw)
            while done < len(raw):  # a disk that fills up takes what fits; asking again gives the reason
                done += os.write(self._fd, raw[done:])
            os.fsync(self._fd)
        except OSError as error:
            raise write_failed(self.path, error, safe=self._safe()) from error
        self._end += len(raw)
        self._lines, self._before = self._lines + 1, None

    def repair(self, torn: Torn | None) -> Path | None:
        """Cut a torn last line off, after keeping a copy of it beside the journal; the copy's path."""
        try:
            if torn is None:
                if self._end and os.pread(self._fd, 1, self._end - 1) != b"\n":  # whole, but its newline was lost
                    os.write(self._fd, b"\n")
                    self._end += 1
                return None
            copy = self.keep_copy(os.pread(self._fd, torn.size, torn.offset))
            os.ftruncate(self._fd, torn.offset)
            os.fsync(self._fd)
        except OSError as error:
            raise write_failed(self.path, error, safe="every whole line of the journal") from error
        self._end = torn.offset
        return copy

    def is_gone(self) -> bool:
        """Whether the file was deleted; what is written into it then reaches nobody."""
        return os.fstat(self._fd).st_nlink == 0

    def put_back(self) -> None:
        """The same journal again where it was deleted. The folder must be there."""
        content = os.pread(self._fd, self._end, 0)
        os.close(self._fd)
        self.path.write_bytes(content)
        self._open()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _cut_failed_write(self) -> None:
        size = os.fstat(self._fd).st_size
        if size < self._end:
            lost = f"{size} of the {self._end} bytes that were written are left: somebody else has cut it"
            raise JournalCutError(f"cannot go on with {self.path}: {lost}. Nothing was added.")
        if size > self._end:
            os.ftruncate(self._fd, self._end)

    def _safe(self) -> str:
        try:
            self._cut_failed_write()
        except OSError:
            return "every line but the last, which will be cut off on --resume"
        return f"the journal up to byte {self._end}, with every event before this one"

    def keep_copy(self, content: bytes) -> Path:
        """``content`` in a file beside the journal."""
        path = beside(self.path, "journal.corrupt")
        path.write_bytes(content)
        return path
