"""Checkpoints: model, optimizer, loss scale, random state and position, written whole or not at all.

A checkpoint is a folder ``step_00000500`` under ``checkpoints/``. It is written under another name, forced to the
disk and renamed when every rank has written its part: a folder that has its name is complete, whenever the process
was killed. It is read by any number of ranks, in any parallel mode (torch.distributed.checkpoint). Data need no
state of their own where the sequences of a step follow from seed and step; of a stream, every part's position is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from nsa.config import RunConfig
from nsa.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from torch import nn

    from nsa.train.world import World

_PREFIX = "step_"
_UNFINISHED = "unfinished_"
_CONFIG = "config.json"


class Checkpoints:
    """The checkpoints of one run, under ``<out_dir>/checkpoints``."""

    def __init__(self, out_dir: Path, world: World) -> None:
        self.folder, self.world = out_dir / "checkpoints", world

    def newest(self) -> tuple[int, Path] | None:
        """The number of steps done and the folder of the newest complete checkpoint."""
        return newest(self.folder)

    def clean(self) -> None:
        """Remove what a killed run has left unfinished; one rank calls it, before any saves."""
        for part in self.folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(part, ignore_errors=True)

    def save(
        self,
        n_steps: int,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        extra: dict[str, Any],
        config: RunConfig,
    ) -> Path:
        """Write everything after ``n_steps`` steps; all ranks call it together.

        Args:
            n_steps: steps done.
            module: the wrapped model.
            optimizer: its optimizer.
            extra: what else to keep, JSON-like values and tensors; the same keys on every rank.
            config: the run's configuration, for who reads the model without the run.

        Returns:
            The finished folder.
        """
        from torch.distributed.checkpoint.state_dict_saver import save

        final = self.folder / f"{_PREFIX}{n_steps:08d}"
        part = self.folder / f"{_UNFINISHED}{n_steps:08d}"
        if self.world.rank == 0:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
        self._meet()
        state = self._state(module, optimizer, extra)
        with _alone_is_meant():
            save(state, checkpoint_id=part, no_dist=not self.world.is_parallel)
        self._meet()
        if self.world.rank == 0:
            (part / _CONFIG).write_text(config.to_json(), encoding="utf-8")
            _force_to_disk(part)
            if final.exists():
                shutil.rmtree(final)
            part.rename(final)
            _force_to_disk(self.folder)
        self._meet()
        return final

    def load(
        self, folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, *, extra: dict[str, Any]
    ) -> dict[str, Any]:
        """Put a checkpoint into the model and the optimizer; returns ``extra`` with what was saved.

        A random state that another number of ranks has saved is not there for every rank; such a rank keeps its own.

        Raises:
            ConfigError: the checkpoint is of another model.
        """
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
        from torch.distributed.checkpoint.state_dict import set_state_dict
        from torch.distributed.checkpoint.state_dict_loader import load

        state = self._state(module, optimizer, extra)
        planner = DefaultLoadPlanner(allow_partial_load=self._has_other_ranks(folder))
        try:
            with _alone_is_meant():
                load(state, checkpoint_id=folder, no_dist=not self.world.is_parallel, planner=planner)
        except (RuntimeError, ValueError, CheckpointException) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ConfigError(f"{folder} does not fit this model: {reason}") from error
        set_state_dict(module, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        random = state["random"][str(self.world.rank)]
        torch.set_rng_state(random["cpu"].cpu())
        if "cuda" in random:
            torch.cuda.set_rng_state(random["cuda"].cpu())
        return state["extra"]

    def _state(self, module: nn.Module, optimizer: torch.optim.Optimizer, extra: dict[str, Any]) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model_state, optimizer_state = get_state_dict(module, optimizer)
        random = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            random["cuda"] = torch.cuda.get_rng_state()
        return {
            "model": model_state,
            "optimizer": optimizer_state,
            "random": {str(self.world.rank): random},
            "extra": {**extra, "n_ranks": self.world.size},
        }

    def data_parts(self, folder: Path) -> tuple[str, ...]:
        """The numbers of the parts of a stream whose positions were saved."""
        begin = "extra.data."
        return tuple(sorted(key.removeprefix(begin) for key in _keys(folder) if key.startswith(begin)))

    def _has_other_ranks(self, folder: Path) -> bool:
        """Whether the checkpoint lacks a random state for this rank."""
        return f"random.{self.world.rank}.cpu" not in _keys(folder)

    def _meet(self) -> None:
        if self.world.votes is not None:
            dist.barrier(self.world.votes)


def newest(folder: Path, n_steps: int | None = None) -> tuple[int, Path] | None:
    """The steps done and the folder of the newest complete checkpoint, or of that after ``n_steps``; None without."""
    found = [(int(p.name.removeprefix(_PREFIX)), p) for p in folder.glob(f"{_PREFIX}[0-9]*")]
    return max((pair for pair in found if n_steps in (None, pair[0])), default=None)


def configuration_of(folder: Path) -> RunConfig:
    """The configuration of the run that wrote a checkpoint; of one without it, what the run's folder says.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    beside, of_run = folder / _CONFIG, folder.parent.parent / "env.json"
    try:
        if beside.exists():
            return RunConfig.from_json(beside.read_text(encoding="utf-8"))
        return RunConfig.from_mapping(json.loads(of_run.read_text(encoding="utf-8"))["config"])
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"no configuration in {beside} or {of_run} ({error}); a run writes both") from error


def load_model(folder: Path, module: nn.Module) -> None:
    """Put a checkpoint's weights into a model, whatever mode and number of ranks has written them.

    Raises:
        ConfigError: the checkpoint is of another model.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_loader import load

    state = {"model": module.state_dict()}  # which is filled in place
    try:
        with _alone_is_meant():
            load(state, checkpoint_id=folder, no_dist=True)
    except (RuntimeError, ValueError, CheckpointException) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{folder} does not fit its configuration: {reason}") from error


def _keys(folder: Path) -> Iterable[str]:
    """The names of what a checkpoint holds."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader

    return FileSystemReader(folder).read_metadata().state_dict_metadata


@contextmanager
def _alone_is_meant() -> Iterator[None]:
    """Without torch's warning that a single process is a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield


def _force_to_disk(folder: Path) -> None:
    """Every file of the folder and its list of names, past the caches of the operating system."""
    for path in (*folder.iterdir(), folder):
        if path.is_dir() and path != folder:
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
