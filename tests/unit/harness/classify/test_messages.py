"""Causes in the words of torch 2.11 to 2.13, copied from real runs."""

from __future__ import annotations

import pytest

from harness.classify.messages import accused_ranks, carried, cause_of, headline, is_consequence
from harness.core.evidence import WorkerResult

READY_TWICE = (
    "Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) Use of a "
    "module parameter outside the `forward` function. 2) Reused parameters in multiple reentrant backward passes.\n"
    "Parameter at index 192 with name blocks.11.mlp.fc2.weight has been marked as ready twice. This means that "
    "multiple autograd engine  hooks have fired for this particular parameter during this iteration."
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (READY_TWICE, "ready-twice"),
        ("Expected to have finished reduction in the prior iteration before starting a new one.", "unused-parameter"),
        (
            "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during",
            "recomputation-mismatch",
        ),
        ("Detected mismatch between collectives on ranks. Rank 0 is running collective: ...", "collective-mismatch"),
        ("[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 16 vs 8", "collective-mismatch"),
        ("The server socket has failed to listen [...] code: -98, name: EADDRINUSE", "port-in-use"),
        ("Timed out after 3 seconds waiting for clients. 1/2 clients joined.", "rendezvous"),
        ("CUDA error: device-side assert triggered\nCUDA kernel errors might be reported later", "device-assert"),
        ("CUDA error: an illegal memory access was encountered", "illegal-address"),
        ("CUDA error: misaligned address", "misaligned-address"),
        ("CUDA error: unspecified launch failure", "launch-failure"),
        ("DataLoader worker (pid 4711) is killed by signal: Killed.", "loader-worker-dead"),
        ("DataLoader worker (pid(s) 4711, 4712) exited unexpectedly", "loader-worker-dead"),
        ("shapes (3, 4) and (5, 6) cannot be multiplied", None),
        ("", None),
    ],
)
def test_a_message_names_its_cause_or_none(text, cause):
    assert cause_of(text) == cause


@pytest.mark.parametrize(
    ("exception", "message", "follows"),
    [
        ("nsa.errors.RankLost", "rank 0 waited for the other ranks", True),
        ("RuntimeError", "[pair.cc:553] Connection closed by peer [127.0.0.1]:9", True),
        ("RuntimeError", "[unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation to complete", True),
        ("RuntimeError", "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 3000 ms", True),
        ("RuntimeError", READY_TWICE, False),
        ("ValueError", "shapes", False),
        (None, None, False),
    ],
)
def test_what_a_rank_says_that_lost_another_is_known(exception, message, follows):
    result = WorkerResult(id="result", status="raised", steps_done=0, exception=exception, message=message)
    assert is_consequence(result) is follows


def test_the_accused_are_read_out_of_the_message():
    assert accused_ranks("lost one: rank 1 does not answer a roll call. Look at") == (1,)
    assert accused_ranks("[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 3000 ms") == (1, 3)
    assert accused_ranks("Connection closed by peer") == ()


def test_the_sentence_that_names_the_parameter_comes_first():
    assert headline(READY_TWICE) == (
        "Parameter at index 192 with name blocks.11.mlp.fc2.weight has been marked as ready twice. "
        "(Expected to mark a variable ready only once)"
    )
    assert headline("one\ntwo") == "one"
    assert headline(None) == ""


SPAWNED = "\n\n-- Process 1 terminated with the following error:\n"
QUOTED = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\n'


@pytest.mark.parametrize(
    ("exception", "message", "carries"),
    [
        ("ValueError", "bad\nsample", ("ValueError", "bad\nsample")),
        ("x.Spawned", f"{SPAWNED}{QUOTED}a.NoData: rank 1\nhas none\n", ("NoData", "rank 1\nhas none")),
        ("KeyError", f"Caught KeyError in worker 1.\nOriginal {QUOTED}KeyError: 'a'\n", ("KeyError", "'a'")),
        ("x.Spawned", f"{SPAWNED}{QUOTED}KeyboardInterrupt\n", ("KeyboardInterrupt", "")),
        ("x.Spawned", f"{SPAWNED}{QUOTED}", ("Spawned", f"{SPAWNED}{QUOTED}")),
        ("x.Retried", f"the first:\n{QUOTED}KeyError: 'a'\n", ("Retried", f"the first:\n{QUOTED}KeyError: 'a'\n")),
        (None, None, ("an exception", "")),
    ],
)
def test_an_exception_that_quotes_anothers_traceback_is_that_one(exception, message, carries):
    raised = WorkerResult(id="result", status="raised", steps_done=1, exception=exception, message=message)
    assert carried(raised) == carries
