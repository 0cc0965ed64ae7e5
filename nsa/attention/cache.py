"""What decoding remembers, one cache per layer: everything for slc, blocks for cmp, the last keys for win.

Prefill, chunked prefill and token-by-token decoding are the same call with more or fewer new tokens. A
compressed block is emitted exactly when its last token arrives. Window keys and the raw keys of unfinished
compression blocks keep their absolute positions, plus as many older ones as ``rollback`` may give back.
A step is taken by all layers or by none: what a cache was before is kept until the step is done, and one that an
exception ended is taken back before anything else is done with the cache.
Shape letters: B batch, S tokens so far, C compressed blocks so far, P positions kept in a tail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from nsa.errors import NsaError

if TYPE_CHECKING:
    from nsa.blocks import BlockLayout


class CacheError(NsaError, ValueError):
    """A cache asked for what it cannot give: too many tokens, a rollback past what was kept, other rows or layers."""


class Compress(Protocol):
    """phi with its rotation: raw keys or values of whole blocks, the first of them number ``first_block``."""

    def __call__(self, x_BSGD: Tensor, /, *, first_block: int) -> Tensor:
        """[B, S, G, D] to [B, C, G, D]."""
        ...


FIRST_ROWS = 256
"""Rows that a sequence of unknown length gets memory for at first."""


@dataclass(slots=True)
class Tail:
    """The last rows of a growing sequence; row 0 stands at position ``first``."""

    rows_BPGD: Tensor | None = None
    first: int = 0

    def extended(self, new_BTGD: Tensor) -> Tensor:
        """Add rows; returns all that are kept."""
        old = self.rows_BPGD
        self.rows_BPGD = new_BTGD if old is None else torch.cat((old, new_BTGD), 1)
        return self.rows_BPGD

    def cut_before(self, position: int) -> None:
        """Forget rows that stand before ``position``."""
        if self.rows_BPGD is not None and position > self.first:
            # A copy, so that the forgotten rows are given back.
            self.rows_BPGD = self.rows_BPGD[:, position - self.first :].clone()
            self.first = position

    def cut_from(self, position: int) -> None:
        """Forget rows that stand at ``position`` or later."""
        if self.rows_BPGD is not None:
            self.rows_BPGD = self.rows_BPGD[:, : max(0, position - self.first)]


@dataclass(slots=True)
class Buffer:
    """A sequence kept whole: in memory taken once for ``capacity`` rows, or that doubles when it is full if None."""

    capacity: int | None
    n_rows: int = 0
    memory: Tensor | None = None

    def extended(self, new_BTGD: Tensor) -> Tensor:
        """Add rows; returns all of them."""
        stop = self.n_rows + new_BTGD.shape[1]
        B, _, G, D = new_BTGD.shape
        if self.memory is None:
            n_rows = max(FIRST_ROWS, stop) if self.capacity is None else self.capacity
            self.memory = new_BTGD.new_empty(B, n_rows, G, D)
        elif stop > self.memory.shape[1]:
            larger = new_BTGD.new_empty(B, max(2 * self.memory.shape[1], stop), G, D)
            larger[:, : self.n_rows] = self.memory[:, : self.n_rows]
            self.memory = larger
        self.memory[:, self.n_rows : stop] = new_BTGD
        self.n_rows = stop
        return self.memory[:, :stop]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What one call attends to; ``win_first`` is the position of the first window key."""

    kc_BCGD: Tensor | None = None
    vc_BCGE: Tensor | None = None
    k_slc: Tensor | None = None
    v_slc: Tensor | None = None
    k_win: Tensor | None = None
    v_win: Tensor | None = None
    win_first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerState:
    """What a layer holds: rows are only added behind ``n_rows``, and tails are replaced, never written to."""

    n_tokens: int
    whole: dict[str, tuple[int, Tensor | None]]
    tails: dict[str, tuple[int, Tensor | None]]


@dataclass(slots=True, kw_only=True)
class LayerCache:
    """The keys and values of one layer.

    Attributes:
        layout: block geometry.
        max_tokens: most tokens it can hold; None for as many as memory holds.
        rollback: how many of the newest tokens may be taken back.
        n_tokens: tokens it holds.
    """

    layout: BlockLayout
    max_tokens: int | None
    rollback: int = 0
    n_tokens: int = 0
    whole: dict[str, Buffer] = field(default_factory=dict)
    tails: dict[str, Tail] = field(default_factory=dict)
    _before: LayerState | None = None

    def begin(self, new_BTX: Tensor) -> None:
        """Begin to take in the tokens of ``new_BTX``; ``advance`` ends it.

        Raises:
            CacheError: they do not fit, or are not as many sequences as it holds.
        """
        self.settle()
        n_new, n_rows = new_BTX.shape[1], new_BTX.shape[0]
        if self.max_tokens is not None and self.n_tokens + n_new > self.max_tokens:
            raise CacheError(
                f"{n_new} tokens behind {self.n_tokens} do not fit a cache of {self.max_tokens}; "
                "build it with a larger max_tokens"
            )
        for x in (*(b.memory for b in self.whole.values()), *(t.rows_BPGD for t in self.tails.values())):
            if self.n_tokens and x is not None and x.shape[0] != n_rows:
                raise CacheError(f"{n_rows} sequences behind a cache of {x.shape[0]}; use one cache per batch")
        if not torch.compiler.is_compiling():  # a compiled step changes nothing before it is done
            self._before = self.state()

    def settle(self) -> None:
        """Take back a step that an exception has ended."""
        if self._before is not None:
            self.restore(self._before)

    def state(self) -> LayerState:
        """What it holds now; cheap, nothing is copied."""
        return LayerState(
            n_tokens=self.n_tokens,
            whole={name: (buffer.n_rows, buffer.memory) for name, buffer in self.whole.items()},
            tails={name: (tail.first, tail.rows_BPGD) for name, tail in self.tails.items()},
        )

    def restore(self, state: LayerState) -> None:
        """Hold again what ``state`` says."""
        for name in [name for name in self.whole if name not in state.whole]:
            del self.whole[name]
        for name in [name for name in self.tails if name not in state.tails]:
            del self.tails[name]
        for name, (n_rows, memory) in state.whole.items():
            self.whole[name].n_rows, self.whole[name].memory = n_rows, memory
        for name, (first, rows_BPGD) in state.tails.items():
            self.tails[name].first, self.tails[name].rows_BPGD = first, rows_BPGD
        self.n_tokens = state.n_tokens
        self._before = None

    def extend_whole(self, name: str, new_BTGD: Tensor) -> Tensor:
        """Add rows to a sequence that is kept whole."""
        return self.whole.setdefault(name, Buffer(self.max_tokens)).extended(new_BTGD)

    def extend_window(self, name: str, new_BTGD: Tensor) -> tuple[Tensor, int]:
        """Add window rows; returns all that a new query can reach, and the position of the first."""
        tail = self.tails.setdefault(name, Tail())
        rows = tail.extended(new_BTGD)
        first = tail.first
        tail.cut_before(self.n_tokens + new_BTGD.shape[1] - (self.layout.w - 1) - self.rollback)
        return rows, first

    def extend_compressed(self, name: str, new_BTGD: Tensor, compress: Compress) -> Tensor:
        """Add raw rows, emit the blocks that they complete, and return every block so far."""
        layout, n_after = self.layout, self.n_tokens + new_BTGD.shape[1]
        tail = self.tails.setdefault(name, Tail())
        raw_BPGD = tail.extended(new_BTGD)
        first_new = layout.n_cmp(self.n_tokens)
        start = first_new * layout.d - tail.first
        new_BCGD = compress(raw_BPGD[:, start:], first_block=first_new)
        n_blocks = None if self.max_tokens is None else layout.n_cmp(self.max_tokens)
        blocks = self.whole.setdefault(name, Buffer(n_blocks))
        tail.cut_before(layout.n_cmp(max(0, n_after - self.rollback)) * layout.d)
        return blocks.extended(new_BCGD)

    def advance(self, n_new: int) -> None:
        """Count the tokens that every branch has taken in: the step is done."""
        self.n_tokens += n_new
        self._before = None

    def roll_back(self, n_tokens: int) -> None:
        """Forget all but the first ``n_tokens`` tokens.

        Raises:
            CacheError: more would be taken back than ``rollback`` tokens; their neighbours are gone.
        """
        self.settle()
        if not 0 <= self.n_tokens - n_tokens <= self.rollback:
            raise CacheError(
                f"cannot go from {self.n_tokens} back to {n_tokens} tokens: this cache keeps enough for "
                f"{self.rollback}; build it with a larger rollback"
            )
        for name, tail in self.tails.items():
            tail.cut_from(n_tokens)
            if name in self.whole:
                self.whole[name].n_rows = self.layout.n_cmp(n_tokens)
        for name, buffer in self.whole.items():
            if name not in self.tails:
                buffer.n_rows = n_tokens
        self.n_tokens = n_tokens

    def reorder(self, index_B: Tensor) -> None:
        """Let row ``b`` continue what row ``index_B[b]`` was (beam search)."""
        self.settle()
        for buffer in self.whole.values():
            if buffer.memory is not None:
                buffer.memory = buffer.memory.index_select(0, index_B)
        for tail in self.tails.values():
            if tail.rows_BPGD is not None:
                tail.rows_BPGD = tail.rows_BPGD.index_select(0, index_B)

    @property
    def n_bytes(self) -> int:
        """Memory held."""
        held = [b.memory for b in self.whole.values()] + [t.rows_BPGD for t in self.tails.values()]
        return sum(x.numel() * x.element_size() for x in held if x is not None)


class DecoderCache:
    """The caches of all layers, moved together; hand it to the decoder's ``forward``."""

    def __init__(self, layout: BlockLayout, *, n_layers: int, max_tokens: int | None = None, rollback: int = 0) -> None:
        """Make an empty one.

        Args:
            layout: block geometry.
            n_layers: layers of the decoder.
            max_tokens: most tokens it can hold, in memory taken once; None: memory grows with the text.
            rollback: how many of the newest tokens may be taken back.
        """
        self._layers = tuple(
            LayerCache(layout=layout, max_tokens=max_tokens, rollback=rollback) for _ in range(n_layers)
        )
        self._before: tuple[LayerState, ...] | None = None

    @property
    def layers(self) -> tuple[LayerCache, ...]:
        """One cache per layer, in order; between steps."""
        self.settle()
        return self._layers

    @property
    def n_tokens(self) -> int:
        """Tokens that every layer holds."""
        return self.layers[0].n_tokens

    @property
    def n_bytes(self) -> int:
        """Memory held by all layers."""
        return sum(layer.n_bytes for layer in self.layers)

    def begin(self) -> tuple[LayerCache, ...]:
        """Begin a step of all layers, which are returned; until ``end`` it can be taken back."""
        if not torch.compiler.is_compiling():
            self._before = self.state()
        return self._layers

    def end(self) -> None:
        """The step is done."""
        self._before = None

    def settle(self) -> None:
        """Take back a step that an exception has ended, in every layer."""
        if self._before is not None:
            self.restore(self._before)

    def state(self) -> tuple[LayerState, ...]:
        """What every layer holds now; cheap, nothing is copied."""
        return tuple(layer.state() for layer in self.layers)

    def restore(self, state: tuple[LayerState, ...]) -> None:
        """Hold again what ``state`` says."""
        for layer, before in zip(self._layers, state, strict=True):
            layer.restore(before)
        self._before = None

    def roll_back(self, n_tokens: int) -> None:
        """Forget all but the first ``n_tokens`` tokens in every layer; CacheError if too many."""
        for layer in self.begin():
            layer.roll_back(n_tokens)
        self.end()

    def reorder(self, index_B: Tensor) -> None:
        """Let batch row ``b`` continue what row ``index_B[b]`` was, in every layer."""
        for layer in self.begin():
            layer.reorder(index_B)
        self.end()
