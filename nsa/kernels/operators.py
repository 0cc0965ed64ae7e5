"""Operators of ours in torch's library, at little cost per call.

``torch.library.custom_op`` does the same and checks more at every call. On a core where a tiny operator takes 60 us
forward and backward through it, it takes 35 us through this module; a sparse layer calls about ten of them, and a fast
GPU waits for the difference. What is not checked here is checked in tests, by ``torch.library.opcheck``.

Operators compute the same whether autocast is on or off around them, as torch's own do. Autocast chooses types for
whoever calls torch, and the inside of an operator calls torch, too: on a GPU a norm came out in fp32 beside keys in
bf16, and products asked for in fp32 were taken in bf16, wherever the model ran.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

from nsa.errors import DerivativeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAMESPACE = "nsa"
EVERYWHERE = "CompositeExplicitAutograd"
"""The dispatch key of a function for every device."""
_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")


def operator(name: str, *, schema: str | None = None) -> Callable[[Callable[..., Any]], Operator]:
    """Register a function, whose first argument is a tensor, as an operator for every device.

    Args:
        name: its name with its namespace, ``nsa::...``.
        schema: as torch writes it; read from the annotations if None.
    """

    def register(compute: Callable[..., Any]) -> Operator:
        known = schema or torch.library.infer_schema(compute, mutates_args=())
        return Operator(name.removeprefix(f"{NAMESPACE}::"), known, {EVERYWHERE: compute})

    return register


class Operator:
    """``nsa::name``, which writes to none of its arguments and returns no view of one; called as it is.

    Attributes:
        name: without the namespace.
        overload: what torch made of it.
        within: its function for every device, for use within other operators: there is neither a gradient nor autocast
            to see to there, and on its way through torch a call takes as long as a launch. None without one.
    """

    def __init__(self, name: str, schema: str, run: Mapping[str, Callable[..., Any]]) -> None:
        """Register it.

        Args:
            name: without the namespace.
            schema: as torch writes it, without the name and without defaults: ``"(Tensor x, int n) -> Tensor"``.
            run: implementation by dispatch key: "CPU", "CUDA", or ``EVERYWHERE``. Its first argument is a tensor.
        """
        self.name = name
        _LIBRARY.define(name + schema)
        for key, implementation in run.items():
            _LIBRARY.impl(name, outside_autocast(implementation), key)
        self.within: Any = run.get(EVERYWHERE)
        self.overload: Any = getattr(getattr(torch.ops, NAMESPACE), name).default

    def __call__(self, *inputs: Any) -> Any:
        """Run it."""
        return self.overload(*inputs)

    def register_fake(self, fake: Callable[..., Any]) -> Callable[..., Any]:
        """Say the shapes, types and strides of the results; a decorator."""
        torch.library.register_fake(f"{NAMESPACE}::{self.name}", fake, lib=_LIBRARY)
        return fake

    def register_autograd(
        self, backward: Callable[..., Any], *, setup_context: Callable[..., None], is_linear: bool = False
    ) -> None:
        """Make it differentiable, once; a second derivative is refused with the operator's name.

        Args:
            backward: ``backward(ctx, *grads)`` returns one gradient or None per argument.
            setup_context: ``setup_context(ctx, inputs, output)`` keeps what backward needs.
            is_linear: the operator is linear in what it is differentiated by, and ``backward`` calls an operator that
                is differentiable, too; then derivatives of any order are right.
        """
        # As torch's tutorials go on to the next key.
        run, below_autograd = self.overload, torch._C._AutoDispatchBelowAutograd

        def forward(ctx: Any, *inputs: Any) -> Any:
            with below_autograd():
                output = run(*inputs)
            setup_context(ctx, inputs, output)
            return output

        backward = backward if is_linear else self._once(backward)
        parts = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        function = type(f"{NAMESPACE}_{self.name}", (torch.autograd.Function,), parts)

        def differentiable(*inputs: Any) -> Any:
            if torch.is_grad_enabled():
                return function.apply(*inputs)  # pyrefly: ignore[missing-attribute]
            with below_autograd():
                return run(*inputs)

        _LIBRARY.impl(self.name, differentiable, "Autograd")

    def _once(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """``backward``, which refuses to be differentiated in turn: without a rule torch would take zero for it."""

        def once(ctx: Any, *grads: Any) -> Any:
            if torch.is_grad_enabled():
                raise DerivativeError(
                    f"nsa::{self.name} has a first derivative only, and this backward is asked for a graph of its own; "
                    "call it without create_graph, or use the operators' reference.py for second derivatives"
                )
            return backward(ctx, *grads)

        return once


def outside_autocast(compute: Callable[..., Any]) -> Callable[..., Any]:
    """``compute``, whose first argument is a tensor, with autocast off on that tensor's device."""

    @wraps(compute)
    def computed(x: torch.Tensor, *args: Any) -> Any:
        if not torch.is_autocast_enabled(x.device.type):
            return compute(x, *args)
        with torch.autocast(x.device.type, enabled=False):
            return compute(x, *args)

    return computed
