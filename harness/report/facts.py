"""Facts: what single trials and their evidence say of a configuration. No judgement, no prose."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from harness.core.dotted import leaves
from harness.core.errors import StoreError
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


def evidence_parts(path: Path) -> dict[str, Any]:
    """What EVIDENCE_PARTS names of the evidence at ``path``, as plain JSON; empty when it is not there or not readable.

    For the few facts that are wanted of every trial; reading hundreds of stacks for them would take seconds.
    """
    parts: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        text = path.read_text(encoding="utf-8")
        for name in EVIDENCE_PARTS:
            _, is_there, rest = text.partition(f'\n "{name}": ')
            if not is_there:  # not as the store writes it: a line for each part, and no other line begins like it
                data = object_at(path)
                return {name: data.get(name) for name in EVIDENCE_PARTS}
            parts[name] = _READER.raw_decode(rest)[0]
    return parts
