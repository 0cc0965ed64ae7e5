"""How gradients of several processes become one: a row of MODES per ``parallel.mode``.

A plan wraps the model once and is then asked at the same four places in every mode: around each micro-batch, after
the last backward, for the gradient norm, and for the module that saves and loads.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from nsa.errors import ConfigError
from nsa.model.transformer import Block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from nsa.config import RunConfig
    from nsa.model.transformer import Decoder
    from nsa.train.world import World


class Single:
    """One process; also what the other plans have in common."""

    reduces = False
    """Whether ``reduce`` has work to do after backward."""

    def __init__(self, model: Decoder, config: RunConfig, world: World) -> None:
        self.config, self.world = config, world
        self.module: nn.Module = self.wrap(model)

    def wrap(self, model: Decoder) -> nn.Module:
        """The module to call forward on."""
        return model

    @property
    def for_evaluation(self) -> nn.Module:
        """The module to call forward on when no gradients follow."""
        return self.module

    def micro_batch(self, *, is_last: bool) -> AbstractContextManager[object]:
        """Around forward and backward of a micro-batch; gradients meet in the last one's backward."""
        return nullcontext()

    def announce_to(self, announce: Callable[[str], None]) -> None:
        """Tell ``announce`` of every part of the gradients that is averaged, where ``train.trace_buckets`` asks so."""

    def reduce(self) -> None:
        """Average what backward has left apart."""

    def clip(self, limit: float) -> Tensor:
        """Scale gradients down to ``limit`` and give their norm before, on the device; the same on all ranks."""
        return nn.utils.clip_grad_norm_(self.module.parameters(), limit)

    def close(self) -> None:
        """Let go, after the last step, of what must not outlive the process group."""


class Ddp(Single):
    """Every rank has the whole model; gradients are averaged bucket by bucket during backward."""

    def wrap(self, model: Decoder) -> nn.Module:
        """DistributedDataParallel with the switches of ``config.parallel``."""
        parallel = self.config.parallel
        if parallel.compress == "bf16" and dist.get_backend() != "nccl":
            raise ConfigError(
                f"parallel.compress = 'bf16' needs NCCL, and gradients travel by {dist.get_backend()}; use none"
            )
        ids = [torch.cuda.current_device()] if self.config.train.device == "cuda" else None
        # Named only where it is turned off: torch is renaming it, and warns whoever says it.
        buffers: dict[str, Any] = {} if parallel.broadcast_buffers else {"broadcast_buffers": False}
        return nn.parallel.DistributedDataParallel(
            model,
            device_ids=ids,
            find_unused_parameters=parallel.find_unused_parameters,
            static_graph=parallel.static_graph,
            **buffers,
            gradient_as_bucket_view=parallel.gradient_as_bucket_view,
            bucket_cap_mb=parallel.bucket_cap_mb,
        )

    def close(self) -> None:
        """Let go of the reducer and the process group while the group still exists.

        Both hold it. Released as the last one, after ``destroy_process_group``, the reducer would end the group's
        threads with the interpreter's lock in hand, and one of them may be waiting for that lock: one gloo job in a
        dozen did not end on two busy cores (torch 2.13), in ``~ProcessGroupGloo`` below ``~Reducer``. A thread that
        outlives the interpreter may abort the process instead.
        """
        for name in ("reducer", "logger", "process_group"):
            vars(self.module).pop(name, None)

    def announce_to(self, announce: Callable[[str], None]) -> None:
        """Register how buckets are averaged: compressed, announced, or as DDP does it by itself."""
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook

        compresses = self.config.parallel.compress == "bf16"
        average = bf16_compress_hook if compresses else allreduce_hook  # both divide by the number of ranks
        hook = _announced(announce, average) if self.config.train.trace_buckets else average
        if compresses or self.config.train.trace_buckets:
            self.module.register_comm_hook(dist.group.WORLD, hook)  # pyrefly: ignore[not-callable] - DDP's

    @property
    def for_evaluation(self) -> nn.Module:
        """The model inside: the wrapper would get ready for gradients."""
        return self.module.module  # pyrefly: ignore[bad-return] - DDP's model

    def micro_batch(self, *, is_last: bool) -> AbstractContextManager[object]:
        """Keep gradients local until the last micro-batch."""
        return nullcontext() if is_last else self.module.no_sync()  # pyrefly: ignore[not-callable] - DDP's


def _announced(announce: Callable[[str], None], average: Callable[..., Any]) -> Callable[..., Any]:
    """``bucket 0 of the gradients: 3 parameters, 40960 elements of torch.float32``, then its average over ranks."""

    # torch compares annotations with its own class, and here they are strings.
    def hook(group, bucket):  # noqa: ANN001, ANN202
        buffer, n_parameters = bucket.buffer(), len(bucket.parameters())
        what = f"{n_parameters} parameters, {buffer.numel()} elements of {buffer.dtype}"
        announce(f"bucket {bucket.index()} of the gradients: {what}{', the last' if bucket.is_last() else ''}")
        return average(group, bucket)

    return hook


class Manual(Single):
    """Every rank has the whole model; gradients are averaged after backward, in sight: the control for DDP."""

    reduces = True

    def wrap(self, model: Decoder) -> nn.Module:
        """The model itself, with rank 0's weights everywhere."""
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor, src=0)
        return model

    def reduce(self) -> None:
        """Average gradients by one all-reduce per type; a parameter without one counts as zero."""
        grads: dict[torch.dtype, list[Tensor]] = {}
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                grads.setdefault(parameter.grad.dtype, []).append(parameter.grad)
        for same_type in grads.values():
            flat = torch.cat([grad.flatten() for grad in same_type])
            dist.all_reduce(flat)
            flat /= self.world.size
            for grad, part in zip(same_type, flat.split([g.numel() for g in same_type]), strict=True):
                grad.copy_(part.view_as(grad))


class Fsdp(Single):
    """Each rank keeps a part of every parameter (``fully_shard``); blocks are gathered one at a time."""

    def wrap(self, model: Decoder) -> nn.Module:
        """Shard every block, then the rest."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.mesh = init_device_mesh(self.config.train.device, (self.world.size,))
        for block in model.blocks:
            fully_shard(block, mesh=self.mesh)
        fully_shard(model, mesh=self.mesh)
        return model

    def close(self) -> None:
        """Let go of the process group while it exists.

        DTensor's caches keep the mesh, and the mesh the group, until the interpreter ends, where a thread of the group
        may abort the process. The modules hold it in a ring that is collected as late.
        """
        from torch.distributed.fsdp import FSDPModule

        vars(self.mesh).get("_pg_registry", {}).clear()
        for module in self.module.modules():
            if isinstance(module, FSDPModule):
                # A private name: where another torch has it no more, the group lives on, as it would without this.
                group = getattr(module._get_fsdp_state(), "_fsdp_param_group", None)
                if group is not None:
                    vars(group.mesh_info).pop("shard_process_group", None)

    @contextmanager
    def micro_batch(self, *, is_last: bool) -> Iterator[None]:
        """Keep gradients unreduced until the last micro-batch."""
        self.module.set_requires_gradient_sync(is_last)  # pyrefly: ignore[not-callable] - FSDPModule's
        yield

    def clip(self, limit: float) -> Tensor:
        """Over all ranks' parts: the norm comes as a tensor that is spread over them."""
        norm = nn.utils.clip_grad_norm_(self.module.parameters(), limit)
        return norm.full_tensor()  # pyrefly: ignore[missing-attribute] - a DTensor


class Fsdp1(Single):
    """The older wrapper, FullyShardedDataParallel, which the original reports used."""

    def wrap(self, model: Decoder) -> nn.Module:
        """Wrap every block and the whole; parameters keep their names."""
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        on_gpu = self.config.train.device == "cuda"
        device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        policy = ModuleWrapPolicy({Block})
        return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=device, use_orig_params=True)

    def close(self) -> None:
        """Let go of the process group while it exists; the modules hold it in a ring that is collected too late."""
        from torch.distributed.fsdp import FullyShardedDataParallel

        for module in FullyShardedDataParallel.fsdp_modules(self.module):
            for holder in (module, *(getattr(module, name, None) for name in ("_handle", "_exec_order_data"))):
                if holder is not None:
                    vars(holder).pop("process_group", None)

    def micro_batch(self, *, is_last: bool) -> AbstractContextManager[object]:
        """Keep gradients whole and local until the last micro-batch."""
        return nullcontext() if is_last else self.module.no_sync()  # pyrefly: ignore[not-callable] - FSDP's

    def clip(self, limit: float) -> Tensor:
        """As FSDP does it: the norm is over all ranks' parts."""
        return self.module.clip_grad_norm_(limit)  # pyrefly: ignore[not-callable] - FSDP's


MODES: dict[str, Callable[[Any, Any, Any], Single]] = {
    "single": Single,
    "ddp": Ddp,
    "manual": Manual,
    "fsdp": Fsdp,
    "fsdp1": Fsdp1,
}


def clean_name(name: str) -> str:
    """A parameter's name as the unwrapped model calls it."""
    return name.replace("_fsdp_wrapped_module.", "").removeprefix("module.")
