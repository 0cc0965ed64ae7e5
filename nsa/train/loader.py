"""A rank's data: the next step's micro-batches, where they stand, and what becomes of a source that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nsa.errors import DataFailed, DataUnavailable
from nsa.train.ahead import Ahead
from nsa.train.data import batches
from nsa.train.stream import Stream, as_text

if TYPE_CHECKING:
    from torch import Tensor

    from nsa.config import RunConfig
    from nsa.train.world import World


class Loader:
    """What a rank reads, step by step, in order.

    Sources that are computed (``bytes``, ``synthetic``, ``local``) need no position: the sequences of a step follow
    from seed and step. A stream has one, the position after the last step that is done.
    """

    def __init__(self, config: RunConfig, world: World | None = None) -> None:
        self.config, self.world = config, world
        self._computed = None if config.train.data == "fineweb-edu" else batches(config, world)
        self._stream: Stream | None = None
        self._ahead: Ahead[tuple[list[Tensor], dict[int, Any]]] | None = None
        self._position: dict[int, Any] = {}
        self._reached: dict[int, Any] = {}
        self._problem = ""
        if self._computed is None:
            self._open()

    def fetch(self, step: int) -> list[Tensor]:
        """This rank's ids_BT of a step, one per micro-batch; a stream's come in their order, whatever ``step`` is.

        Raises:
            EndOfData: there are no more.
            DataFailed: they do not come in time, or cannot be read.
        """
        if self._computed is not None:
            return self._computed(step)
        if self._problem:
            raise DataFailed(self._problem)
        if self._ahead is None:
            self._ahead = Ahead(self._next, depth=self.config.train.prefetch)
        micro_batches, self._reached = self._ahead.get(self.config.train.loader_timeout_s)
        return micro_batches

    def done(self) -> None:
        """What was fetched last has been trained on: a run that is continued goes on behind it."""
        self._position = self._reached or self._position

    def substitute(self) -> None:
        """Go on with random ids instead."""
        self.close()
        self._stream = None
        self._computed = batches(self.config.with_value("train.data", "synthetic"), self.world)

    def position(self) -> dict[str, str]:
        """Where this rank's parts stand, for a checkpoint; empty without a stream."""
        return as_text(self._position)

    def go_to(self, written: dict[str, str]) -> None:
        """Go on from a ``position``; before the first fetch only.

        Raises:
            ConfigError: it is not of these parts.
        """
        if self._stream is not None and written:
            self._stream.go_to(written)
            self._position = self._stream.position()

    def close(self) -> None:
        """Read no further ahead."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _open(self) -> None:
        """Open the stream; where it cannot be and random ids are to stand in, the first fetch says so to all ranks."""
        try:
            self._stream = Stream(self.config, self.world)
        except DataUnavailable as error:
            if not self.config.train.synthetic_on_fail:
                raise
            self._problem = str(error)
        else:
            self._position = self._stream.position()

    def _next(self) -> tuple[list[Tensor], dict[int, Any]]:
        assert self._stream is not None, "without a stream nothing is read ahead"
        return self._stream.micro_batches(), self._stream.position()
