"""Our own trainer as the program under test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.core.codec import to_json
from harness.core.command import Command
from harness.core.errors import SpecError
from harness.specimens.catalog import SPECIMENS
from harness.store import layout
from harness.store.redact import redact, secrets
from harness.trainer import check_torch, run_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.core.point import Value
    from harness.core.trial import Trial


class NsaTarget:
    """Runs ``nsa.train`` in the worker, with the whole configuration written into the trial."""

    name = "nsa"
    executor = "forkserver"

    def __init__(self, *, python: str) -> None:
        self.python = python

    def config(self, settings: Mapping[str, Value]) -> dict[str, object]:
        """The default configuration with these dotted paths set, every setting spelled out.

        Raises:
            SpecError: an unknown path, or values that do not fit together.
        """
        try:
            return dict(run_config()().with_values(settings).to_mapping())
        except ValueError as error:
            raise SpecError(str(error)) from error

    def from_environment(self, environ: Mapping[str, str]) -> dict[str, Value]:
        """The settings that the patient's own switches (``NSA_*``) in ``environ`` change, by dotted path.

        Raises:
            SpecError: an unknown switch or value, with a suggestion, or two switches that disagree.
        """
        run_config()
        from nsa.env import read_environment

        try:
            return {change.path: change.value for change in read_environment(environ)}
        except ValueError as error:
            raise SpecError(str(error)) from error

    def command(self, trial: Trial, *, trial_dir: Path, env: Mapping[str, str]) -> Command:
        """A fresh interpreter or a fork that runs the worker on ``trial``.

        Raises:
            NoTrainerError: it would run in this interpreter, which has no torch.
        """
        if trial.python is None:
            check_torch()
        trial_json = json.dumps(redact(to_json(trial), values=secrets(trial.env)), indent=1, sort_keys=True)
        packages = {"PYTHONPATH": trial.tree} if trial.tree else {}
        planted = SPECIMENS.load(trial.fault.specimen) if trial.fault else None
        return Command(
            argv=(trial.python or self.python, "-P", "-m", "harness.worker", str(trial_dir)),
            env=tuple(sorted({**env, **dict(trial.env), **packages, "PYTHONUNBUFFERED": "1"}.items())),
            trial_dir=str(trial_dir),
            files=((layout.trial_file(trial_dir).name, trial_json),),
            entry=None if trial.python or trial.tree else "harness.worker.main:run",
            max_address_space_bytes=planted.max_address_space_bytes if planted else None,
        )
