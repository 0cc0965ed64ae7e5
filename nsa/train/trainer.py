"""One training run as named phases, each announced to the probes: build, then data, forward, backward, optim."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch._dynamo  # the first optimizer imports it anyway: here, a process that forks trials pays once

from nsa.errors import NonFiniteLoss
from nsa.model.build import build_model
from nsa.train.data import batches
from nsa.train.optim import make_optimizer
from nsa.train.probe import Phase
from nsa.train.progress import Announcer, BlockProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor, nn

    from nsa.config import RunConfig
    from nsa.model.transformer import Decoder
    from nsa.train.probe import Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What a finished run leaves: every step's loss, and what ran."""

    config: RunConfig
    losses: tuple[float, ...]
    n_parameters: int
    kernels: tuple[dict[str, str], ...]


class LiveState:
    """The running training as probes see it (``nsa.train.probe.TrainingState``)."""

    def __init__(self, model: Decoder, optimizer: torch.optim.Optimizer, progress: BlockProgress) -> None:
        self.model = model
        self.optimizer = optimizer
        self._progress = progress
        self._loss_changes: list[Callable[[object], object]] = []

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The decoder blocks in order."""
        return tuple(self.model.blocks)

    def in_backward(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` once inside the autograd engine, when the last block's backward is done."""
        self._progress.pending.append(callback)

    def set_loss(self, change: Callable[[object], object]) -> None:
        """Pass the next step's loss through ``change`` before backward, once."""
        self._loss_changes.append(change)

    def changed(self, loss: Tensor) -> Tensor:
        """The loss after every pending change."""
        while self._loss_changes:
            new = self._loss_changes.pop(0)(loss)
            if not isinstance(new, torch.Tensor):
                raise TypeError(f"a change of the loss must return a tensor, got {type(new).__name__}")
            loss = new
        return loss


def train(config: RunConfig, probes: Sequence[Probe] = ()) -> TrainResult:
    """Train as ``config`` says, telling ``probes`` about every phase.

    Raises:
        NonFiniteLoss: the loss became NaN or infinite.
        KernelUnavailable: a kernel that was asked for by name cannot run here.
        ConfigError: the data does not fit the configuration.
    """
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    announcer = Announcer(probes)
    with _phase(announcer, Phase.BUILD, None):
        torch.manual_seed(config.train.seed)
        torch.use_deterministic_algorithms(config.train.deterministic)
        model, resolutions = build_model(config)
        optimizer = make_optimizer(model, config.train)
        batch = batches(config)
        rows = tuple(resolution.row() for resolution in resolutions)
        state = LiveState(model, optimizer, BlockProgress(tuple(model.blocks), announcer))
        for probe in probes:
            probe.resolved(rows)
            probe.built(state)
    with torch.autograd.set_detect_anomaly(config.train.detect_anomaly):
        losses = tuple(_step(config, state, batch, announcer, step) for step in range(config.train.steps))
    n_parameters = sum(p.numel() for p in model.parameters())
    return TrainResult(config=config, losses=losses, n_parameters=n_parameters, kernels=rows)


def _step(
    config: RunConfig, state: LiveState, batch: Callable[[int], Tensor], announcer: Announcer, step: int
) -> float:
    """One optimizer step; returns the loss."""
    began = time.perf_counter()
    with _phase(announcer, Phase.DATA, step):
        ids_BT = batch(step).to(config.train.device)
    with _phase(announcer, Phase.FORWARD, step):
        loss = state.changed(_loss(config, state.model, ids_BT))
        value = loss.item()
        if not math.isfinite(value):
            raise NonFiniteLoss(
                f"loss = {value} at step {step}, in {Phase.FORWARD}, before backward; "
                f"train.lr = {config.train.lr:g}. Lower train.lr, or set train.detect_anomaly to find the operator"
            )
    with _phase(announcer, Phase.BACKWARD, step):
        loss.backward()
    with _phase(announcer, Phase.OPTIM, step):
        limit = config.train.grad_clip or math.inf
        grad_norm = torch.nn.utils.clip_grad_norm_(state.model.parameters(), limit).item()
        state.optimizer.step()
        state.optimizer.zero_grad(set_to_none=True)
    step_s = time.perf_counter() - began
    n_tokens = config.train.batch_size * config.train.seq_len
    facts = {
        "loss": value,
        "tokens": float(n_tokens),
        "grad_norm": grad_norm,
        "lr": config.train.lr,
        "step_s": step_s,
        "tokens_per_s": n_tokens / step_s,
    }
    for probe in announcer.probes:
        probe.step_done(step=step, facts=facts)
    return value


def _loss(config: RunConfig, model: Decoder, ids_BT: Tensor) -> Tensor:
    """Mean next-token cross entropy in nats."""
    is_bf16 = config.train.precision == "bf16"
    with torch.autocast(config.train.device, dtype=torch.bfloat16, enabled=is_bf16):
        logits_BTV = model(ids_BT[:, :-1])
    return torch.nn.functional.cross_entropy(logits_BTV.float().flatten(0, 1), ids_BT[:, 1:].flatten())


@contextmanager
def _phase(announcer: Announcer, phase: Phase, step: int | None) -> Iterator[None]:
    """Announce a phase; one that raises has begun and not ended."""
    announcer.begin(phase, step)
    yield
    announcer.end()
