"""What decoding on a GPU remembers: memory of fixed shape, so that one CUDA graph serves every step.

A ``DecoderCache`` takes in a text, in pieces of any length; ``PagedCache.take`` then moves what it holds, row by row,
and from there on every row grows by one token a step, each from its own position. Selection blocks are pages.
Shape letters: B rows, G key/value heads, D head width, S tokens, C compressed blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nsa.attention.cache import CacheError
from nsa.attention.rope import angles
from nsa.kernels.decode.op import LayerPages, Place
from nsa.kernels.quarantine import tainted
from nsa.kernels.sizes import cdiv

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nsa.attention.cache import DecoderCache, LayerCache, Tail
    from nsa.config import ModelConfig

RING = 128
"""The window's ring is a multiple of this: a kernel's tile then never wraps around."""


class PagedCache:
    """Keys and values of all layers for ``n_rows`` texts of up to ``max_tokens`` tokens each.

    How many tokens a row holds is known to the host and to the device. The host's number is the one that counts: a step
    that an exception ends has changed nothing that the host's number reaches, and the device is told again.
    """

    def __init__(
        self, config: ModelConfig, *, n_rows: int, max_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Take the memory.

        Args:
            config: the model's sizes.
            n_rows: rows of the batch.
            max_tokens: most tokens that a row can hold.
            dtype: of keys and values.
            device: where they are.
        """
        layout, G = config.layout, config.n_kv_groups
        self.layout, self.max_tokens, self.n_rows = layout, max_tokens, n_rows
        n_row_pages = max(1, layout.n_slc(max_tokens))
        n_pages, n_blocks = n_rows * n_row_pages, max(1, layout.n_cmp(max_tokens))
        ring = cdiv(layout.w, RING) * RING

        def pair(*shape: int) -> tuple[Tensor, Tensor]:
            keys = torch.empty(*shape, config.d_k, dtype=dtype, device=device)
            return keys, torch.empty(*shape, config.d_v, dtype=dtype, device=device)

        def layer() -> LayerPages:
            (k_slc, v_slc), (kc, vc) = pair(n_pages, G, layout.l_slc), pair(n_rows, G, n_blocks)
            (k_win, v_win), (k_raw, v_raw) = pair(n_rows, G, ring), pair(n_rows, G, layout.l)
            return LayerPages(
                k_slc=k_slc, v_slc=v_slc, kc=kc, vc=vc, k_win=k_win, v_win=v_win, k_raw=k_raw, v_raw=v_raw
            )

        self.layers = tuple(layer() for _ in range(config.n_layers))
        like = torch.empty((), dtype=dtype, device=device)
        self.place = Place(
            position_B=torch.zeros(n_rows, dtype=torch.int32, device=device),
            table_BM=torch.arange(n_pages, dtype=torch.int32, device=device).view(n_rows, n_row_pages),
            turn=angles(
                torch.arange(n_row_pages * layout.l_slc, device=device),
                config.d_k,
                base=config.rope_base,
                scale=config.rope_scale,
                like=like,
            ),
            arrived=torch.zeros(5 * n_rows * G + 1, dtype=torch.int32, device=device),
        )
        self._known: tuple[tuple[int, ...], bool] = ((0,) * n_rows, True)
        """Tokens of every row, and whether the device has these numbers."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of every row."""
        return self._known[0]

    @property
    def n_bytes(self) -> int:
        """Memory held for keys and values."""
        return sum(x.numel() * x.element_size() for layer in self.layers for x in layer.tensors())

    def begin(self) -> None:
        """Begin a step of one token a row; what a step that did not end has left does not count.

        Raises:
            CacheError: a row is full.
        """
        lengths, is_told = self._known
        if max(lengths, default=0) >= self.max_tokens:
            raise CacheError(
                f"1 tokens behind {max(lengths)} do not fit a cache of {self.max_tokens}; "
                "build it with a larger max_tokens"
            )
        if not is_told:
            numbers = torch.tensor(lengths, dtype=torch.int32)
            self.place.position_B.copy_(numbers.pin_memory() if self.place.position_B.is_cuda else numbers)
            self.place.arrived.zero_()
        self._known = (lengths, False)

    def end(self) -> None:
        """The step is done, on the host; the device has added one to its positions."""
        self._known = (tuple(n + 1 for n in self.lengths), True)

    def take(self, cache: DecoderCache, rows: Sequence[int]) -> None:
        """Hold in ``rows`` what a cache holds, row after row; it is emptied on the way, layer by layer.

        Raises:
            CacheError: it has more tokens than fit, or other layers or rows.
        """
        n_tokens = cache.n_tokens
        if n_tokens > self.max_tokens or len(cache.layers) != len(self.layers):
            raise CacheError(
                f"{n_tokens} tokens of {len(cache.layers)} layers do not fit a cache of {self.max_tokens} tokens and "
                f"{len(self.layers)} layers"
            )
        lengths = list(self.lengths)
        for row in rows:
            lengths[row] = 0
        self._known = (tuple(lengths), False)  # until all is there, these rows are empty
        for pages, layer in zip(self.layers, cache.layers, strict=True):
            for source, row in enumerate(rows):
                self._take_row(pages, layer, source, row, n_tokens)
            layer.whole.clear()
            layer.tails.clear()
        for row in rows:
            lengths[row] = n_tokens
        self._known = (tuple(lengths), False)

    def reorder(self, index_B: Tensor) -> None:
        """Let row ``b`` continue what row ``index_B[b]`` was (beam search)."""
        index = index_B.tolist()
        page_P = self.place.table_BM.flatten().long()
        from_P = self.place.table_BM[index_B].flatten().long()
        for layer in self.layers:
            for memory in layer.tensors()[:2]:
                memory[page_P] = memory[from_P]
            for memory in layer.tensors()[2:]:
                memory.copy_(memory[index_B])
        self._known = (tuple(self.lengths[i] for i in index), False)

    def _take_row(self, pages: LayerPages, layer: LayerCache, source: int, row: int, n_tokens: int) -> None:
        """One row of one layer."""
        table_M, whole = self.place.table_BM[row].long(), layer.whole
        if n_tokens:
            rows = tainted(*(_rows_of(whole[name].memory, source)[:n_tokens] for name in ("k_slc", "v_slc")))
            for memory, rows_NGX in zip((pages.k_slc, pages.v_slc), rows, strict=True):
                _fill_pages(memory, table_M, rows_NGX)
        n_blocks = self.layout.n_cmp(n_tokens)
        if n_blocks:
            rows = tainted(*(_rows_of(whole[name].memory, source)[:n_blocks] for name in ("kc", "vc")))
            for memory, rows_CGX in zip((pages.kc, pages.vc), rows, strict=True):
                memory[row, :, :n_blocks] = rows_CGX.transpose(0, 1)
        tails = layer.tails
        if n_tokens:
            k_win, v_win = tainted(*(_rows_of(tails[name].rows_BPGD, source) for name in ("k_win", "v_win")))
            _fill_ring(pages.k_win[row], k_win, tails["k_win"])
            _fill_ring(pages.v_win[row], v_win, tails["v_win"])
            _fill_ring(pages.k_raw[row], _rows_of(tails["kc"].rows_BPGD, source), tails["kc"])
            _fill_ring(pages.v_raw[row], _rows_of(tails["vc"].rows_BPGD, source), tails["vc"])


def _rows_of(x_BNGX: Tensor | None, row: int) -> Tensor:
    """The rows that a layer's cache has of one text."""
    assert x_BNGX is not None, "a cache that holds tokens has every sequence"
    return x_BNGX[row]


def _fill_pages(memory_PGLX: Tensor, table_M: Tensor, rows_NGX: Tensor) -> None:
    """Rows 0, 1, ... into the pages of a table."""
    size = memory_PGLX.shape[2]
    n_full, rest = divmod(len(rows_NGX), size)
    if n_full:
        memory_PGLX[table_M[:n_full]] = rows_NGX[: n_full * size].unflatten(0, (n_full, size)).transpose(1, 2)
    if rest:
        memory_PGLX[table_M[n_full], :, :rest] = rows_NGX[n_full * size :].transpose(0, 1)


def _fill_ring(ring_GWX: Tensor, rows_NGX: Tensor, tail: Tail) -> None:
    """The last rows of a tail, each at its position."""
    size = ring_GWX.shape[1]
    rows_NGX, first = rows_NGX[-size:], tail.first + max(0, len(rows_NGX) - size)
    slot_N = torch.arange(first, first + len(rows_NGX), device=ring_GWX.device) % size
    ring_GWX[:, slot_N] = rows_NGX.transpose(0, 1)
