"""The environment, read in one place: nsa-vibe's NSA_* switches as changes of the configuration.

nsa-vibe, the system of the original incident reports, was steered by 145 environment variables; 40 documented
ones were read by no code, and a misspelt one changed nothing. Here a name that is not known is an error with a
suggestion, one without a counterpart is an error that says what to use instead, and two that disagree are an
error. Names that begin with ``NSA_HARNESS_`` belong to the instrument and are ignored; an empty value counts
as unset.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsa.config import RunConfig, Value, suggestion
from nsa.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

SAFE_MODE: dict[str, Value] = {
    "parallel.find_unused_parameters": True,
    "parallel.broadcast_buffers": False,
    "parallel.gradient_as_bucket_view": False,
    "parallel.bucket_cap_mb": 2,
    "kernels.sdpa": "no-flash",
    "kernels.compressed": "masked",
    "kernels.window": "sdpa",
    "kernels.selected": "packed",
}
"""What NSA_DDP_SAFE_MODE stood for: four arguments of DDP, and NSA_SDPA_NO_FLASH=1, NSA_USE_FA2{,_CMP,_WIN}=0,
NSA_USE_TRITON_SEL=0, NSA_USE_SEL_PACK=1. Without flash attention a CPU has only ``masked`` for the cmp branch."""

SWITCHES: dict[str, dict[str, dict[str, Value]]] = {
    "NSA_DDP_SAFE_MODE": {"1": SAFE_MODE, "0": {}},
    "NSA_DDP_FIND_UNUSED": {
        "1": {"parallel.find_unused_parameters": True},
        "0": {"parallel.find_unused_parameters": False},
    },
    "NSA_DDP_STATIC_GRAPH": {"1": {"parallel.static_graph": True}, "0": {"parallel.static_graph": False}},
    "NSA_DDP_BROADCAST_BUFFERS": {
        "1": {"parallel.broadcast_buffers": True},
        "0": {"parallel.broadcast_buffers": False},
    },
    "NSA_DDP_GRAD_AS_BUCKET_VIEW": {
        "1": {"parallel.gradient_as_bucket_view": True},
        "0": {"parallel.gradient_as_bucket_view": False},
    },
    "NSA_DDP_COMPRESS": {"bf16": {"parallel.compress": "bf16"}, "0": {"parallel.compress": "none"}},
    "NSA_ALLOW_SINGLE_RANK": {"1": {"parallel.allow_single": True}, "0": {"parallel.allow_single": False}},
    "NSA_GC_REENTRANT": {"1": {"train.checkpointing": "reentrant"}, "0": {}},
    "NSA_USE_FA2": {"1": {"kernels.compressed": "flash-attn", "kernels.window": "flash-attn"}, "0": {}},
    "NSA_USE_FA2_CMP": {"1": {"kernels.compressed": "flash-attn"}, "0": {"kernels.compressed": "packed"}},
    "NSA_USE_FA2_WIN": {"1": {"kernels.window": "flash-attn"}, "0": {"kernels.window": "sdpa"}},
    "NSA_USE_TRITON_SEL": {"1": {"kernels.selected": "triton"}, "0": {}},
    "NSA_USE_SEL_PACK": {"1": {"kernels.selected": "packed"}, "0": {}},
    "NSA_USE_SEL_MASK": {"1": {"kernels.selected": "masked"}, "0": {}},
    "NSA_FORCE_SEL_MASK": {"1": {"kernels.selected": "masked"}, "0": {}},
    "NSA_USE_CMP_MASK": {"1": {"kernels.compressed": "masked"}, "0": {}},
    "NSA_USE_WIN_MASK": {"1": {"kernels.window": "masked"}, "0": {}},
    "NSA_FORCE_PARITY": {"1": {"kernels.selected": "gather"}, "0": {}},
    "NSA_SDPA_NO_FLASH": {"1": {"kernels.sdpa": "no-flash"}, "0": {}},
    "NSA_SDPA_FLASH_ONLY": {"1": {"kernels.sdpa": "flash-only"}, "0": {}},
    "NSA_FORCE_BRANCH": {
        "cmp": {"model.gate": "cmp"},
        "sel": {"model.gate": "slc"},
        "slc": {"model.gate": "slc"},
        "win": {"model.gate": "win"},
    },
    "NSA_FORCE_UNIFORM_GATE": {"1": {"model.gate": "uniform"}, "0": {}},
    "NSA_STOPGRAD_GATES": {"1": {"model.gate_grad": False}, "0": {}},
    "NSA_PREFILL_BATCHED": {"1": {"model.attention": "nsa"}, "0": {"model.attention": "legacy-sequential"}},
    "NSA_NO_GC": {"1": {"train.checkpointing": "none"}, "0": {"train.checkpointing": "nonreentrant"}},
    "NSA_TOKENIZER": {"byte": {"train.tokenizer": "byte"}, "gpt2": {"train.tokenizer": "gpt2"}},
    "NSA_TRACE_GRADS": {"1": {"train.trace_grads": True}, "0": {}},
    "NSA_TRACE_MODULE_BWD": {"1": {"train.trace_modules": True}, "0": {}},
    "NSA_TRACE_DDP_BUCKETS": {"1": {"train.trace_buckets": True}, "0": {}},
    "NSA_TB_DISABLE": {"1": {"train.tensorboard": False}, "0": {}},
    "NSA_DETECT_ANOMALY": {"1": {"train.detect_anomaly": True}, "0": {}},
}
"""Switch, the values it takes, and what each value changes."""

NUMBERS: dict[str, str] = {
    "NSA_SEQ_LEN": "train.seq_len",
    "NSA_BATCH_SIZE": "train.batch_size",
    "NSA_LR": "train.lr",
    "NSA_ROPE_SCALE": "model.rope_scale",
    "NSA_ACCUM": "train.accumulate",
    "NSA_FWE_PREFETCH": "train.prefetch",
    "NSA_MEM_DUMP_EVERY": "train.mem_every",
    "NSA_DDP_BUCKET_MB": "parallel.bucket_cap_mb",
}
"""Variables whose value is the value of one setting, a number."""

TEXTS: dict[str, str] = {"NSA_GC_RANGE": "train.checkpoint_layers"}
"""Variables whose value is the value of one setting, a text."""

REFINES: dict[str, str] = {"NSA_USE_FA2_CMP": "NSA_USE_FA2", "NSA_USE_FA2_WIN": "NSA_USE_FA2"}
"""A narrow switch wins over the broad one it refines."""

WITHOUT_COUNTERPART: dict[str, str] = {
    "NSA_PREFILL_TILE": "prefill has one path; feed a cache in chunks to tile it",
    "NSA_SEL_": "choose the selected branch's kernel with kernels.selected",
    "NSA_USE_SEL_VARLEN": "set train.documents to keep packed documents apart",
    "NSA_TRITON_SEL_FORCE": "set kernels.selected = 'triton'; under kernels.policy = 'exact' it runs or raises",
    "NSA_FA2_": "set kernels.window or kernels.compressed to 'flash-attn'; it runs or says why it cannot",
    "NSA_ALLOW_SLIDING_FA2": "set kernels.window = 'flash-attn'",
    "NSA_WIN_FORCE_DENSE": "set kernels.window",
    "NSA_DDP_DISABLE_GC": "set train.checkpointing; no mode turns it off behind your back",
    "NSA_DDP_SAFE_GC_LAYERS": "set train.checkpoint_layers",
    "NSA_DDP_": "DDP's switches are settings of the section parallel",
    "NSA_FSDP_": "set parallel.mode = 'fsdp' or 'fsdp1'; every decoder block is sharded fully",
    "NSA_PG_TIMEOUT_MIN": "set parallel.timeout_s, in seconds",
    "NSA_GC_": "set train.checkpointing and train.checkpoint_layers",
    "NSA_HEARTBEAT_EVERY": "every phase of every step has its heartbeats; train.liveness_s is for those between",
    "NSA_TRACE_": "set train.trace_grads, train.trace_modules or train.trace_buckets",
    "NSA_WATCH_": "stalls are watched from outside, by the harness",
    "NSA_DEBUG_": "phases and kernels are announced to probes",
    "NSA_LOG_": "facts of every step are announced to probes",
    "NSA_FWE_": "a stream has train.prefetch, train.shards and train.loader_timeout_s",
    "NSA_ENV_STATIC": "the environment is read once, when the configuration is built",
}
"""Names, or beginnings of names, of nsa-vibe that steer nothing here, and what does instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvChange:
    """One setting that an environment variable changes."""

    name: str
    text: str
    path: str
    value: Value


def read_environment(environ: Mapping[str, str] | None = None) -> tuple[EnvChange, ...]:
    """What the NSA_* variables ask for, in the order of the tables.

    Args:
        environ: variables to read; the process's own if None.

    Raises:
        ConfigError: an unknown name, a value that its switch does not take, or two that disagree.
    """
    source = os.environ if environ is None else environ
    mine = {k: v for k, v in source.items() if k.startswith("NSA_") and not k.startswith("NSA_HARNESS_") and v}
    for name in mine:
        if name not in SWITCHES and name not in NUMBERS and name not in TEXTS:
            raise _unknown(name)
    changes: dict[str, EnvChange] = {}
    for name in (*SWITCHES, *NUMBERS, *TEXTS):
        for change in _changes_of(name, mine[name]) if name in mine else ():
            earlier = changes.get(change.path)
            if earlier is not None and earlier.value != change.value and REFINES.get(name) != earlier.name:
                raise ConfigError(
                    f"{earlier.name}={earlier.text} and {name}={change.text} disagree about {change.path} "
                    f"({earlier.value!r} or {change.value!r}); unset one"
                )
            changes[change.path] = change
    return tuple(changes.values())


RELATED = ("NSA_", "NCCL_", "TORCH_", "PYTORCH_", "CUDA_", "OMP_", "GLOO_")
"""Beginnings of the variables that can change what a run does."""


def related(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that can change what a run does, its own and its libraries', for the record."""
    source = os.environ if environ is None else environ
    launch = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    return {k: v for k, v in sorted(source.items()) if k.startswith(RELATED) or k in launch}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Which of several processes this one is, as torchrun tells it."""

    rank: int
    world_size: int
    local_rank: int


def read_launch(environ: Mapping[str, str] | None = None) -> Launch | None:
    """This process's place among those that torchrun started; None when it was started alone.

    Raises:
        ConfigError: torchrun's variables are incomplete or no numbers.
    """
    source = os.environ if environ is None else environ
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if not any(name in source for name in names[:2]):
        return None
    numbers = [source.get(name, "") for name in names]
    if not all(number.isdecimal() for number in numbers):
        found = ", ".join(f"{name}={number or '(unset)'}" for name, number in zip(names, numbers, strict=True))
        raise ConfigError(f"incomplete launch: {found}; start with torchrun, or unset all three")
    rank, world_size, local_rank = map(int, numbers)
    return Launch(rank=rank, world_size=world_size, local_rank=local_rank)


def _changes_of(name: str, text: str) -> list[EnvChange]:
    path = NUMBERS.get(name) or TEXTS.get(name)
    if path is not None:
        return [EnvChange(name=name, text=text, path=path, value=RunConfig.path(path).parsed(text))]
    word = {"true": "1", "false": "0"}.get(text.strip().lower(), text.strip().lower())
    if word not in SWITCHES[name]:
        raise ConfigError(f"{name}={text!r} is not understood; use one of {', '.join(SWITCHES[name])}")
    return [EnvChange(name=name, text=text, path=p, value=v) for p, v in SWITCHES[name][word].items()]


def _unknown(name: str) -> ConfigError:
    for beginning, instead in WITHOUT_COUNTERPART.items():
        if name == beginning or (beginning.endswith("_") and name.startswith(beginning)):
            return ConfigError(f"{name} steers nothing here: {instead}. Unset it")
    return ConfigError(f"unknown variable {name}; {suggestion(name, [*SWITCHES, *NUMBERS, *TEXTS])}")
