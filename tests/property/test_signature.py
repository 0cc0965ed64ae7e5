"""A signature is the same text for the same failure, and another text for another."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from harness.classify.signature import (
    FRAMES,
    fatal_names,
    own_path,
    signature,
    stack_names,
    stack_path,
    traceback_names,
)
from harness.core.evidence import Frame, ThreadStack
from harness.core.verdict import Kind

names = st.from_regex(r"[a-z_][a-z0-9_]{0,12}", fullmatch=True)
roots = st.sampled_from(["/", "/home/a/venv/lib/python3.11/site-packages/", "/opt/x/lib/python3.12/site-packages/"])
lines = st.integers(min_value=1, max_value=5000)
classes = st.sampled_from(["", "Block.", "outer.<locals>."])
addresses = st.integers(min_value=0, max_value=2**48).map(hex)
noise = st.builds(
    lambda function, file: Frame(function=function, file=file, line=0, native=True),
    st.one_of(addresses, st.sampled_from(["PyThread_acquire_lock_timed", "_PyEval_EvalFrameDefault", "??", ""])),
    st.sampled_from(["/lib/x86_64-linux-gnu/libc.so.6", "/opt/lib/libpython3.11.so.1.0", "/usr/bin/python3.12"]),
)
python_stacks = st.lists(st.tuples(names, names), min_size=1, max_size=10)


def thread(frames: list[Frame], tid: int = 1, name: str = "MainThread") -> ThreadStack:
    return ThreadStack(tid=tid, name=name, frames=tuple(frames))


def text_of(stack: ThreadStack) -> str:
    return signature(Kind.HANG, "deadlock", stack_names(stack))


@given(stack=python_stacks, data=st.data())
def test_lines_paths_classes_threads_and_interpreter_frames_do_not_matter(stack, data):
    def drawn() -> ThreadStack:
        root = data.draw(roots)
        frames = data.draw(st.lists(noise, max_size=4))
        for module, function in stack:
            qualified = data.draw(classes) + function
            frames.append(Frame(function=qualified, file=f"{root}{module}.py", line=data.draw(lines)))
        return thread(frames, tid=data.draw(lines), name=data.draw(names))

    assert text_of(drawn()) == text_of(drawn())


@given(stack=python_stacks, between=st.lists(names, max_size=3))
def test_a_source_without_native_frames_gives_the_same_signature_for_a_wait_in_python(stack, between):
    inner, *outer = (Frame(function=f, file=f"/x/{m}.py", line=1) for m, f in stack)
    libc = Frame(function="0x7fa62c0a3e96", file="/lib/libc.so.6", line=0, native=True)
    engine = [Frame(function=f"torch::{n}", file="/x/libtorch.so", line=0, native=True) for n in between]
    assert text_of(thread([libc, inner, *engine, *outer])) == text_of(thread([inner, *outer]))


@given(stack=python_stacks, depth=st.integers(min_value=0, max_value=FRAMES - 1), other=names)
def test_another_function_among_the_innermost_gives_another_signature(stack, depth, other):
    assume(depth < len(stack) and other != stack[depth][1])
    frames = [Frame(function=f, file=f"/x/{m}.py", line=1) for m, f in stack]
    changed = list(frames)
    changed[depth] = replace(frames[depth], function=other)
    assert text_of(thread(frames)) != text_of(thread(changed))


@given(stack=python_stacks, function=names)
def test_a_named_native_function_inside_python_counts(stack, function):
    frames = [Frame(function=f, file=f"/x/{m}.py", line=1) for m, f in stack]
    kernel = Frame(
        function=f"at::native::{function}<float>(at::Tensor const&)", file="/x/libtorch.so", line=0, native=True
    )
    assert f"at::native::{function} < " in text_of(thread([kernel, *frames]))


@given(stack=python_stacks)
def test_kind_and_cause_belong_to_the_signature(stack):
    known = [f for _, f in stack]
    texts = {signature(k, c, known) for k in (Kind.HANG, Kind.CRASH) for c in ("deadlock", "gil-held", None)}
    assert len(texts) == 6


@given(stack=python_stacks, first=lines, second=lines)
def test_traceback_stack_sample_and_faulthandler_name_the_same_frames(stack, first, second):
    sample = thread([Frame(function=f, file=f"/x/{m}.py", line=first) for m, f in stack])
    entries = [f'  File "/y/{m}.py", line {second}, in {f}\n    code()\n' for m, f in reversed(stack)]
    fatal = "".join(f'  File "/z/{m}.py", line {second} in {f}\n' for m, f in stack)
    head = "Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n"
    assert traceback_names(
        "Traceback (most recent call last):\n" + "".join(entries) + "ValueError: x\n"
    ) == stack_names(sample)
    assert fatal_names(f"{head}{fatal}\nThread 0x2 (most recent call first):\n  <no frame>\n") == stack_names(sample)


def test_only_the_last_of_chained_tracebacks_counts():
    first = 'Traceback (most recent call last):\n  File "/x/a.py", line 1, in a\nKeyError: 1\n'
    second = 'Traceback (most recent call last):\n  File "/x/b.py", line 1, in b\nValueError: 2\n'
    joined = f"{first}\nDuring handling of the above exception, another exception occurred:\n\n{second}"
    assert traceback_names(joined) == ("b.b",)


@given(stack=python_stacks, depth=st.integers(min_value=0, max_value=9), kind=st.sampled_from(["list", "dict", "set"]))
def test_a_comprehension_is_part_of_the_function_around_it(stack, depth, kind):
    frames = [Frame(function=f, file=f"/x/{m}.py", line=1) for m, f in stack]
    depth = min(depth, len(frames) - 1)
    around = frames[depth]
    inside = replace(around, function=f"{around.function}.<locals>.<{kind}comp>")
    older = [*frames[:depth], inside, *frames[depth:]]
    assert text_of(thread(older)) == text_of(thread(frames))


@given(depth=st.integers(min_value=1, max_value=900), kind=st.sampled_from(["alone", "with another"]))
def test_how_deep_a_function_called_itself_does_not_matter_to_the_path(depth, kind):
    turn = ["walk"] if kind == "alone" else ["visit", "walk"]
    names = ["wait", *turn * depth, "main"]
    frames = [Frame(function=name, file="/x/tree.py", line=line) for line, name in enumerate(names)]
    assert own_path(frames) == tuple(f"tree.{name}" for name in ("wait", *turn, "main"))


@given(between=st.lists(names, max_size=8), inside=st.lists(names, max_size=8))
def test_what_packages_put_between_two_functions_of_the_program_does_not_matter_to_the_path(between, inside):
    step, main = (Frame(function=name, file="/x/train.py", line=1) for name in ("step", "main"))
    torch = "/x/lib/python3.11/site-packages/torch/module.py"
    ours, wrapped = ([Frame(function=name, file=torch, line=1) for name in some] for some in (between, inside))
    assert stack_path(thread([*wrapped, step, *ours, main])) == ("train.step", "train.main")


@given(stack=python_stacks)
def test_a_program_that_is_an_installed_package_has_a_path_of_its_own(stack):
    frames = [Frame(function=f, file=f"/v/lib/python3.11/site-packages/p/{m}.py", line=1) for m, f in stack]
    assert own_path(frames)
