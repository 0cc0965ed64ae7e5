"""What a case shows, as sentences: a thread or a child of the program that an exception ended."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from harness.classify.signs import ended_by_exception
from harness.core.evidence import LogTail

THREAD = """step 3
Exception in thread Thread-1 (_run):
Traceback (most recent call last):
  File "/opt/lib/python3.11/threading.py", line 982, in run
    self._target(*self._args, **self._kwargs)
  File "/home/me/train.py", line 30, in frames
    x = torch.frombuffer(raw).reshape(16, 32)
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/torch/_tensor.py", line 9, in reshape
    return of(self)
RuntimeError: shape '[16, 32]' is invalid
"""

CHILD = """Process SpawnProcess-2:
Traceback (most recent call last):
  File "/home/me/load.py", line 7, in load
    raise Missing
load.Missing
"""


@pytest.fixture(autouse=True)
def nobody_was_looked_at(monkeypatch):
    monkeypatch.setattr("harness.classify.signs.job_of_case", lambda case: SimpleNamespace(stand={}))


@dataclass
class Shown:
    logs: tuple[LogTail, ...]


@dataclass
class Seen:
    evidence: Shown


def printed(text, *, late=""):
    data = text + late
    log = LogTail(id="log-1", stream="stderr", text=data, size_bytes=len(data), late_bytes=len(late))
    return Seen(Shown((log,)))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            THREAD,
            "before that thread Thread-1 (_run) had ended by an exception in frames (home/me/train.py:30): "
            "RuntimeError: shape '[16, 32]' is invalid",
        ),
        (
            CHILD,
            "before that process SpawnProcess-2 had ended by an exception in load (home/me/load.py:7): load.Missing",
        ),
        (CHILD.replace("load.Missing", "KeyboardInterrupt"), ""),  # somebody pressed Ctrl-C
        (CHILD.replace("Process SpawnProcess-2:\n", ""), ""),  # printed, and perhaps dealt with
        ("", ""),
    ],
)
def test_of_a_thread_or_child_that_an_exception_ended_name_line_and_message_are_told(text, sentence):
    assert ended_by_exception(printed(text)) == sentence


def test_what_an_end_by_our_hand_makes_it_print_is_not_told():
    assert ended_by_exception(printed("step 3\n", late=THREAD)) == ""
    assert ended_by_exception(printed(CHILD, late=THREAD)).startswith("before that process SpawnProcess-2")


def test_a_long_message_is_cut():
    assert len(ended_by_exception(printed(CHILD.replace("load.Missing", "Missing: " + "x" * 999)))) < 300
