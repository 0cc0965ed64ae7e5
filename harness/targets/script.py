"""Anybody's program as the program under test: its own command line, interpreter, environment and folder."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, cast

import harness
from harness.core.codec import to_json
from harness.core.command import Command
from harness.core.command_line import composed, flag, placeholders
from harness.core.errors import CommandError, suggestion
from harness.settings import MARK, OWN_PREFIX
from harness.shim.nsa_harness_shim import OUTPUT
from harness.store import layout
from harness.store.layout import recorder_environment
from harness.store.redact import HIDDEN, looks_secret, redact, redact_text, secrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.point import Value
    from harness.core.trial import Trial

SHIM = Path(harness.__file__).parent / "shim"
"""The folder that goes on the program's PYTHONPATH; it holds a ``sitecustomize`` and nothing of ours."""

SETTINGS = ("command", "directory", "steps", "progress.pattern", "progress.file")
"""What can be set beside ``args.NAME``, the value of a placeholder."""

RECORDED = frozenset({"PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "TMPDIR"})
RECORDED_PREFIXES = ("CUDA_", "NCCL_", "GLOO_", "TORCH", "PYTORCH_", "TRITON_", "OMP_", "MKL_", "OPENBLAS_", "SLURM_")
"""Variables whose values change what runs. Of all others only the names are written down."""

MAX_OUTPUT_BYTES = 16_000_000


class ScriptTarget:
    """Runs a command line with placeholders (:mod:`harness.core.command_line`), found on the PATH that it is given.

    Its configuration is ``{"command": text, "args": {name: value}, "directory": text, "steps": n, "progress": {...}}``;
    ``"more"`` are words behind it that are taken as they are.

    The environment, by rule: the program gets all of the caller's, as if it had been typed in the same shell, less
    our own variables; added are PYTHONPATH (our shim first, then what was there), the trial's folder for the shim and
    what the trial itself sets; and, unless they are set, those of torch's flight recorder. Written down are the names
    of all variables and the values of those that change what runs; a value whose name looks secret is written nowhere.
    """

    name = "command"
    executor = "local"
    whole_environment = True

    def __init__(self, *, python: str) -> None:
        self.python = python

    def config(self, settings: Mapping[str, Value]) -> dict[str, object]:
        """The whole configuration with these dotted paths set.

        Raises:
            CommandError: an unknown path, no command, a placeholder without a value or a value without a placeholder.
        """
        command = settings.get("command")
        if not isinstance(command, str) or not command:
            raise CommandError("no command: write it behind --, e.g. -- python train.py --layers {n_layers}")
        config: dict[str, object] = {"command": command}
        args: dict[str, Value] = {}
        for path, value in settings.items():
            head, _, name = path.partition(".")
            if head == "args" and name:
                args[name] = value
            elif path not in SETTINGS:
                names = [*SETTINGS, *(f"args.{place.name}" for place in placeholders(shlex.split(command)))]
                raise CommandError(f"unknown setting {path!r} of a command{suggestion(path, names)}")
            elif path in ("steps", "directory"):
                config[path] = value
            elif name:
                cast("dict[str, Value]", config.setdefault(head, {}))[name] = value
        return config | {"args": _checked(shlex.split(command), args)}

    def command(self, trial: Trial, *, trial_dir: Path, env: Mapping[str, str]) -> Command:
        """The program's own command line, with its values put in."""
        line = composed(trial.config, python=trial.python or self.python, env=trial.env)
        own = {name: value for name, value in env.items() if not name.startswith(OWN_PREFIX)}
        own.update(line.variables)
        passed = {
            **recorder_environment(trial_dir),
            **own,
            "PYTHONPATH": ":".join(filter(None, (str(SHIM), own.get("PYTHONPATH")))),
            "NSA_HARNESS_TRIAL_DIR": str(trial_dir),
            OUTPUT: "",
        }
        if MARK in env:
            passed[MARK] = env[MARK]
        hidden = secrets(passed.items())
        record = redact(to_json(trial), values=hidden)
        return Command(
            argv=line.argv,
            env=tuple(sorted(passed.items())),
            trial_dir=str(trial_dir),
            files=(
                (layout.trial_file(trial_dir).name, json.dumps(record, indent=1, sort_keys=True)),
                ("environment.json", json.dumps(recorded(passed), indent=1, sort_keys=True)),
            ),
            max_output_bytes=MAX_OUTPUT_BYTES,
            directory=trial.tree or cast("str | None", trial.config.get("directory")),
        )


def recorded(env: Mapping[str, str]) -> dict[str, object]:
    """What is written down of a program's environment."""
    values: dict[str, str] = {}
    for name, value in env.items():
        if name in RECORDED or name.startswith(RECORDED_PREFIXES):
            values[name] = HIDDEN if looks_secret(name) else redact_text(value)
    return {"values": values, "names of the others": sorted(env.keys() - values.keys())}


def _checked(words: Sequence[str], args: Mapping[str, Value]) -> dict[str, Value]:
    """``args`` as the command line needs them: every place has a value, every value a place, flags are on or off."""
    places = placeholders(words)
    names = [place.name for place in places]
    for name in names:
        if name not in args:
            raise CommandError(
                f"the command has {{{name}}}, but {name} has no value: give --set {name}=VALUE"
                f"{suggestion(name, args)}; for a literal {{{name}}} write {{{{{name}}}}}"
            )
    for name in args:
        if name not in names:
            raise CommandError(
                f"{name} is set, but the command has no {{{name}}}{suggestion(name, names)}; "
                f"write it where the value belongs, e.g. --{name.replace('_', '-')} {{{name}}}"
            )
    values: dict[str, Value] = {}
    for place in places:
        value = args[place.name]
        values[place.name] = flag(place.name, value) if place.is_flag else value
    return values
