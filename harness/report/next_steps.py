"""What to do next: trials that would decide something, never guesses about causes."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import starmap
from statistics import median
from typing import TYPE_CHECKING

from harness.core.boundary import Claim, Finding
from harness.core.campaign import CellStatus, Task
from harness.core.cause import AxisFinding, MinimiseFinding
from harness.core.fit import at_least, how_far, times_beyond
from harness.core.invocation import Invocation
from harness.core.outcome import StopReason
from harness.core.point import assignment
from harness.core.record import BUDGET_USED_UP
from harness.core.verdict import FAILURES, LIMIT_TOO_SHORT, NEVER_STARTED, TIME_LIMIT, Confidence, Kind
from harness.reading.pace import TEN_TIMES, deciding_total_s, instead_of_time
from harness.reading.ranks import no_limit_decides, remaining_s
from harness.report.asked import expected, instead_of_slow
from harness.report.text import count, seconds
from harness.report.tried import TrialSet
from harness.report.watched import watched_step
from harness.report.words import NextStep, at, beyond, program_of, why_only_observed

if TYPE_CHECKING:
    from collections.abc import Set

    from harness.core.boundary import Boundary, ScalingFit
    from harness.core.evidence import Evidence
    from harness.core.record import Run, TrialRecord
    from harness.core.trial import Budget, Limit
    from harness.report.findings import Findings


FAULTS = frozenset({"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"})
"""Signals of which faulthandler prints the line that was run."""

SHOWS_THE_LINE = "PYTHONFAULTHANDLER"

_PYTHON = re.compile(r"(^|/)(python[\d.]*|torchrun)$|\.py$|^\{python\}$")
"""A word of a command that runs Python."""

NO_INPUT = "EOF when reading a line"
"""What Python says where ``input()`` finds the end of standard input."""


def next_steps(findings: Findings, *, place: str = "") -> tuple[NextStep, ...]:
    """What would decide most, first; ``place`` is the line at fault, where one is known."""
    run = findings.run
    is_open = not run.is_whole or (findings.is_line and run.boundary is None)
    if findings.is_single and any(record.verdict.kind in FAILURES for record in run.own):
        is_open = False  # somebody ended it when it had failed: there is nothing more to wait for
    if is_open and findings.is_single:
        return (_cut_off(findings, place),)
    if is_open and run.directory:
        return (*_run_lost(findings), go_on(findings))
    if findings.is_line:
        return next_along(findings, place=place)
    if findings.is_watched:
        return _of_watched(findings, place)
    subject = _unforeseen_subject(findings)
    steps = [
        *_run_alike(findings),
        _put_right(findings),
        None if subject is None else give_input(subject),
        _other_corner(findings),
        _look_closer(findings, place),
        _mended(findings),
        _pass_instead(findings),
        _slow(findings),
        _undecided(findings),
        _search(findings),
        _run_again(findings),
        _rare(findings),
    ]
    return tuple(filter(None, steps))


def _cut_off(findings: Findings, place: str) -> NextStep:
    """What to do about a program that somebody ended: to look at where it was silent, where it was."""
    text, subject = "Run it again: this run did not come to its end.", findings.subject
    if place and subject is not None and subject.verdict.kind is Kind.UNRESOLVED:
        evidence = f"Evidence, trial {findings.subject_number}"
        text = f"Look at {place}, where it was when it was ended ({evidence}); to know more, run it again to its end."
    return NextStep(text=text, command=findings.run.argv)


def _run_lost(findings: Findings) -> list[NextStep]:
    """To run what shards that left no run should have run."""
    text = "Run {}, which left no run; then merge again, with its run among the others."
    return [NextStep(text=text.format(shard.name), command=shard.invocation.argv) for shard in findings.lost]


def _run_alike(findings: Findings) -> list[NextStep]:
    """To run again, at the commit that most shards ran, what ran another one."""
    if not findings.run.programs:
        return []
    ((usual, _),) = Counter(shard.program for shard in findings.run.programs if shard.program).most_common(1)
    steps: list[NextStep] = []
    for shard in findings.run.programs:
        if shard.program != usual:
            text = f"Run {shard.name} at {program_of(usual)}, then merge again: cells can be compared then."
            steps.append(NextStep(text=text, command=shard.invocation.argv if shard.invocation else ()))
    return steps


def _of_watched(findings: Findings, place: str) -> tuple[NextStep, ...]:
    """The one thing to do about a job that was only watched; where it failed, with the line to look at first."""
    last = findings.trials[-1].record
    evidence = findings.readable_evidence_of(last)
    look = None if evidence is None else _look_closer(findings, place)
    step = watched_step(last.verdict, evidence, findings.answer.job)
    if look is None or step is None:
        return tuple(filter(None, (look or step,)))
    return (NextStep(text=f"{look.text} {step.text}", command=step.command),)


def _put_right(findings: Findings) -> NextStep | None:
    """Where a cell never started up to its last trial: nothing else is worth a trial before it does."""
    last = {record.trial.point: record for record in findings.run.own}
    for record in last.values():
        step = never_started(findings.run, record)
        if step is not None:
            return step
    return None


def _other_corner(findings: Findings) -> NextStep | None:
    """What to ask where a corner passes that was to fail, or is refused, so that no cause can be looked for."""
    minimised = findings.answer.minimised
    if minimised is not None and minimised.finding is MinimiseFinding.BAD_PASSES:
        text = (
            "Name a cell that fails with --bad-cell AXIS=V,..; one that fails more rarely needs more --certify passes."
        )
        return NextStep(text=text)
    if minimised is None or minimised.finding is not MinimiseFinding.REFUSED:
        return None
    return NextStep(
        text="Ask with cells that the program accepts: leave a flag out of the command or hold it (--set NAME=0), name "
        "a cell that fails with --bad-cell AXIS=V,.., or write a matrix file whose rules (requires, exclude) say what "
        "goes together."
    )


def never_started(run: Run, record: TrialRecord) -> NextStep | None:
    """What to do about a trial that never started; None for any other."""
    if record.verdict.cause != NEVER_STARTED:
        return None
    why = record.outcome.why or "no reason was given"
    return NextStep(text=f"Put right what keeps it from starting ({why}), then run it again.", command=run.argv)


def next_along(findings: Findings, *, place: str) -> tuple[NextStep, ...]:
    """What would decide most for a threshold search, first."""
    run = findings.run
    boundary = run.boundary
    if boundary is None or not run.is_whole:
        return (NextStep(text="Ask again.", command=run.argv),)
    # A question that was typed about our own trainer can be asked again with other settings of it.
    ours = run.spec.matrix.target == "nsa" and not run.spec.file
    return tuple(filter(None, [_put_right(findings), *_for(findings, boundary, place=place, ours=ours)]))


def _for(findings: Findings, boundary: Boundary, *, place: str, ours: bool) -> list[NextStep | None]:
    match boundary.finding:
        case Finding.THRESHOLD | Finding.ALL_FAIL:
            return [
                *_look(findings, place),
                _repeat(findings, boundary),
                _look_beyond(findings, boundary),
                _control(findings, boundary) if ours else None,
                _certify(findings, boundary),
                _other(findings) if ours else None,
            ]
        case Finding.NO_FAILURE:
            return [_certify(findings, boundary), _further(findings), _longer(findings) if ours else None]
        case Finding.NO_THRESHOLD_SLOW:
            return [more_time_along(findings)]
        case Finding.INCONCLUSIVE:
            once_more = NextStep(text="Ask again.", command=findings.run.argv)
            return [_unresolved(findings), more_time_along(findings), once_more]


def go_on(findings: Findings) -> NextStep:
    """How to continue this run; where it has spent what it may, with twice as much of that."""
    run = findings.run
    text, more = "Continue; finished trials are not run again.", ()
    if run.ended == BUDGET_USED_UP:
        most = run.spec.matrix.gpu_seconds
        if most is not None and run.answer is not None and run.answer.gpu_seconds >= most:
            return _more_gpu_seconds(findings)
        limit, more = _twice(run)
        text = f"Continue with more than {limit}; finished trials are not run again."
    verb = ("matrix", "run") if run.spec.task is Task.CELLS else (run.spec.task.value,)
    resume = Invocation(verb=verb, options=(*more, ("--resume", run.directory or run.id)))
    return NextStep(text=text, command=resume.argv)


def _twice(run: Run) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Which limit a run has reached, in words, and the options that double it."""
    effort = run.spec.matrix.effort
    limits: list[str] = []
    options: list[tuple[str, str]] = []
    if effort.max_seconds is not None and run.spent_s >= effort.max_seconds:
        limits.append(f"{effort.max_seconds:g} s")
        options.append(("--budget", f"{math.ceil(2 * max(effort.max_seconds, run.spent_s))}s"))
    if len(run.own) >= effort.max_trials or not limits:
        limits.append(f"{effort.max_trials} trials")
        options.append(("--max-trials", str(2 * max(effort.max_trials, len(run.own)))))
    return " and of ".join(limits), tuple(options)


def _more_gpu_seconds(findings: Findings) -> NextStep:
    """The GPU-seconds of a matrix are its file's to allow."""
    run = findings.run
    most = f"{run.spec.matrix.gpu_seconds:g} GPU-seconds"
    text = f"Allow more than {most} in {run.spec.file} and run it again; with --reuse the finished trials count."
    command = () if run.invocation is None else run.invocation.without("--fresh").having("--reuse").argv
    return NextStep(text=text, command=command)


def reproduce(findings: Findings) -> tuple[str, ...]:
    """The command that asks the same; where trials of earlier runs counted, one that runs all anew."""
    run = findings.run
    if run.invocation is None or not run.reused:
        return run.argv
    return run.invocation.without("--reuse").having("--fresh").argv


def _ask_again(findings: Findings, text: str, option: str, value: str) -> NextStep:
    """To ask the same with ``option`` at ``value``; without a command where a run does not know its options."""
    invocation = findings.run.invocation
    return NextStep(text=text, command=() if invocation is None else invocation.having(option, value).argv)


def give_input(record: TrialRecord) -> NextStep | None:
    """Where a trial crashed as it asked for input: that there is none, and how it can have some."""
    if record.verdict.cause != EOFError.__name__ or NO_INPUT not in record.verdict.because:
        return None
    return NextStep(
        text="Give it its input: the standard input of a trial is empty. Name a file in the command, as in "
        "sh -c 'python train.py < answers.txt'."
    )


def _look(findings: Findings, place: str) -> list[NextStep | None]:
    """What the failure itself asks for; first to wait, where a wait that the outside could end was told by its pace."""
    group = findings.failing
    if group is None:
        return []
    verdict, record = group.first.verdict, group.first.record
    steps = [give_input(record)]
    if verdict.confidence is Confidence.MEDIUM and record.outcome.stopped_by is StopReason.PACE:
        text = "Rule out that what it waits for is only late: a stall limit of a minute is watched for four."
        steps.append(_ask_again(findings, text, "--stall", "60s"))
    return [*steps, _look_at(findings, record, place, evidence=at(findings, group.value))]


def _repeat(findings: Findings, boundary: Boundary) -> NextStep | None:
    if boundary.claim is not Claim.OBSERVED:
        return None
    return NextStep(text=f"Run it again: {why_only_observed(findings, boundary)}.", command=findings.run.argv)


def _look_beyond(findings: Findings, boundary: Boundary) -> NextStep | None:
    """Of words, what the last one does follows from no other; the search looks there on request, second."""
    rest = beyond(findings, boundary)
    if not findings.run.axis.is_named or not rest or len(rest[-1]):
        return None
    text = f"See how {at(findings, rest[-1].value)} ends, the last one asked for: it was not tried."
    return _ask_again(findings, text, "--check-above", str(min(len(rest), 2)))


def _control(findings: Findings, boundary: Boundary) -> NextStep | None:
    name = findings.run.spec.usual_control
    if findings.controls or not name:
        return None
    text = f"Run a control: whether {at(findings, boundary.first_bad)} passes with only that one thing changed."
    return _ask_again(findings, text, "--control", name)


def _certify(findings: Findings, boundary: Boundary) -> NextStep | None:
    if boundary.certified or boundary.last_good is None:
        return None
    passes = max(boundary.certificate_passes, 9)
    text = f"Complete the certificate: a rare failure at {at(findings, boundary.last_good)} is not ruled out yet."
    return _ask_again(findings, text, "--certify", str(passes))


def _other(findings: Findings) -> NextStep | None:
    run = findings.run
    group = findings.failing
    if group is None or group.value is None:
        return None
    if run.spec.matrix.fault:
        real = () if run.invocation is None else run.invocation.without("--fault").argv
        return NextStep(text="Ask the real question: the same without the planted fault.", command=real)
    other = "seq_len" if run.axis.name != "seq_len" else "n_layers"
    axis = (run.axis.path, group.value)
    config = [(path, value) for path, value in (axis, *run.spec.matrix.base.config) if not path.endswith(f".{other}")]
    settings = [("--set", setting) for setting in starmap(assignment, config)]
    return NextStep(
        text=f"Vary another axis at the failing value: whether {other} matters too is not known.",
        command=Invocation(verb=("bisect",), options=(("--axis", other), *settings)).argv,
    )


def _further(findings: Findings) -> NextStep | None:
    run = findings.run
    last = run.axis.values[-1]
    if not isinstance(last, int) or isinstance(last, bool):
        return None
    text = f"Go further: nothing above {at(findings, last)} was tried."
    return _ask_again(findings, text, "--axis", f"{run.axis.name}={last}..{2 * last}")


def _longer(findings: Findings) -> NextStep | None:
    steps = max((len(record.measurement.step_s) for record in findings.run.records), default=0)
    if not steps:
        return None
    text = f"Train longer: a failure after step {steps} of a trial would not have been seen."
    return _ask_again(findings, text, "--steps", str(10 * steps))


def more_time_along(findings: Findings) -> NextStep | None:
    """As much time as the slow trial of a threshold search should need, or four limits; None where none was slow.

    Where a limit ended one that a healthy trial may need, too, four times that limit.
    """
    boundary = findings.run.boundary
    fit = None if boundary is None else boundary.fit
    slow = findings.slow_groups
    if not slow:
        return _longer_limit(findings)
    limit_s = slow[0].first.record.trial.budget.total.seconds
    if fit is None:
        text = f"Give it time: four times the limit of {seconds(limit_s)}, to see how the time grows."
        return _ask_again(findings, text, "--total", f"{math.ceil(4 * limit_s)}s")
    last = findings.run.axis.values[-1]
    size = findings.run.axis.size(last)
    if size is None:
        return None
    if whole_trial_s(findings, fit, at_value=size) <= limit_s:
        belied = f"it grows faster than up to {at(findings, fit.sizes[-1])}, which predicts less than was not enough"
        text = f"Give it time: four times the limit of {seconds(limit_s)}; {belied}."
        return _ask_again(findings, text, "--total", f"{math.ceil(4 * limit_s)}s")
    predicted, times = whole_trial_s(findings, fit, at_value=size), times_beyond(size, fit.sizes)
    most, multiple = (4, "four times") if at_least(times) else (2, "twice")
    enough = math.ceil(max(most * predicted, 1) / 10) * 10
    need = f"{at_least(times) or 'about '}{seconds(predicted)}"
    away = f" ({how_far(times)})" if how_far(times) else ""
    text = f"Give it time: {at(findings, last)} is predicted to need {need}{away}; this allows {multiple} that."
    return _ask_again(findings, text, "--total", f"{enough}s")


def _longer_limit(findings: Findings) -> NextStep | None:
    """Four times the limit that ended a trial before a healthy one need have ended; None where none did."""
    for group in findings.groups:
        record = group.first.record
        reason = record.outcome.stopped_by
        limits = _limits_of(record.trial.budget, total="--total")
        if record.verdict.cause == LIMIT_TOO_SHORT and reason in limits:
            option, name, limit = limits[reason]
            text = (
                f"Give it time: four times the {name} limit of {seconds(limit.seconds)}; a healthy trial may need more."
            )
            return _ask_again(findings, text, option, f"{math.ceil(4 * limit.seconds)}s")
    return None


def whole_trial_s(findings: Findings, fit: ScalingFit, *, at_value: float) -> float:
    """Seconds that a healthy trial at ``at_value`` should take, from the fit; steps are counted, overhead added."""
    fitted = max(dict(fit.predicted).get(at_value, 0.0), fit.intercept + fit.slope * at_value)
    if not fit.is_per_step:
        return fitted
    steps = 1
    overheads: list[float] = []
    for record in findings.run.records:
        step_s = record.measurement.step_s
        if record.verdict.kind is Kind.PASS and step_s:
            steps = max(steps, len(step_s))
            overheads.append(record.outcome.duration_s - sum(step_s))
    return fitted * steps + (median(overheads) if overheads else 0.0)


def _unresolved(findings: Findings) -> NextStep | None:
    for group in findings.groups:
        if not group.is_bad:
            many = len(findings.at_value(group.value))
            is_failure = group.first.has_failed_otherwise
            what = "fails in another way" if is_failure else "is inconclusive"
            return NextStep(text=f"See why {at(findings, group.value)} {what} ({many} tried; Evidence).")
    return None


def _unforeseen_subject(findings: Findings) -> TrialRecord | None:
    """The trial to look at; None where a matrix expects that its cell ends so, which asks for nothing."""
    subject = findings.subject
    return None if subject is None or subject.trial.point in findings.foreseen else subject


def _look_closer(findings: Findings, place: str) -> NextStep | None:
    subject = _unforeseen_subject(findings)
    if subject is None or subject.verdict.kind not in FAILURES:
        return None
    return _look_at(findings, subject, place, evidence=f"trial {findings.subject_number}")


def _look_at(findings: Findings, record: TrialRecord, place: str, *, evidence: str) -> NextStep:
    """The line at fault, or what to look for where none is known, and where its evidence stands; else to get some."""
    if findings.readable_evidence_of(record) is None:
        text = f"Run it again to see where it failed: its evidence ({evidence}) is missing or cannot be read."
        return NextStep(text=text, command=reproduce(findings))
    verdict = record.verdict
    hangs = verdict.kind is Kind.HANG
    if verdict.cause == TIME_LIMIT:
        look = f"Look at {place}" if place else "See where it was"
        text = f"{look} (Evidence, {evidence}), and run it without `timeout`: what hangs is ended all the same."
        return NextStep(text=text)
    if place:
        what = "its stacks are" if hangs else "the traceback is"
        return NextStep(text=f"Look at {place}; {what} in Evidence, {evidence}.")
    where = "the function that waits" if hangs else "what it printed last"
    return _show_the_line(findings, record) or NextStep(text=f"Look at {where} (Evidence, {evidence}).")


def _show_the_line(findings: Findings, record: TrialRecord) -> NextStep | None:
    """To run a program that a fault in C ended, and that runs Python, with that which then prints the line."""
    invocation = findings.run.invocation
    if record.verdict.cause not in FAULTS or invocation is None or not any(map(_PYTHON.search, invocation.command)):
        return None
    shows = ("--env", f"{SHOWS_THE_LINE}=1")
    if shows in invocation.options:
        return None
    again = replace(invocation, options=(*invocation.options, shows))
    text = f"Run it with {SHOWS_THE_LINE}=1: Python then prints the line in which {record.verdict.cause} met it."
    return NextStep(text=text, command=again.argv)


def _mended(findings: Findings) -> NextStep | None:
    """What to do where every trial of a cell passed that was expected to fail, and must."""
    for result in findings.surprises:
        if result.count.good and not result.count.bad:
            text = f"{result.name} passes, {expected(result)} was expected: if that is mended, take it out of"
            return NextStep(text=f"{text} {findings.run.spec.file or 'the matrix'}.")
    return None


def _pass_instead(findings: Findings) -> NextStep | None:
    """What was seen to pass in place of what is slow, and so costs nothing more."""
    instead = instead_of_slow(findings) if _slow_trials(findings) else ""
    return NextStep(text=instead) if instead else None


def _slow_trials(findings: Findings) -> TrialSet:
    """Those that ran out of time, and were not expected to."""
    return TrialSet(trials=tuple(trial for trial in findings.unforeseen if trial.verdict.kind is Kind.SLOW))


def _slow(findings: Findings) -> NextStep | None:
    """As much time as was seen to be enough; else twice what is predicted, or what its steps need; or four limits."""
    slow = _slow_trials(findings)
    if not slow:
        return None
    lasted_s: list[float] = []
    for pairs in findings.pairs:
        for _, passed in pairs.outlasted:
            lasted_s.append(findings.by_cell[passed].longest_s)
    if lasted_s:
        allowance = f"the {seconds(max(lasted_s))} that it was seen to need"
        return NextStep(text=f"Make a step faster, or allow {allowance}: no trial showed a hang.")
    if findings.is_single:
        record = slow.first.record
        longer = more_time(findings.run, record, None)
        if longer is not None or record.trial.budget.total.is_endless:
            text = "Let it run, or make a step faster: no trial showed a hang."
            return longer or NextStep(text=text, command=findings.run.argv)
    limit_s = max(slow.slow_limits_s)
    predicted_s = max((result.predicted_s or 0.0 for result in findings.results), default=0.0)
    enough_s = math.ceil(max(2 * predicted_s, 2 * _needed_s(findings, slow), 4 * limit_s) / 10) * 10
    whom = "it" if findings.is_single else "the slow cells"
    text = f"Give {whom} time, {seconds(enough_s)}, or make a step faster: no trial showed a hang."
    option = "--limit" if findings.is_single else "--total"
    if findings.is_single or _is_of_one_total(findings, slow):
        return _ask_again(findings, text, option, f"{enough_s}s")
    return NextStep(text=text)


def _is_of_one_total(findings: Findings, slow: TrialSet) -> bool:
    """Whether all of ``slow`` ran out of the time for a whole trial, which the file sets for no cell apart."""
    rows = findings.run.spec.matrix.limits_when
    ends = {trial.record.outcome.stopped_by for trial in slow}
    return ends == {StopReason.TOTAL} and all(row.limits.total_s is None for row in rows)


def _needed_s(findings: Findings, slow: TrialSet) -> float:
    """The longest that one of ``slow`` would have needed, by its latest steps or its loops; 0 where none tells."""
    longest_s = 0.0
    for trial in slow:
        evidence, elapsed_s = findings.readable_evidence_of(trial.record), trial.record.outcome.duration_s
        if evidence is not None:
            by_steps_s = evidence.needed_s(elapsed_s=elapsed_s) or 0.0
            longest_s = max(longest_s, by_steps_s, elapsed_s + remaining_s(evidence))
    return longest_s


def _limits_of(budget: Budget, *, total: str) -> dict[StopReason | None, tuple[str, str, Limit]]:
    """The limits of a trial by what they end, each with the option that sets it and its name."""
    return {
        StopReason.STALL: ("--stall", "stall", budget.stall),
        StopReason.STARTUP: ("--startup", "start-up", budget.startup),
        StopReason.TOTAL: (total, "total", budget.total),
    }


def more_time(run: Run, record: TrialRecord, evidence: Evidence | None) -> NextStep | None:
    """One program, with so much more of the limit that ended it undecided that it is decided; or why none decides it.

    None where no limit ended it, or it was decided. What is slow and was ended in a silence is given as much more.
    """
    budget = record.trial.budget
    limits = _limits_of(budget, total="--limit")
    reason = record.outcome.stopped_by
    is_open = record.verdict.kind is Kind.UNRESOLVED
    is_cut_short = record.verdict.kind is Kind.SLOW and reason is not StopReason.TOTAL
    if not (is_open or is_cut_short) or reason is None or reason not in limits or run.invocation is None:
        return None
    why = no_limit_decides(evidence, predicted=record.trial.prediction is not None) if evidence else ""
    if evidence and why:
        then = instead_of_time(has_marks=bool(evidence.heartbeats))
        return NextStep(text=f"No limit decides it, as {why}. {then[0].upper()}{then[1:]}.")
    option, name, limit = limits[reason]
    enough_s, amount = TEN_TIMES * limit.seconds, f"ten times the {name} limit of {limit.seconds:g} s"
    total_s = deciding_total_s(budget, ran_s=record.outcome.duration_s) if reason is StopReason.TOTAL else None
    if total_s is not None:
        enough_s, amount = total_s, f"{total_s:.0f} s instead of {limit.seconds:g} s, by which a standstill is decided"
    text = f"Give it {amount}: what is only slow then goes on, a hang does not."
    return NextStep(text=text, command=run.invocation.having(option, f"{math.ceil(enough_s)}s").argv)


def _undecided(findings: Findings) -> NextStep | None:
    unresolved = findings.ended_in({Kind.UNRESOLVED})
    if findings.is_single and unresolved:
        record = unresolved[0].record
        if (longer := more_time(findings.run, record, findings.readable_evidence_of(record))) is not None:
            return longer
    cells = findings.results_that_are(CellStatus.INCONCLUSIVE)
    if not cells:
        first = f"See why it is inconclusive (Evidence, trial {unresolved[0].number})." if unresolved else ""
        return NextStep(text=first) if findings.is_single and first else None
    others = f", and {count(len(cells) - 1, 'more cell')}" if cells[1:] else ""
    return NextStep(text=f"See why it is inconclusive: {cells[0].name}{others}.")


def _search(findings: Findings) -> NextStep | None:
    """A search for the settings that a failure needs, where minimal pairs do not tell them yet."""
    run = findings.run
    if run.spec.task is not Task.CELLS or not _unforeseen_kinds(findings) & FAILURES or not run.spec.file:
        return None
    if findings.axes_with(AxisFinding.IMPLICATED):
        return None
    text = "Find the settings that the failure needs, step by step from the passing side."
    options = _failing_cell(findings)
    return NextStep(text=text, command=Invocation(verb=("minimise",), operands=(run.spec.file,), options=options).argv)


def _failing_cell(findings: Findings) -> tuple[tuple[str, str], ...]:
    """The option that names the cell to begin from: the matrix's own may end as expected. Else it need not be named."""
    subject = _unforeseen_subject(findings)
    if not findings.expects or subject is None or subject.trial.point == findings.run.spec.matrix.space.good:
        return ()
    return (("--bad-cell", findings.name_of(subject.trial.point)),)


def _unforeseen_kinds(findings: Findings) -> Set[Kind]:
    """Every kind of verdict that was reached in cells that did not end as expected."""
    return TrialSet(trials=findings.unforeseen).kinds


def _run_again(findings: Findings) -> NextStep | None:
    run = findings.run
    once = 0
    for result in findings.results:
        once += result.count.bad == 1 and not result.count.good and result.cell not in findings.foreseen
    if not once or run.spec.task is not Task.CELLS:
        return None
    passes = str(max(2, run.spec.passes + 1))
    return _ask_again(findings, f"Run it again: {count(once, 'cell')} failed once only.", "--repeat", passes)


def _rare(findings: Findings) -> NextStep | None:
    """More passes, where nothing failed and few were asked for."""
    asked = [result for result in findings.results if not (result.count.bad and result.cell in findings.foreseen)]
    good = min((result.count.good for result in asked), default=0)
    if _unforeseen_kinds(findings) & FAILURES or good < 1 or findings.run.spec.task is not Task.CELLS:
        return None
    percent = math.ceil(100 * (1 - 0.05 ** (1 / good)))
    text = f"Repeat: {count(good, 'pass')} of a cell can miss a failure in up to {percent} % of runs (95 %)."
    return _ask_again(findings, text, "--repeat", str(max(9, 3 * good)))
