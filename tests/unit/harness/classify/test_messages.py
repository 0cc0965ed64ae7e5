"""Causes in the words of torch 2.11 to 2.13, copied from real runs."""

from __future__ import annotations

import pytest

from harness.classify.messages import OUT_OF_MEMORY, accused_ranks, carried, cause_of, headline, is_consequence
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
        ("OSError: [Errno 98] Address already in use", "port-in-use"),
        ("bind: Address already in use", "port-in-use"),
        ("error while attempting to bind on address ('127.0.0.1', 80): address already in use", "port-in-use"),
        ("The client socket has timed out after 60s while trying to connect to (127.0.0.1, 29500).", "rendezvous"),
        ("Gloo connectFullMesh failed with timed out connecting: Connection refused, remote=[::1]:9", "rendezvous"),
        ("via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout", "rendezvous"),
        ("wait timeout after 300000ms, keys: /default_pg/0//cpu//0", "rendezvous"),
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError: ", "rendezvous"),
        ("The connection to the C10d store has failed. See inner exception for details.", "rendezvous"),
        ("Triton Error [CUDA]: an illegal memory access was encountered", "illegal-address"),
        ("NCCL error: unhandled cuda error, Cuda failure 'unspecified launch failure'", "launch-failure"),
        ("DataLoader timed out after 5 seconds", "loader-stall"),
        ("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 662", "write-failed"),
        ("shapes (3, 4) and (5, 6) cannot be multiplied", None),
        ("", None),
    ],
)
def test_a_message_names_its_cause_or_none(text, cause):
    assert cause_of(text) == cause


@pytest.mark.parametrize(
    "text",
    [
        "LookupError: feature store: lookup of user 7 timed out after 30 s, connection refused",
        "FileNotFoundError: cannot restore checkpoint: download refused by server (403)",
        "ValueError: unexpected pos 7 vs 8 of the cursor",
        "ValueError: order 7 has been marked as ready twice",
        "ValueError: e-mail address already in use",
        "TimeoutError: the client socket pool was idle: query timed out",
        "ValueError: rendezvous of the two probes failed: off by 3 km",
        "TimeoutError: database: wait timeout after 500ms",
        "ValueError: unspecified launch failure of rocket 3",
        "ValueError: found different shapes across ranks of the tree",
        "TimeoutError: MyDataLoader timed out after three tries",
        "KeyError: 'RendezvousErrorPage'",
    ],
)
def test_ordinary_words_are_no_cause(text):
    assert cause_of(text) is None


@pytest.mark.parametrize(
    ("message", "ran_out"),
    [
        ("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried 1", True),
        ("[enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried 1", True),
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB", True),
        ("step 3 failed: CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("NCCL error: unhandled cuda error, Last error: Cuda failure 2 'out of memory'", True),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.", True),
        ("[Errno 12] Cannot allocate memory", True),
        ("unable to mmap 64 bytes from file </x>: Cannot allocate memory (12)", True),
        ("parser ran out of memory slots: raise max_slots in config", False),
        ("no report of the earlier out of memory error at /x", False),
        ("we cannot allocate memory budget to team b", False),
        ("the CUDA out of memory handler is not installed", False),
        ("", False),
    ],
)
def test_memory_ran_out_where_an_allocator_says_so_in_its_own_form(message, ran_out):
    assert bool(OUT_OF_MEMORY.search(message)) is ran_out


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
