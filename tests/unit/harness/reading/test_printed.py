"""What a program printed of its end: which lines are its own, and whether a traceback is its last word."""

from __future__ import annotations

import pytest

from harness.core.evidence import Frame, WorkerResult
from harness.reading.printed import ending_traceback, fatal_frames, of_its_end, quoted_in, raised_at, raised_in


@pytest.mark.parametrize(
    "report",
    [
        "E1127 08:33:48.872000 12755 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 7) local",
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 7) local_rank: 1 (pid: 12840) of binary",
    ],
)
def test_what_the_launcher_prints_is_not_the_programs_own(report):
    warning = "W1127 08:33:48.838000 12755 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 12839"
    closing = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" + 60 * "=" + "\ntrain.py FAILED"
    text = f"shard 3 is missing\n{warning}\nbye\n{report}\nTraceback (most recent call last):\n{closing}\n"

    assert of_its_end(text) == ["shard 3 is missing", "bye"]


RAISED = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    main()
  File "train.py", line 3, in load
    return open(path)
           ^^^^^^^^^^
FileNotFoundError: no such file: cache"""

CHAINED = f"{RAISED}\n\nDuring handling of the above exception, another exception occurred:\n\n{RAISED}"

SYNTAX = """  File "train.py", line 3
    def f(:
          ^
SyntaxError: invalid syntax"""

GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 9, in <module>
  |     raise ExceptionGroup("two", [one, other])
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: one
    +------------------------------------"""

RANKED = "\n".join(f"[rank0]: {line}" for line in RAISED.splitlines())


@pytest.mark.parametrize("text", [RAISED, CHAINED, SYNTAX, GROUP, RANKED, f"step 1\n{RAISED}", f"{RAISED}\n\n  \n"])
def test_a_traceback_that_nothing_is_printed_below_ends_the_output(text):
    assert ending_traceback(text.splitlines()) != ""


@pytest.mark.parametrize("below", ["validation failed: loss is 0.3", "step 1\nstep 2", "[rank0]: step 3"])
@pytest.mark.parametrize("text", [RAISED, CHAINED, SYNTAX, GROUP, RANKED])
def test_a_program_that_printed_more_below_a_traceback_need_not_have_ended_by_it(text, below):
    assert ending_traceback(f"{text}\n{below}\n".splitlines()) == ""


def test_output_without_a_traceback_ends_with_none():
    assert ending_traceback(["step 1", "error: no data"]) == ending_traceback([]) == ""


def test_the_innermost_frame_of_the_last_traceback_comes_first():
    other = RAISED.replace("load", "save")
    assert [frame.function for frame in raised_in(f"{RAISED}\nstep 1\n{other}")] == ["save", "<module>"]


def test_the_first_thread_of_a_fatal_error_is_the_one_that_ended_it():
    frames = '  File "a.py", line 4 in f\n  File "a.py", line 9 in <module>\n'
    text = f"Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n{frames}"
    assert [frame.function for frame in fatal_frames(text)] == ["f", "<module>"]


def test_the_thread_that_a_signal_met_may_stand_below_others_and_below_a_dump_that_was_asked_for():
    other = 'Thread 0x2 (most recent call first):\n  File "a.py", line 7 in prefetch\n\n'
    met = 'Current thread 0x1 [main] (most recent call first):\n  File "a.py", line 4 in step\n'
    asked = f"Timeout (0:00:01)!\n{other}"
    assert [frame.line for frame in fatal_frames(f"{asked}Fatal Python error: Aborted\n\n{other}{met}")] == [4]
    assert [frame.line for frame in fatal_frames(f"Fatal Python error: Aborted\n\n{other}")] == [7]
    assert fatal_frames(asked) == ()


@pytest.mark.parametrize("module", ["multiprocessing.pool.", "concurrent.futures.process._"])
def test_a_pools_worker_is_where_its_exception_was_raised(module):
    asker = RAISED.replace("in load", "in get").replace("train.py", "/usr/lib/python3.11/multiprocessing/pool.py")
    text = f'{module}RemoteTraceback: \n"""\n{RAISED}\n"""\n\nThe above exception was the direct cause:\n\n{asker}'
    assert [frame.function for frame in raised_in(text)] == ["load", "<module>", "get", "<module>"]

    later = RAISED.replace("in load", "in save")
    assert [frame.function for frame in raised_in(f"{text}\nstep 1\n{later}")] == ["save", "<module>"]


def test_the_frames_of_a_group_stand_behind_a_rule():
    assert [frame.line for frame in raised_in(GROUP)] == [9]


ORIGINAL = f"RuntimeError: Caught KeyError in DataLoader worker process 0.\nOriginal {RAISED.replace('load', 'fetch')}"
SPAWNED = f"\n\n-- Process 1 terminated with the following error:\n{RAISED.replace('load', 'work')}"
SERVED = f"\n{75 * '-'}\n{RAISED.replace('load', 'serve')}\n{75 * '-'}"
WAITS = RAISED.replace("load", "wait").rpartition("\n")[0]
"""The frames of whoever waited; its error is what the message says."""


@pytest.mark.parametrize(
    ("message", "inner"), [(ORIGINAL, "fetch"), (f"torch.X: {SPAWNED}", "work"), (f"RemoteError: {SERVED}", "serve")]
)
def test_who_waited_for_another_process_comes_behind_the_traceback_that_its_message_quotes(message, inner):
    names = [inner, "<module>", "wait", "<module>"]
    assert [frame.function for frame in raised_in(f"{WAITS}\n{message}")] == names
    assert quoted_in(message).endswith(("tokens", "cache", "-"))

    own = tuple(Frame(function=name, file="train.py", line=3) for name in ("wait", "<module>"))
    result = WorkerResult(id="result", status="raised", steps_done=0, message=message, traceback="", frames=own)
    assert [frame.function for frame in raised_at(result)] == names


def test_a_loader_in_a_spawned_process_is_quoted_twice():
    inside = f"{RAISED.replace('load', 'run').rpartition(chr(10))[0]}\n{ORIGINAL}"
    text = f"{WAITS}\ntorch.X: \n\n-- Process 1 terminated with the following error:\n{inside}"
    assert [frame.function for frame in raised_in(text)][::2] == ["fetch", "run", "wait"]


def test_a_message_may_quote_files_and_tracebacks_that_are_no_place_of_its_own():
    quoting = f'{WAITS}\nValueError: bad config:\n  File "conf.yaml", line 3\nKeyError: 3\n'
    assert [frame.file for frame in raised_in(quoting)] == ["train.py", "train.py"]

    own = (Frame(function="retry", file="train.py", line=7),)
    message = f"retry 3 failed, the first:\n{RAISED}"
    result = WorkerResult(
        id="result", status="raised", steps_done=0, message=message, traceback=f"{WAITS}\n{message}", frames=own
    )
    assert (quoted_in(message), raised_at(result)) == ("", own)


def test_a_program_that_is_no_python_is_the_last_traceback_below_one_that_was_dealt_with():
    assert [frame.line for frame in raised_in(f"{RAISED}\nnext attempt\n{SYNTAX}")] == [3]


def test_a_pools_worker_is_told_beside_the_frames_of_whoever_asked():
    own = (Frame(function="get", file="pool.py", line=7),)
    result = WorkerResult(
        id="result", status="raised", steps_done=0, message="3", frames=own, quoted=f'\n"""\n{RAISED}"""'
    )
    assert [frame.function for frame in raised_at(result)] == ["load", "<module>", "get"]


IGNORED = """Exception ignored in: <function Writer.__del__ at 0x7f0>
Traceback (most recent call last):
  File "train.py", line 5, in __del__
    self.file.close()
AttributeError: 'Writer' object has no attribute 'file'
"""


def test_what_python_ignores_at_its_exit_ends_nothing():
    assert of_its_end(f"no dataset named foo\n{IGNORED}") == ["no dataset named foo"]
    assert ending_traceback(of_its_end(f"{RAISED}\n{IGNORED}")) == RAISED
    full = "Exception ignored in: <_io.TextIOWrapper name='<stdout>'>\nOSError: [Errno 28] No space left on device"
    assert of_its_end(full) == full.splitlines()


def test_where_torchs_compiler_failed_is_the_users_code_that_it_names():
    message = (
        "Dynamo failed to run FX node\n\nfrom user code:\n"
        '   File "/src/train.py", line 4, in step\n    return x @ w\n\nSet TORCHDYNAMO_VERBOSE=1\n'
    )
    own = (Frame(function="<module>", file="/src/train.py", line=5),)
    result = WorkerResult(
        id="result", status="raised", steps_done=0, phase=None, exception="torch._dynamo.exc.TorchRuntimeError",
        message=message, frames=own,
    )  # fmt: skip
    assert [frame.line for frame in raised_at(result)] == [4, 5]
    other = WorkerResult(
        id="result", status="raised", steps_done=0, phase=None, exception="RuntimeError", message=message, frames=own
    )
    assert raised_at(other) == own
