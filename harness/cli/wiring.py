"""Put the parts of a run together: target, executor, stack sources, clock, interrupt flag; prove that it can start."""

from __future__ import annotations

import shlex
import signal
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from harness.cli.main import came
from harness.clock import WallClock
from harness.cluster.head import placed
from harness.cluster.joint import Crew
from harness.conduct import Parts
from harness.core.command_line import composed
from harness.core.errors import NoProgramError
from harness.core.outcome import asked_by
from harness.launch.claims import Claims
from harness.launch.program import why_not_startable
from harness.launch.table import EXECUTORS
from harness.observe.devices.nvml import Nvml
from harness.observe.neighbours import identity
from harness.observe.stacks.table import load_sources
from harness.targets import TARGETS
from harness.targets.script import ScriptTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from types import FrameType

    from harness.cluster.head import On
    from harness.core.campaign import CampaignSpec
    from harness.core.invocation import Invocation
    from harness.core.matrix import Matrix
    from harness.core.ports import Executor, Target
    from harness.core.space import Bundle
    from harness.settings import Settings
    from harness.store.run_store import RunStore


def new_run(
    settings: Settings, spec: CampaignSpec, *, invocation: Invocation | None = None, argv: Sequence[str] = ()
) -> RunStore:
    """A new run of ``spec`` on this machine; ``invocation`` is the command that asks it, or ``argv`` its words."""
    from harness.machine import code_fingerprint, describe, program_of
    from harness.store.run_store import RunStore

    return RunStore.create(
        settings.runs,
        spec=spec,
        machine=describe(),
        code=code_fingerprint(),
        argv=argv,
        invocation=invocation,
        program=program_of(spec),
        clock=WallClock(),
    )


@contextmanager
def lanes(
    settings: Settings,
    *,
    target: str,
    executor: str,
    interrupted: Interrupt,
    on: On,
    count: int = 1,
    keeps_locals: bool = False,
) -> Generator[list[Parts]]:
    """Parts for trials side by side: ``count`` on this machine, or as many as fit on the nodes of an engine."""
    with ExitStack() as stack:
        if not on.engine:
            here = partial(
                parts, settings, target=target, executor=executor, interrupted=interrupted, keeps_locals=keeps_locals
            )
            yield [replace(stack.enter_context(here()), asked=interrupted.asked) for _ in range(count)]
            return
        head = stack.enter_context(placed(on, note=lambda text: click.echo(text, err=True)))
        crew = Crew(head, executor=executor, nodes=on.per_trial, clock=WallClock())
        tools = stack.enter_context(parts(settings, target=target, executor="local", interrupted=interrupted))
        yield [replace(tools, elsewhere=crew, asked=interrupted.asked)] * on.lanes


@contextmanager
def parts(
    settings: Settings, *, target: str, executor: str, interrupted: Callable[[], bool], keeps_locals: bool = False
) -> Generator[Parts]:
    """The parts for trials of ``target``; everything the executor started is gone when the block is left."""
    clock = WallClock()
    runner: Executor = EXECUTORS.load(executor)(python=settings.python, clock=clock, interrupted=interrupted)
    program: Target = TARGETS.load(target)(python=settings.python)
    try:
        env = settings.whole_env if getattr(program, "whole_environment", False) else settings.child_env
        sources = load_sources(keeps_locals=keeps_locals)
        yield Parts(target=program, executor=runner, sources=sources, clock=clock, child_env=dict(env))
    finally:
        runner.close()


def claims(settings: Settings) -> Claims:
    """The GPUs and ports that all processes of this machine share."""
    uuids = Nvml().uuids()
    return Claims(settings.leases, identity=lambda name: identity(name, uuids), sleep=WallClock().sleep)


class Interrupt:
    """Ctrl-C, SIGTERM and a closed terminal as a flag: the running trial is ended properly, the journal is whole.

    The second one does not wait for anything: it is raised where the command stands; so is, at the end of the block,
    one that came too late for anybody to ask for it. One that Python dropped before the block counts as the first.
    Under ``nohup`` a closed terminal is nothing.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._is_handled = False
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Whether anybody asked to stop."""
        self._is_handled = self.signal is not None
        return self._is_handled

    def asked(self) -> str:
        """Who asked to stop, in words."""
        return asked_by(self.signal)

    def __enter__(self) -> Interrupt:
        self.signal = came[-1] if came else None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None and self.signal is not None and not self._is_handled:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


def prove_program(
    settings: Settings, config: Mapping[str, object], *, env: Sequence[tuple[str, str]], is_elsewhere: bool
) -> None:
    """Refuse a program that cannot be started on this machine with the PATH and in the folder that it will have.

    Raises:
        NoProgramError: why, in a sentence.
    """
    if not is_elsewhere:
        _refuse(*_start(settings, config, env=env, python=settings.python))


def prove_programs(settings: Settings, matrix: Matrix, *, is_elsewhere: bool) -> None:
    """The same for every cell of ``matrix``, where all of them start one program; else a trial shows it.

    Raises:
        NoProgramError: why, in a sentence.
    """
    if is_elsewhere or not matrix.command:
        return
    starts: set[tuple[str, str | None, str]] = set()
    for bundle in _one_by_one(matrix):
        config = ScriptTarget(python="").config({"command": shlex.join(matrix.command), **dict(bundle.config)})
        if bundle.commit:  # the folder is that of a worktree, which is not made yet
            config.pop("directory", None)
        starts.add(_start(settings, config, env=bundle.env, python=bundle.python or settings.python))
    if len(starts) == 1:
        _refuse(*starts.pop())


def _one_by_one(matrix: Matrix) -> Iterator[Bundle]:
    """The good cell, and every value of each axis in it."""
    yield matrix.bundle(matrix.space.good)
    for factor in matrix.space.factors:
        for value in factor.axis.values:
            yield matrix.bundle(matrix.space.good.with_value(factor.name, value))


def _start(
    settings: Settings, config: Mapping[str, Any], *, env: Sequence[tuple[str, str]], python: str
) -> tuple[str, str | None, str]:
    """The program of a trial, its PATH, and its folder (empty: not there yet)."""
    line = composed(config, python=python, env=env)
    path = {**dict(settings.whole_env), **dict(line.variables)}.get("PATH")
    return line.argv[0] if line.argv else "", path, str(config.get("directory") or "")


def _refuse(name: str, path: str | None, directory: str) -> None:
    if "/" in name and not directory:
        return
    why = why_not_startable(name, path=path, directory=directory)
    if why:
        raise NoProgramError(why)
