"""Every way of training gives the gradients of the plain one: one process, no recomputation, fp32, one batch."""

import numpy as np
import pytest
from rank_work import gradients, message

CHECKPOINTING = ["nonreentrant", "reentrant", "selective"]
WITHIN = 1e-6
"""Of the norm of the parameter's gradient: the same sums in another order."""

WITHIN_PHI_K = 4e-6
"""Gradients that reach compressed keys cancel: over the keys of a row they sum to zero, and little is left."""


@pytest.fixture(scope="module")
def plain():
    return gradients(0, {})


def compare(found, plain, *, within=WITHIN):
    losses, steps = found
    want_losses, want_steps = plain
    assert losses == pytest.approx(want_losses, rel=1e-6)
    assert len(steps) == len(want_steps)
    for step, (got, want) in enumerate(zip(steps, want_steps, strict=True)):
        assert list(got) == list(want)
        for name in want:
            assert got[name] is not None, f"{name} has no gradient at step {step}"
            error = np.linalg.norm(got[name] - want[name]) / max(np.linalg.norm(want[name]), 1e-12)
            limit = WITHIN_PHI_K if within == WITHIN and ".phi_k." in name else within
            assert error <= limit, f"{name} is off by {error:.2g} at step {step}"


def test_no_parameter_is_without_a_gradient_once_the_gates_have_moved(plain):
    _, steps = plain
    assert len(steps[-1]) == 3 * 16 + 3
    assert [name for name, grad in steps[-1].items() if grad is None or not grad.any()] == []


@pytest.mark.parametrize("checkpointing", [*CHECKPOINTING, "block"])
def test_recomputation_changes_no_bit(plain, checkpointing):
    compare(gradients(0, {"train.checkpointing": checkpointing}), plain, within=0.0)


def test_recomputing_some_blocks_changes_no_bit(plain):
    changes = {"train.checkpointing": "nonreentrant", "train.checkpoint_layers": "1:2"}
    compare(gradients(0, changes), plain, within=0.0)


def test_accumulation_is_one_large_batch(plain):
    compare(gradients(0, {"train.batch_size": 1, "train.accumulate": 4}), plain)


@pytest.mark.parametrize("mode", ["ddp", "fsdp", "fsdp1", "manual"])
@pytest.mark.parametrize("checkpointing", ["none", *CHECKPOINTING])
def test_two_ranks_are_one_large_batch(ranks, plain, mode, checkpointing):
    for found in ranks.run(gradients, {"parallel.mode": mode, "train.checkpointing": checkpointing}):
        compare(found, plain)


@pytest.mark.parametrize("mode", ["ddp", "fsdp", "fsdp1", "manual"])
@pytest.mark.parametrize("checkpointing", ["none", "reentrant"])
def test_two_ranks_accumulate(ranks, plain, mode, checkpointing):
    changes = {"parallel.mode": mode, "train.checkpointing": checkpointing}
    for found in ranks.run(gradients, {**changes, "train.batch_size": 2, "train.accumulate": 2}):
        compare(found, plain)


SWITCHES = {
    "find": {"parallel.find_unused_parameters": True},
    "static": {"parallel.static_graph": True},
    "find+static": {"parallel.find_unused_parameters": True, "parallel.static_graph": True},
    "view": {"parallel.gradient_as_bucket_view": True, "parallel.broadcast_buffers": False},
}


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("checkpointing", ["none", "reentrant", "nonreentrant", "selective"])
def test_ddps_switches_change_no_gradient(ranks, plain, switch, checkpointing):
    changes = {"parallel.mode": "ddp", "train.checkpointing": checkpointing, **SWITCHES[switch]}
    if (switch, checkpointing) == ("find", "reentrant"):
        changes["parallel.allow_known_bad"] = True
        assert all("marked as ready twice" in text for text in ranks.run(message, changes))
        return
    for found in ranks.run(gradients, changes):
        compare(found, plain)


def test_the_reports_safe_mode_trains_as_the_plain_run_does(ranks):
    from nsa.env import SAFE_MODE

    kernels = {path: value for path, value in SAFE_MODE.items() if path.startswith("kernels.")}
    alone = gradients(0, kernels)
    for found in ranks.run(gradients, {"parallel.mode": "ddp", **SAFE_MODE}):
        compare(found, alone)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"train.batch_size": 1}, "train.batch_size = 1 is less than the 2 processes"),
        ({"parallel.compress": "bf16"}, "parallel.compress = 'bf16' needs NCCL"),
        ({"train.batch_size": 3}, "cannot be dealt out evenly to 2 processes"),
    ],
)
def test_what_two_ranks_cannot_do_is_refused_by_both(ranks, changes, expected):
    assert all(expected in text for text in ranks.run(message, {"parallel.mode": "ddp", **changes}))
