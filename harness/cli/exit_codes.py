"""Exit codes: what the end of a command means; every ``--help`` prints its own.

Two are the same everywhere: 130 is Ctrl-C, at whatever moment, and 70 a mistake of ours, so that none looks like an
answer. (``trial`` has 128 for both that and wrong use, since git bisect run takes 70 for a bad commit.)
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.boundary import Boundary
    from harness.core.record import TrialRecord


class ExitCode(IntEnum):
    """What the command's end means to a script or to CI."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    BUDGET = 3
    BASELINE = 4
    NOTHING = 5
    INFRA = 6
    INTERNAL = 70
    INTERRUPTED = 130


def of_boundary(boundary: Boundary, records: Iterable[TrialRecord]) -> ExitCode:
    """What the answer of a search along one axis means to a script."""
    from harness.core.boundary import Finding
    from harness.core.verdict import Kind

    if boundary.finding is Finding.ALL_FAIL:
        return ExitCode.BASELINE
    if boundary.certified:
        return ExitCode.OK
    kinds: dict[object, set[Kind]] = {}
    for record in records:
        kinds.setdefault(record.trial.point.get(boundary.axis), set()).add(record.verdict.kind)
    spoiled = {Kind.INFRA} in kinds.values()
    return ExitCode.INFRA if spoiled and boundary.finding is Finding.INCONCLUSIVE else ExitCode.FINDINGS


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
