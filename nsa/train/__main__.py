"""``python -m nsa.train run.json``: train as the file says and print one JSON line per step.

``--set model.n_layers=2`` changes one setting (again and again); ``--show`` prints the effective
configuration and stops. The NSA_* switches of ``nsa.env`` are applied between the file and ``--set``.
Exit status: 0 trained, 2 the configuration cannot be run, 3 the loss is not finite.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nsa.config import RunConfig
from nsa.env import with_environment
from nsa.errors import ConfigError, KernelUnavailable, NonFiniteLoss
from nsa.train.probe import NullProbe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Lines(NullProbe):
    """Writes each step's facts, and the kernel table, as JSON lines."""

    def resolved(self, table: Sequence[Mapping[str, str]]) -> None:
        """One line for the whole table."""
        _write({"kernels": [dict(row) for row in table]})

    def step_done(self, *, step: int, facts: Mapping[str, float]) -> None:
        """One line per step."""
        _write({"step": step, **facts})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m nsa.train", description=__doc__)
    parser.add_argument("config", type=Path, nargs="?", help="JSON file of settings; defaults where it is silent")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", dest="changes")
    parser.add_argument("--show", action="store_true", help="print the effective configuration and stop")
    options = parser.parse_args(argv)
    try:
        config = effective_config(options.config, options.changes)
        if options.show:
            sys.stdout.write(config.to_json())
            return 0
        from nsa.train.trainer import train

        train(config, [Lines()])
    except (ConfigError, KernelUnavailable) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except NonFiniteLoss as error:
        sys.stderr.write(f"error: {error}\n")
        return 3
    return 0


def effective_config(path: Path | None, changes: Sequence[str]) -> RunConfig:
    """Defaults, then the file, then the environment, then ``PATH=VALUE`` changes."""
    try:
        config = RunConfig() if path is None else RunConfig.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; give a file that RunConfig.to_json wrote") from error
    values: dict[str, object] = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise ConfigError(f"--set {change!r} has no value; write --set model.n_layers=2")
        values[name] = RunConfig.path(name).parsed(text)
    return with_environment(config).with_values(values)


def _write(record: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
