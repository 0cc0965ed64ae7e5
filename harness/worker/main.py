"""One trial from the inside: make the process watchable, run the workload, say how it ended."""

from __future__ import annotations

import ctypes
import faulthandler
import io
import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.core.codec import from_json, to_json
from harness.core.errors import LaunchError
from harness.core.evidence import WorkerResult
from harness.core.trial import Trial
from harness.registry import Registry
from harness.shim.nsa_harness_shim import name_of, show_stacks
from harness.specimens.catalog import SPECIMENS
from harness.store import layout
from harness.worker.echo import EchoProbe, put
from harness.worker.fault import FaultProbe
from harness.worker.gradients import GradientProbe
from harness.worker.heartbeat import HeartbeatProbe
from harness.worker.ranks import launch, serve
from harness.worker.world import Place, world_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nsa.train.probe import Probe


class Workload(Protocol):
    """A training program, built from a trial's configuration; a row of WORKLOADS names such a class."""

    def effective(self) -> Mapping[str, object]:
        """The whole configuration as the program itself understood it, not as it was asked for."""
        ...

    def train(self, probes: Sequence[Probe]) -> None:
        """Run all steps, telling ``probes`` at every phase; returns only when all are done."""
        ...


class NsaWorkload:
    """``nsa.train.trainer`` with a configuration that it has checked itself."""

    def __init__(self, config: Mapping[str, object]) -> None:
        from nsa.config import RunConfig  # of an old commit it may not even be importable, and that is a result

        self._config = RunConfig.from_mapping(config)

    def effective(self) -> Mapping[str, object]:
        """Every setting after parsing, defaults spelled out."""
        return self._config.to_mapping()

    def train(self, probes: Sequence[Probe]) -> None:
        """Train to the last step."""
        from nsa.train.trainer import train

        train(self._config, probes)


WORKLOADS = Registry("workload", {"nsa": "harness.worker.main:NsaWorkload"}, group="nsa_harness.workloads")


EX_IOERR = 74
"""Exit code when training finished but its result could not be written (sysexits.h)."""

_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)


def run(trial_dir: str) -> int:
    """Run the trial in ``trial_dir`` and return the exit code; 0 only when every step is done.

    With several ranks this returns in each of them and in their launcher, which waits for them.
    An exception is written to ``result_rank{r}.json`` and goes on to the caller: as the program's end it gives a
    traceback on standard error and exit code 1.

    Raises:
        LaunchError: there is no readable trial in ``trial_dir``.
    """
    folder = Path(trial_dir)
    trial = read_trial(folder)
    world = world_of(trial.config)
    place = launch(folder, world=world) if world > 1 else Place()
    return place if isinstance(place, int) else run_rank(folder, trial, place)


def run_rank(folder: Path, trial: Trial, place: Place) -> int:
    """Run one rank of ``trial``, the only one as a rule; returns and raises as :func:`run` does."""
    be_watchable(folder, rank=place.rank)
    heartbeat = HeartbeatProbe(layout.heartbeat(folder, place.rank), rank=place.rank)
    result = layout.result(folder, place.rank)
    try:
        workload: Workload = WORKLOADS.load(trial.target)(trial.config)
        probes: list[Probe] = [heartbeat]
        if place.rank == 0:
            probes.append(EchoProbe(folder, config=workload.effective()))
        if place.world > 1 and (why_not := serve(folder, place.rank)):
            sys.stderr.write(f"nsa-harness: {why_not}\n")
        if trial.success is not None and trial.success.gradients:
            probes.append(GradientProbe(folder, place=place))
        if trial.fault is not None:
            # Last, so that the mark at which it strikes has been written.
            specimen = SPECIMENS.load(trial.fault.specimen)
            fault = FaultProbe(specimen, trial=trial, trial_dir=folder, place=place)
            probes.append(fault)
            fault.start()
        workload.train(probes)
    except BaseException as error:
        say_last(result, heartbeat, error=error)
        raise
    return 0 if say_last(result, heartbeat) else EX_IOERR


def say_last(path: Path, progress: HeartbeatProbe, *, error: BaseException | None = None) -> bool:
    """Write at ``path`` whether training finished or raised ``error``; whether it could be written.

    A process that ends inside (``os._exit``, a signal) leaves no result.
    """
    note = f"{progress.lost} heartbeats were lost: {progress.lost_why}"
    result = WorkerResult(
        id="result",
        status="finished" if error is None else "raised",
        steps_done=progress.steps_done,
        phase=progress.phase,
        exception=None if error is None else name_of(type(error)),
        message=None if error is None else str(error),
        traceback=None if error is None else "".join(traceback.format_exception(error)),
        notes=(note,) if progress.lost else (),
    )
    return put(path, json.dumps(to_json(result), indent=1))


def read_trial(folder: Path) -> Trial:
    """The trial as the controller wrote it; LaunchError when it is missing or torn."""
    path = layout.trial_file(folder)
    try:
        return from_json(Trial, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, json.JSONDecodeError) as error:
        raise LaunchError(f"no readable trial at {path}: {error}") from error


def be_watchable(folder: Path, *, rank: int = 0) -> None:
    """Let stack dumpers in: stacks on signals, ptrace by any process, whole lines out."""
    faulthandler.enable()
    try:
        file = layout.faulthandler(folder, rank).open("a", encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"nsa-harness: no stacks on signals: {error.strerror}\n")
    else:
        show_stacks(file)
    # Yama lets only ancestors look by default. Kernels without Yama answer EINVAL, and need no permission.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
