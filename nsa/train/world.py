"""The processes that train together: who this one is, what they may use, and how they join and part."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from nsa.env import read_launch
from nsa.errors import ConfigError, RankLost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nsa.config import RunConfig


NCCL_LATER_S = 60.0
"""How much later than the votes NCCL may give up a rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """This process among those that train together.

    Attributes:
        rank: number of this process, from 0.
        size: how many there are.
        votes: a gloo group over all of them for decisions, so that none needs the GPU; None when alone.
    """

    rank: int = 0
    size: int = 1
    votes: dist.ProcessGroup | None = None

    @property
    def is_parallel(self) -> bool:
        """Whether there is anybody to agree with."""
        return self.size > 1


@contextmanager
def joined(config: RunConfig) -> Iterator[World]:
    """Join the other processes for the length of the block; a group that exists already is used and left alone.

    Raises:
        ConfigError: the launch, the devices or the batch do not fit ``config.parallel``.
    """
    if dist.is_available() and dist.is_initialized():
        rank, size = dist.get_rank(), dist.get_world_size()
        check(config, size=size)
        yield _world(config, rank, size) if config.parallel.mode != "single" else World()
        return
    launch = read_launch()
    rank, size, local_rank = (launch.rank, launch.world_size, launch.local_rank) if launch else (0, 1, 0)
    check(config, size=size)
    if config.parallel.mode == "single":
        yield World()
        return
    backend = backend_of(config)
    device = _take_gpu(local_rank) if config.train.device == "cuda" else None
    how: dict[str, Any] = {} if launch else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    timeout_s = config.parallel.timeout_s
    if backend == "nccl":
        # With its device NCCL connects at once: a rank that cannot is found here, not in the first backward. NCCL's own
        # watchdog ends the process without saying who is missing, so the votes, which say it, come first.
        how["device_id"] = device
        timeout_s += NCCL_LATER_S
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s), **how)
    try:
        yield _world(config, rank, size)
    except RankLost:
        if backend == "nccl":
            # Leaving in good order would wait for the lost rank.
            dist.distributed_c10d._abort_process_group()
        raise
    finally:
        if dist.is_initialized():
            # Without this, a rank that leaves first can hold the others at the interpreter's end.
            dist.destroy_process_group()


def check_device(config: RunConfig) -> None:
    """Whether there is a GPU where one is asked for; before anything is built or written.

    Raises:
        ConfigError: ``train.device = 'cuda'`` and torch sees no GPU.
    """
    if config.train.device == "cuda" and not torch.cuda.is_available():
        built = "" if torch.backends.cuda.is_built() else ", and this torch was built without CUDA"
        raise ConfigError(
            f"train.device = 'cuda', but torch sees no GPU here{built}; use a machine with one, or set "
            "train.device = 'cpu' or 'auto'"
        )


def check(config: RunConfig, *, size: int) -> None:
    """Whether ``size`` processes can run ``config``.

    Raises:
        ConfigError: another number than ``parallel.world``, several processes for mode ``single``, one for a
            parallel mode, or a batch that cannot be dealt out evenly.
    """
    mode, batch_size, wanted = config.parallel.mode, config.train.batch_size, config.parallel.world
    if wanted not in (0, size):
        raise ConfigError(
            f"parallel.world = {wanted}, but {size} processes were started; start torchrun with "
            f"--nproc_per_node={wanted}, or leave parallel.world = 0"
        )
    if mode == "single":
        if size > 1 and not dist.is_initialized():
            raise ConfigError(
                f"{size} processes were started with parallel.mode = 'single': each would train alone. "
                "Set parallel.mode = 'ddp', or start one process"
            )
        return
    if size == 1 and not config.parallel.allow_single:
        raise ConfigError(
            f"parallel.mode = {mode!r} in one process; start it with torchrun --nproc_per_node=2 -m nsa.train, set "
            "parallel.mode = 'single', or parallel.allow_single = true if one process is meant"
        )
    if batch_size < size:
        raise ConfigError(
            f"train.batch_size = {batch_size} is less than the {size} processes: some would have no sequence. "
            f"Use {size} or more"
        )
    if batch_size % size:
        raise ConfigError(
            f"train.batch_size = {batch_size} cannot be dealt out evenly to {size} processes: the average of their "
            f"gradients would not be the batch's. Use a multiple of {size}"
        )


def backend_of(config: RunConfig) -> str:
    """What the gradients travel by: ``parallel.backend``, or nccl for a GPU and gloo for a CPU.

    Raises:
        ConfigError: nccl for a CPU, or a torch without nccl.
    """
    on_gpu, backend = config.train.device == "cuda", config.parallel.backend
    if backend == "auto":
        backend = "nccl" if on_gpu else "gloo"
    if backend == "nccl" and not on_gpu:
        raise ConfigError("parallel.backend = 'nccl' moves GPU memory only; use gloo with train.device = 'cpu'")
    if backend == "nccl" and not dist.is_nccl_available():
        raise ConfigError("parallel.backend = 'nccl' but this torch was built without NCCL; use gloo")
    return backend


def _take_gpu(local_rank: int) -> torch.device:
    """Make the GPU of this process's number on its host the current one."""
    n_gpus = torch.cuda.device_count()
    if local_rank >= n_gpus:
        raise ConfigError(
            f"process {local_rank} of this host has no GPU of its own: {n_gpus} are visible; "
            f"start {n_gpus or 'no'} processes, or set train.device = 'cpu'"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def _world(config: RunConfig, rank: int, size: int) -> World:
    timeout = timedelta(seconds=config.parallel.timeout_s)
    votes = dist.new_group(backend="gloo", timeout=timeout) if size > 1 else None
    assert not isinstance(votes, int), "this rank belongs to the group of all ranks"
    return World(rank=rank, size=size, votes=votes)
