"""The work is done, and the process aborts while it ends: a thread in C++ asked for an interpreter that is gone."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from harness.classify.facts import conclude, ended
from harness.core.outcome import Ending
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict

CAUSE = "exit-abort"

SAID = "terminate called without an active exception"
"""What libstdc++ prints when a thread is ended below a frame that lets nothing through, or destroyed while it runs.

The first is what the interpreter does, up to Python 3.13, to a thread that asks for the GIL while it shuts down.
"""

_NOT_PYTHONS = re.compile(r"Fatal Python error: Aborted\s+Current thread 0x[0-9a-f]+[^\n]*\n\s+<no Python frame>")
"""faulthandler, of a thread that aborted and runs no Python: it was not the program that called for its end."""

REMEDY = (
    "what was saved before stands. Have nothing of torch.distributed outlive the program: wait for every work, call "
    "destroy_process_group() at the end, and import torch.distributed.nn before init_process_group (imported later, "
    "by DDP for one, it keeps the group in its functions' defaults, beyond destroy_process_group)"
)


def exit_abort(case: Case) -> Verdict | None:
    """SIGABRT with libstdc++'s words for it, after all steps or while the interpreter shut down."""
    outcome, result, last = case.outcome, case.evidence.result, case.evidence.last
    if outcome.exit is None or outcome.exit.signal != signal.SIGABRT or outcome.ending is Ending.STOPPED_BY_US:
        return None
    if result is not None and result.status == "raised":
        return None
    at_exit = last is not None and last.phase == "exit"
    log = next((log for log in case.evidence.logs if SAID in log.text), None)
    if log is None or not (ended(case) or at_exit):
        return None
    no_python = bool(_NOT_PYTHONS.search(log.text))
    steps = f"all {case.evidence.steps_wanted} steps were done" if ended(case) else "the program was through"
    whose = "a thread that runs no Python aborted" if no_python else "which thread it was, nothing says"
    return conclude(
        case,
        Kind.CRASH,
        cause=CAUSE,
        because=f'{steps}; while the interpreter shut down it was ended by SIGABRT, with "{SAID}": so C++ ends a '
        f"process one of whose threads, such as gloo's, asks for an interpreter that is gone; {whose}. The work is "
        f"done: {REMEDY}",
        cites=("exit", "progress", log.id),
        confidence=Confidence.HIGH if no_python else Confidence.MEDIUM,
        phase="exit",
        names=(),
    )
