"""One training run as named phases, each announced to the probes.

``build`` once; then for every step ``data``, for each micro-batch ``forward`` and ``backward``, and ``optim``. Where
several processes train together, ``reduce`` is waiting for the others: to agree whether to go on, and to average
gradients by hand. ``save`` writes a checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch._dynamo  # the first optimizer imports it anyway: here, a process that forks trials pays once

from nsa.model.build import build_model
from nsa.train import recompute
from nsa.train.census import Census
from nsa.train.data import held_out
from nsa.train.graphs import capture_blocks
from nsa.train.live import LiveState
from nsa.train.loader import Loader
from nsa.train.optim import decayed_names, make_optimizer
from nsa.train.parallel import MODES
from nsa.train.precision import cast
from nsa.train.probe import Phase
from nsa.train.progress import Announcer, BlockProgress, GradientArrivals, ModuleBackward
from nsa.train.run import Run, TrainResult, phase
from nsa.train.world import check_device, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nsa.config import RunConfig
    from nsa.train.probe import Probe
    from nsa.train.world import World


def train(
    config: RunConfig, probes: Sequence[Probe] = (), *, stop_asked: Callable[[], bool] | None = None
) -> TrainResult:
    """Train as ``config`` says, telling ``probes`` about every phase.

    Args:
        config: the run.
        probes: observers, called in this thread.
        stop_asked: whether this process was told to stop; asked once per step, and decided with all ranks.

    Raises:
        NonFiniteLoss: the loss became NaN or infinite, on this rank or another.
        KernelUnavailable: a kernel that was asked for by name cannot run here.
        ConfigError: the data, the launch or the devices do not fit the configuration.
        DataFailed: a rank could not read its data, and ``train.synthetic_on_fail`` is not set.
        RankLost: another rank did not come to a common decision.
    """
    config = _with_device(config)
    check_device(config)
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    announcer = Announcer(probes)
    with joined(config) as world:
        with phase(announcer, Phase.BUILD, None):
            run = _build(config, world, announcer, stop_asked or (lambda: False))
        with torch.autograd.set_detect_anomaly(config.train.detect_anomaly):
            return run.to_the_end()


def _build(config: RunConfig, world: World, announcer: Announcer, stop_asked: Callable[[], bool]) -> Run:
    torch.manual_seed(config.train.seed)
    torch.use_deterministic_algorithms(config.train.deterministic)
    # Recomputation is installed here, in all its kinds, not by the model.
    model, resolutions = build_model(config.with_value("train.checkpointing", "none"))
    n_parameters = sum(p.numel() for p in model.parameters())
    cast(model, config.train)
    progress = BlockProgress(tuple(model.blocks), announcer)
    arrivals = GradientArrivals(model, announcer) if config.train.trace_grads else None
    if config.train.trace_modules:
        ModuleBackward(model, announcer)
    recompute.compile_blocks(config, tuple(model.blocks))
    recompute.install(config, tuple(model.blocks), resolutions)
    graphs = capture_blocks(config, model, n_rows=config.train.batch_size // world.size)
    if graphs is not None:
        announcer.progress(f"{len(model.blocks)} blocks captured as CUDA graphs")
    decayed = decayed_names(model)
    plan = MODES[config.parallel.mode](model, config, world)
    plan.announce_to(announcer.progress)
    optimizer = make_optimizer(plan.module, config.train, decayed)
    rows = tuple(resolution.row() for resolution in resolutions)
    run = Run(
        config=config,
        world=world,
        announcer=announcer,
        plan=plan,
        state=LiveState(model, plan.module, optimizer, progress, watch=None if graphs is None else graphs.watch),
        loader=Loader(config, world),
        held_out=held_out(config, world) if config.train.eval_every else None,
        stop_asked=stop_asked,
        kernels=rows,
        n_parameters=n_parameters,
        census=Census(config.train.census, announcer.progress),
        arrivals=arrivals,
        graphs=graphs,
    )
    run.prepare_folder()
    for probe in announcer.probes:
        probe.resolved(rows)
        probe.built(run.state)
    return run


def _with_device(config: RunConfig) -> RunConfig:
    """``config`` with the device that ``auto`` stands for here."""
    if config.train.device != "auto":
        return config
    return config.with_value("train.device", "cuda" if torch.cuda.is_available() else "cpu")
