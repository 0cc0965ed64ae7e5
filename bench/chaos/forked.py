"""Trials of a small script out of a fork server, for the campaigns of ``bench.chaos``."""

from __future__ import annotations

import runpy
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.chaos.gate import GATE
from harness.launch.forkserver import ForkserverExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.command import Command
    from harness.core.ports import Clock, Handle

KEPT = ("PATH", "PYTHONPATH", "TMPDIR", GATE)


class ForkedScripts(ForkserverExecutor):
    """A fork server that has imported next to nothing, whose trials run ``python -S SCRIPT VALUE``'s script."""

    def __init__(self, *, python: str, clock: Clock, interrupted: Callable[[], bool]) -> None:
        preload = ("bench.chaos.gate", "bench.chaos.forked")
        super().__init__(python=python, clock=clock, preload=preload, interrupted=interrupted)

    def prepare(self, command: Command) -> None:
        """Start the server, as for a trial of our own trainer."""
        super().prepare(_entered(command))

    def start(self, command: Command) -> Handle:
        """Fork the worker."""
        return super().start(_entered(command))


def _entered(command: Command) -> Command:
    env = tuple((name, value) for name, value in command.env if name in KEPT)
    return replace(command, env=env, entry="bench.chaos.forked:script")


def script(_: str) -> None:
    """Run the script of the command line, in this process."""
    sys.argv = sys.argv[-2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
