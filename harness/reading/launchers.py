"""What torch's launcher prints at its end of the ranks that failed."""

from __future__ import annotations

import re
from typing import NamedTuple

FAILED_RANK = re.compile(
    r"^\s*rank\s*: (\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*: (-?\d+) \(pid: (\d+)\)", re.MULTILINE
)
"""A failed rank in that summary: its rank, its exit code (a signal's number with a minus), its PID."""

_ROOT_CAUSE = "Root Cause (first observed failure):"


class RootCause(NamedTuple):
    """The rank that failed first, as the launcher observed it; ``code`` is negative for a signal."""

    rank: int
    code: int


def root_cause(text: str) -> RootCause | None:
    """The rank that the last summary in ``text`` calls the first to fail; None without one."""
    _, heading, table = text.rpartition(_ROOT_CAUSE)
    match = FAILED_RANK.search(table) if heading else None
    return RootCause(rank=int(match[1]), code=int(match[2])) if match is not None else None
