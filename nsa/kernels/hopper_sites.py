"""Where ``auto`` takes the Hopper kernels of the compressed and window branch and of the gated sum."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsa.kernels.registry import Site

NARROW, LONG = 64, 16384
"""Heads of so many numbers were timed from so many tokens on: a training step of the 125M model (12 heads over 2 kv
heads, 2 sequences) took 103.3 ms instead of 107.1, and 101.0 instead of 101.9 replayed; at 2,048 tokens it took longer.
"""


def yields(site: Site) -> str | None:
    """Why ``auto`` passes them over here, though they could run."""
    if site.d_k == NARROW and site.seq_len >= LONG:
        return None
    return importlib.import_module("nsa.kernels.hopper.triton").yields(site)
