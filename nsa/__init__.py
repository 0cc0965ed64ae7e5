"""A full Native Sparse Attention model and trainer (arXiv 2502.11089): the patient.

Public names, each loaded when it is asked for, so that ``nsa.config`` can be read without torch:

``nsa_attention``: the attention as a function of queries, keys, values and gates.
``NSAAttention``: the layer, a ``torch.nn.Module`` with plain arguments.
``NSAForCausalLM``, ``NSAConfig``: the language model for Hugging Face's transformers (the extra ``hf``).
``TinyLM``: the model of the original reports.
``generate``: text from any decoder of this package.
``Decoding``: memory and a CUDA graph for a batch, to continue one text after another token by token.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsa.attention.functional import nsa_attention as nsa_attention
    from nsa.attention.module import NSAAttention as NSAAttention
    from nsa.hf.configuration import NSAConfig as NSAConfig
    from nsa.hf.modeling import NSAForCausalLM as NSAForCausalLM
    from nsa.model.decoding import Decoding as Decoding
    from nsa.model.generate import generate as generate
    from nsa.model.tinylm import TinyLM as TinyLM

__version__ = "0.1.0"
__all__ = ["Decoding", "NSAAttention", "NSAConfig", "NSAForCausalLM", "TinyLM", "generate", "nsa_attention"]

_HOMES = {
    "nsa_attention": "nsa.attention.functional",
    "NSAAttention": "nsa.attention.module",
    "NSAConfig": "nsa.hf.configuration",
    "NSAForCausalLM": "nsa.hf.modeling",
    "TinyLM": "nsa.model.tinylm",
    "generate": "nsa.model.generate",
    "Decoding": "nsa.model.decoding",
}


def __getattr__(name: str) -> object:
    """Load a public name when it is asked for: importing ``nsa.config`` must not import torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'nsa' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
