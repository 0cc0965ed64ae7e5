"""What the tests of a session note of the GPUs that they were leased, and the proof that no two had one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTE = """
import os, time
import pytest

LOG = os.environ["LEASE_LOG"]

def note(what, names):
    with open(LOG, "a") as file:
        file.write(f"{what} {os.getpid()} {' '.join(names)}\\n")
"""
"""The beginning of a test file whose tests note what they take (``+``) and give back (``-``) in ``$LEASE_LOG``."""


def taken(lines: Sequence[str], *, killed: str = "", before: int = 0) -> set[tuple[str, str]]:
    """Who (PID) had which GPU at some time.

    Fails where two had one at a time, or one was not given back: but those of the process ``killed``, which others may
    take from line ``before`` on.
    """
    held: dict[str, str] = {}
    pairs: set[tuple[str, str]] = set()
    for number, line in enumerate(lines):
        what, pid, *names = line.split()
        for name in names:
            owner = held.get(name)
            if what == "-":
                assert held.pop(name) == pid
                continue
            lost = number >= before and owner == killed
            assert owner is None or lost, f"{pid} has GPU {name}, and so has {owner}"
            held[name] = pid
            pairs.add((pid, name))
    assert set(held.values()) <= {killed}
    return pairs
