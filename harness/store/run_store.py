"""Runs: where each is and what it holds, read without a lock; and RunStore, by which one controller writes into one.

The run directory is the database: one controller writes, anybody reads, nothing that was said is lost.
"""

from __future__ import annotations

import json
import os
import shlex
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from harness.core.codec import from_json, to_json
from harness.core.errors import (
    DamagedError,
    JournalError,
    NoOpenRunError,
    NoRunError,
    NoSecretError,
    SeveralOpenError,
    StoreError,
)
from harness.core.record import WHOLE
from harness.settings import surroundings
from harness.store import journal, layout, shelf
from harness.store.archive import unpacked
from harness.store.files import beside, checksum, link_files, read_text, write_atomic, write_failed
from harness.store.folder import begun, hold, name_of
from harness.store.history import History, Identity, evidence_at, read_identity
from harness.store.redact import HIDDEN, redact, redact_argv, redact_text, remember, secrets
from harness.store.shelf import NOT_FINISHED, list_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.boundary import PlanEstimate
    from harness.core.campaign import CampaignAnswer, CampaignSpec, Override, ShardProgram
    from harness.core.evidence import Evidence
    from harness.core.invocation import Invocation
    from harness.core.outcome import Survivor
    from harness.core.ports import CellRequest, Clock
    from harness.core.record import Machine, Run, TrialRecord
    from harness.core.spec import Allowance
    from harness.core.trial import Trial
    from harness.store.shelf import RunSummary


def read_run(run_dir: Path) -> Run:
    """The run in ``run_dir`` for a report; needs no lock and changes nothing."""
    return History.read(run_dir).run()


def find_latest(runs_dir: Path) -> Path:
    """The run that was begun last.

    Raises:
        StoreError: there is none.
    """
    runs = list_runs(runs_dir)
    problems: list[str] = []
    for row in runs:
        try:
            if not row.problem:
                History.read(row.directory)
                return row.directory
            problems.append(row.problem)
        except StoreError as error:
            problems.append(str(error))
    if runs:
        raise DamagedError(f"none of the {len(runs)} runs in {runs_dir} can be read: {problems[0]}")
    raise NoRunError(f"no run in {runs_dir}. Begin one with: nsa-harness bisect --axis n_layers")


def find_to_resume(runs_dir: Path, asked: Invocation) -> Path:
    """The last run of the same command, file and program as ``asked`` that did not come to its end.

    Where there are several, one with all options of ``asked`` is meant.

    Raises:
        SeveralOpenError: an older one, which never ended, asks the same.
        NoOpenRunError: there is none.
    """
    rows = list_runs(runs_dir)
    candidates: list[tuple[RunSummary, Identity]] = []
    for row in rows:
        if not row.problem and row.ended not in WHOLE:
            identity = read_identity(row.directory)
            if _asks(identity, asked):
                candidates.append((row, identity))
    if not candidates:
        find_latest(runs_dir)  # there may be no run at all, or none that can be read
        none = f"no run in {runs_dir} that was begun by `{shlex.join(asked.argv)}` is unfinished; the last are:"
        raise NoOpenRunError("\n".join((none, *map(_with_command, rows[:MOST_NAMED]))))
    options = set(asked.options)
    alike = [row for row, begun in candidates if begun.invocation and options <= set(begun.invocation.options)]
    last, *older = alike or [row for row, _ in candidates]
    for row in older:
        if row.ended == NOT_FINISHED and row.question == last.question:
            raise SeveralOpenError(
                f"the last run in {runs_dir} is {last.directory.name} ({last.ended}); {row.directory.name} is older, "
                "asks the same and never ended: it was killed, or is still at work"
            )
    return last.directory


def _asks(identity: Identity, asked: Invocation) -> bool:
    """Whether a run was begun by the same command, on the file and the program that ``asked`` names, if any."""
    begun = identity.invocation
    if begun is None:  # of an older version, which wrote down the words alone
        return identity.argv[1 : 1 + len(asked.verb)] == asked.verb
    is_of_file = asked.operands in ((), begun.operands)
    return begun.verb == asked.verb and is_of_file and asked.command in ((), begun.command)


MOST_NAMED = 3
"""Runs that are named where none can be gone on with."""


def _with_command(row: RunSummary) -> str:
    command = "" if row.problem else shlex.join(read_identity(row.directory).argv)
    return f"  {row.directory.name}: {row.problem or f'{row.ended}, begun by `{command}`'}"


def find_run(runs_dir: Path, name: str | None) -> Path:
    """The directory of the run called ``name``: a path, a name below ``runs_dir``, or the last run (``latest``, None).

    Of a report with its evidence beside it (a bundle) that is its evidence, unpacked in a temporary folder.

    Raises:
        NoRunError: nothing has that name, or a file, or the last run is asked for and there is none.
        DamagedError: it is a bundle whose evidence cannot be unpacked.
    """
    if name is None or name == "latest":
        return find_latest(runs_dir)
    try:
        directory = Path(name) if Path(name).is_dir() else runs_dir / name
        if directory.is_file() or (Path(name).is_file() and not directory.exists()):
            raise NoRunError(f"{name} is a file, and a run is a folder, that of a matrix file too")
        if not directory.exists():
            raise NoRunError(f"there is no run {name}, neither from here nor in {runs_dir}")
        return unpacked(directory) if layout.archive(directory).is_file() else directory
    except OSError as error:
        raise NoRunError(f"{name!r} cannot be the name of a run: {error.strerror}") from error


class RunStore(History):
    """A run directory held by this controller, which adds to its history.

    Use it as a context manager; leaving it gives the lock back.
    """

    def __init__(
        self, run_dir: Path, *, clock: Clock, hidden: tuple[str, ...] = (), question: CampaignSpec | None = None
    ) -> None:
        self._clock = clock
        self._with_secrets = question  # which trials need and no file has
        self._written_proofs: dict[str, str] = {}
        self._hidden = (*hidden, *secrets(surroundings()))  # a program may print what it was started with
        remember(self._hidden)
        self._lock = hold(run_dir)
        try:
            super().__init__(run_dir)
            self._texts = {path: read_text(path) for path in (layout.spec(run_dir), layout.machine(run_dir))}
            self._appender = journal.Appender(layout.journal(run_dir))
        except BaseException:
            os.close(self._lock)
            raise

    @classmethod
    def create(
        cls,
        runs_dir: Path,
        *,
        spec: CampaignSpec,
        machine: Machine,
        code: str,
        argv: Sequence[str] = (),
        invocation: Invocation | None = None,
        program: str = "",
        programs: tuple[ShardProgram, ...] = (),
        clock: Clock,
    ) -> RunStore:
        """A new run directory ``runs_dir/<time>-<axis or matrix>`` with the question in it.

        ``invocation`` is the command that asks it, ``argv`` its words where it is not known in parts. ``program`` is
        the commit of the program, ``programs`` what each shard ran where a merge has several.

        Raises:
            NotBegunError: it cannot be written, and nothing is left of it.
        """
        wall = clock.wall()
        bundles = (spec.matrix.base, *spec.matrix.space.bundles)
        hidden = secrets(chain.from_iterable(bundle.env for bundle in bundles))
        words = redact_argv(argv if invocation is None else invocation.argv)
        with begun(runs_dir, name=name_of(spec, wall=wall)) as run_dir:
            identity = Identity(
                id=run_dir.name,
                machine=machine,
                code=code,
                argv=words,
                started_at=wall,
                invocation=invocation,
                program=program,
                programs=programs,
            )
            files = {
                layout.spec(run_dir): _json(redact(to_json(spec), values=hidden)),
                layout.machine(run_dir): _json(redact(to_json(identity), values=hidden)),
            }
            for path, text in files.items():
                write_atomic(path, text)
            journal.Appender(layout.journal(run_dir)).close()
            store = cls(run_dir, clock=clock, hidden=hidden, question=spec)
            proofs = {path.name: checksum(text) for path, text in files.items()}
            header = {"argv": list(identity.argv), "pid": os.getpid(), "resumed": False, "files": proofs}
            try:
                store._append("header", header)
            except BaseException:
                store.close()
                raise
        return store

    @classmethod
    def open(
        cls,
        run_dir: Path,
        *,
        clock: Clock,
        machine: Machine | None = None,
        code: str | None = None,
        program: str = "",
        argv: Sequence[str] = (),
        allowance: Allowance | None = None,
    ) -> RunStore:
        """Take up a run again. A torn last line is cut off (a copy is kept) and noted.

        Give ``machine`` and ``code`` to be sure that the same things are asked, and ``allowance`` where it may now
        spend something else. Another commit of the user's ``program`` is noted: what it changed, git does not tell.

        Raises:
            RunBusyError: another controller works in it; the message names its PID.
            JournalError: another machine or other code; or corrupt before its last line.
            NoRunError: it is not there, or no run directory.
            StoreError: not writable.
        """
        if not run_dir.is_dir():
            raise NoRunError(f"{run_dir} is not there")
        store = cls(run_dir, clock=clock)
        try:
            store._check(machine=machine, code=code)
            torn = store.torn
            copy = store._appender.repair(torn)
            store.torn = None
            header: dict[str, Any] = {"argv": list(redact_argv(argv)), "pid": os.getpid(), "resumed": True}
            if allowance is not None:
                header["allowance"] = to_json(allowance)
            store._append("header", header)
            if torn is not None and copy is not None:
                store.add_note(f"{torn}; they are kept in {copy.name}")
            if program and store.identity.program and program != store.identity.program:
                store.add_note(
                    f"Begun on the program's commit {store.identity.program} and taken up again on {program}: if that "
                    "changed what is run, the trials before and after it are of different programs, and a run without "
                    "--resume is what answers."
                )
        except BaseException:
            store.close()
            raise
        return store

    @property
    def spec(self) -> CampaignSpec:
        """The question, as it was asked."""
        return self._with_secrets or self.question

    def recall(self, environ: Mapping[str, str]) -> None:
        """Take the secrets that the question sets and no file has from ``environ``; SpecError where one is missing."""
        self._with_secrets = recalled(self.question, environ)

    def add_plan(self, estimate: PlanEstimate) -> None:
        """Journal what the search expects to spend."""
        self._append("plan", to_json(estimate))

    def add_reuse(self, record: TrialRecord) -> None:
        """Journal that a trial of an earlier run, ``record.run``, counts here as well; its files are linked to here."""
        key = record.trial.key
        folder = layout.trial(self.run_dir, key)
        link_files(layout.trial(self.run_dir.parent / record.run, key), folder)
        file = layout.evidence(folder)
        proof = {"evidence": checksum(read_text(file))} if file.is_file() else {}
        self._append("reuse", {"record": to_json(record), "run": record.run, **proof})

    def add_override(self, override: Override) -> None:
        """Journal an answer that no trial gave."""
        self._append("said", to_json(override))

    def add_undo(self, count: int) -> None:
        """Journal that the last ``count`` facts are taken back."""
        self._append("undo", {"count": count})

    def add_decision(self, request: CellRequest, *, plan: PlanEstimate | None = None, gpus: Sequence[str] = ()) -> None:
        """Journal what the search asks next and why, what it expects to spend from here, and on which GPUs it runs."""
        leased = {"gpus": list(gpus)} if gpus else {}
        self._append("decision", {**to_json(request), "left": to_json(plan), **leased})

    def add_start(self, trial: Trial) -> Path:
        """Journal that ``trial`` starts now; its empty folder. What an earlier, cut-off attempt left is moved aside."""
        folder = layout.trial(self.run_dir, trial.key)
        self._append("start", {"trial": to_json(trial)})
        try:
            if folder.exists():
                folder.rename(beside(folder, f"{folder.name}.interrupted"))
            folder.mkdir(parents=True)
        except OSError as error:
            raise write_failed(folder, error, safe="the journal and all finished trials") from error
        return folder

    def add_record(self, record: TrialRecord, *, proof: str | None = None) -> None:
        """Journal a finished trial. When this returns, no crash can lose it.

        ``proof`` is the checksum of its evidence where that was not written here.
        """
        proof = proof or self._written_proofs.get(record.trial.key)
        self._append("record", {"record": to_json(record), **({"evidence": proof} if proof else {})})

    def add_note(self, text: str) -> None:
        """Journal something that a reader of the report should know."""
        self._append("note", {"text": text})

    def add_end(
        self,
        *,
        why: str,
        seconds: float,
        answer: CampaignAnswer | None = None,
        asked: str = "",
        survivors: Sequence[Survivor] = (),
    ) -> None:
        """Journal that this controller is done: ``why`` it ended, its seconds, and the answer if there is one.

        ``asked`` says who asked to stop, of one that was interrupted; ``survivors`` cannot be ended.
        """
        fields: dict[str, Any] = {} if answer is None else {"answer": to_json(answer)}
        fields |= {"asked": asked} if asked else {}
        fields |= {"survivors": to_json(tuple(survivors))} if survivors else {}
        self._append("end", {"why": why, "seconds": seconds, **fields})

    def write_evidence(self, key: str, evidence: Evidence) -> None:
        """Keep all that was seen of a trial; at once or not at all."""
        self._scrub(layout.trial(self.run_dir, key))
        text = _json(redact(to_json(evidence), values=self._hidden))
        write_atomic(layout.evidence(layout.trial(self.run_dir, key)), text)
        self._written_proofs[key] = checksum(text)

    def _scrub(self, trial_dir: Path) -> None:
        """Take secrets out of what was written in the trial itself, by our own part in it: there nobody could know."""
        for path in trial_dir.glob("*.json"):
            with suppress(OSError, UnicodeDecodeError):  # a pipe, a folder: the program's own joke
                text = read_text(path)
                if (redacted := redact_text(text, values=self._hidden)) != text:
                    write_atomic(path, redacted)

    def read_evidence(self, key: str) -> Evidence | None:
        """All that was seen of a trial, also of one that was taken over; None when it was not kept."""
        return evidence_at(layout.evidence(self.trial_dir(key)), proof=self.proofs.get(key))

    def close(self) -> None:
        """Give the run back, with its row in the list of runs."""
        self._appender.close()
        shelf.keep(self.run_dir)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _restore(self) -> None:
        """Put the run's folder back where a program has deleted it, as many do with ``runs`` when they begin.

        The journal is whole: what this controller holds open is still there. The evidence of finished trials is lost.
        """
        for path, text in self._texts.items():
            write_atomic(path, text)
        if self._appender.is_gone():
            self._appender.put_back()
            os.close(self._lock)
            self._lock = hold(self.run_dir)
        note = f"{self.run_dir.name} was deleted while the run went on; what it held of finished trials is lost"
        if note not in self.notes:
            self.add_note(note)

    def _append(self, event: str, data: dict[str, Any]) -> None:
        # A program that is still deleting takes from what was put back before; so all of it is looked for each time.
        if self._appender.is_gone() or not all(path.exists() for path in self._texts):
            self._restore()
        wall = self._clock.wall()
        safe_data = redact(data, values=self._hidden)
        self._appender.append(event=event, wall=wall, data=safe_data)
        self.extend([journal.Line(0, event, wall, safe_data)])

    def _check(self, *, machine: Machine | None, code: str | None) -> None:
        """Refuse another machine or other code than it was begun with; None is not compared."""
        mismatches: list[str] = []
        if machine is not None and machine.fingerprint != self.identity.machine.fingerprint:
            mismatches.append(f"machine: was {self.identity.machine.fingerprint}, now {machine.fingerprint}")
        # "0.1.0+<hash of the sources> (<commit>)": the same sources under another commit are the same code.
        if code is not None and code.partition(" (")[0] != self.identity.code.partition(" (")[0]:
            mismatches.append(f"code: was {self.identity.code}, now {code}")
        if mismatches:
            listed = "\n  ".join(mismatches)
            raise JournalError(
                f"{self.run_dir} was begun on other things, and its trials may not be counted with new ones:\n"
                f"  {listed}\nLeave --resume out to start a new run, or go on where and with what it was begun."
            )


def _json(data: Any) -> str:
    return json.dumps(data, indent=1) + "\n"


def recalled(question: CampaignSpec, environ: Mapping[str, str]) -> CampaignSpec:
    """``question`` with the value of every hidden variable taken from ``environ``.

    Raises:
        NoSecretError: it is not there; to go on with another value would be another question.
    """
    hidden: set[str] = set()
    filled = _filled(to_json(question), environ, hidden)
    missing = sorted(hidden.difference(environ))
    if missing:
        words = " ".join(f"{name}=.." for name in missing)
        raise NoSecretError(
            f"{', '.join(missing)} was set for this run's trials and is written down nowhere; "
            f"to go on, set it in the environment: {words} nsa-harness .. --resume"
        )
    if HIDDEN in json.dumps(filled):
        raise NoSecretError(
            "a part of this run's command line is a secret and is written down nowhere; give it by a variable of the "
            "environment, where a run can be continued"
        )
    return from_json(type(question), filled)


def _filled(data: Any, environ: Mapping[str, str], hidden: set[str]) -> Any:
    """``data`` with what ``environ`` has of it; ``hidden`` takes the names of all variables whose value was hidden."""
    if isinstance(data, dict):
        return {key: _filled(part, environ, hidden) for key, part in cast("dict[str, Any]", data).items()}
    if not isinstance(data, list):
        return data
    parts = cast("list[Any]", data)
    if len(parts) == 2 and parts[1] == HIDDEN:
        hidden.add(str(parts[0]))
        return [parts[0], environ.get(str(parts[0]), HIDDEN)]
    return [_filled(part, environ, hidden) for part in parts]
