"""Words: the sentences of a report. Each states counts that were seen, and what would have been seen otherwise."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.boundary import LEAST_FOR_GROWTH, Claim, Finding
from harness.core.point import assignment, word_of
from harness.core.rates import SURE, interval, passes_that_show
from harness.core.verdict import Kind
from harness.report.text import count, how_many, listed, ranges, seconds
from harness.report.tried import each_verdict, grouped, kind_counts, place_on, verdicts
from harness.store.shelf import NOT_FINISHED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.boundary import Boundary, ScalingFit
    from harness.core.campaign import AxisFit, LostShard
    from harness.core.cause import CellCount
    from harness.core.point import Value
    from harness.core.record import Run, TrialRecord
    from harness.core.verdict import Verdict
    from harness.report.findings import Findings
    from harness.report.tried import Cell, Group


ANSWERED = "Nothing: the question is answered."
"""What stands where there is no next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """Something to do, what it would tell, and the command for it where there is one."""

    text: str
    command: tuple[str, ...] = ()


RAN_OUT = "ran out of time while still making progress"

SUBJECT = 50
"""Characters of a commit's subject that a sentence has; the list of commits has all."""

BEYOND = 4
"""Values behind the failing one that an answer names; the strip has all."""

ENDS = {
    Kind.PASS: "passes",
    Kind.HANG: "hangs",
    Kind.SLOW: RAN_OUT,
    Kind.CRASH: "crashes",
    Kind.OOM: "runs out of memory",
    Kind.NONFINITE: "reaches a loss that is not finite",
    Kind.BELOW_TARGET: "finishes below its target",
    Kind.INFRA: "was spoiled by the machine",
    Kind.UNRESOLVED: "could not be judged",
}
"""What a trial of each kind does, to follow ``n_layers=5``."""


WHO_MAY_LOOK = "root may look, and the same user of the same group; in a container add --cap-add SYS_PTRACE"
"""What to do where ptrace was refused."""

MOVING = "moving"
"""The cause of a job that was only watched and was seen to do something."""

WATCHED = {
    MOVING: "no hang was seen",
    "ended-meanwhile": "inconclusive: it ended while it was watched",
    "paused": "it is stopped (state T)",
    "not-looked-into": "inconclusive: nobody could look into it",
    "may-be-endless": "inconclusive: it computes in a loop that may never end",
}
"""The first words about a job that was only watched, by the cause."""


def watched_without_verdict(verdict: Verdict) -> str:
    """``no hang was seen``, or why a job that was only watched is undecided; what is SLOW there had no limit."""
    if verdict.kind is Kind.SLOW:
        return "no hang was seen, it progresses"
    return WATCHED.get(verdict.cause or "", "inconclusive: it may go on, or not")


def so_far(verdict: Verdict) -> str:
    """A verdict on a job that is watched on: ``no hang was seen``, ``HANG (deadlock)``."""
    return watched_without_verdict(verdict) if verdict.kind in (Kind.UNRESOLVED, Kind.SLOW) else str(verdict)


def of(part: int, whole: int) -> str:
    """``2 of 2 trials``."""
    return f"{part} of {count(whole, 'trial')}"


def at(findings: Findings, value: Value) -> str:
    """``n_layers=5``."""
    return assignment(findings.run.axis.name, value)


def called(findings: Findings, value: Value) -> str:
    """`` ("read data at random")``, the subject of the commit that a value is; empty for any other."""
    subject = findings.subjects.get(value, "")
    if len(subject) > SUBJECT:
        subject = f"{subject[:SUBJECT].rstrip()}.."
    return f' ("{subject}")' if subject else ""


LINEAR_R_SQUARED = 0.9
"""A line must explain this share of the variation before a report calls the growth linear."""


def answer_along(findings: Findings, boundary: Boundary) -> str:
    """The answer of a threshold search, in one sentence or two."""
    run = findings.run
    match boundary.finding:
        case Finding.THRESHOLD:
            gap = _between(findings, boundary)
            unsure = f" Between them: {_neither(findings, gap)}." if gap else ""
            text = f"{_fails(findings, end=';')} {_passes(findings, boundary.last_good)}{unsure}"
            return " ".join((text, *_beyond(findings, boundary)))
        case Finding.NO_FAILURE:
            passes = _passes(findings, boundary.last_good)
            tried = {value: trials for value in run.axis.values if (trials := findings.at_value(value))}
            unsure = [value for value, trials in tried.items() if trials.is_undecided]
            but = f", but {ranges(unsure)} stayed inconclusive" if unsure else ""
            return f"No failing value of {run.axis.name} in {span(run.axis.values)}{but}. {passes}"
        case Finding.ALL_FAIL:
            first = "first" if run.axis.is_named else "smallest"
            text = f"{_fails(findings)} It is the {first} value asked for: where the failures begin is not known."
            return " ".join((text, *_beyond(findings, boundary)))
        case Finding.NO_THRESHOLD_SLOW:
            only_slow = len(findings.slow_groups) == len(findings.groups)
            nothing = "Nothing hung or crashed" if only_slow else "No trial showed the failure being sought"
            growth = grows(findings, boundary.fit) if boundary.fit else ""
            return " ".join(filter(None, (f"{nothing}.", growth, _ran_out(findings))))
        case Finding.INCONCLUSIVE:
            low = _passes(findings, boundary.last_good) if boundary.last_good is not None else ""
            high = _fails(findings) if findings.failing else ""
            gap = _between(findings, boundary)
            not_judged = f"Not told: {run.axis.name} {_neither(findings, gap)}." if gap else boundary.because
            return " ".join(filter(None, ("Inconclusive.", high, low, not_judged)))


def unfinished(findings: Findings) -> str:
    """How far a threshold search has come that has no answer yet."""
    run = findings.run
    failed = [cell for cell in findings.along if cell.bad]
    passing = [cell for cell in findings.along if cell.good and not cell.bad]
    parts = [f"No answer yet ({run.ended}), {count(len(run.records), 'trial')} so far."]
    if failed:
        parts.append(f"Failing so far: {_counts(findings, failed)}.")
    if passing:
        parts.append(f"Passing so far: {_counts(findings, passing)}.")
    return " ".join(parts)


def _counts(findings: Findings, some: list[Cell]) -> str:
    return f"{findings.run.axis.name} " + listed(f"{word_of(c.value)} ({c.bad or c.good} of {len(c)})" for c in some)


def _fails(findings: Findings, *, end: str = ".") -> str:
    group = findings.failing
    if group is None:
        return "No trial failed."
    here = findings.at_value(group.value)
    where = f"{at(findings, group.value)}{called(findings, group.value)}"
    return f"{where} {what(group)}, {of(here.bad, len(here))}{end}"


def what(group: Group) -> str:
    """``hangs (deadlock) in backward``."""
    verdict = group.first.verdict
    cause = f" ({verdict.cause})" if verdict.cause else ""
    phases = {t.verdict.phase for t in group.trials}
    phase = f" in {verdict.phase}" if verdict.phase and len(phases) == 1 else ""
    return f"{ENDS[verdict.kind]}{cause}{phase}"


def _passes(findings: Findings, value: Value) -> str:
    here = findings.at_value(value)
    return f"{at(findings, value)}{called(findings, value)} passes, {of(here.good, len(here))}."


def span(values: Sequence[Value]) -> str:
    """``1..12``, or the only value."""
    return "..".join(dict.fromkeys((word_of(values[0]), word_of(values[-1]))))


def _between(findings: Findings, boundary: Boundary) -> list[Value]:
    """The values above the last good one and below the first failing one; where one is not known, up to that end."""
    axis = findings.run.axis
    first = 0 if boundary.last_good is None else place_on(axis, boundary.last_good) + 1
    return list(axis.values[first : place_on(axis, boundary.first_bad)])


def _neither(findings: Findings, values: Sequence[Value]) -> str:
    """``4..6 failed in another way (CRASH (KeyError)); 7 inconclusive``: what neither passed nor failed as sought."""
    endings = grouped(values, lambda value: _ending_of(findings.at_value(value)))
    return "; ".join(f"{ranges(some)} {ending}" for ending, some in endings.items())


def _ending_of(cell: Cell) -> str:
    others = [trial for trial in cell if trial.has_failed_otherwise]
    if others:
        return f"failed in another way ({each_verdict(others)})"
    return "inconclusive" if len(cell) else "not tried"


def _whereabouts(findings: Findings, boundary: Boundary) -> str:
    """``from n=5 to n=8``, where each of these failed; else ``at n=5, not at n=4``: one says nothing of later ones."""
    here = at(findings, boundary.first_bad)
    if last := _fails_up_to(findings, boundary):
        return f"from {here} to {at(findings, last.value)}"
    if boundary.last_good is None:
        return f"at {here}"
    but = "not at" if not findings.at_value(boundary.last_good).bad else "more often than at"
    return f"at {here}, {but} {at(findings, boundary.last_good)}"


def _fails_up_to(findings: Findings, boundary: Boundary) -> Cell | None:
    """The last number up to which every value behind the first failing one failed, too; None where the next did not."""
    last: Cell | None = None
    if findings.run.axis.is_named:
        return last
    for cell in beyond(findings, boundary):
        if not cell.bad:
            break
        last = cell
    return last


def beyond(findings: Findings, boundary: Boundary) -> tuple[Cell, ...]:
    """What lies behind the first failing value of the axis, where nothing can be concluded for it."""
    if boundary.first_bad is None:
        return ()
    return findings.along[place_on(findings.run.axis, boundary.first_bad) + 1 :]


def _beyond(findings: Findings, boundary: Boundary) -> list[str]:
    """How the values behind the first failing one ended, and which were not tried."""
    tried: list[str] = []
    untried: list[Value] = []
    for cell in beyond(findings, boundary):
        if len(cell):
            word = f"{word_of(cell.value)}{called(findings, cell.value)}"
            where = word if findings.run.axis.is_named else f"{at(findings, cell.value)}:"
            tried.append(f"{where} {how_many(cell.verdicts.items())}")
        else:
            untried.append(cell.value)
    texts = [f"After it: {'; '.join(tried)}."] if tried else []
    if untried:
        short = ranges(untried)
        if short.count(", ") >= BEYOND:
            short = f"{listed(untried, most=BEYOND)}, {untried[-1]}{called(findings, untried[-1])} the last"
        texts.append(f"Not tried after it: {short}.")
    return texts


def _ran_out(findings: Findings) -> str:
    slow = findings.slow_groups
    if not slow:
        return "A limit shorter than the healthy time kept the larger values from being judged."
    limit = slow[0].first.record.trial.budget.total
    where = f"{findings.run.axis.name} {ranges([group.value for group in slow])}"
    return f"Trials ran out of time while still making progress at {where} (limit {seconds(limit.seconds)})."


def grows(findings: Findings, fit: ScalingFit) -> str:
    """``Linear: a step takes 1.2 s more per layer (95 %: 1.1 .. 1.3).``, or that growth is not shown.

    Empty with two values, which cannot show any.
    """
    timed = "step" if fit.is_per_step else "trial"
    if len(fit.sizes) < LEAST_FOR_GROWTH:
        return ""
    if fit.may_grow:
        text = f"A {timed} took {fit.slope:.3g} s more per {unit(findings)}{interval_of(fit)}"
        return f"{text}; that it does not grow is not ruled out by so few values."
    if not fit.is_growth:
        most = f"may take up to {fit.slope_high:.3g} s more" if fit.slope_high > 0 else "takes no more"
        return f"No growth is shown: a {timed} {most} per {unit(findings)}{interval_of(fit)}."
    if fit.law not in ("", "n"):
        others = f" (possible, too: {', '.join(fit.other_laws)})" if fit.other_laws else ""
        return f"The time of a {timed} grows like {fit.law}, n = {findings.run.axis.name}{others}."
    text = f"a {timed} takes {fit.slope:.3g} s more per {unit(findings)}{interval_of(fit)}."
    is_linear = fit.r_squared >= LINEAR_R_SQUARED and (fit.exponent is None or 0.75 <= fit.exponent <= 1.25)
    return f"Linear: {text}" if is_linear else text[0].upper() + text[1:]


def interval_of(fit: ScalingFit) -> str:
    """`` (95 %: 1.1 .. 1.3)``; empty where the points leave no scatter to give one by."""
    return f" (95 %: {fit.slope_low:.3g} .. {fit.slope_high:.3g})" if fit.slope_low != fit.slope_high else ""


def other_settings(findings: Findings, axis_fit: AxisFit) -> list[str]:
    """The settings along which a line over many cells lies, those that are not the good ones."""
    good = dict(findings.run.spec.matrix.space.good)
    return [assignment(name, value) for name, value in axis_fit.fixed if value != good.get(name)]


def unit(findings: Findings) -> str:
    """What one more of the axis is called: ``layer`` for n_layers, ``unit of seq_len``."""
    name = findings.run.axis.name
    return name[2:-1] if name.startswith("n_") and name.endswith("s") else f"unit of {name}"


def what_passes_miss(back: CellCount, *, failing: CellCount) -> str:
    """``, which a failure in 9 % of runs would also give``; empty where its passes show that the failure is gone.

    Passes beside a cell that fails now and then are worth what a program that fails as often would make of them.
    """
    if back.bad or not back.good or not failing.bad:
        return ""
    rate = failing.bad / (failing.good + failing.bad)
    if back.good >= passes_that_show(rate):
        return ""
    return f", which a failure in {100 * rate:.0f} % of runs would also give"


def taken_over(findings: Findings) -> str:
    """That the answer is an earlier one's, so that nothing was seen again; empty where a trial was run for it."""
    run = findings.run
    is_earlier = run.records and not run.own
    return f"No trial was run: all {len(run.records)} are of earlier runs." if is_earlier else ""


def verdict_along(findings: Findings) -> tuple[str, str]:
    """The answer of a threshold search in a few words, and the tone to set them in."""
    run = findings.run
    boundary, group = run.boundary, findings.failing
    if boundary is None:
        return (f"No answer ({run.ended})", "unsure")
    match boundary.finding:
        case Finding.THRESHOLD | Finding.ALL_FAIL:
            failure = str(group.first.verdict) if group else "Failure"
            return (f"{failure} {_whereabouts(findings, boundary)}", "bad")
        case Finding.NO_FAILURE:
            return ("PASS: nothing failed", "good")
        case Finding.NO_THRESHOLD_SLOW:
            is_slow = bool(findings.slow_groups)
            return ("SLOW: no threshold", "slow") if is_slow else (boundary.finding.capitalize(), "unsure")
        case Finding.INCONCLUSIVE:
            return ("Inconclusive", "unsure")


def claim_along(findings: Findings) -> tuple[str, tuple[str, ...]]:
    """``Isolated``, ``Reproduced`` or ``Observed``, empty where nothing is claimed, and what carries it."""
    claim, counts = claim_of(findings)
    return claim, tuple(filter(None, (counts, taken_over(findings), certificate(findings))))


def claim_of(findings: Findings) -> tuple[str, str]:
    """The claim, and the counts of the first failing value that carry it."""
    boundary = findings.run.boundary
    if taken_over(findings):
        return "", ""
    if boundary is None or boundary.finding in (Finding.INCONCLUSIVE, Finding.NO_THRESHOLD_SLOW):
        less = _claim_of_less(findings)
        return (Claim.OBSERVED.capitalize(), less) if less else ("", "")
    counts = "" if boundary.finding is Finding.NO_FAILURE else _times(findings, boundary)  # the certificate gives them
    return boundary.claim.capitalize(), counts


def _times(findings: Findings, boundary: Boundary) -> str:
    """How often the first failing value failed, and what else the claim rests on."""
    here = findings.at_value(boundary.first_bad)
    times = f"{at(findings, boundary.first_bad)} failed {here.bad} of {len(here)}"
    if boundary.claim is Claim.OBSERVED:
        why = why_only_observed(findings, boundary)
        return f"{times}. {why[0].upper()}{why[1:]}."
    if boundary.claim is Claim.REPRODUCED:
        return f"{times}."
    names = "; ".join(f"{name} passes {trials.passed} of {len(trials)}" for name, trials in findings.controls.items())
    return f"{times}; with one thing changed there: {names}."


def why_only_observed(findings: Findings, boundary: Boundary) -> str:
    """What a claim lacks to be more than observed: a second trial of each side, or surely no false alarms."""
    sides = [findings.at_value(boundary.first_bad).bad]
    if boundary.last_good is not None:
        sides.append(findings.at_value(boundary.last_good).good)
    if min(sides) > 1:
        return "these are too few failures to tell from false alarms"
    return "at least one side was seen only once" if len(sides) > 1 else "it was seen only once"


def _claim_of_less(findings: Findings) -> str:
    if findings.failing:
        return f"{_fails(findings)} No boundary is claimed."
    slow_trials = sum(map(len, findings.slow_groups))
    values = [group.value for group in findings.slow_groups]
    total = sum(map(len, map(findings.at_value, values)))
    return f"{findings.run.axis.name} {ranges(values)}: {of(slow_trials, total)} {RAN_OUT}." if values else ""


def certificate(findings: Findings) -> str:
    """What the passes rule out, at which confidence, and whether the search was content with it."""
    run = findings.run
    boundary = run.boundary
    if boundary is None or boundary.last_good is None or not boundary.excluded_rate:
        return ""
    if boundary.finding not in (Finding.THRESHOLD, Finding.NO_FAILURE):
        return ""
    here = findings.at_value(boundary.last_good)
    reason = boundary.independence  # runs of earlier versions did not look
    independence = f", and if trials do not depend on each other: {reason}" if reason else ""
    rate = math.ceil(boundary.excluded_rate * 100 - 1e-9) / 100  # rounded up: a smaller rate was not ruled out
    failed, seen = (f", failed {here.bad}", "been seen more often") if here.bad else ("", "been seen")
    return (
        f"{at(findings, boundary.last_good)} passed {here.good}/{len(here)}{failed}: any failure rate >= {rate:.2f} at "
        f"{run.axis.up_to(boundary.last_good)} would have {seen} with probability >= "
        f"{boundary.confidence * 100:.0f} % (if the rate does not fall along {run.axis.name}{independence})."
    )


def day(wall: str) -> str:
    """``2026-01-02 03:04 UTC`` for an ISO time."""
    return f"{wall[:10]} {wall[11:16]} UTC"


def several_programs(findings: Findings) -> str:
    """Which shard ran which commit of the program, where they did not all run the same; empty where they did."""
    names: dict[str, list[str]] = {}
    for shard in findings.run.programs:
        names.setdefault(shard.program, []).append(shard.name)
    ran = [f"{listed(shards, most=len(shards))} ran {program_of(program)}" for program, shards in names.items()]
    return f"the shards did not run the same program: {'; '.join(ran)}" if ran else ""


def program_of(program: str) -> str:
    """``commit 1f2e3d``, by the name that a run has for what it ran."""
    return f"commit {program}" if program else "a program whose commit was not recorded"


def not_run(shard: LostShard) -> str:
    """``4 cells of shard 2/2 were not run``."""
    return f"{count(len(shard.cells), 'cell')} of {shard.name} {'was' if len(shard.cells) == 1 else 'were'} not run"


def lasted(run: Run) -> str:
    """``72 s``; of a run without an end, which was killed or goes on, only what its journal knows."""
    if run.ended == NOT_FINISHED:
        return f"at least {seconds(run.seconds)} (its journal ends there)"
    return seconds(run.seconds)


def tally(findings: Findings) -> str:
    """``19 trials in 72 s: 17 PASS, 2 HANG``, and how many were taken over from earlier runs."""
    run = findings.run
    text = f"{count(len(run.own), 'trial')} in {lasted(run)}{_split(findings, run.own)}"
    if not run.reused:
        return text
    split = _split(findings, run.reused) if findings.is_line else ""
    return f"{text}; {count(len(run.reused), 'trial')} taken over from earlier runs{split}"


def _split(findings: Findings, records: Sequence[TrialRecord]) -> str:
    """How often what was reached: along an axis kinds of verdict, else verdicts, by their causes."""
    counts = kind_counts(records) if findings.is_line else verdicts(records)
    return f": {how_many(counts.items())}" if counts else ""


def not_searched(findings: Findings) -> tuple[Value, ...]:
    """Values of the axis without a single trial."""
    return tuple(c.value for c in findings.along if not len(c)) if findings.searched else findings.run.axis.values


NEITHER = frozenset({Kind.SLOW, Kind.UNRESOLVED, Kind.INFRA})
"""Verdicts that do not say whether a program fails."""
MOST_PASSES = 10_000
"""More passes than these are nobody's to try."""


def how_often_in(findings: Findings) -> str:
    """How often one program failed that was run more than once, or until it failed; empty of all else."""
    is_program = findings.is_single and not findings.is_line and findings.answer.job is None
    records, invocation = findings.run.records, findings.run.invocation
    is_repeated = len(records) > 1 or (invocation is not None and invocation.has("--until-fail"))
    return how_often(records) if is_program and is_repeated and records else ""


def passes_and_failures(records: Sequence[TrialRecord]) -> tuple[int, int]:
    """How many runs passed, and how many failed; the rest is undecided."""
    return sum(record.verdict.kind is Kind.PASS for record in records), sum(map(_has_failed, records))


def _has_failed(record: TrialRecord) -> bool:
    return record.verdict.kind is not Kind.PASS and record.verdict.kind not in NEITHER


def how_often(records: Sequence[TrialRecord]) -> str:
    """How often it fails, by the runs that passed or failed, and how many passes would show it fixed."""
    passes, failed = passes_and_failures(records)
    runs = passes + failed
    if not runs:
        return "no run passed or failed: how often it fails is not known"
    aside = f"; {len(records) - runs} undecided are left out" if runs < len(records) else ""
    low, high = interval(failed, runs)
    if not failed:
        ruled_out = 1 - (1 - SURE) ** (1 / runs)
        none = f"no failure in {count(runs, 'run')}"
        return f"{none}: a rate of {ruled_out:.2g} or more would have shown one ({SURE:.0%}){aside}"
    rate = f"fails in {failed} of {runs}: {failed / runs:.1%} ({SURE:.0%}: {low:.1%} to {high:.1%}){aside}. "
    kinds = Counter(str(record.verdict) for record in records if _has_failed(record))
    if len(kinds) > 1:
        each = listed(
            f"{passes_that_show(times / runs)} for {kind}, {times} of {runs}" for kind, times in kinds.items()
        )
        return f"{rate}So many passes in a row would show one of them fixed at its rate ({SURE:.0%}): {each}"
    least = f", {passes_that_show(low)} if it is as rare as {low:.1%}" if passes_that_show(low) < MOST_PASSES else ""
    passes = count(passes_that_show(failed / runs), "pass")
    return f"{rate}{passes} in a row would show it fixed at that rate ({SURE:.0%}){least}"
