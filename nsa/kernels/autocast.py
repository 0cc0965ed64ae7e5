"""Operators of our own compute the same whether autocast is on or off around them, as torch's own do.

Autocast chooses types for whoever calls torch, and the inside of a custom operator calls torch, too: on a GPU a norm
came out in fp32 beside keys in bf16, and products asked for in fp32 were taken in bf16, wherever the model ran.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch._library.custom_ops import CustomOpDef


def operator(name: str, *, schema: str | None = None) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """Register a function, whose first argument is a tensor, as a torch operator that writes to none of its arguments.

    Args:
        name: its name with its namespace, ``nsa::...``.
        schema: as torch writes it; read from the annotations if None.
    """

    def register(compute: Callable[..., Any]) -> CustomOpDef:
        known = schema or torch.library.infer_schema(compute, mutates_args=())
        return torch.library.custom_op(name, outside_autocast(compute), mutates_args=(), schema=known)

    return register


def outside_autocast(compute: Callable[..., Any]) -> Callable[..., Any]:
    """``compute``, whose first argument is a tensor, with autocast off on that tensor's device."""

    @wraps(compute)
    def computed(x: torch.Tensor, *args: Any) -> Any:
        if not torch.is_autocast_enabled(x.device.type):
            return compute(x, *args)
        with torch.autocast(x.device.type, enabled=False):
            return compute(x, *args)

    return computed
