"""LocalEngine: agents on this machine, each as a node of its own; for trying things out, and for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cluster.child import Processes
from harness.cluster.wire import ORDER
from harness.core.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class LocalEngine:
    """Starts agents as processes of this machine. See :class:`harness.core.ports.Engine`."""

    name = "local"

    def __init__(self, where: str = "", resources: str = "") -> None:
        """``resources`` are not asked for.

        Raises:
            LaunchError: ``where`` names something; there is only this machine.
        """
        if where or resources:
            raise LaunchError("--on local takes neither a place nor --gres: it has this machine and all that is in it")

    def place(self, argv: Sequence[str], *, env: Mapping[str, str], nodes: int) -> LocalPlacement:
        """See :class:`harness.core.ports.Engine`."""
        return LocalPlacement([self.wrapped(argv, number) for number in range(nodes)], env=env)

    def wrapped(self, argv: Sequence[str], number: int) -> Sequence[str]:
        """How the agent of node ``number`` is started; tests put it into namespaces of its own."""
        return argv


class LocalPlacement(Processes):
    """Processes of this machine. See :class:`harness.core.ports.Placement`."""

    def __init__(self, commands: Sequence[Sequence[str]], *, env: Mapping[str, str]) -> None:
        super().__init__()
        try:
            for number, argv in enumerate(commands):
                self.start(argv, env={**env, ORDER: str(number)})
        except OSError as error:
            self.stop()
            raise LaunchError(f"an agent cannot be started: {error}") from error

    def waits_for(self) -> str:
        """Nothing: they run at once."""
        return ""

    def over(self) -> str:
        """Why none runs any more, by the last line that they wrote."""
        if self.log.closed or self.is_running:
            return ""
        return f"the agents have ended{f': {self.last_line}' if self.last_line else ''}"
