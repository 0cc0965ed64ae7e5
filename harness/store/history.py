"""History: what a run directory says happened. Reading needs no lock, and works on old, cut-off and empty runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.core.campaign import CampaignAnswer, CampaignSpec, Override, ShardProgram
from harness.core.codec import from_json
from harness.core.errors import DamagedError, JournalError, NoRunError, SpecError, StoreError
from harness.core.evidence import Evidence
from harness.core.invocation import Invocation  # noqa: TC001 - read back by its type
from harness.core.outcome import Survivor  # noqa: TC001 - likewise
from harness.core.record import Machine, Run, TrialRecord
from harness.core.spec import Allowance
from harness.core.trial import Trial
from harness.store import journal, layout, upgrade
from harness.store.files import checksum, read_object, read_text
from harness.store.shelf import NOT_FINISHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What ``machine.json`` holds: which run this is, and where, on what code and by which command it was begun.

    ``program`` and ``programs`` are as in :class:`~harness.core.record.Run`.
    """

    id: str
    machine: Machine
    code: str
    argv: tuple[str, ...]
    started_at: str
    invocation: Invocation | None = None
    program: str = ""
    programs: tuple[ShardProgram, ...] = ()


class History:
    """The events of one run, in order, and what follows from them."""

    def __init__(self, run_dir: Path) -> None:
        """Read a run directory.

        Raises:
            JournalError: corrupt before the last line, or not what this version understands.
            StoreError: not a run directory, or unreadable.
        """
        self.run_dir = run_dir
        self.identity = read_identity(run_dir)
        self.asked = self.question = read_question(run_dir)  # what it may spend may become another than was asked
        self._records: dict[str, TrialRecord] = {}
        self._pending: dict[str, Trial] = {}
        self._reused: dict[str, TrialRecord] = {}
        self._facts: list[TrialRecord | Override] = []
        self._undone: list[TrialRecord] = []
        self.notes: list[str] = []
        self._end: _End | None = None
        self._seconds = 0.0
        self._session: tuple[str, str] | None = None  # wall time of its first and last event
        self.proofs: dict[str, str] = {}  # of evidence, by key
        lines, self.torn = journal.read(layout.journal(run_dir))
        self.extend(lines)
        journal.prove_files(run_dir, lines)

    @staticmethod
    def read(run_dir: Path) -> History:
        """The history of a run, whoever writes it."""
        return History(run_dir)

    def extend(self, lines: Iterable[journal.Line]) -> None:
        """Take in events, oldest first; JournalError with file and line for one that contradicts itself."""
        for line in lines:
            try:
                self._take(upgrade.read_line(line, self.question))
            except (StoreError, SpecError, KeyError, TypeError, ValueError, AttributeError) as error:
                at = f"{layout.journal(self.run_dir)}:{line.number}"
                what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                raise JournalError(f"{at}: {line.event} event: {what}") from error

    def records(self) -> tuple[TrialRecord, ...]:
        """Every finished trial, in the order of finishing."""
        return tuple(self._records.values())

    def started_not_finished(self) -> tuple[Trial, ...]:
        """Trials that were running when a controller died: to be run again."""
        return tuple(self._pending.values())

    def reused(self) -> tuple[TrialRecord, ...]:
        """Trials of earlier runs that count in this one, in the order of being taken over."""
        return tuple(self._reused.values())

    def trial_dir(self, key: str) -> Path:
        """Where the evidence of a trial lies: here, or in the run that it was taken over from without its files."""
        here = layout.trial(self.run_dir, key)
        if key not in self._reused or here.exists():
            return here
        return layout.trial(self.run_dir.parent / self._reused[key].run, key)

    def facts(self) -> tuple[TrialRecord | Override, ...]:
        """Everything that a search is to be told, in order: trials, also those taken over, and what users said."""
        return tuple(self._facts)

    def undone(self) -> tuple[TrialRecord, ...]:
        """Trials that a user took back."""
        return tuple(self._undone)

    def run(self) -> Run:
        """The run as reports see it, also when it was cut off or nothing was tried."""
        end = self._end or _End(why=NOT_FINISHED)
        torn = (str(self.torn),) if self.torn else ()
        return Run(
            id=self.identity.id,
            spec=self.question,
            machine=self.identity.machine,
            code=self.identity.code,
            argv=self.identity.argv,
            invocation=self.identity.invocation,
            started_at=self.identity.started_at,
            records=(*self.records(), *self.reused()),
            answer=end.answer,
            ended=end.why,
            asked=end.asked,
            survivors=end.survivors,
            seconds=self._seconds + self._open_session_s(),
            directory=_short_path(self.run_dir),
            notes=(*self.notes, *torn),
            program=self.identity.program,
            programs=self.identity.programs,
        )

    def _take(self, line: journal.Line) -> None:
        match line.event:
            case "header":
                self._seconds += self._open_session_s()
                self._session = (line.wall, line.wall)
                self._end = None
                if "allowance" in line.data:
                    self._allow(from_json(Allowance, line.data["allowance"]))
            case "start":
                trial = _trial(line.data["trial"])
                self._pending[trial.key] = trial
                self._end = None
            case "record":
                record = _record(line.data["record"])
                self._pending.pop(record.trial.key, None)
                self._records[record.trial.key] = record
                self._facts.append(record)
                self._prove(record, line)
            case "reuse":
                record = replace(_record(line.data["record"]), run=str(line.data["run"]))
                self._reused[record.trial.key] = record
                self._facts.append(record)
                self._prove(record, line)
            case "said":
                self._facts.append(from_json(Override, line.data))
                self._end = None
            case "undo":
                self._undo(int(line.data["count"]))
                self._end = None
            case "note":
                self.notes.append(str(line.data["text"]))
            case "end":
                self._end = from_json(_End, line.data)
                self._seconds += float(line.data["seconds"])
                self._session = None
            case _:  # plan and decision are for people and tools; the search replays from the records
                pass
        if self._session is not None:
            self._session = (self._session[0], line.wall)

    def _prove(self, record: TrialRecord, line: journal.Line) -> None:
        """Note the checksum of a trial's evidence, where the event says that there is some."""
        if "evidence" in line.data:
            self.proofs[record.trial.key] = str(line.data["evidence"])

    def _allow(self, allowance: Allowance) -> None:
        """From here on it may spend ``allowance``, and who asks the same again must allow the same."""
        self.question = self.question.within(allowance)
        invocation = self.identity.invocation
        if invocation is None:
            return
        for option, value in allowance.options:
            invocation = invocation.having(option, value)
        self.identity = replace(self.identity, invocation=invocation, argv=invocation.argv)

    def _undo(self, count: int) -> None:
        """Take the last ``count`` facts back; their trials stay in the journal and their keys are not used again."""
        for _ in range(min(count, len(self._facts))):
            fact = self._facts.pop()
            if isinstance(fact, TrialRecord):
                self._undone.append(fact)
                self._records.pop(fact.trial.key, None)
                self._reused.pop(fact.trial.key, None)

    def _open_session_s(self) -> float:
        if self._session is None:
            return 0.0
        first, last = map(datetime.fromisoformat, self._session)
        return max(0.0, (last - first).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    why: str
    seconds: float = 0.0
    answer: CampaignAnswer | None = None
    asked: str = ""
    survivors: tuple[Survivor, ...] = ()


def read_identity(run_dir: Path) -> Identity:
    """Which run a directory holds, and by which command it was begun."""
    return _read(layout.machine(run_dir), lambda data: from_json(Identity, data))


def read_question(run_dir: Path) -> CampaignSpec:
    """The question that a run directory is about."""
    return _read(layout.spec(run_dir), upgrade.read_question)


def read_lines(run_dir: Path) -> tuple[list[journal.Line], journal.Torn | None]:
    """The events of a run, of whichever version, and what is torn off at the end."""
    question = read_question(run_dir)
    lines, torn = journal.read(layout.journal(run_dir))
    return [upgrade.read_line(line, question) for line in lines], torn


def _trial(data: Any) -> Trial:
    return from_json(Trial, data).written_as(data["key"])


def _record(data: Any) -> TrialRecord:
    record = from_json(TrialRecord, data)
    return replace(record, trial=record.trial.written_as(data["trial"]["key"]))


def _read(path: Path, turn: Callable[[dict[str, Any]], T]) -> T:
    """What the file at ``path`` holds, turned by ``turn``."""
    data = read_object(path)
    try:
        return turn(data)
    except (StoreError, SpecError) as error:
        raise JournalError(f"{path}: {error}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedError(f"{path}: {error}") from error


def _short_path(run_dir: Path) -> str:
    """The run's place as one would type it here: relative where it lies below the current directory."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was deleted; one can stand in it all the same
        return str(run_dir)
    return str(run_dir.relative_to(here)) if run_dir.is_relative_to(here) else str(run_dir)


def read_evidence(run_dir: Path, key: str) -> Evidence | None:
    """All that was seen of a trial, held against the checksum that the journal has of it; None when it was not kept.

    Raises:
        JournalError: the file does not hold what this version understands, or what was written.
    """
    try:
        at = layout.journal(run_dir).stat()
        proof = _proofs(run_dir, (at.st_mtime_ns, at.st_size)).get(key)
    except (FileNotFoundError, NoRunError):  # a trial's folder without a run around it
        proof = None
    return evidence_at(layout.evidence(layout.trial(run_dir, key)), proof=proof)


@lru_cache(maxsize=4)
def _proofs(run_dir: Path, _: tuple[int, int]) -> Mapping[str, str]:
    """The checksums that a journal has; read once for each time of change and size of it."""
    return History.read(run_dir).proofs


def evidence_at(path: Path, *, proof: str | None = None) -> Evidence | None:
    """As :func:`read_evidence`, for a file; ``proof`` is the checksum that it must have."""
    try:
        text = read_text(path)
        if proof is not None and checksum(text) != proof:
            raise DamagedError(f"{path}: it is not as it was written: its checksum differs")
        data = json.loads(text)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}. Nothing was changed.") from error
    except ValueError as error:
        raise JournalError(f"{path}: not JSON: {error}") from error
    try:
        return from_json(Evidence, data)
    except JournalError as error:
        raise JournalError(f"{path}: {error}") from error
