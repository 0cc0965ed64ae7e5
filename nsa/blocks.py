"""Block geometry: which blocks exist, who sees them, and how the two kinds of block overlap (NSA Eq. 7, 9, 11).

All positions count from 0. A query at position ``p`` sees itself and everything before it: ``p + 1`` tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsa.errors import ConfigError

N_INITIAL = 1
"""Selection blocks at the start of a document that every query selects (paper section 4.1)."""
N_LOCAL = 2
"""Selection blocks that end with the query's own: its block and the one before (paper section 4.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayout:
    """Sizes of the three branches' blocks.

    Attributes:
        l: tokens in a compression block.
        d: stride between compression blocks.
        l_slc: tokens in a selection block (the paper's l').
        n: selection blocks per query, the forced ones included.
        w: keys in the sliding window, the query's own included.

    Raises:
        ConfigError: d does not divide l and l_slc, or n leaves no room for the forced blocks.
    """

    l: int  # noqa: E741 - the paper's letter
    d: int
    l_slc: int
    n: int
    w: int

    def __post_init__(self) -> None:
        for name in ("l", "d", "l_slc", "w"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)} must be at least 1")
        if self.l % self.d or self.l_slc % self.d:
            raise ConfigError(
                f"d = {self.d} must divide l = {self.l} and l_slc = {self.l_slc} (Eq. 9 adds whole strides); "
                f"with this d use multiples of {self.d}"
            )
        if self.n < N_INITIAL + N_LOCAL:
            raise ConfigError(f"n = {self.n} leaves no room for the forced blocks; use {N_INITIAL + N_LOCAL} or more")

    def n_cmp(self, n_tokens: int) -> int:
        """How many compression blocks are complete once ``n_tokens`` tokens are there (Eq. 7)."""
        return 0 if n_tokens < self.l else (n_tokens - self.l) // self.d + 1

    def n_slc(self, n_tokens: int) -> int:
        """How many selection blocks ``n_tokens`` tokens touch; the last one may be partial."""
        return -(-n_tokens // self.l_slc)

    def cmp_span(self, i: int) -> range:
        """Token positions of compression block ``i``."""
        return range(i * self.d, i * self.d + self.l)

    def slc_span(self, j: int) -> range:
        """Token positions of selection block ``j``."""
        return range(j * self.l_slc, (j + 1) * self.l_slc)

    def slc_of(self, position: int) -> int:
        """The selection block that holds ``position``."""
        return position // self.l_slc

    def forced(self, position: int) -> tuple[int, ...]:
        """Blocks that the query at ``position`` always selects, ascending, each once."""
        own = self.slc_of(position)
        local = range(max(0, own - N_LOCAL + 1), own + 1)
        return tuple(sorted({*range(min(N_INITIAL, own + 1)), *local}))

    def n_selected(self, position: int) -> int:
        """How many blocks the query at ``position`` selects: all it sees, at most n."""
        return min(self.n, self.slc_of(position) + 1)

    def overlap(self, i: int, j: int) -> int:
        """Strides shared by compression block ``i`` and selection block ``j``: the weight of Eq. 9.

        Eq. 9 with its 1-based indices is exactly this overlap, for every l, d and l_slc.
        """
        cmp, slc = self.cmp_span(i), self.slc_span(j)
        return max(0, min(cmp.stop, slc.stop) - max(cmp.start, slc.start)) // self.d

    def tokens_read(self, position: int) -> int:
        """Keys that one decoding step at ``position`` reads in the three branches together (paper Table 4).

        The paper's expectation s/d + n l' + w, exact: complete compression blocks, selected tokens that
        exist, and the window as far as it is filled.
        """
        seen = position + 1
        own = self.slc_of(position)
        selected = (self.n_selected(position) - 1) * self.l_slc + (seen - own * self.l_slc)
        return self.n_cmp(seen) + selected + min(self.w, seen)
