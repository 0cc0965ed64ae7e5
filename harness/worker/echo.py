"""The echo: the configuration, versions and surroundings that the worker really runs with."""

from __future__ import annotations

import json
import os
import platform
import sys
from typing import TYPE_CHECKING, Any

from harness.core.codec import SCHEMA
from harness.store import layout
from harness.worker.world import variables
from nsa.train.probe import NullProbe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from nsa.train.probe import TrainingState


class EchoProbe(NullProbe):
    """Writes ``effective.json`` before the training starts, again once all is built, and ``kernels.json``."""

    def __init__(self, trial_dir: Path, *, config: Mapping[str, object]) -> None:
        self._trial_dir = trial_dir
        self._config = dict(config)
        self._write(built=None)

    def built(self, state: TrainingState) -> None:
        """Add what only the built program knows: its number of blocks, and torch's version and threads by then."""
        self._write(built={"blocks": len(state.blocks)})

    def resolved(self, table: Sequence[Mapping[str, str]]) -> None:
        """Write which kernel runs each operator."""
        put(layout.kernels(self._trial_dir), json.dumps(list(map(dict, table)), indent=1))

    def _write(self, *, built: dict[str, int] | None) -> None:
        echo: dict[str, Any] = {
            "schema": SCHEMA,
            "config": self._config,
            "built": built,
            "python": platform.python_version(),
            "executable": sys.executable,
            "argv": list(sys.argv),
            "cwd": os.getcwd(),  # noqa: PTH109 - the text, not a path to work with
            "pid": os.getpid(),
            "environment": variables("NSA_"),
            **_torch(),
        }
        put(layout.effective(self._trial_dir), json.dumps(echo, indent=1, sort_keys=True))


def _torch() -> dict[str, Any]:
    """Torch's version and thread counts, if the program has imported it; the echo itself never does."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_interop_threads"):  # not imported, or still being so
        return {"torch": None, "threads": None, "interop_threads": None}
    return {
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
    }


def put(path: Path, text: str) -> bool:
    """Put ``text`` at ``path`` in one step; False, and a line on standard error, when the disk refuses.

    No fsync: the text has to outlive this process, not the machine.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        sys.stderr.write(f"nsa-harness: {path.name} cannot be written: {error.strerror}\n")
        sys.stderr.flush()
        return False
    return True
