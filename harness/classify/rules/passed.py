"""Exit status 0: with a result and every step done it is a pass, of several ranks too; without them it is none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import STRANGERS, conclude, has_done_its_steps, place, ranks_of
from harness.core.outcome import Ending
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict


MUST_WAIT = ": if the work was in them, the program must wait for it (run it in the foreground)"
"""What a stranger's program may have to change: a launcher that leaves its work to a daemon passes before the work."""


def passed(case: Case) -> Verdict | None:
    """All three say so: exit status, the worker's result, the number of steps. A process left behind is no failure.

    Of a target that counts no steps, the exit status is all there is; of a stranger's program, that and the steps that
    were seen.
    """
    outcome, result, wanted = case.outcome, case.evidence.result, case.evidence.steps_wanted
    if outcome.ending is not Ending.EXITED or outcome.exit is None or outcome.exit.code != 0:
        return None
    if result is None:
        if wanted and not has_done_its_steps(case):
            return None
    elif result.status != "finished" or result.steps_done != wanted:
        return None
    steps = f"after {wanted} of {wanted} steps " if wanted else ""
    because = f"exit status 0 {steps}in {outcome.duration_s:.1f} s"
    cites = ["exit", "progress", *([result.id] if result is not None else [])]
    if outcome.cleanup.ended:
        because += f"; it left {outcome.cleanup.ended} process(es) behind, which were ended"
        because += MUST_WAIT if case.trial.target == STRANGERS else ""
        cites.append("cleanup")
    if case.evidence.dealt_with:
        because += f"; {case.evidence.dealt_with}"
    return conclude(case, Kind.PASS, because=because, cites=cites, confidence=Confidence.PROOF)


def ranks_passed(case: Case) -> Verdict | None:
    """The trial's exit status is 0, and no rank says or shows that it did not finish."""
    verdict, wanted = passed(case), case.evidence.steps_wanted
    if verdict is None:
        return None
    for rank in case.evidence.ranks:
        if rank.result is not None and (rank.result.status != "finished" or rank.result.steps_done != wanted):
            return None
        if rank.exit is not None and (rank.exit.code != 0 or (rank.result is None and rank.steps_done < wanted)):
            return None
    because = f"all {ranks_of(case)} ranks: {verdict.because}"
    return replace(verdict, because=because, rank=None)


def early_exit(case: Case) -> Verdict | None:
    """The process says that all went well, but it did not do its steps."""
    outcome, evidence, result = case.outcome, case.evidence, case.evidence.result
    if outcome.ending is not Ending.EXITED or outcome.exit is None or outcome.exit.code != 0:
        return None
    if not evidence.steps_wanted or (result is None and has_done_its_steps(case)):
        return None
    if result is not None and (result.status != "finished" or result.steps_done == evidence.steps_wanted):
        return None
    if case.trial.target == STRANGERS and evidence.measurement.startup_s is None:
        return conclude(
            case,
            Kind.UNRESOLVED,
            cause="steps-not-counted",
            because=f"exit status 0, and nothing counted a step, of which {evidence.steps_wanted} were asked for: "
            r"name what does, --progress 'step (\d+)' for lines that it prints",
            cites=("exit", "progress"),
            confidence=Confidence.LOW,
        )
    steps_done = result.steps_done if result is not None else evidence.steps_done
    report = "and left no result" if result is None else "and its result says finished"
    last = evidence.last
    return conclude(
        case,
        Kind.CRASH,
        cause="exit-early",
        because=f"exit status 0 with {steps_done} of {evidence.steps_wanted} steps done, {place(case)}, {report}",
        cites=("exit", "progress", *((result.id,) if result is not None else ())),
        confidence=Confidence.PROOF,
        names=(last.phase,) if last else (),
    )
