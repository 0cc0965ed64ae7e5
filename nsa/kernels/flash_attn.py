"""The optional flash-attn package (version 2): where it is, and why not when it cannot be used."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from nsa.kernels.sdpa import HALF_TYPES

if TYPE_CHECKING:
    from types import ModuleType

    from nsa.kernels.registry import Site


def refusal(site: Site) -> str | None:
    """Why flash-attn cannot serve this site, or None."""
    if importlib.util.find_spec("flash_attn") is None:
        return "the package flash-attn is not installed"
    if site.device.type != "cuda":
        return "flash-attn runs on a GPU only"
    if site.dtype not in HALF_TYPES:
        return f"flash-attn takes fp16 or bf16, not {site.dtype}"
    if max(site.d_k, site.d_v) > 256:
        return f"flash-attn takes head widths up to 256, not {max(site.d_k, site.d_v)}"
    if site.sdpa == "no-flash":
        return "kernels.sdpa = 'no-flash'"
    return None


def package() -> ModuleType | Any:
    """The imported package; ask ``refusal`` first."""
    return importlib.import_module("flash_attn")
