"""Put the parts of a run together: target, executor, stack sources, clock, interrupt flag."""

from __future__ import annotations

import signal
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from harness.clock import WallClock
from harness.cluster.head import placed
from harness.cluster.joint import Crew
from harness.conduct import Parts
from harness.core.outcome import asked_by
from harness.launch.claims import Claims
from harness.launch.table import EXECUTORS
from harness.observe.devices.nvml import Nvml
from harness.observe.neighbours import identity
from harness.observe.stacks.table import load_sources
from harness.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import FrameType

    from harness.cluster.head import On
    from harness.core.campaign import CampaignSpec
    from harness.core.invocation import Invocation
    from harness.core.ports import Executor, Target
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
    one that came too late for anybody to ask for it. Under ``nohup`` a closed terminal is nothing.
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
