"""A launch that was made before goes straight to what was compiled, and tells it what Triton would have told it."""

from __future__ import annotations

import os
import subprocess
import sys
import timeit
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nsa.kernels.prepared import Prepared, kept, places

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


class Kernel:
    """A kernel of one tensor, one number and two constants, and what it was called with."""

    params = tuple(
        SimpleNamespace(name=name, default=default)
        for name, default in (("x", None), ("n", None), ("BLOCK", None), ("PARTS", 3))
    )

    def __init__(self, *, is_compiled=True):
        self.is_compiled, self.own, self.compiled, self.direct = is_compiled, [], [], []

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            self.own.append((grid, arguments, constants))
            return _Compiled(self) if self.is_compiled else None

        return launch


class _Compiled:
    """What Triton makes of the kernel: its function, and two ways to launch it."""

    function, packed_metadata = "function", "packed"

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *arguments: self.kernel.compiled.append((grid, arguments))

    def run(self, x, y, z, stream, *given):
        self.kernel.direct.append(((x, y, z), stream, given[:2], given[2:5], given[5:]))


@pytest.fixture(autouse=True)
def device():
    """A driver whose current stream is 11 on device 3."""
    driver = pytest.importorskip("triton.runtime").driver
    before = driver._active
    driver.set_active(SimpleNamespace(get_current_device=lambda: 3, get_current_stream={3: 11}.__getitem__))
    yield
    driver._active = before


def test_the_first_launch_is_tritons_and_the_next_go_to_what_it_compiled():
    kernel = Kernel()
    launch = Prepared(kernel, (5,), 7, BLOCK=64, num_warps=4)
    for x in "abc":
        launch(x)
    assert kernel.own == [((5,), ("a", 7), {"BLOCK": 64, "num_warps": 4})]
    none = (None, None, None)
    assert kernel.direct == [((5, 1, 1), 11, ("function", "packed"), none, (x, 7, 64, 3)) for x in "bc"]
    assert not kernel.compiled


def test_from_the_second_launch_on_a_tensor_is_told_as_its_address():
    kernel, (x, y) = Kernel(), torch.zeros(2, 4)
    launch = Prepared(kernel, (5,), 7, BLOCK=64)
    for tensor in (x, y):
        launch(tensor)
    assert kernel.own[0][1][0] is x
    assert kernel.direct[0][-1] == (y.data_ptr(), 7, 64, 3)


@pytest.mark.parametrize("hook", ["launch_enter_hook", "launch_exit_hook"])
def test_whoever_watches_launches_sees_those_that_were_made_before(hook):
    from triton import knobs

    kernel = Kernel()
    launch = Prepared(kernel, (5,), 7, BLOCK=64)
    launch("a")
    watch = print
    getattr(knobs.runtime, hook).add(watch)
    try:
        launch("b")
    finally:
        getattr(knobs.runtime, hook).remove(watch)
    launch("c")
    assert kernel.compiled == [((5, 1, 1), ("b", 7, 64, 3))]
    assert [given[0] for *_, given in kernel.direct] == ["c"]


def test_where_nothing_is_compiled_every_launch_is_tritons():
    kernel = Kernel(is_compiled=False)
    launch = Prepared(kernel, (5, 2), 7, BLOCK=64)
    for x in "ab":
        launch(x)
    assert [call[1][0] for call in kernel.own] == ["a", "b"]


def test_tensors_are_told_apart_by_place_type_and_where_they_begin():
    x = torch.zeros(64, dtype=torch.bfloat16)
    assert places(x, x) == places(x.clone(), x[8:])
    assert places(x, x) != places(x, x[1:])
    assert places(x, x) != places(x, x.half())
    assert places(x) != places(x.to("meta"))


def test_a_kept_launch_is_made_once_for_each_shape():
    made = []

    @kept
    def launch(size, _):
        made.append(size)
        return Prepared(Kernel(), (size[0],), 1, BLOCK=16)

    x = torch.zeros(4, 3)
    assert launch(x.shape, places(x)) is launch(torch.zeros(4, 3).shape, places(x))
    assert launch(x.T.shape, places(x)) is not launch(x.shape, places(x))
    assert len(made) == 2


@pytest.mark.long
def test_what_reaches_the_driver_is_what_triton_would_have_sent():
    pytest.importorskip("triton.experimental.gluon")
    paths = os.pathsep.join([str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "recorded_launches.py")]
    environment = os.environ | {"PYTHONPATH": paths, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "1 passed" in done.stdout


def test_a_kept_launch_takes_less_than_three_microseconds_of_its_own(monkeypatch):
    monkeypatch.setattr(_Compiled, "run", lambda *_: None)
    launch, tensors = Prepared(Kernel(), (5,), 7, BLOCK=64), [torch.zeros(1)]
    launch(*tensors)
    assert min(timeit.repeat(lambda: launch(*tensors), number=1000, repeat=20)) < 3e-3
