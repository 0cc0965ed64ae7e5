"""Evidence of one trial, as its folder keeps it."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.core.codec import from_json
from harness.core.errors import DamagedError, JournalError, NoRunError, StoreError
from harness.core.evidence import Evidence
from harness.store import layout
from harness.store.files import checksum, read_text
from harness.store.history import History

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


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
