"""An operator whose kernel fits where its tensors are, also after a model has moved.

``nsa.kernels.registry`` decides for one site: a device, a type, a length. A model is moved, cast and given longer
inputs after it was built; then the same question is asked again for the new site, once, and the answer is kept. What
was decided when the model was built holds there for every input up to that length.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from nsa.kernels.registry import Resolution

SHORTEST = 256
"""Lengths are told apart by powers of two from here on."""


class KernelOnCall:
    """One operator of ``nsa.kernels.registry.KERNELS``; call it as its contract says.

    Its first argument is a tensor [B, T, H, ...] that says where the work is; with ``offset`` T tokens follow that
    many. A copy or a pickle keeps what was built and asks the rest again.
    """

    def __init__(self, built: Resolution) -> None:
        self.built = built
        self._calls = [built.call]
        self._names = [built.kernel]
        self._found: dict[tuple[torch.device, torch.dtype, int], tuple[int, Resolution]] = {}

    def __call__(self, x_BTHX: torch.Tensor, *args: Any, **where: Any) -> Any:
        """Run the kernel of this place; KernelUnavailable where one was asked for by name and cannot run."""
        n_tokens = x_BTHX.shape[1] + where.get("offset", 0)
        if self._is_built_for(x_BTHX.device, x_BTHX.dtype, n_tokens):
            return self._calls[0](x_BTHX, *args, **where)
        return self._calls[self._number(x_BTHX.device, x_BTHX.dtype, up_to(n_tokens))](x_BTHX, *args, **where)

    def name_for(self, x_BTHX: torch.Tensor) -> str:
        """The backend that serves a whole sequence of such tensors; what a call with ``x_BTHX`` and no offset runs."""
        if self._is_built_for(x_BTHX.device, x_BTHX.dtype, x_BTHX.shape[1]):
            return self._names[0]
        return self._names[self._number(x_BTHX.device, x_BTHX.dtype, up_to(x_BTHX.shape[1]))]

    def at(self, device: torch.device, dtype: torch.dtype, n_tokens: int) -> Resolution:
        """Which kernel runs there, and why.

        Args:
            device: where the tensors are.
            dtype: of the queries.
            n_tokens: tokens in the sequence, those in a cache included.

        Raises:
            KernelUnavailable: a kernel asked for by name cannot run there, or none can.
        """
        if self._is_built_for(device, dtype, n_tokens):
            return self.built
        longest = up_to(n_tokens)
        self._number(device, dtype, longest)
        return self._found[device, dtype, longest][1]

    def _is_built_for(self, device: torch.device, dtype: torch.dtype, n_tokens: int) -> bool:
        site = self.built.site
        is_here = device == site.device or (device.type == site.device.type and site.device.index is None)
        return is_here and dtype == site.dtype and n_tokens <= site.seq_len

    # A compiler asks once while it traces, and guards what it finds in the list.
    @torch.compiler.assume_constant_result
    def _number(self, device: torch.device, dtype: torch.dtype, longest: int) -> int:
        """Where in the list the kernel of this place stands; resolved if it has not been."""
        place = (device, dtype, longest)
        if place not in self._found:
            resolution = self.built.elsewhere(
                dataclasses.replace(self.built.site, device=device, dtype=dtype, seq_len=longest)
            )
            self._calls.append(resolution.call)
            self._names.append(resolution.kernel)
            self._found[place] = (len(self._calls) - 1, resolution)
        return self._found[place][0]

    def __getstate__(self) -> dict[str, Any]:
        return {"built": self.built, "_calls": [self.built.call], "_names": [self.built.kernel], "_found": {}}


def up_to(n_tokens: int) -> int:
    """The least power of two that is not below; by comparisons, so that a compiler keeps one program per answer."""
    longest = SHORTEST
    while longest < n_tokens:
        longest *= 2
    return longest
