"""Which collective a stack waits in, by frames as py-spy and pystack give them."""

from __future__ import annotations

import pytest

from harness.core.evidence import Frame, StackSample, ThreadStack
from harness.reading.meeting import agreed_meeting, launches_in_vain, meeting_of

SITE = "/venv/lib/python3.11/site-packages"
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
TORCH = f"{SITE}/torch/lib/libtorch_cpu.so"


def native(function: str) -> Frame:
    return Frame(function=function, file=TORCH, line=0, native=True)


def python(function: str, file: str = "/src/train.py", line: int = 20) -> Frame:
    return Frame(function=function, file=file, line=line)


WORK_WAIT = (native("std::condition_variable::wait"), native("c10d::Work::wait"))
STEP = python("step")
ENGINE = python("_engine_run_backward", f"{SITE}/torch/autograd/graph.py")
DDP = python("DistributedDataParallel._pre_forward", f"{SITE}/torch/nn/parallel/distributed.py")

TIMED = (
    native("c10d::(anonymous namespace)::CudaTimer::measureDifference"),
    native("c10d::Logger::set_runtime_stats_and_log"),
)
TAKEN_APART = (native("commDestroySync"), native("c10d::ProcessGroupNCCL::shutdown"))


def thread(*frames: Frame) -> ThreadStack:
    return ThreadStack(tid=1, name="MainThread", frames=frames)


@pytest.mark.parametrize(
    ("frames", "kind", "name"),
    [
        ((*WORK_WAIT, python("all_reduce", C10D), python("wrapper", C10D), STEP), "collective", "all_reduce"),
        # What was called is the outermost of torch's own functions, not the one it is made of.
        ((python("all_gather", C10D), python("all_gather_object", C10D), STEP), "collective", "all_gather_object"),
        ((*WORK_WAIT, native("c10d::Reducer::finalize_backward"), ENGINE, STEP), "gradients", "the all-reduce of"),
        ((*WORK_WAIT, native("c10d::Reducer::rebuild_buckets"), DDP, STEP), "collective", "DDP's agreement on buckets"),
        ((native("gloo::transport::tcp::UnboundBuffer::waitRecv"), DDP, STEP), "collective", "a collective"),
        ((python("DistributedDataParallel._pre_forward", DDP.file), STEP), "collective", "DDP's agreement on buckets"),
        # DDP times its own passes now and then: it waits for an event of its GPU, and for no bucket.
        ((native("cudaEventSynchronize"), *TIMED, DDP, STEP), "gpu", "its GPU"),
        # NCCL waits for what was queued on its GPU before it takes a group apart.
        ((native("cuStreamSynchronize"), *TAKEN_APART, python("destroy_process_group", C10D), STEP), "gpu", "its GPU"),
        ((python("recv", C10D), STEP), "pair", "recv"),
        ((native("cuStreamSynchronize"), STEP), "gpu", "its GPU"),
        ((python("init_process_group", C10D), python("joined"), STEP), "collective", "init_process_group"),
    ],
)
def test_a_wait_has_a_kind_a_name_and_the_programs_own_caller(frames, kind, name):
    wait = meeting_of(thread(*frames))
    assert (wait.kind, wait.name[: len(name)]) == (kind, name)
    assert wait.frame.file == "/src/train.py"


@pytest.mark.parametrize(
    "frames",
    [
        (python("acquire", "/src/hooks.py"), ENGINE, STEP),
        # A function of the program's own that happens to be called so.
        (python("all_reduce", "/src/metrics.py"), STEP),
        # It passed a collective on the way to a lock of its own: a hook of DDP's.
        (python("acquire", "/src/hooks.py"), python("all_reduce", C10D), STEP),
        (native("mkl_blas_sgemm"), ENGINE, STEP),
    ],
)
def test_what_is_not_inside_torch_distributed_is_no_wait_for_others(frames):
    assert meeting_of(thread(*frames)) is None


def sample(*frames: Frame, is_native: bool = True) -> StackSample:
    return StackSample(id="s", source="t", native=is_native, t_s=1.0, rank=0, pid=1, threads=(thread(*frames),))


def test_samples_agree_or_there_is_no_wait():
    waits, works = sample(python("barrier", C10D), STEP), sample(python("step"))
    assert agreed_meeting([waits, waits]).name == "barrier"
    assert agreed_meeting([waits, works]) is None
    assert agreed_meeting([waits]) is None


def test_samples_with_native_frames_decide_over_those_without():
    """Without native frames, a wait for gradients looks like any backward; one is enough where nothing else differs."""
    python_only = sample(ENGINE, STEP, is_native=False)
    gradients = sample(*WORK_WAIT, native("c10d::Reducer::finalize_backward"), ENGINE, STEP)
    assert agreed_meeting([python_only, gradients, gradients]).kind == "gradients"
    assert agreed_meeting([python_only, python_only, gradients]).kind == "gradients"
    elsewhere = sample(ENGINE, python("other"), is_native=False)
    assert agreed_meeting([python_only, elsewhere, gradients]) is None


def test_whoever_asks_a_name_server_waits_for_no_rank():
    store = native("c10d::TCPStore::TCPStore")
    asks = thread(native("__poll"), native("__res_context_query"), native("getnameinfo"), store, python("host_meeting"))

    assert meeting_of(asks) is None
    assert meeting_of(thread(native("__poll"), store, python("host_meeting"))) is not None


LAUNCH = (native("clock_gettime"), native("cuLaunchKernel"), native("cudaLaunchKernel"), STEP)


@pytest.mark.parametrize(
    ("samples", "in_vain"),
    [
        ([sample(STEP, is_native=False), sample(*LAUNCH), sample(*LAUNCH)], True),
        ([sample(*LAUNCH), sample(*LAUNCH[:3], python("step", line=21)), sample(*LAUNCH)], False),
        ([sample(*LAUNCH), sample(native("mkl_blas_sgemm"), STEP), sample(*LAUNCH)], False),
        ([sample(STEP, is_native=False), sample(STEP, is_native=False), sample(*LAUNCH)], False),
        ([sample(*LAUNCH), sample(*LAUNCH)], False),
    ],
    ids=["at one line", "at another line", "elsewhere once", "one native sample", "two samples"],
)
def test_who_launches_a_kernel_at_the_same_line_in_all_samples_may_launch_in_vain(samples, in_vain):
    assert launches_in_vain(samples) is in_vain


def test_who_called_is_the_program_and_not_the_package_that_it_called():
    """``accelerator.wait_for_everyone()``: the rank's own line is what a reader looks for."""
    package = python("PartialState.wait_for_everyone", f"{SITE}/accelerate/state.py", 412)
    barrier = python("barrier", C10D)
    assert meeting_of(thread(*WORK_WAIT, barrier, package, STEP)).frame == STEP
    assert meeting_of(thread(*WORK_WAIT, barrier, package)).frame == package
