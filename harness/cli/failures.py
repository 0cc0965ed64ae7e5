"""What ends a command before its answer: one line that says what and where, one that says what to do, an exit code."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from harness.cli.exit_codes import ExitCode
from harness.cli.fitting import fitting
from harness.core.errors import GOES_ON, CleanupError, HarnessError, LaunchError, StoreError, raised_at

if TYPE_CHECKING:
    from harness.core.invocation import Invocation

REPORT_IT = "This is a bug of nsa-harness: please report this line and the command. What was written before is safe."

MOST_LINES, LONGEST_LINE = 10, 360
"""Of things that are wrong with one file, a line each."""


def short(line: str) -> str:
    """``line``, without its middle where that is longer than anybody reads."""
    line = line.strip()
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 100]} .. {line[-90:]}"


def tell(error: BaseException, *, invocation: Invocation | None = None) -> ExitCode:
    """Say on standard error what ``error`` means and what to do; the exit code that means the same.

    ``invocation`` is what was typed, where that is known: what goes on must look for the run in the same place.
    """
    what, then, code = _meaning(error)
    for runs in invocation.values_of("--runs")[-1:] if invocation else ():
        then = then.replace(GOES_ON, f"{GOES_ON} --runs {shlex.quote(runs)}")
    rows = [short(line) for line in what.splitlines() if line.strip()]
    more = [f"and {len(rows) - MOST_LINES} more"] if len(rows) > MOST_LINES else []
    lines = "\n".join((f"nsa-harness: {rows[0] if rows else ''}", *rows[1:MOST_LINES], *more, f"  next: {then}"))
    sys.stderr.write(f"{fitting(lines, to=sys.stderr)}\n")
    return code


def _meaning(error: BaseException) -> tuple[str, str, ExitCode]:
    if isinstance(error, KeyboardInterrupt):
        then = f"What was written before is safe; {GOES_ON}."
        return "interrupted", then, ExitCode.INTERRUPTED
    if isinstance(error, HarnessError):
        is_ours = isinstance(error, StoreError | LaunchError | CleanupError)
        return str(error), error.help, ExitCode.INFRA if is_ours else ExitCode.USAGE
    if isinstance(error, OSError):
        then = f"Put right what this line names. What was written before is safe; {GOES_ON}."
        return f"the machine is in the way: {error} ({raised_at(error)})", then, ExitCode.INFRA
    return f"internal error: {type(error).__name__}: {error} ({raised_at(error)})", REPORT_IT, ExitCode.INTERNAL
