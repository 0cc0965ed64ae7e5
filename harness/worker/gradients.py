"""Whether the first step's gradients are the true ones: compared with a plain pass over the same batch.

The truth is computed in the same process from what went into the model and from the gradient that came back to its
output, but without recomputation, without a wrapper around the model, and averaged over the ranks by hand.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from harness.core.codec import to_json
from harness.core.evidence import GradientTruth
from harness.store import layout
from harness.worker.echo import put
from nsa.train.probe import Edge, NullProbe, Phase

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from torch import Tensor, nn

    from harness.worker.world import Place
    from nsa.train.probe import TrainingState

WRONG = 1e-3
"""Relative error from which a gradient counts as wrong; rounding alone measures below 1e-6 in fp32."""

FLOOR = 1e-5
"""Share of the largest gradient below which one is too small for its relative error to mean anything."""


class GradientProbe(NullProbe):
    """Checks the gradients at the end of the first step's backward; rank 0 writes what it found to ``gradients.json``.

    All ranks take part, because the truth is an average. A sharded model is not compared, and the file says so.
    """

    def __init__(self, trial_dir: Path, *, place: Place) -> None:
        self._trial_dir, self._place = trial_dir, place
        self._passes: list[_Pass] = []
        self._model: nn.Module | None = None
        self._blocks: tuple[nn.Module, ...] = ()
        self._hooks: list[Any] = []

    def built(self, state: TrainingState) -> None:
        """Listen at the model's input and output."""
        self._model = cast("nn.Module", state.model)
        self._blocks = cast("tuple[nn.Module, ...]", tuple(state.blocks))
        if why_not := _sharded(self._model, state):
            self._write(GradientTruth(id="gradients", compared=0, why_not=why_not))
            return
        self._hooks = [
            self._model.register_forward_pre_hook(self._enters),
            self._model.register_forward_hook(self._leaves),
        ]

    def mark(self, *, phase: Phase, edge: Edge, step: int | None, detail: str | None = None) -> None:
        """Compare before the first optimizer step, once."""
        if not self._hooks or phase != Phase.OPTIM or edge != Edge.BEGIN:
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        assert self._model is not None, "built comes before the first step"
        ours = {name: p.grad for name, p in self._model.named_parameters()}
        with _plain(self._blocks):
            truth = self._truth()
        self._write(compare(ours, truth, step=step or 0))

    def _enters(self, _module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        import torch

        device = inputs[0].device.type
        is_autocast = torch.is_autocast_enabled(device)
        self._passes.append(
            _Pass(inputs[0].detach(), device, torch.get_autocast_dtype(device) if is_autocast else None)
        )

    def _leaves(self, _module: nn.Module, _inputs: object, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(self._passes[-1].keep)

    def _truth(self) -> dict[str, Tensor]:
        """Every parameter's gradient, averaged over the ranks."""
        import torch
        import torch.distributed as dist

        model = cast("nn.Module", self._model)
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        total = list(map(torch.zeros_like, parameters.values()))
        for one in self._passes:
            if one.gradient is None:
                continue
            with torch.enable_grad(), torch.autocast(one.device, dtype=one.autocast, enabled=one.autocast is not None):
                output = model(one.inputs)
            gradients = torch.autograd.grad(output, list(parameters.values()), one.gradient, allow_unused=True)
            parts = cast("tuple[Tensor | None, ...]", gradients)  # torch's own signature does not know of unused ones
            for whole, part in zip(total, parts, strict=True):
                if part is not None:
                    whole += part
        if self._place.world > 1:
            for whole in total:
                dist.all_reduce(whole)
                whole /= self._place.world
        return dict(zip(parameters, total, strict=True))

    def _write(self, truth: GradientTruth) -> None:
        if self._place.rank == 0:
            put(layout.gradients(self._trial_dir), json.dumps(to_json(truth), indent=1))


class _Pass:
    """One micro-batch: what went in, and the gradient that came back to what came out."""

    def __init__(self, inputs: Tensor, device: str, autocast: Any) -> None:
        self.inputs, self.device, self.autocast = inputs, device, autocast
        self.gradient: Tensor | None = None

    def keep(self, gradient: Tensor) -> None:
        self.gradient = gradient.detach().clone()


def compare(ours: Mapping[str, Tensor | None], truth: Mapping[str, Tensor], *, step: int) -> GradientTruth:
    """The relative error of each gradient, by norm; one that is not there counts as wrong where the truth is not 0."""
    norms: dict[str, float] = {name: whole.norm().item() for name, whole in truth.items()}
    least = FLOOR * max(norms.values(), default=0.0)
    errors: dict[str, float] = {}
    missing: list[str] = []
    for name, whole in truth.items():
        mine = ours.get(name)
        if mine is None:
            if norms[name] > least:
                missing.append(name)
            continue
        errors[name] = (mine - whole).norm().item() / max(norms[name], least, 1e-30)
    worst = max(errors, key=lambda name: errors[name], default="")
    return GradientTruth(
        id="gradients",
        step=step,
        compared=len(truth),
        worst=errors.get(worst, 0.0),
        parameter=worst,
        wrong=tuple(name for name, error in errors.items() if not error < WRONG),
        missing=tuple(missing),
    )


@contextmanager
def _plain(blocks: tuple[nn.Module, ...]) -> Generator[None]:
    """The blocks' own forward, as their class defines it: what was put in its place on an instance is set aside."""
    aside = [(block, vars(block).pop("forward")) for block in blocks if "forward" in vars(block)]
    try:
        yield
    finally:
        for block, forward in aside:
            vars(block)["forward"] = forward


def _sharded(model: nn.Module, state: TrainingState) -> str:
    """Why these parameters cannot be compared one by one, or nothing."""
    wrapper = type(getattr(state, "module", model)).__name__
    if wrapper == "FullyShardedDataParallel" or any(hasattr(p, "full_tensor") for p in model.parameters()):
        return f"the parameters are spread over the ranks ({wrapper})"
    return ""
