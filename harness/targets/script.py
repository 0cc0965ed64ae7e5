"""Anybody's program as the program under test: its own command line, interpreter, environment and folder."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, cast

import harness
from harness.core.codec import to_json
from harness.core.command import Command
from harness.core.errors import SpecError, suggestion
from harness.store import layout
from harness.store.recording import recorder_environment
from harness.store.redact import looks_secret, redact, secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.core.point import Value
    from harness.core.trial import Trial

SHIM = Path(harness.__file__).parent / "shim"
"""The folder that goes on the program's PYTHONPATH; it holds a ``sitecustomize`` and nothing of ours."""

OWN = "NSA_HARNESS_"
"""Variables of the harness itself: the program gets only those that this trial sets."""

SETTINGS = ("command", "directory", "steps", "progress.pattern", "progress.file")
"""What can be set beside ``args.NAME``, the value of a placeholder."""

RECORDED = frozenset({"PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "TMPDIR"})
RECORDED_PREFIXES = ("CUDA_", "NCCL_", "GLOO_", "TORCH", "PYTORCH_", "TRITON_", "OMP_", "MKL_", "OPENBLAS_", "SLURM_")
"""Variables whose values change what runs. Of all others only the names are written down."""

MAX_OUTPUT_BYTES = 16_000_000

_PLACEHOLDER = re.compile(r"\{\{(?P<literal>[A-Za-z_]\w*)\}\}|\{(?P<name>[A-Za-z_]\w*)\}")


class ScriptTarget:
    """Runs a command line with ``{name}`` placeholders, found on the PATH that it is given.

    Its configuration is ``{"command": text, "args": {name: value}, "directory": text, "steps": n, "progress": {...}}``,
    or ``{"argv": [...]}`` for a command line without placeholders that somebody else composed.

    The environment, by rule: the program gets all of the caller's, as if it had been typed in the same shell, less
    our own variables; added are PYTHONPATH (our shim first, then what was there), the trial's folder for the shim and
    what the trial itself sets; and, unless they are set, PYTHONUNBUFFERED and those of torch's flight recorder. Written
    down are the names of all variables and the values of those that change what runs; a value whose name looks secret
    is written nowhere.
    """

    name = "command"
    executor = "local"
    whole_environment = True

    def __init__(self, *, python: str) -> None:
        self.python = python

    def config(self, settings: Mapping[str, Value]) -> dict[str, object]:
        """The whole configuration with these dotted paths set.

        Raises:
            SpecError: an unknown path, no command, a placeholder without a value or a value without a placeholder.
        """
        command = settings.get("command")
        if not isinstance(command, str) or not command:
            raise SpecError("no command: write it behind --, e.g. -- python train.py --layers {n_layers}")
        config: dict[str, object] = {"command": command}
        args: dict[str, Value] = {}
        for path, value in settings.items():
            head, _, name = path.partition(".")
            if head == "args" and name:
                args[name] = value
            elif path not in SETTINGS:
                known = [*SETTINGS, *(f"args.{placeholder}" for placeholder in placeholders(shlex.split(command)))]
                raise SpecError(f"unknown setting {path!r} of a command{suggestion(path, known)}")
            elif path in ("steps", "directory"):
                config[path] = value
            elif name:
                cast("dict[str, Value]", config.setdefault(head, {}))[name] = value
        _check(shlex.split(command), args)
        return config | {"args": args}

    def command(self, trial: Trial, *, trial_dir: Path, env: Mapping[str, str]) -> Command:
        """The program's own command line, with its values put in."""
        own = {**{k: v for k, v in env.items() if not k.startswith(OWN)}, **dict(trial.env)}
        passed = {
            **recorder_environment(trial_dir),
            "PYTHONUNBUFFERED": "1",  # a line that is held back in a pipe is no sign of life
            **own,
            "PYTHONPATH": ":".join(filter(None, (str(SHIM), own.get("PYTHONPATH")))),
            "NSA_HARNESS_TRIAL_DIR": str(trial_dir),
            **{k: v for k, v in env.items() if k == "NSA_HARNESS_RUN"},
        }
        hidden = secrets(passed.items())
        asked = redact(to_json(trial), values=hidden)
        return Command(
            argv=argv_of(trial.config, python=trial.python or self.python),
            env=tuple(sorted(passed.items())),
            trial_dir=str(trial_dir),
            files=(
                (layout.trial_file(trial_dir).name, json.dumps(asked, indent=1, sort_keys=True)),
                ("environment.json", json.dumps(recorded(passed), indent=1, sort_keys=True)),
            ),
            max_output_bytes=MAX_OUTPUT_BYTES,
            directory=trial.tree or cast("str | None", trial.config.get("directory")),
        )


def argv_of(config: Mapping[str, object], *, python: str) -> tuple[str, ...]:
    """The command line of a trial: ``{name}`` becomes the value of ``args.name``, ``{{name}}`` a plain ``{name}``.

    In a composed ``argv``, ``{python}`` is the trial's interpreter.
    """
    given = config.get("argv")
    if isinstance(given, list | tuple):
        words = [str(word) for word in cast("Sequence[object]", given)]
        return tuple(python if word == "{python}" else word for word in words)
    values = cast("Mapping[str, Value]", config.get("args") or {})
    words = shlex.split(str(config["command"]))
    return tuple(filled(word, values) for word in words)


def filled(word: str, values: Mapping[str, Value]) -> str:
    """One argument with its placeholders replaced."""

    def value(match: re.Match[str]) -> str:
        return f"{{{match['literal']}}}" if match["literal"] else _spelt(values[match["name"]])

    return _PLACEHOLDER.sub(value, word)


def placeholders(words: Iterable[str]) -> tuple[str, ...]:
    """The names of all placeholders, in order, each once."""
    found = (match["name"] for word in words for match in _PLACEHOLDER.finditer(word))
    return tuple(dict.fromkeys(name for name in found if name))


def recorded(env: Mapping[str, str]) -> dict[str, object]:
    """What is written down of a program's environment."""
    kept = {
        name: "<hidden>" if looks_secret(name) else value
        for name, value in env.items()
        if name in RECORDED or name.startswith(RECORDED_PREFIXES)
    }
    return {"values": kept, "names of the others": sorted(env.keys() - kept.keys())}


def _spelt(value: Value) -> str:
    return str(value) if not isinstance(value, float) else f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _check(words: Sequence[str], args: Mapping[str, Value]) -> None:
    wanted = placeholders(words)
    if missing := [name for name in wanted if name not in args]:
        name = missing[0]
        raise SpecError(
            f"the command has {{{name}}}, but {name} has no value: give --set {name}=VALUE"
            f"{suggestion(name, args)}; for a literal {{{name}}} write {{{{{name}}}}}"
        )
    if unused := [name for name in args if name not in wanted]:
        name = unused[0]
        raise SpecError(
            f"{name} is set, but the command has no {{{name}}}{suggestion(name, wanted)}; "
            f"write it where the value belongs, e.g. --{name.replace('_', '-')} {{{name}}}"
        )
