"""Harm to the harness itself, done by the program that it watches: each is INFRA, which a search runs again."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from harness.core.verdict import Kind
from harness.launch import procs
from harness.specimens.catalog import LATER, Specimen

if TYPE_CHECKING:
    from harness.specimens.catalog import Scene

ENDLESS_BYTES = 20 << 30


def kill_supervisor(scene: Scene) -> None:
    """As the OOM killer does."""
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()  # until the kernel ends us with it


def stop_supervisor(scene: Scene) -> None:
    """Whoever drains our output stands still; training goes on."""
    os.kill(os.getppid(), signal.SIGSTOP)


def kill_guard(scene: Scene) -> None:
    """The supervisor's own parent: what is left ends everything."""
    supervisor = procs.read(os.getppid())
    if supervisor is not None:
        os.kill(supervisor.parent, signal.SIGKILL)
    signal.pause()


def leave_pipe(scene: Scene) -> None:
    """A pipe that nobody writes to, where the controller reads."""
    os.mkfifo(scene.trial_dir / "heartbeat_rank5.jsonl")


def leave_endless_result(scene: Scene) -> None:
    """A result of 20 GB, all of it holes."""
    with (scene.trial_dir / "result_rank5.json").open("wb") as file:
        file.truncate(ENDLESS_BYTES)


SUPERVISOR_KILLED = Specimen(
    name="supervisor-killed",
    strike=kill_supervisor,
    expect=Kind.INFRA,
    cause="end-unseen",
    step=LATER,
    imitates="the OOM killer, which takes the harness's own process",
)

SUPERVISOR_STOPPED = Specimen(
    name="supervisor-stopped",
    strike=stop_supervisor,
    expect=Kind.INFRA,
    cause="end-unseen",
    step=LATER,
    imitates="a debugger or a freezer that holds the harness's own process",
)

GUARD_KILLED = Specimen(
    name="guard-killed",
    strike=kill_guard,
    expect=Kind.INFRA,
    cause="end-unseen",
    step=LATER,
    imitates="a clean-up script that kills by name",
)

PIPE = Specimen(
    name="pipe-in-folder",
    strike=leave_pipe,
    expect=Kind.INFRA,
    cause="end-unseen",
    step=LATER,
    imitates="a file server that is dead: whoever opens a file waits",
)

ENDLESS = Specimen(
    name="endless-result",
    strike=leave_endless_result,
    expect=Kind.INFRA,
    cause="end-unseen",
    step=LATER,
    imitates="a program that fills the folder that the harness reads",
)
