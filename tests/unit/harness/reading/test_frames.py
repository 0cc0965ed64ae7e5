"""Which frames mean something, and which one to name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.evidence import Frame, StackSample, ThreadStack
from harness.reading.frames import (
    deciding_thread,
    is_compiled_work,
    is_noise,
    is_stdlib,
    native_leaf,
    own_frame,
    own_line,
    plain,
    short_path,
    spell,
    telling_frame,
)

LIB = "/opt/lib/python3.11"
SITE = "/venv/lib/python3.11/site-packages"


def native(function: str, file: str) -> Frame:
    return Frame(function=function, file=file, line=0, native=True)


def python(function: str, file: str, line: int = 1) -> Frame:
    return Frame(function=function, file=file, line=line)


@pytest.mark.parametrize(
    ("function", "bare"),
    [
        ("acquire_forever", "acquire_forever"),
        ("Condition.wait", "wait"),
        ("outer.<locals>.<lambda>", "<lambda>"),
        ("outer.<locals>.hook", "hook"),
        ("<module>", "<module>"),
        (
            "at::(anonymous namespace)::add_kernel<float, std::pair<int, int> >(at::Tensor&)",
            "at::add_kernel",
        ),
        ("torch::autograd::PyFunctionTensorPreHook::operator()", "torch::autograd::PyFunctionTensorPreHook::operator"),
        ("gemm_nn.isra.0", "gemm_nn"),
        ("read_piece [clone .cold]", "read_piece"),
        ("pthread_mutex_lock@@GLIBC_2.2.5", "pthread_mutex_lock"),
    ],
)
def test_a_bare_name_has_no_class_template_parameter_or_clone(function, bare):
    assert plain(function) == bare


@pytest.mark.parametrize(
    "frame",
    [
        native("0x7fa62c0a3e96", "/lib/x86_64-linux-gnu/libc.so.6"),
        native("pthread_mutex_lock", "/lib/x86_64-linux-gnu/libc.so.6"),
        native("long_add", "/opt/python/lib/libpython3.11.so.1.0"),
        native("PyObject_Call", "/usr/bin/python3.12"),
        native("_call_function_pointer", "/build/Python-3.11.7/Modules/_ctypes/callproc.c"),
        native("ffi_call", "/lib/x86_64-linux-gnu/libffi.so.8.1.2"),
        # as pystack writes them
        native("ffi_call", "???"),
        native("__GI___lll_lock_wait", "./nptl/lowlevellock.c"),
        native("__write", "../sysdeps/unix/sysv/linux/write.c"),
        native("os_write_impl", "./Modules/posixmodule.c"),
        native("pymain_run_file", "Modules/main.c"),
    ],
)
def test_interpreter_and_c_library_are_noise_and_no_work(frame):
    assert is_noise(frame)
    assert not is_compiled_work(frame)


@pytest.mark.parametrize(
    "frame",
    [
        native("at::native::add_kernel", f"{SITE}/torch/lib/libtorch_cpu.so"),
        native("mkl_blas_sgemm", f"{SITE}/torch/lib/libtorch_cpu.so"),
        native("gomp_team_barrier_wait", "/lib/libgomp.so.1"),
        native("my_extension_step", f"{SITE}/mine/_core.cpython-311-x86_64-linux-gnu.so"),
        native("cuStreamSynchronize", "/lib/libcuda.so.1"),
        native("my_kernel", "???"),
        native("step", "/src/mine/io/step.c"),
    ],
)
def test_torch_and_extensions_are_work(frame):
    assert not is_noise(frame)
    assert is_compiled_work(frame)


def test_a_frame_without_a_name_is_noise_but_may_be_work():
    extension = native("0x7fa62c0a3e96", f"{SITE}/mine/_core.so")
    assert is_noise(extension)
    assert is_compiled_work(extension)


def test_python_frames_are_never_noise():
    assert not is_noise(python("PyThing", "/opt/python/lib/libpython3.11.so.1.0"))


def test_the_frame_to_name_is_the_innermost_outside_the_standard_library():
    own = python("take_batch", "/src/nsa/train/data.py", 9)
    wait = python("Condition.wait", "/opt/lib/python3.11/threading.py", 327)
    libc = native("0x7f", "/lib/libc.so.6")
    stack = ThreadStack(tid=1, name="MainThread", frames=(libc, wait, own))
    assert telling_frame(stack) == own
    assert spell(None) == "code of which no frame was seen"
    assert spell(own) == "take_batch (nsa/train/data.py:9)"


def test_the_line_by_which_multiprocessing_starts_a_child_is_not_the_programs():
    lib, line = "/opt/lib/python3.11", python("<module>", "<string>", 1)
    join = python("_finalize_join", f"{lib}/multiprocessing/queues.py", 199)
    child = ThreadStack(tid=1, name="", frames=(join, python("spawn_main", f"{lib}/multiprocessing/spawn.py"), line))
    typed = ThreadStack(tid=1, name="", frames=(python("wait", f"{lib}/threading.py", 327), line))
    assert (own_frame(child), telling_frame(child)) == (None, join)
    assert (own_frame(typed), telling_frame(typed)) == (line, line)


def test_of_the_librarys_frames_alone_what_was_called_is_named_before_the_wait_in_it():
    """``atexit.register(q.join)``; a thread that was parked by ``threading`` itself has nothing else."""
    wait, join = python("wait", f"{LIB}/threading.py", 327), python("join", f"{LIB}/queue.py", 90)
    stacks = [ThreadStack(tid=1, name="", frames=frames) for frames in ((wait, join), (wait,))]
    assert list(map(telling_frame, stacks)) == [join, wait]


def test_a_function_that_was_sent_to_a_worker_by_value_is_in_the_file_that_it_was_written_in():
    """Of which cloudpickle leaves the name away, in the workers of joblib, dask and ray."""
    work = python("fit_one", "<dynamic-code>", 9)
    stack = ThreadStack(tid=1, name="", frames=(work, python("<listcomp>", f"{SITE}/joblib/parallel.py", 607)))
    assert (own_frame(stack), telling_frame(stack)) == (work, work)


def test_what_a_forked_child_has_of_its_parent_is_not_where_it_is():
    lib, line = "/opt/lib/python3.11/multiprocessing", python("<module>", "/src/train.py", 8)
    below = (python("_bootstrap", f"{lib}/process.py"), python("Popen._launch", f"{lib}/popen_fork.py"), line)
    idle = python("get", f"{lib}/queues.py", 365)
    work = python("clean", "/src/clean.py", 4)
    stacks = [ThreadStack(tid=1, name="", frames=(top, *below)) for top in (idle, work)]
    assert [(own_frame(one), telling_frame(one)) for one in stacks] == [(None, idle), (work, work)]


def test_a_line_that_a_reader_can_open_is_named_before_one_that_was_made_up():
    """As a manager's proxies are: ``get (<string>:2)``, called by the program."""
    made_up, caller = python("get", "<string>", 2), python("main", "/src/train.py", 10)
    stack = ThreadStack(tid=1, name="", frames=(made_up, caller))
    assert (own_frame(stack), telling_frame(stack)) == (caller, caller)


MADE_UP = python("__setattr__", "<string>", 4)
MINE = python("warm_up", "/src/train.py", 6)
LIBRARY = python("decode", "/usr/lib/python3.11/json/decoder.py", 353)
STUB = python("<module>", "/venv/bin/train", 8)
ENTRY, INNER = python("main", f"{SITE}/program/core.py", 5), python("load", f"{SITE}/program/data.py", 9)
OTHER = python("render", f"{SITE}/jinja2/environment.py", 1301)
TEMPLATE = python("top-level template code", "<template>")
RUNPY = python("_run_module_as_main", "<frozen runpy>", 198)


@pytest.mark.parametrize(
    ("frames", "line"),
    [
        ((MADE_UP, MINE), MINE),
        ((OTHER, TEMPLATE, OTHER, MINE), MINE),
        ((LIBRARY, python("load", "<stdin>", 3), python("<module>", "<stdin>", 5)), python("load", "<stdin>", 3)),
        ((OTHER, python("<module>", "<string>", 1)), python("<module>", "<string>", 1)),
        ((LIBRARY, INNER, ENTRY, STUB), INNER),
        ((LIBRARY, OTHER, TEMPLATE, OTHER, INNER, ENTRY, STUB), INNER),
        ((LIBRARY, INNER, ENTRY, RUNPY, RUNPY), INNER),
        ((LIBRARY, MINE, ENTRY, STUB), MINE),
        ((LIBRARY, STUB), STUB),
        ((LIBRARY, ENTRY, python("<module>", "/home/me/bin/train", 8)), python("<module>", "/home/me/bin/train", 8)),
        ((LIBRARY, ENTRY, python("<module>", "/venv/bin/train.py", 8)), python("<module>", "/venv/bin/train.py", 8)),
        ((LIBRARY, RUNPY), LIBRARY),
    ],
)
def test_the_line_of_a_traceback_is_the_innermost_of_the_program_that_can_be_opened(frames, line):
    assert own_line(frames) == line


@pytest.mark.parametrize(
    "folder",
    [
        "/usr/lib64/python3.9",
        "/opt/python/lib/python3.13t",
        "/opt/pypy/lib/pypy3.10",
        "/usr/lib/pypy3/lib-python/3",
        "/opt/python311.zip",
    ],
)
def test_the_standard_library_may_stand_in_other_folders(folder):
    assert is_stdlib(python("raw_decode", f"{folder}/json/decoder.py"))


@pytest.mark.parametrize(
    "folder", ["/usr/lib64/python3.9/site-packages", "/usr/local/lib/python3.12/dist-packages", "/src/lib/python3"]
)
def test_what_was_installed_beside_the_standard_library_is_none_of_it(folder):
    assert not is_stdlib(python("load", f"{folder}/torch/serialization.py"))


def test_site_packages_are_not_the_standard_library():
    frame = python("pop", f"{SITE}/torch/utils/data.py")
    stack = ThreadStack(tid=1, name="MainThread", frames=(frame, python("main", "/src/main.py")))
    assert telling_frame(stack) == frame
    assert short_path(frame.file) == "torch/utils/data.py"


def test_a_thread_without_python_is_named_by_its_native_frame():
    stack = ThreadStack(tid=1, name="", frames=(native("??", ""), native("gloo::wait", f"{SITE}/torch/lib/libgloo.so")))
    assert spell(telling_frame(stack)) == "gloo::wait (torch/lib/libgloo.so)"
    assert len(native_leaf(stack)) == 2


def sample(*threads: ThreadStack) -> StackSample:
    return StackSample(id="stack-1", source="py-spy", native=True, t_s=1.0, rank=0, pid=7, threads=threads)


def test_the_main_thread_decides_whatever_its_position():
    other = ThreadStack(tid=8, name="pin", frames=(python("run", "/src/pin.py"),))
    main = ThreadStack(tid=7, name="MainThread", frames=(python("main", "/src/main.py"),))
    assert deciding_thread(sample(other, main)) == main


def test_while_main_waits_for_the_autograd_thread_that_one_decides():
    engine = native("torch::autograd::ReadyQueue::pop", f"{SITE}/torch/lib/libtorch_cpu.so")
    main = ThreadStack(tid=7, name="MainThread", frames=(engine, python("backward", f"{SITE}/torch/_tensor.py")))
    worker = ThreadStack(tid=8, name="pt_autograd_0", frames=(python("hook", "/src/hook.py"),))
    parked = ThreadStack(tid=9, name="pin", frames=(python("wait", "/opt/lib/python3.11/threading.py"),))
    assert deciding_thread(sample(main, parked, worker)) == worker
    assert deciding_thread(sample(main, parked)) == main


def test_when_main_is_through_the_thread_that_it_left_running_decides():
    exits = python("_shutdown", "/opt/lib/python3.11/threading.py")
    main = ThreadStack(tid=7, name="MainThread", frames=(exits,))
    writer = ThreadStack(tid=8, name="writer", frames=(python("_write", "/src/log.py"),))
    parked = ThreadStack(tid=9, name="pin", frames=(python("wait", "/opt/lib/python3.11/threading.py"),))
    assert deciding_thread(sample(main, parked, writer)) == writer
    assert deciding_thread(sample(main, writer, replace(writer, tid=10))) == main
    own = replace(main, frames=(python("_shutdown", "/src/log.py"),))
    assert deciding_thread(sample(own, writer)) == own


def test_while_main_joins_a_thread_the_last_of_those_that_wait_for_one_another_decides():
    main = ThreadStack(tid=7, name="MainThread", frames=(python("join", "/opt/lib/python3.11/threading.py"),))
    reader = ThreadStack(tid=8, name="reader", frames=(python("read", "/src/read.py"),))
    writer = ThreadStack(tid=9, name="writer", frames=(python("_write", "/src/log.py"),))
    taken = sample(main, reader, writer)
    assert deciding_thread(taken) == main
    assert deciding_thread(replace(taken, joins=((7, 9),))) == writer
    assert deciding_thread(replace(taken, joins=((7, 9), (9, 8)))) == reader
    assert deciding_thread(replace(taken, joins=((9, 8),))) == main
    assert deciding_thread(replace(taken, joins=((7, 10),))) == main, "that one is not in the sample"
    assert deciding_thread(replace(taken, joins=((7, 9), (9, 7)))) == writer, "each waits for the other"


def test_of_two_threads_in_the_programs_own_code_the_engines_decides():
    """On a GPU the hook runs in a thread of the engine's, beside whatever the program started."""
    lib = f"{SITE}/torch/lib/libtorch_cpu.so"
    waits = native("torch::autograd::ReadyQueue::pop", lib)
    main = ThreadStack(tid=7, name="MainThread", frames=(waits, python("backward", f"{SITE}/torch/_tensor.py")))
    inside = native("torch::autograd::Engine::evaluate_function", lib)
    worker = ThreadStack(tid=8, name="", frames=(python("hook", "/src/hook.py"), inside))
    holder = ThreadStack(tid=9, name="holder", frames=(python("hold_forever", "/src/hook.py"),))
    assert deciding_thread(sample(main, holder, worker)) == worker
