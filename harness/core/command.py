"""Command: what an executor is asked to start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A process to start in its own session.

    ``env`` is the child's whole environment, built from an allow-list. ``files`` are written into
    ``trial_dir`` first. ``entry`` (``"module:function"``, called with the trial directory) names the same work for
    executors that fork instead of starting an interpreter; None when only a fresh interpreter will do. ``directory`` is
    the folder that it runs in; None means the caller's. ``descriptors`` are open files of the caller that it is handed,
    under the same numbers, by executors that start an interpreter.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    trial_dir: str
    files: tuple[tuple[str, str], ...] = ()
    entry: str | None = None
    max_output_bytes: int = 2_000_000
    max_address_space_bytes: int | None = None
    directory: str | None = None
    descriptors: tuple[int, ...] = ()
