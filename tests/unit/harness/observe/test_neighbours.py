"""Which GPUs are visible, and who else is on them."""

from __future__ import annotations

import pytest

from harness.core.devices import GpuProcess, GpuSample
from harness.core.ports import DeviceSample
from harness.observe.neighbours import Neighbours, visible_gpus


class Driver:
    """NVML with one process on GPU 3."""

    def see(self, _: object) -> DeviceSample:
        busy = (GpuProcess(pid=77, ours=None, memory_bytes=2_000_000_000),)
        return DeviceSample(
            gpus=(
                GpuSample(id="gpu-1", t_s=0.0, index=2, name="H200"),
                GpuSample(id="gpu-2", t_s=0.0, index=3, name="H200", processes=busy),
            )
        )


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("3,5", ("3", "5")),
        ("GPU-a, GPU-b", ("GPU-a", "GPU-b")),
        ("", ()),
        ("1,-1,2", ("1",)),
        ("NoDevFiles", ("NoDevFiles",)),
    ],
)
def test_the_inherited_list_is_read_as_cuda_reads_it(value: str, names: tuple[str, ...]):
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": value}) == names


def test_a_process_on_a_leased_gpu_is_named_and_one_on_another_is_not():
    neighbours = Neighbours(Driver())
    assert neighbours.on(("3",)) == "PID 77 on GPU 3 (2.0 GB)"
    assert neighbours.on(("2",)) == ""
    assert neighbours.on(()) == ""
    assert neighbours.on(("GPU-a",)) == "", "NVML knows no such name"
