"""A profile says on whose behalf each kernel ran, also in backward, and when the GPU had nothing to do."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from gpu_trace import busy_us, host_calls, launches_of


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
