"""A profile says on whose behalf each kernel ran, also in backward, and when the GPU had nothing to do."""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from nsa.config import RunConfig
from nsa.model.build import build_model

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from gpu_trace import KIND_BY_NAME, MARK, PART_BY_NAME, busy_us, by_name, host_calls, launches_of
from model_marks import marked


def event(cat, name, ts, dur, *, tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}


def launch(ts, number, kernel, at, us, *, tid=1):
    """A call of the host at ``ts`` and what it made the GPU do at ``at``."""
    return [
        event("cuda_runtime", "cudaLaunchKernel", ts, 1, tid=tid, correlation=number),
        event("kernel", kernel, at, us, tid=7, correlation=number),
    ]


@pytest.fixture
def trace():
    number = {"Sequence number": 5}
    return {
        "traceEvents": [
            event("user_annotation", "part: residual sums", 0, 100),
            event("user_annotation", "part: window", 10, 20),
            event("cpu_op", "nsa::flash_attention", 12, 10, **number),
            *launch(14, 1, "flash_fwd_kernel", 200, 50),
            event("cpu_op", "aten::add", 40, 10, **{"Sequence number": 6}),
            *launch(42, 2, "vectorized_elementwise_kernel", 240, 20),
            event("cpu_op", "autograd::engine::evaluate_function: FlashBackward", 300, 50, tid=2, **number),
            event("cpu_op", "FlashBackward", 301, 40, tid=2, **number),
            *launch(310, 3, "flash_bwd_kernel", 400, 100, tid=2),
            *launch(500, 4, "multi_tensor_apply_kernel", 520, 10),
            event("cuda_runtime", "cudaStreamSynchronize", 510, 30),
            {"ph": "i", "name": "no duration", "ts": 3},
        ]
    }


def test_a_kernel_belongs_to_the_innermost_mark_or_to_what_its_backward_node_was_made_for(trace):
    found = [(x.name, x.part, x.is_backward) for x in launches_of(trace)]
    assert found == [
        ("flash_fwd_kernel", "window", False),
        ("vectorized_elementwise_kernel", "residual sums", False),
        ("flash_bwd_kernel", "window", True),
        ("multi_tensor_apply_kernel", "optimizer", False),  # nobody marked it: by its name
    ]


def test_time_in_which_two_kernels_ran_counts_once(trace):
    assert busy_us(launches_of(trace)) == 60 + 100 + 10


def test_calls_and_waits_of_the_host(trace):
    assert host_calls(trace) == (4, 30)


def test_a_library_s_kernel_is_not_taken_for_one_of_ours():
    library = "void pytorch_flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<64, 128, cutlass::bfloat16_t>>"
    assert by_name(library, PART_BY_NAME, "other") == "attention by a library"
    assert by_name(library, KIND_BY_NAME, "ours") == "attention"
    assert by_name("dq_kernel", PART_BY_NAME, "other") == "attention over tiles"
    assert by_name("dq_kernel", KIND_BY_NAME, "ours") == "ours"


IN_BOTH = {"embedding, head", "norms", "residual sums", "MLP", "layout around attention", "projections", "rotary"}
SPARSE = IN_BOTH | {"gate", "phi", "compressed", "selection", "selected", "window", "combine"}
DENSE = IN_BOTH | {"attention by a library"}


# Rotary: the angles; queries with keys; and compressed keys.
@pytest.mark.parametrize(("attention", "parts", "n_rotary"), [("nsa", SPARSE, 3), ("dense", DENSE, 2)])
def test_every_part_of_the_model_is_marked_and_nothing_afterwards(attention, parts, n_rotary):
    small = {"n_layers": 1, "dim": 32, "n_heads": 2, "n_kv_groups": 1, "d_k": 8, "d_v": 8, "vocab": 32}
    config = RunConfig().with_values({**{f"model.{k}": v for k, v in small.items()}, "model.attention": attention})
    model, _ = build_model(config)
    ids = torch.zeros(1, 32, dtype=torch.long)

    def marks():
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            model(ids)
        return Counter(event.name.removeprefix(MARK) for event in seen.events() if event.name.startswith(MARK))

    with marked(model):
        found = marks()
    assert set(found) == parts
    assert found["rotary"] >= n_rotary
    assert not marks()
