"""Our own trainer as the program to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsa.config import RunConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nsa.train.probe import Probe


class NsaWorkload:
    """``nsa.train.trainer`` with a configuration that it has checked itself."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._config = RunConfig.from_mapping(config)

    def effective(self) -> Mapping[str, object]:
        """Every setting after parsing, defaults spelled out."""
        return self._config.to_mapping()

    def train(self, probes: Sequence[Probe]) -> None:
        """Train to the last step."""
        from nsa.train.trainer import train

        train(self._config, probes)
