"""What ``--on`` says, and a head with the agents that an engine was asked for."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.cluster import ENGINES
from harness.cluster.head import Head
from harness.cluster.wire import HEADS, TOKEN
from harness.core.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from contextlib import AbstractContextManager

    from harness.core.ports import Engine

AGENT = (sys.executable, "-P", "-m", "harness.cluster.agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class On:
    """Where trials run: ``nodes`` of ``engine``, ``per_trial`` for each; an empty engine is this machine."""

    engine: str = ""
    nodes: int = 1
    per_trial: int = 1
    resources: str = ""

    @classmethod
    def of(cls, options: Mapping[str, Any], *, whole: bool = False) -> On:
        """What ``--on --nodes --nodes-per-trial --gres`` say; ``whole`` gives every trial all nodes.

        Raises:
            CommandError: they do not fit together.
        """
        engine, nodes = str(options.get("on") or ""), options.get("nodes")
        per_trial = nodes if whole else options.get("nodes_per_trial")
        if not engine and (nodes or per_trial or options.get("gres")):
            raise CommandError("--nodes and --gres say what an engine is to give: name one with --on, e.g. --on slurm")
        nodes, per_trial = nodes or per_trial or 1, per_trial or 1
        if per_trial > nodes:
            raise CommandError(f"a trial on {per_trial} nodes does not fit on --nodes {nodes}")
        return cls(engine=engine, nodes=nodes, per_trial=per_trial, resources=options.get("gres") or "")

    @property
    def lanes(self) -> int:
        """How many trials run at once."""
        return self.nodes // self.per_trial


HERE = On()


def placed(on: On, *, note: Callable[[str], None]) -> AbstractContextManager[Head]:
    """A head whose agents an engine was asked to start; all of them are gone when the block is left.

    Raises:
        LaunchError: the engine cannot be had, or refuses.
    """
    name, _, where = on.engine.partition(":")
    return agents(ENGINES.load(name)(where=where, resources=on.resources), nodes=on.nodes, note=note)


@contextmanager
def agents(engine: Engine, *, nodes: int, note: Callable[[str], None]) -> Generator[Head]:
    """The same of an engine that is there already."""
    head = Head(note=note)
    try:
        head.placement = engine.place(AGENT, env={HEADS: head.addresses, TOKEN: head.token}, nodes=nodes)
        yield head
    finally:
        head.close()
        if head.placement is not None:
            head.placement.stop()
