# ruff: noqa: ANN001, ANN201 - a kernel's arguments are pointers and numbers whose types the launch decides
"""What the kernels call of Gluon, by one name for triton 3.6 to 3.9, and which keys the two masks show.

Triton renamed three functions in between. Where none of a function's names is known the import fails, and the routes
that want it say so.

A tile's rows are consecutive tokens, each with the same PACK heads of one kv head. PACK is the greatest power of two
that divides the group, so that a tile is one box of the copy engine, whatever the group's size.

A query at row t stands at key t + offset. KIND says which keys it sees. WINDOW: the last P1, its own included. BLOCKS:
compressed keys whose P1 = l tokens, P2 = d apart, are complete (Eq. 7). FORCED: of blocks of BN keys the last P1, its
own included, and the first P2, up to itself; the queries of a tile have one own block.
"""

from __future__ import annotations

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

__all__ = [
    "BLOCKS",
    "FORCED",
    "LN2",
    "LOG2E",
    "SIZES",
    "WINDOW",
    "barrier",
    "copy_in",
    "copy_out",
    "fence_async_shared",
    "first_open_tile",
    "gl",
    "gluon",
    "has_signs",
    "key_tile",
    "keys_of_tile",
    "last_key",
    "mbarrier",
    "past_open_tiles",
    "seen_of_keys",
    "seen_of_rows",
    "tma",
    "warpgroup_mma",
    "warpgroup_mma_wait",
]


def _named(module: Any, *names: str) -> Any:
    """The first of these that the module has."""
    for name in names:
        if hasattr(module, name):
            return getattr(module, name)
    raise ImportError(f"this triton's {module.__name__} has none of {', '.join(names)}")


barrier = _named(gl, "barrier", "thread_barrier")
copy_in = _named(tma, "async_load", "async_copy_global_to_shared")
copy_out = _named(tma, "async_store", "async_copy_shared_to_global")

SIZES = ("T", "S", "offset", "n_work", "n_tiles", "n_bg")
"""Arguments that every length and batch may change: one compilation serves them all."""
LN2 = gl.constexpr(0.6931471805599453)
LOG2E = gl.constexpr(1.4426950408889634)
WINDOW = gl.constexpr(0)
BLOCKS = gl.constexpr(1)
FORCED = gl.constexpr(2)


@gluon.jit
def last_key(t, offset, P1: gl.constexpr, P2: gl.constexpr, KIND: gl.constexpr):
    """The last key that a query at row ``t`` may see, -1 if none."""
    last = t + offset
    if KIND == BLOCKS:
        last = gl.maximum(last + 1 - P1 + P2, 0) // P2 - 1
    return last


@gluon.jit
def seen_of_rows(last, key, S, P1: gl.constexpr, KIND: gl.constexpr):
    """[rows, keys]: whether the query whose last key is ``last`` sees the key."""
    seen = key[None, :] <= gl.minimum(last, S - 1)[:, None]
    if KIND == WINDOW:
        seen = seen & (key[None, :] > (last - P1)[:, None])
    return seen


@gluon.jit
def seen_of_keys(
    key, row, t0, T, S, offset, PACK: gl.constexpr, BR: gl.constexpr, P1: gl.constexpr, P2: gl.constexpr,
    KIND: gl.constexpr,
):  # fmt: skip
    """[keys, rows]: whether row ``row`` of the BR that begin at token t0 sees the key; a bound or two for each key."""
    t_first = key - offset
    t_past = gl.full_like(key, T)
    if KIND == WINDOW:
        t_past = gl.minimum(key + P1 - offset, T)
    else:
        t_first = key * P2 + P1 - 1 - offset
    first = gl.where(key < S, (t_first - t0) * PACK, BR)
    return (row[None, :] >= first[:, None]) & (row[None, :] < ((t_past - t0) * PACK)[:, None])


@gluon.jit
def keys_of_tile(
    t_lo, t_hi, T, S, offset, P1: gl.constexpr, P2: gl.constexpr, KIND: gl.constexpr, BN: gl.constexpr
):  # fmt: skip
    """Tiles [lo, hi) of BN keys that one of the queries t_lo .. t_hi sees; hi = lo if there is none.

    Of FORCED blocks only how many they are: which, ``key_tile`` says.
    """
    newest = gl.minimum(last_key(gl.minimum(t_hi, T - 1), offset, P1, P2, KIND), S - 1)
    lo = 0
    if KIND == WINDOW:
        lo = gl.maximum(t_lo + offset - P1 + 1, 0) // BN
    hi = gl.maximum((newest + BN) // BN, lo)
    if KIND == FORCED:
        lo = gl.maximum(hi - P1 - P2, 0)
    return lo, hi


@gluon.jit
def key_tile(i, lo, hi, P2: gl.constexpr, KIND: gl.constexpr):
    """The i-th tile of keys, from the newest to the oldest, of [lo, hi)."""
    n = hi - 1 - i
    if KIND == FORCED:
        n = gl.where(n < lo + P2, n - lo, n)
    return n


@gluon.jit
def first_open_tile(t_hi, offset, P1: gl.constexpr, P2: gl.constexpr, KIND: gl.constexpr, BN: gl.constexpr):
    """The first tile of BN keys whose keys are not too old for any query up to t_hi."""
    lo = 0
    if KIND == WINDOW:
        lo = gl.maximum(last_key(t_hi, offset, P1, P2, KIND) - P1 + BN, 0) // BN
    return lo


@gluon.jit
def past_open_tiles(t_lo, S, offset, P1: gl.constexpr, P2: gl.constexpr, KIND: gl.constexpr, BN: gl.constexpr):
    """One past the last tile of BN keys that lie behind every query from t_lo on, and all exist."""
    return gl.minimum(last_key(t_lo, offset, P1, P2, KIND) + 1, S) // BN


@gluon.jit
def has_signs(least_ptr, GATED: gl.constexpr):
    """Whether a gate is negative, or no number, which hides whether others are."""
    is_signed = False
    if GATED:
        is_signed = (gl.load(least_ptr).to(gl.float32) >= 0.0) == 0
    return is_signed
