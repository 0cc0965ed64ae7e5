"""EXECUTORS: the ways to start a trial.

A row names a factory ``(*, python: str, clock: Clock) -> Executor``: ``python`` is the interpreter that trials of
our own trainer run in, ``clock`` what the executor reads time from. An executor may take further keyword arguments
of its own, all with defaults.
"""

from __future__ import annotations

from harness.registry import Registry

EXECUTORS = Registry(
    "executor",
    {
        "forkserver": "harness.launch.forkserver:ForkserverExecutor",
        "local": "harness.launch.local:LocalExecutor",
    },
    group="nsa_harness.executors",
)
