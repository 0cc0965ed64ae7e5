"""Evidence of one trial, as its folder keeps it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.core.codec import from_json
from harness.core.errors import JournalError, StoreError
from harness.core.evidence import Evidence
from harness.store import layout

if TYPE_CHECKING:
    from pathlib import Path


def read_evidence(run_dir: Path, key: str) -> Evidence | None:
    """All that was seen of a trial, or None when it was not kept.

    Raises:
        JournalError: the file does not hold what this version understands.
    """
    return evidence_at(layout.evidence(layout.trial(run_dir, key)))


def evidence_at(path: Path) -> Evidence | None:
    """As :func:`read_evidence`, for a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
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
