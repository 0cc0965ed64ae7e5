"""A full Native Sparse Attention model and trainer (arXiv 2502.11089): the patient."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsa.model.tinylm import TinyLM as TinyLM

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load ``nsa.TinyLM`` when it is asked for: importing ``nsa.config`` must not import torch."""
    if name == "TinyLM":
        from nsa.model.tinylm import TinyLM

        return TinyLM
    raise AttributeError(f"module 'nsa' has no attribute {name!r}")
