"""What the ranks do in the tests of this folder."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from nsa.config import RunConfig
from nsa.model.build import build_model
from nsa.train import checkpoint, votes
from nsa.train.data import batches
from nsa.train.effective import effective
from nsa.train.parallel import clean_name
from nsa.train.probe import Edge, NullProbe, Phase
from nsa.train.trainer import train

SMALL = {
    "model.n_layers": 3,
    "model.dim": 32,
    "model.n_heads": 4,
    "model.n_kv_groups": 2,
    "model.d_k": 8,
    "model.d_v": 8,
    "train.seq_len": 96,
    "train.batch_size": 4,
    "train.steps": 2,
    "train.lr": 1e-4,
}
"""Small, but with more selection blocks than are selected, and a text longer than the window.

The gates start at zero and need a step before all parameters have a gradient. The steps are small because AdamW's
first is the gradient's sign: where that is rounding alone, runs part by the learning rate."""


class Gradients(NullProbe):
    """Every parameter's whole gradient, as it is when the optimizer begins."""

    def __init__(self):
        self.steps: list[dict[str, Any]] = []

    def built(self, state: Any) -> None:
        self.state = state

    def mark(self, *, phase, edge, step, detail=None):
        if (phase, edge) == (Phase.OPTIM, Edge.BEGIN):
            with whole_gradients(self.state.module):
                self.steps.append({clean_name(n): _array(p.grad) for n, p in self.state.module.named_parameters()})


def whole_gradients(module: torch.nn.Module) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp1

    return Fsdp1.summon_full_params(module, with_grads=True) if isinstance(module, Fsdp1) else nullcontext()


def _array(grad: Any) -> Any:
    if grad is None:
        return None
    whole = grad.full_tensor() if hasattr(grad, "full_tensor") else grad
    return whole.detach().double().numpy().copy()


def gradients(rank: int, changes: dict[str, Any]) -> tuple[tuple[float, ...], list[dict[str, Any]]]:
    """The losses and gradients of a whole run."""
    probe = Gradients()
    result = train(RunConfig().with_values({**SMALL, **changes}), [probe])
    return result.losses, probe.steps


class Weights(NullProbe):
    """The weights at the beginning of a run."""

    def built(self, state: Any) -> None:
        self.weights = {name: p.detach().double() for name, p in state.model.named_parameters()}


def double_precision(changes: dict[str, Any]) -> tuple[tuple[float, ...], list[dict[str, Any]]]:
    """Loss and gradients of a run's first step in fp64, by a loop that shares the model alone with the trainer."""
    config, probe = RunConfig().with_values({**SMALL, **changes}), Weights()
    first = train(config, [probe]).first_step
    model = build_model(config)[0].double()
    model.load_state_dict(probe.weights)
    (ids_BT,) = batches(config)(first)
    loss = torch.nn.functional.cross_entropy(model(ids_BT[:, :-1]).flatten(0, 1), ids_BT[:, 1:].flatten())
    loss.backward()
    return (loss.item(),), [{name: _array(p.grad) for name, p in model.named_parameters()}]


def message(rank: int, changes: dict[str, Any]) -> str:
    """What the run's error says."""
    try:
        train(RunConfig().with_values({**SMALL, **changes}))
    except Exception as error:  # noqa: BLE001 - what it is, is the answer
        return f"{type(error).__name__}: {error}"
    return "no error"


def run(rank: int, changes: dict[str, Any]) -> tuple[int, tuple[float, ...], str]:
    """Where a run began, its losses, and how it ended."""
    result = train(RunConfig().with_values({**SMALL, **changes}))
    return result.first_step, result.losses, result.ended


def killed_at_the_end_of_a_save(folder: str, n_steps: int, changes: dict[str, Any]) -> None:
    """Train and die by SIGKILL when the checkpoint after ``n_steps`` is written and has not got its name."""
    original = checkpoint._force_to_disk

    def die(path: Path) -> None:
        if path.name == f"unfinished_{n_steps:08d}":
            os.kill(os.getpid(), signal.SIGKILL)
        original(path)

    checkpoint._force_to_disk = die
    run(0, {"train.out_dir": folder, "train.save_every": 1, **changes})


def rank_1_killed_while_saving(rank: int, n_steps: int, changes: dict[str, Any]) -> str:
    """Rank 1 dies by SIGKILL while it writes its part of the checkpoint after ``n_steps``; how rank 0 ends."""
    from torch.distributed.checkpoint.filesystem import FileSystemWriter

    original, count = FileSystemWriter.write_data, iter(range(1, 100))

    def die(self: Any, *args: Any) -> Any:
        if (rank, next(count)) == (1, n_steps):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *args)

    FileSystemWriter.write_data = die
    return message(rank, {**changes, "train.save_every": 1})


def one_rank_wishes(rank: int, changes: dict[str, Any], who: int, at_step: int, wish: str) -> str:
    """Run where one rank alone sees a bad loss, a signal or the end of its data; how the run ends on each rank."""
    seen = {"step": 0}

    class Fault(NullProbe):
        def built(self, state):
            self.state = state

        def mark(self, *, phase, edge, step, detail=None):
            seen["step"] = step or 0
            if (phase, edge, step, rank, wish) == (Phase.DATA, Edge.BEGIN, at_step, who, "nan"):
                self.state.set_loss(lambda loss: loss * float("nan"))

            if (phase, edge, step, rank, wish) == (Phase.OPTIM, Edge.BEGIN, at_step - 1, who, "halt"):
                Path(changes["train.out_dir"], ".HALT").touch()

    def stop_asked() -> bool:
        return wish == "signal" and rank == who and seen["step"] == at_step

    config = RunConfig().with_values({**SMALL, "train.steps": 4, **changes})
    try:
        result = train(config, [Fault()], stop_asked=stop_asked)
    except Exception as error:  # noqa: BLE001 - what it is, is the answer
        return f"{type(error).__name__}: {error}"
    return f"{len(result.losses)} steps: {result.ended}"


def rank_1_fails(rank: int, how: str, at: str, timeout_s: float) -> str:
    """Rank 1 exits or is stopped when a phase of step 1 begins; how the run ends on rank 0.

    The limit becomes ``timeout_s`` only then: until both ranks are there, a busy machine may let one of them wait.
    """
    changes = {**SMALL, "train.steps": 4, "train.device": "cpu", "parallel.mode": "ddp"}
    config = RunConfig().with_values(changes)

    class Fault(NullProbe):
        def mark(self, *, phase, edge, step, detail=None):
            if (phase, edge, step) != (Phase(at), Edge.BEGIN, 1):
                return
            if rank == 0:
                object.__setattr__(config.parallel, "timeout_s", timeout_s)
                dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout_s))
                votes._ROLL_CALL_S = timeout_s
            elif how == "exit":
                os._exit(0)
            else:
                os.kill(os.getpid(), signal.SIGSTOP)

    try:
        train(config, [Fault()])
    except Exception as error:  # noqa: BLE001 - what it is, is the answer
        return f"{type(error).__name__}: {error}"
    return "no error"


class Details(NullProbe):
    """What was announced inside backward, step by step."""

    def __init__(self):
        self.steps: dict[int, list[str]] = {}

    def mark(self, *, phase, edge, step, detail=None):
        if phase == Phase.BACKWARD and detail is not None:
            self.steps.setdefault(step, []).append(detail)


def arrivals(rank: int, changes: dict[str, Any]) -> list[str]:
    """The gradients announced in the backward of step 1."""
    probe = Details()
    train(RunConfig().with_values({**SMALL, "train.trace_grads": True, **changes}), [probe])
    return [detail for detail in probe.steps[1] if detail.startswith("gradient")]


def announced(rank: int, changes: dict[str, Any]) -> list[str]:
    """What was announced in the backward of step 1."""
    probe = Details()
    train(RunConfig().with_values({**SMALL, **changes}), [probe])
    return probe.steps[1]


class Told(NullProbe):
    """Every step's facts, and what was announced while data were fetched."""

    def __init__(self):
        self.facts: list[dict[str, float]] = []
        self.announced: list[str] = []

    def mark(self, *, phase, edge, step, detail=None):
        if phase == Phase.DATA and detail is not None:
            self.announced.append(detail)

    def step_done(self, *, step, facts):
        self.facts.append(dict(facts))


def told(rank: int, changes: dict[str, Any]) -> dict[str, Any]:
    """What a run says of its data."""
    probe = Told()
    result = train(RunConfig().with_values({**SMALL, **changes}), [probe])
    synthetic = [facts.get("synthetic") for facts in probe.facts]
    return {
        "ended": result.ended,
        "losses": result.losses,
        "synthetic": synthetic,
        "announced": probe.announced,
        "val_loss": [facts.get("val_loss") for facts in probe.facts],
    }


def started(
    rank: int, environ: dict[str, str], config: str, overrides: list[str]
) -> tuple[str, tuple[float, ...], str]:
    """What a command line with these variables trains: the mode, the losses, and whose data were substituted."""
    built = effective(config, overrides=overrides, environ=environ)
    result = train(built.config)
    return built.config.parallel.mode, result.losses, result.ended.partition("instead of train.data")[1]


def compiled_gradients(rank: int, changes: dict[str, Any]) -> tuple[tuple[float, ...], list[dict[str, Any]]]:
    """The gradients of one step of compiled blocks; every one of them went through the compiler, as a whole."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    found = gradients(rank, {"train.steps": 1, "train.compile": "aot_eager", **changes})
    assert counters["stats"]["unique_graphs"] > 0
    assert not counters["graph_break"]
    return found
