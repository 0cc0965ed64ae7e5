"""Every stack source sees the known frame in real processes, or says why it cannot."""

import pytest

from harness.core.evidence import StackSample
from harness.observe.stacks.table import STACK_SOURCES
from stack_sources import STACK_SOURCE_CASES, ScriptedSource, check_stack_source


@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
@pytest.mark.parametrize("case", STACK_SOURCE_CASES, ids=lambda case: case.__name__.strip("_"))
@pytest.mark.parametrize("name", STACK_SOURCES.names())
def test_source_keeps_the_contract(name, case, native, tmp_path):
    case(STACK_SOURCES.load(name)(), trial_dir=tmp_path, native=native)


def test_source_that_sees_another_function_breaks_the_contract(tmp_path):
    with pytest.raises(AssertionError, match="does not see waits_for_a_lock"):
        check_stack_source(ScriptedSource(native=False), trial_dir=tmp_path)


def test_source_that_fails_without_a_good_reason_breaks_the_contract(tmp_path):
    with pytest.raises(AssertionError, match="no idea"):
        check_stack_source(ScriptedSource(fail="no idea"), trial_dir=tmp_path)


def test_source_that_puts_the_innermost_frame_last_breaks_the_contract(tmp_path):
    class UpsideDown:
        name = "upside-down"

        def sample(self, **kwargs):
            return ScriptedSource(("<module>", "waits_for_a_lock"), native=False).sample(**kwargs)

    with pytest.raises(AssertionError, match="innermost is not first"):
        check_stack_source(UpsideDown(), trial_dir=tmp_path)


def test_source_that_claims_native_frames_without_any_breaks_the_contract(tmp_path):
    class Boaster:
        name = "boaster"

        def sample(self, *, pid, t_s, rank, **rest):
            return StackSample(id="stack-1", source="boaster", native=True, t_s=t_s, rank=rank, pid=pid, threads=())

    with pytest.raises(AssertionError, match="wrong about having native frames"):
        check_stack_source(Boaster(), trial_dir=tmp_path)
