"""On a GPU: blocks that are replayed train as the plain ones do, in every precision, and tell the same."""

import csv
import sys

import pytest
import torch

from nsa.config import RunConfig
from nsa.train.__main__ import main
from nsa.train.probe import Edge, NullProbe, Phase
from nsa.train.trainer import train

SIZES = {
    "model.n_layers": 3,
    "model.dim": 128,
    "model.n_heads": 4,
    "model.n_kv_groups": 2,
    "model.d_k": 64,
    "model.d_v": 64,
    "train.device": "cuda",
    "train.seq_len": 512,
    "train.batch_size": 2,
    "train.steps": 4,
    "train.lr": 1e-4,
    "train.deterministic": True,
}
CLOSE = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 5e-3}
"""Largest relative difference, by norm, of a first step's gradient; the matrix library may choose otherwise when it
is captured. A hundredth of a percent more for losses, which AdamW drives apart."""


@pytest.fixture(autouse=True)
def _as_before():
    yield
    torch.use_deterministic_algorithms(False)


class Seen(NullProbe):
    """Gradients when the optimizer begins, what was announced, and held-out losses."""

    def __init__(self):
        self.gradients, self.details, self.held_out = [], [], []

    def built(self, state):
        self.model = state.model

    def mark(self, *, phase, edge, step, detail=None):
        if phase in (Phase.FORWARD, Phase.BACKWARD) and detail is not None:
            self.details.append((step, str(phase), detail))
        if (phase, edge) == (Phase.OPTIM, Edge.BEGIN):
            self.gradients.append({n: p.grad.detach().float().cpu() for n, p in self.model.named_parameters()})

    def step_done(self, *, step, facts):
        self.held_out.append(facts.get("val_loss", 0.0))


def trained(changes):
    seen = Seen()
    result = train(RunConfig().with_values({**SIZES, **changes}), [seen])
    return result.losses, seen


def check(changes, *, precision="fp32"):
    limit = CLOSE[precision]
    losses, plain = trained(changes)
    again, replayed = trained({**changes, "train.cuda_graphs": "blocks"})
    steps = [errors(*both) for both in zip(replayed.gradients, plain.gradients, strict=True)]
    worst = [max((error, name) for name, error in step.items()) for step in steps]
    sys.stdout.write(f"largest error of a gradient, by step: {worst}; losses: {losses}, replayed {again}\n")
    assert worst[0][0] <= limit, worst
    assert again == pytest.approx(losses, rel=limit + 1e-4)
    assert replayed.held_out == pytest.approx(plain.held_out, rel=limit + 1e-4)
    assert replayed.details == plain.details


def errors(got, want):
    """Relative, by norm; an overflow on both sides is none."""
    apart = {name: torch.where(got[name] == want[name], 0.0, got[name] - want[name]).norm() for name in want}
    return {name: (apart[name] / want[name].norm().clamp(min=1e-12)).nan_to_num(1e9).item() for name in want}


@pytest.mark.parametrize("attention", ["nsa", "dense"])
@pytest.mark.parametrize(
    ("precision", "mode"), [("fp32", "autocast"), ("bf16", "pure"), ("bf16", "autocast"), ("fp16", "autocast")]
)
def test_precisions(attention, precision, mode):
    changes = {"model.attention": attention, "train.precision": precision, "train.precision_mode": mode}
    check(changes, precision=precision)


@pytest.mark.parametrize("attention", ["nsa", "dense"])
def test_micro_batches_add_up_with_held_out_losses_in_between(attention):
    check({"model.attention": attention, "train.accumulate": 3, "train.eval_every": 1, "train.eval_batches": 2})


KERNELS = {
    "torch": "compressed=masked scores=torch selected=gather window=masked combine=torch",
    "packed": "compressed=packed selected=triton window=sdpa",
    "flash": "compressed=packed selected=triton window=flash",
}


@pytest.mark.parametrize("kernels", KERNELS)
def test_kernels_that_auto_passes_over(kernels):
    changes = {f"kernels.{op}": name for op, name in (part.split("=") for part in KERNELS[kernels].split())}
    half = {"train.precision": "bf16", "train.precision_mode": "pure", "train.deterministic": False}
    check({**changes, **half}, precision="bf16")


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_ddp_averages_what_replays_hand_out(accumulate, views):
    # No warning about the accumulators' stream may come of it: it would be an error here.
    ddp = {"parallel.mode": "ddp", "parallel.allow_single": True, "parallel.gradient_as_bucket_view": views}
    check({**ddp, "train.accumulate": accumulate})


def test_gradients_are_announced_one_by_one():
    _, seen = trained({"train.cuda_graphs": "blocks", "train.trace_grads": True, "train.steps": 1})
    n_parameters = sum(1 for _ in seen.model.parameters())
    assert sum("gradient" in detail for _, _, detail in seen.details) == n_parameters


def test_a_continued_run_replays_with_the_weights_of_the_checkpoint(tmp_path):
    changes = {"train.cuda_graphs": "blocks", "train.save_every": 2, "train.out_dir": str(tmp_path)}
    whole, _ = trained({**changes, "train.out_dir": ""})
    trained({**changes, "train.steps": 2})
    assert trained({**changes, "train.resume": True})[0] == pytest.approx(whole[2:], rel=1e-6)


def test_gates_and_selections_are_those_of_the_step(tmp_path, capsys):
    tables = {}
    for graphs in ("off", "blocks"):
        settings = {**SIZES, "train.cuda_graphs": graphs, "train.out_dir": str(tmp_path / graphs), "train.lr": 3e-3}
        assert main(["--override", " ".join(f"{k}={v}" for k, v in settings.items())]) == 0
        for name in ("gate_stats.csv", "k_stats.csv"):
            with (tmp_path / graphs / name).open() as file:
                tables[graphs, name] = [[float(cell) for cell in row] for row in csv.reader(file)]
    for name in ("gate_stats.csv", "k_stats.csv"):
        wanted = tables["off", name]
        assert len(wanted) > 1
        for got, want in zip(tables["blocks", name], wanted, strict=True):
            assert got == pytest.approx(want, rel=1e-3)
    gates = [row[2:] for row in tables["blocks", "gate_stats.csv"] if row[1] == 0]
    assert gates[0] != gates[-1], "the gates of the last step are not those of the first"


def test_a_replayed_step_never_waits_for_the_device_inside_forward():
    class Watch(NullProbe):
        def built(self, state):
            self.model = state.model

    watch = Watch()
    changes = {"train.cuda_graphs": "blocks", "train.steps": 1, "train.deterministic": False}
    train(RunConfig().with_values({**SIZES, **changes}), [watch])
    ids = torch.randint(256, (2, 512), device="cuda")
    try:
        torch.cuda.set_sync_debug_mode("error")
        watch.model(ids).float().square().mean().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
