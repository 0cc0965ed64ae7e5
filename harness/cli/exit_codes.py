"""Exit codes: what the end of a command means; every ``--help`` prints its own."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the command's end means to a script or to CI."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    BUDGET = 3
    BASELINE = 4
    NOTHING = 5
    INFRA = 6
    INTERRUPTED = 130


SEARCH = """\b
Exit codes:
  0    answered and certified (also: "no failing value")
  1    answered, but not certified
  2    wrong use: unknown option, axis, fault, file key
  3    budget used up: the report is partial
  4    baseline not reproduced: the smallest value already fails
  5    nothing to do
  6    the machine or the run directory is in the way (disk, processes)
  130  interrupted; everything so far is kept, --resume continues
"""
"""Of a search."""

JOURNAL = """\b
Exit codes:
  0    done
  2    wrong use: unknown option, or a cell that this run does not have
  6    there is no such run, or it cannot be read or written
"""
"""Of a verb of the journal."""
