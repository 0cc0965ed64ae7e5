"""It ended well, and still is not good enough for what was asked of it: or its gradients were not those of its loss."""

from __future__ import annotations

import math
import re
from statistics import median
from typing import TYPE_CHECKING

from harness.classify.facts import conclude, ids_of
from harness.classify.rules.passed import passed
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.core.success import Success
    from harness.core.verdict import Case, Verdict

GB = 1e9

NAMED = 3
"""Parameters whose gradient is wrong that are named one by one."""


def below_target(case: Case) -> Verdict | None:
    """A trial that would pass, but misses what the matrix asks: steps, memory, speed, output.

    A quantity that was asked for and not measured is missed too: an unmeasured target would otherwise always be met.
    """
    missed = None if case.trial.success is None else next(_shortfalls(case, case.trial.success), None)
    if missed is None or passed(case) is None:
        return None
    return conclude(case, Kind.BELOW_TARGET, because=missed, cites=_cites(case), confidence=Confidence.PROOF)


def nonfinite_loss(case: Case) -> Verdict | None:
    """A trial that would pass, but whose loss was seen to be NaN or infinite, where a finite one was asked for."""
    success, facts = case.trial.success, dict(case.evidence.measurement.facts)
    if success is None or success.loss is None or passed(case) is None:
        return None
    loss, step = facts.get("loss"), facts.get("first_nonfinite_loss_step")
    if step is None and (loss is None or math.isfinite(loss)):
        return None
    because = f"the loss was not finite from step {step:g} on" if step is not None else f"the last loss is {loss}"
    return conclude(case, Kind.NONFINITE, because=because, cites=_cites(case), confidence=Confidence.PROOF)


def _shortfalls(case: Case, success: Success) -> Iterator[str]:
    facts, measured = dict(case.evidence.measurement.facts), case.evidence.measurement
    if success.steps is not None and case.evidence.steps_done < success.steps:
        yield f"{case.evidence.steps_done} steps were done, {success.steps} were asked for"
    if success.max_memory_gb is not None:
        used = facts.get("peak_memory_bytes", float(measured.peak_rss_bytes)) / GB
        if used > success.max_memory_gb:
            yield f"it used {used:.2f} GB of memory, at most {success.max_memory_gb:g} GB were asked for"
    if success.min_tokens_per_s is not None:
        yield from _too_slow(success.min_tokens_per_s, facts.get("tokens"), measured.step_s)
    if success.loss == "decreasing":
        first, last = facts.get("first_loss"), facts.get("loss")
        if first is None or last is None:
            yield "no loss was measured, and a decreasing one was asked for"
        elif not last < first:
            yield f"the loss went from {first:g} to {last:g}, a decreasing one was asked for"
    output = case.evidence.output
    for pattern in success.require:
        if not re.search(pattern, output):
            yield f"nothing in its output matches {pattern!r}, which was asked for"
    for pattern in success.forbid:
        if match := re.search(pattern, output):
            yield f"its output has {match[0]!r}, which must not be there"


def _too_slow(least: float, tokens: float | None, step_s: tuple[float, ...]) -> Iterator[str]:
    # The first step warms up; where there are more, it does not count.
    seconds = median(step_s[1:] or step_s) if step_s else None
    if tokens is None or not seconds:
        yield f"tokens per second were not measured, at least {least:g} were asked for"
    elif tokens / seconds < least:
        yield f"{tokens / seconds:.1f} tokens/s (median step), at least {least:g} were asked for"


def _cites(case: Case) -> list[str]:
    return ["exit", "progress", *ids_of(case.evidence.logs)]


def gradients_wrong(case: Case) -> Verdict | None:
    """A trial that would pass, where the true gradients were asked for, and the step's own differ or were not compared.

    Gradients that were not compared miss the target too: an unmeasured one would otherwise always be met.
    """
    success, truth = case.trial.success, case.evidence.gradients
    if success is None or not success.gradients or passed(case) is None:
        return None
    if truth is None or truth.why_not:
        why = truth.why_not if truth else "the program left no comparison"
        because, cause = f"the true gradients were asked for, and not compared: {why}", "gradients-unknown"
    elif truth.wrong or truth.missing:
        because, cause = _sentence(case), "gradients-wrong"
    else:
        return None
    return conclude(
        case,
        Kind.BELOW_TARGET,
        cause=cause,
        because=because,
        cites=("exit", *((truth.id,) if truth else ())),
        confidence=Confidence.PROOF,
        phase="backward",
        names=(),
    )


def _sentence(case: Case) -> str:
    truth = case.evidence.gradients
    assert truth is not None, "only called with a comparison"
    parts = [f"it ended well, but of {truth.compared} gradients of step {truth.step}"]
    if truth.wrong:
        parts.append(
            f"{len(truth.wrong)} are wrong ({_names(truth.wrong)}; worst {truth.parameter}, relative error "
            f"{truth.worst:.2g} against a plain pass over the same batch)"
        )
    if truth.missing:
        parts.append(f"{len(truth.missing)} are missing ({_names(truth.missing)})")
    return f"{parts[0]} {' and '.join(parts[1:])}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
