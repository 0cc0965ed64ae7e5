"""Fsck: what of a run is not as it was written, line by line, and a journal of what stands."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from harness.core.errors import HarnessError, JournalError
from harness.store import journal, layout
from harness.store.files import write_atomic
from harness.store.folder import hold
from harness.store.history import History, read_evidence

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.evidence import LogTail
    from harness.core.ports import Clock


def problems(run_dir: Path) -> list[str]:
    """Everything that is wrong, a line each; empty when all is as it was written. Changes nothing.

    Raises:
        NewerError: a newer version wrote it, so that nothing is known of what it should be.
        StoreError: it cannot be read.
    """
    path = layout.journal(run_dir)
    content = journal.content_of(path)
    journal.refuse_newer(path, content)
    lines = [f"{path}:{line.number}: {line.damage}" for line in journal.scan(content) if line.damage]
    if lines:
        return lines
    try:
        history = History.read(run_dir)
    except HarnessError as error:
        return [str(error)]
    for record in (*history.records(), *history.reused()):
        lines += _of_evidence(run_dir, record.trial.key, proof=history.proofs.get(record.trial.key))
    return lines


def _of_evidence(run_dir: Path, key: str, *, proof: str | None) -> list[str]:
    """What is wrong with the files of one trial; without a ``proof`` the journal does not say that there were any."""
    folder = layout.trial(run_dir, key)
    if proof is not None and not folder.exists():
        return [f"{folder}: it is missing, with all that was seen of this trial"]
    try:
        evidence = read_evidence(run_dir, key)
    except HarnessError as error:
        return [str(error)]
    if evidence is None:
        return [f"{layout.evidence(folder)}: it is missing"] if proof is not None else []
    # A bundle has no output but what the evidence quotes, and of other nodes only what is small comes back.
    if layout.bundle_manifest(run_dir).is_file() or evidence.nodes:
        return []
    lines: list[str] = []
    for log in evidence.logs:
        if log.is_of_trial:
            lines += _of_output(folder, log)
    return lines


def _of_output(folder: Path, log: LogTail) -> list[str]:
    """What is wrong with the files of an output stream: that they are missing, or hold less than was written."""
    path, size_bytes = layout.output(folder, log.stream), 0
    if not path.exists():
        return [f"{path}: it is missing"]
    for part in (path, layout.output_tail(folder, log.stream)):
        size_bytes += part.stat().st_size if part.exists() else 0
    written_bytes = log.size_bytes - log.dropped_bytes
    if size_bytes < written_bytes:
        return [f"{path}: it is not as it was written: {size_bytes} of {written_bytes} bytes are there"]
    return []


def salvage(run_dir: Path, *, clock: Clock, accept: bool) -> tuple[int, int, str]:
    """Write the journal again with every line that stands: how many, how many do not, where the old one is kept.

    With ``accept``, a line that was changed but can be read stands as it is now. From the first line that is lost on
    no answer stands: ``--resume`` asks again what is missing.

    Raises:
        RunBusyError: a controller works in it.
        NewerError: a newer version wrote it; it is left alone.
        StoreError: it cannot be read or written.
    """
    path = layout.journal(run_dir)
    lock = hold(run_dir)
    try:
        content = journal.content_of(path)
        journal.refuse_newer(path, content)
        standing: list[journal.Line] = []
        dropped = 0
        for line in journal.scan(content):
            event = _standing(path, line, accept=accept)
            if event is None or (dropped and event.event == "end"):
                dropped += 1
            else:
                dropped += 0 if accept or not line.damage else 1  # it stands, but lines before it are lost
                standing.append(event)
        with closing(journal.Appender(path)) as old:
            copy = old.keep_copy(content)
        write_atomic(path, "")
        with closing(journal.Appender(path)) as new:
            for event in standing:
                new.append(event=event.event, wall=event.wall, data=event.data)
            what = f"{dropped} damaged or lost lines were left out" if dropped else "changed by hand"
            note = f"the journal was written again by fsck, {what}; the old one is {copy.name}"
            new.append(event="note", wall=clock.wall(), data={"text": note})
    finally:
        os.close(lock)
    return len(standing), dropped, copy.name


def _standing(path: Path, line: journal.ScannedLine, *, accept: bool) -> journal.Line | None:
    if line.parsed is None or not (accept or not line.damage or line.is_whole):
        return None
    try:
        return journal.event_of(path, line)
    except JournalError:
        return None
