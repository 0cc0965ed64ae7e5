"""The model for Hugging Face's transformers: ``pip install 'nsa-harness[hf]'``.

Importing this package (or ``nsa.NSAForCausalLM``) tells ``AutoConfig`` and ``AutoModelForCausalLM`` about it.
"""

from __future__ import annotations

from nsa.hf.configuration import NSAConfig
from nsa.hf.modeling import NSACache, NSAForCausalLM

__all__ = ["NSACache", "NSAConfig", "NSAForCausalLM"]
