"""What the sampler adds to the samples that it keeps."""

from dataclasses import replace

from fake_clock import FakeClock
from harness.observe.census import Census
from harness.observe.sampler import Native, Sampler
from scripted_trial import ScriptedHandle, ScriptedView
from stack_sources import ScriptedSource


class KernelNames(ScriptedSource):
    """Knows threads by the kernel's names once it shows native frames."""

    def sample(self, *, native, **rest):
        answer = super().sample(native=native, **rest)
        thread = answer.threads[0]
        named = replace(thread, name="python") if native else thread
        return replace(answer, threads=(named, replace(named, tid=thread.tid + 1, name="pt_autograd_0"))[: 1 + native])


def test_threads_keep_pythons_names_in_samples_with_native_frames(tmp_path):
    clock = FakeClock()
    sampler = Sampler(
        census=Census(
            handle=ScriptedHandle(clock=clock, trial_dir=tmp_path, pid=7), clock=clock, read=ScriptedView().member
        ),
        trial_dir=tmp_path,
        clock=clock,
        started_s=0.0,
        sources=[KernelNames()],
        view=ScriptedView(),
        ranks=lambda: {0: 7},
    )
    for native in (Native.NONE, Native.ALL):
        sampler.look()
        sampler.dump(native)
    names = [[thread.name for thread in sample.threads] for sample in sampler.stacks if sample.native]
    assert names == [["MainThread", "pt_autograd_0"]]
