"""Harm to the harness itself, done by the program that it watches: each is INFRA, which a search runs again."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import TYPE_CHECKING

from harness.core.verdict import Kind
from harness.launch import procs
from harness.specimens.catalog import LATER, specimen

if TYPE_CHECKING:
    from harness.specimens.catalog import Scene

ENDLESS_BYTES = 20 << 30

spoiled = partial(specimen, expect=Kind.INFRA, cause="end-unseen", step=LATER)


@spoiled(imitates="the OOM killer, which takes the harness's own process")
def kill_supervisor(scene: Scene) -> None:
    """As the OOM killer does."""
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()  # until the kernel ends us with it


@spoiled(imitates="a debugger or a freezer that holds the harness's own process")
def stop_supervisor(scene: Scene) -> None:
    """Whoever drains our output stands still; training goes on."""
    os.kill(os.getppid(), signal.SIGSTOP)


@spoiled(imitates="a clean-up script that kills by name")
def kill_guard(scene: Scene) -> None:
    """The supervisor's own parent: what is left ends everything."""
    supervisor = procs.read(os.getppid())
    if supervisor is not None:
        os.kill(supervisor.parent, signal.SIGKILL)
    signal.pause()


@spoiled(imitates="a file server that is dead: whoever opens a file waits")
def leave_pipe(scene: Scene) -> None:
    """A pipe that nobody writes to, where the controller reads."""
    os.mkfifo(scene.trial_dir / "heartbeat_rank5.jsonl")


@spoiled(imitates="a program that fills the folder that the harness reads")
def leave_endless_result(scene: Scene) -> None:
    """A result of 20 GB, all of it holes."""
    with (scene.trial_dir / "result_rank5.json").open("wb") as file:
        file.truncate(ENDLESS_BYTES)
