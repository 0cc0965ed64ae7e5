"""The runs in a folder, a line each, from their journals as plain JSON.

What every event holds is known to :mod:`harness.store.history`. Importing that takes three times as long as starting
Python and the command line together, and a list needs four facts of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.errors import JournalError, StoreError
from harness.store import layout
from harness.store.files import read_object

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.store.journal import Line

NOT_FINISHED = "not finished"
"""``Run.ended`` of a run whose controller is still working, or was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A row in the list of runs; ``problem`` says why a run cannot be read (its other fields are then empty)."""

    directory: Path
    question: str = ""
    started_at: str = ""
    ended: str = ""
    finding: str = ""
    trials: int = 0
    problem: str = ""

    def __str__(self) -> str:
        """One line: name, trials, finding or how it ended, question; or what is wrong with it."""
        if self.problem:
            return f"{self.directory.name}  cannot be read: {self.problem}"
        return f"{self.directory.name}  {self.trials:>4} trials  {self.finding or self.ended}  {self.question}"


def list_runs(runs_dir: Path) -> tuple[RunSummary, ...]:
    """Every run in ``runs_dir``, newest first; those that cannot be read say why instead of hiding."""
    folders = sorted(path.parent for path in runs_dir.glob("*/journal.jsonl"))
    return tuple(sorted((summary(folder) for folder in folders), key=lambda s: s.started_at, reverse=True))


def summary(folder: Path) -> RunSummary:
    """The row of one run; a file that is not as it was written is a problem."""
    from harness.store import journal

    try:
        machine, question = read_object(layout.machine(folder)), read_object(layout.spec(folder))
        lines, _ = journal.read(layout.journal(folder), skim=_skimmed)
        journal.prove_files(folder, lines)
        return _of(folder, question, machine, lines)
    except StoreError as error:
        return RunSummary(directory=folder, problem=str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = JournalError(f"{folder}: its files are not those of a run: {type(error).__name__}: {error}")
        return RunSummary(directory=folder, problem=str(problem))


_HEAD = re.compile(rb'\{"event":"(plan|start|decision|note|record|reuse)","schema":(\d+),"wall":"([^"]*)","data":')
_NUMBER = re.compile(rb',"seq":(\d+),"sum":"[0-9a-f]{16}"\}')
_KEY = re.compile(rb'"key":"([0-9a-f]{16})"\},"outcome":\{"ending":')


def _skimmed(raw: bytes) -> dict[str, Any] | None:
    """What the list needs of a line that is whole, without parsing it: nine tenths of the time went into that.

    None where the line is to be parsed: it is short, or does not show beyond doubt which trial it records.
    """
    head, end = _HEAD.match(raw), _NUMBER.fullmatch(raw, max(raw.rfind(b',"seq":'), 0))
    if head is None or end is None:
        return None
    event, data = head[1].decode(), {}
    if event in ("record", "reuse"):
        keys = _KEY.findall(raw)  # a quotation mark within a text has a backslash before it
        if len(keys) != 1:
            return None
        data = {"record": {"trial": {"key": keys[0].decode()}}}
    wall = head[3].decode(errors="replace")
    return {"event": event, "schema": int(head[2]), "wall": wall, "data": data, "seq": int(end[1])}


def _of(folder: Path, question: dict[str, Any], machine: dict[str, Any], lines: Iterable[Line]) -> RunSummary:
    """What follows from the events, as :class:`harness.store.history.History` has it."""
    facts: list[tuple[str, str]] = []  # what a search was told, in order: event and key of the trial
    end: dict[str, Any] = {}
    for line in lines:
        match line.event:
            case "record" | "reuse":
                facts.append((line.event, line.data["record"]["trial"]["key"]))
            case "said":
                facts.append((line.event, ""))
            case "undo":
                del facts[max(0, len(facts) - int(line.data["count"])) :]
            case "end":
                end = line.data
            case _:
                pass
        if line.event in ("header", "start", "said", "undo"):
            end = {}
    counted = {fact for fact in facts if fact[0] in ("record", "reuse")}
    answer: dict[str, Any] = end.get("answer") or {}
    boundary: dict[str, Any] = answer.get("boundary") or end.get("boundary") or {}  # as earlier versions wrote it
    return RunSummary(
        directory=folder,
        question=question["question"],
        started_at=machine["started_at"],
        ended=end.get("why", NOT_FINISHED),
        finding=boundary.get("finding") or answer.get("because") or "",
        trials=len(counted),
    )
