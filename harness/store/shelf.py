"""The runs in a folder, a line each.

A controller that leaves a run keeps its row beside the journal, with the size and time of every file that the row was
made from. While they are the same, the list reads the row and nothing else, for reading a journal of 100 kB takes as
long as starting Python; whether each line still is as it was written, ``fsck`` says, and whoever reads the run. A run
that is worked on, was killed or copied has another time than its row: its journal is read, as plain JSON. What every
event holds is known to :mod:`harness.store.history`, but importing that takes three times as long as starting Python
and the command line together, and a list needs four facts of it. The answer in words is in the report beside it.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.core.errors import JournalError, StoreError
from harness.store import layout
from harness.store.files import read_object, read_text, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.store.journal import Line

NOT_FINISHED = "not finished"
"""``Run.ended`` of a run whose controller is still working, or was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A row in the list of runs; ``problem`` says why a run cannot be read (its other fields are then empty).

    ``answer`` is the whole answer as its report gives it, ``brief`` what a line has room for. Where no report of the
    run as it is now was written, ``answer`` is empty, and ``brief`` has the verdicts on one program, else nothing.
    """

    directory: Path
    question: str = ""
    started_at: str = ""
    ended: str = ""
    finding: str = ""
    trials: int = 0
    problem: str = ""
    answer: str = ""
    brief: str = ""

    @property
    def name(self) -> str:
        """Its name, and how many trials count."""
        return f"{self.directory.name}  {self.trials:>4} trial{'s' if self.trials != 1 else ' '}"

    @property
    def ending(self) -> str:
        """What it showed, or why nothing is known of that: in so few words that a line has room for them."""
        return self.brief or self.finding or self.ended

    def __str__(self) -> str:
        """One line: name, trials, answer or how it ended, question; or what is wrong with it."""
        if self.problem:
            return f"{self.directory.name}  cannot be read: {self.problem}"
        return f"{self.name}  {self.ending}  {self.question}"


def folders(runs_dir: Path) -> list[Path]:
    """The folder of every run in ``runs_dir``, by name, also of one that cannot be read."""
    return sorted(path.parent for path in runs_dir.glob("*/journal.jsonl"))


def list_runs(runs_dir: Path) -> tuple[RunSummary, ...]:
    """Every run in ``runs_dir``, newest first; those that cannot be read say why instead of hiding."""
    return tuple(sorted(map(summary, folders(runs_dir)), key=lambda s: s.started_at, reverse=True))


def summary(folder: Path) -> RunSummary:
    """The row of one run; a file that is not as it was written is a problem."""
    return _with_answer(_stored_row(folder) or _read(folder))


def _with_answer(row: RunSummary) -> RunSummary:
    """``row`` with what its report says; not with what a report said before the run went on."""
    with suppress(StoreError):
        claims = read_object(layout.report(row.directory, "claims.json"))
        if claims.get("ended", row.ended) == row.ended and claims.get("trials", row.trials) == row.trials:
            answer = str(claims.get("answer", ""))
            return replace(row, answer=answer, brief=str(claims.get("brief", answer)))
    return row


def keep(folder: Path) -> None:
    """Keep the row of a run beside it, if it can be read and written: what is lost of a row costs time alone."""
    import json

    made_from, row = _stamps(folder), _read(folder)
    with suppress(StoreError):
        if not row.problem:
            facts = {name: getattr(row, name) for name in _FACTS}
            write_atomic(layout.row(folder), json.dumps({"made_from": made_from, "row": facts}) + "\n")


_FACTS = {"question": str, "started_at": str, "ended": str, "finding": str, "brief": str, "trials": int}


def _stored_row(folder: Path) -> RunSummary | None:
    """The row that lies beside a run; None where it was made from other files, or is none."""
    import json

    with suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
        content = json.loads(read_text(layout.row(folder)))
        row: dict[str, Any] = content["row"]
        if content["made_from"] == _stamps(folder) and all(type(row[name]) is kind for name, kind in _FACTS.items()):
            return RunSummary(directory=folder, **row)
    return None


def _stamps(folder: Path) -> list[list[int]]:
    """Size, and time in ns, of each file that a row is made from; nothing where one is not there."""
    files = (layout.journal(folder), layout.spec(folder), layout.machine(folder))
    with suppress(OSError):
        return [[at.st_size, at.st_mtime_ns] for at in map(os.stat, files)]
    return []


def _read(folder: Path) -> RunSummary:
    from harness.store import journal

    try:
        machine, question = read_object(layout.machine(folder)), read_object(layout.spec(folder))
        lines, _ = journal.read(layout.journal(folder))
        journal.prove_files(folder, lines)
        return _of(folder, question, machine, lines)
    except StoreError as error:
        return RunSummary(directory=folder, problem=str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = JournalError(f"{folder}: its files are not those of a run: {type(error).__name__}: {error}")
        return RunSummary(directory=folder, problem=str(problem))


def _of(folder: Path, question: dict[str, Any], machine: dict[str, Any], lines: Iterable[Line]) -> RunSummary:
    """What follows from the events, as :class:`harness.store.history.History` has it."""
    facts: list[tuple[str, str, str]] = []  # what a search was told, in order: event, key of the trial, verdict
    end: dict[str, Any] = {}
    for line in lines:
        match line.event:
            case "record" | "reuse":
                record = line.data["record"]
                facts.append((line.event, record["trial"]["key"], _verdict(record.get("verdict", {}))))
            case "said":
                facts.append((line.event, "", ""))
            case "undo":
                del facts[max(0, len(facts) - int(line.data["count"])) :]
            case "end":
                end = line.data
            case _:
                pass
        if line.event in ("header", "start", "said", "undo"):
            end = {}
    counted = {fact[:2]: fact[2] for fact in facts if fact[0] in ("record", "reuse")}
    answer: dict[str, Any] = end.get("answer") or {}
    boundary: dict[str, Any] = answer.get("boundary") or end.get("boundary") or {}  # as earlier versions wrote it
    return RunSummary(
        directory=folder,
        question=question["question"],
        started_at=machine["started_at"],
        ended=end.get("why", NOT_FINISHED),
        finding=boundary.get("finding") or answer.get("because") or "",
        trials=len(counted),
        brief=_counts(counted.values()) if end.get("why") == "answered" and _is_single(question) else "",
    )


def _verdict(data: dict[str, Any]) -> str:
    kind, cause = data.get("kind", ""), data.get("cause")
    return f"{kind} ({cause})" if cause else kind


def _counts(verdicts: Iterable[str]) -> str:
    """``HANG (deadlock)``, or how often each, the commonest first."""
    counts = Counter(verdicts).most_common()
    return counts[0][0] if len(counts) == 1 else ", ".join(f"{number} {verdict}" for verdict, number in counts)


def _is_single(question: dict[str, Any]) -> bool:
    """Whether it is one program as it is, with nothing varied."""
    return question.get("task") == "cells" and not question["matrix"]["space"]["factors"]
