"""Operators of ours in torch's library, at little cost per call.

``torch.library.custom_op`` does the same and checks more at every call. On a core where a tiny operator takes 60 us
forward and backward through it, it takes 35 us through this module; a sparse layer calls about ten of them, and a fast
GPU waits for the difference. What is not checked here is checked in tests, by ``torch.library.opcheck``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from nsa.kernels.autocast import outside_autocast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LIBRARY = torch.library.Library("nsa", "FRAGMENT")


def define(
    name: str,
    schema: str,
    *,
    run: Mapping[str, Callable[..., Any]],
    fake: Callable[..., Any],
    save: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
) -> Any:
    """Register ``nsa::name`` and return its overload, to be called.

    Args:
        name: without the namespace.
        schema: ``"(Tensor x, int n) -> Tensor"``; nothing is written to and no result is a view of an argument.
        run: implementation by dispatch key: "CPU", "CUDA", or "CompositeExplicitAutograd" for every device; its first
            argument is a tensor.
        fake: results without data, of the same shapes, types and strides.
        save: ``save(ctx, inputs, output)`` keeps what backward needs.
        backward: ``backward(ctx, *grads)``, one gradient or None per argument; without it the operator has none.
    """
    _LIBRARY.define(name + schema)
    for key, implementation in run.items():
        _LIBRARY.impl(name, outside_autocast(implementation), key)
    torch.library.register_fake(f"nsa::{name}", fake, lib=_LIBRARY)
    operator = getattr(torch.ops.nsa, name).default
    if save is not None and backward is not None:
        _LIBRARY.impl(name, _differentiable(name, operator, save, backward), "Autograd")
    return operator


def _differentiable(
    name: str, operator: Any, save: Callable[..., None], backward: Callable[..., Any]
) -> Callable[..., Any]:
    below_autograd = torch._C._AutoDispatchBelowAutograd  # torch's own tutorials go on to the next key so

    def forward(ctx: Any, *inputs: Any) -> Any:
        with below_autograd():
            output = operator(*inputs)
        save(ctx, inputs, output)
        return output

    parts = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function = type(f"nsa_{name}", (torch.autograd.Function,), parts)

    def call(*inputs: Any) -> Any:
        if torch.is_grad_enabled():
            return function.apply(*inputs)
        with below_autograd():
            return operator(*inputs)

    return call
