"""What a trial really ran, as a fingerprint: two trials with the same one differ in nothing that the program saw."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from harness.store import layout

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.trial import Trial

OWN = "NSA_"
"""Variables of the patient itself: it has turned them into its configuration, which is compared."""


def fingerprint(trial: Trial, trial_dir: Path) -> str:
    """The effective configuration and kernels of a trial, hashed; empty when the program did not write them down.

    Interpreter, commit, planted fault and foreign environment variables are part of it: the program's own echo does
    not show them.
    """
    try:
        effective = json.loads(layout.effective(trial_dir).read_text(encoding="utf-8"))
        kernels = json.loads(layout.kernels(trial_dir).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # it ended before it said so, or was cut off while it did
        return ""
    facts = {
        "config": effective.get("config"),
        "torch": effective.get("torch"),
        "kernels": kernels,
        "fault": str(trial.fault),
        "python": trial.python,
        "code": trial.code,
        "env": [pair for pair in trial.env if not pair[0].startswith(OWN)],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
