"""A named failure is known by kind, output and stack together."""

from __future__ import annotations

import pytest

from harness.classify.named import matches, name_of
from harness.core.evidence import Evidence, Frame, LogTail, StackSample, ThreadStack, WorkerResult
from harness.core.matrix import SignatureSpec
from harness.core.verdict import Confidence, Kind, Verdict

FRAME = Frame(function="_engine_run_backward", file="torch/autograd/graph.py", line=10)
THREAD = ThreadStack(tid=1, name="main", frames=(FRAME,))
EVIDENCE = Evidence(
    steps_wanted=1,
    logs=(LogTail(id="log-stderr", stream="stderr", text="marked ready twice", size_bytes=1),),
    stacks=(StackSample(id="stack-1", source="py-spy", native=False, t_s=1.0, rank=0, pid=1, threads=(THREAD,)),),
    result=WorkerResult(id="result", status="raised", steps_done=0, exception="RuntimeError", message="no reduction"),
)


def verdict(kind: Kind) -> Verdict:
    return Verdict(kind=kind, cause="deadlock", rule="r", because="b", cites=(), confidence=Confidence.PROOF)


@pytest.mark.parametrize(
    ("wanted", "matching"),
    [
        ({"stack": "run_backward"}, True),
        ({"stack": "all_reduce"}, False),
        ({"log": "ready twice"}, True),
        ({"log": "RuntimeError: no reduction"}, True),
        ({"log": "ready twice", "stack": "all_reduce"}, False),
        ({}, True),
    ],
)
def test_everything_that_is_said_must_be_there(wanted: dict, matching: bool):
    assert matches(SignatureSpec(name="s", kind=Kind.HANG, **wanted), verdict(Kind.HANG), EVIDENCE) is matching


def test_another_kind_is_another_failure():
    signature = SignatureSpec(name="s", kind=Kind.CRASH, log="ready twice")
    assert not matches(signature, verdict(Kind.HANG), EVIDENCE)
    assert name_of((signature,), verdict(Kind.HANG), EVIDENCE) == "HANG (deadlock)"
    assert name_of((signature,), verdict(Kind.CRASH), EVIDENCE) == "s"
    assert name_of((signature,), verdict(Kind.PASS), EVIDENCE) == ""
