"""doctor on GPUs: what NVML sees, who else is there, and what to do when nothing can be seen."""

from __future__ import annotations

import pytest

import harness.checkup as checkup
from harness.core.devices import GpuProcess, GpuSample
from harness.core.evidence import SourceFailure
from harness.core.ports import DeviceSample

GPU = GpuSample(
    id="", t_s=0.0, index=0, name="NVIDIA H200", utilisation=0, memory_used_bytes=4 << 20,
    memory_total_bytes=143771 << 20,
)  # fmt: skip
BUSY = GpuSample(id="", t_s=0.0, index=1, name="NVIDIA H200", processes=(GpuProcess(pid=77, ours=None),))
REFUSED = SourceFailure(id="", source="nvml", reason="nvidia-ml-py is not installed; install it with: pip install x")


@pytest.fixture
def seen(monkeypatch):
    def answer(found: DeviceSample) -> checkup.CheckResult:
        monkeypatch.setattr(checkup.Nvml, "see", lambda self, job: found)
        return checkup._gpus()

    return answer


def test_a_machine_without_gpus_is_in_order(seen):
    assert (seen(DeviceSample()).level, seen(DeviceSample()).seen) == ("ok", "no NVIDIA driver")


def test_a_free_gpu_is_described(seen):
    finding = seen(DeviceSample(gpus=(GPU,)))
    assert (finding.level, finding.seen) == ("ok", "0: NVIDIA H200, 4 of 143771 MiB used, 0 %")


def test_a_gpu_in_use_is_a_warning_with_the_process_and_what_to_do(seen):
    finding = seen(DeviceSample(gpus=(GPU, BUSY)))
    assert finding.level == "warn"
    assert "in use by GPU 1: PID 77" in finding.seen
    assert "choose another GPU" in finding.next


def test_a_gpu_that_cannot_be_seen_says_why(seen):
    finding = seen(DeviceSample(failures=(REFUSED,)))
    assert finding.level == "warn"
    assert finding.seen == f"not seen: {REFUSED.reason}"
