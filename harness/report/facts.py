"""Facts: what single trials and their evidence say of a configuration. No judgement, no prose."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from harness.core.dotted import leaves
from harness.core.errors import StoreError
from harness.store import layout
from harness.store.files import read_object

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import TrialRecord


EVIDENCE_PARTS = ("kernels", "config_seen", "config_differences")
"""The parts of a trial's evidence that sections want of every trial."""

_READER = json.JSONDecoder()


def steps_of(record: TrialRecord) -> int:
    """Steps that were finished, never more than were asked for: earlier versions kept those of every rank."""
    most = leaves(record.trial.config).get("train.steps")
    steps = len(record.measurement.step_s)
    return min(steps, most) if isinstance(most, int) else steps


def object_at(path: Path) -> dict[str, Any]:
    """The JSON object in a file of ours; one that is not there or cannot be read says nothing, for or against."""
    with suppress(StoreError):
        return read_object(path)
    return {}


def raw_evidence(run_dir: Path, key: str) -> dict[str, Any] | None:
    """What EVIDENCE_PARTS names of a trial's evidence, as plain JSON, or None when it was not kept or cannot be read.

    For the few facts that are wanted of every trial; reading hundreds of stacks for them would take seconds.
    """
    path = layout.evidence(layout.trial(run_dir, key))
    try:
        return _evidence_parts(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=4096)
def _evidence_parts(path: Path, mtime_ns: int) -> dict[str, Any] | None:
    """What EVIDENCE_PARTS names of the evidence at ``path``; ``mtime_ns`` tells a file that was written again."""
    text = path.read_text(encoding="utf-8")
    parts: dict[str, Any] = {}
    for name in EVIDENCE_PARTS:
        _, is_there, rest = text.partition(f'\n "{name}": ')
        if not is_there:  # not as the store writes it: a line for each part, and no other line begins like it
            data: dict[str, Any] | None = json.loads(text)
            return {name: data.get(name) for name in EVIDENCE_PARTS} if isinstance(data, dict) else None
        parts[name] = _READER.raw_decode(rest)[0]
    return parts
