"""Exit status 0 without all steps done: not a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import conclude, place, seen_to_do_its_steps
from harness.classify.signature import signature
from harness.core.outcome import Ending
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict


def early_exit(case: Case) -> Verdict | None:
    """The process says that all went well, but it did not do its steps."""
    outcome, evidence, result = case.outcome, case.evidence, case.evidence.result
    if outcome.ending is not Ending.EXITED or outcome.exit is None or outcome.exit.code != 0:
        return None
    if not evidence.steps_wanted or (result is None and seen_to_do_its_steps(case)):
        return None
    if result is not None and (result.status != "finished" or result.steps_done == evidence.steps_wanted):
        return None
    done = result.steps_done if result is not None else evidence.steps_done
    said = "and left no result" if result is None else "and its result says finished"
    last = evidence.last
    return conclude(
        case,
        Kind.CRASH,
        cause="exit-early",
        because=f"exit status 0 with {done} of {evidence.steps_wanted} steps done, {place(case)}, {said}",
        cites=("exit", "progress", *((result.id,) if result is not None else ())),
        confidence=Confidence.PROOF,
        signature=signature(Kind.CRASH, "exit-early", (last.phase,) if last else ()),
    )
