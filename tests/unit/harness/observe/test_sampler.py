"""What the sampler adds to the samples that it keeps."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from harness.observe.proc import Proc
from harness.observe.sampler import Sampler
from harness.testing.clock import FakeClock
from harness.testing.sources import ScriptedSource


class KernelNames(ScriptedSource):
    """Knows threads by the kernel's names once it shows native frames."""

    def sample(self, *, native, **rest):
        answer = super().sample(native=native, **rest)
        thread = answer.threads[0]
        named = replace(thread, name="python") if native else thread
        return replace(answer, threads=(named, replace(named, tid=thread.tid + 1, name="pt_autograd_0"))[: 1 + native])


def test_threads_keep_pythons_names_in_samples_with_native_frames():
    sampler = Sampler(
        handle=SimpleNamespace(pid=7, processes=lambda: ()),
        trial_dir=Path(),
        clock=FakeClock(),
        started_s=0.0,
        sources=[KernelNames()],
        view=Proc("/nowhere"),
    )
    for native in (True, False, True):
        sampler.dump(native=native)
    names = [[thread.name for thread in sample.threads] for sample in sampler.stacks]
    assert names == [["python", "pt_autograd_0"], ["MainThread"], ["MainThread", "pt_autograd_0"]]
