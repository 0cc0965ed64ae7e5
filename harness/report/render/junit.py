"""JUnit XML: a test case per value or cell, for the pages where CI systems show results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from harness.core.campaign import Met
from harness.core.verdict import Answer, Kind
from harness.report.campaign.facts import by_cell, name_of, results
from harness.report.clean import clean
from harness.report.facts import cells, is_line
from harness.report.subject import subject
from harness.report.text import listed
from harness.report.words import at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harness.core.campaign import CellResult
    from harness.core.record import Run
    from harness.report.build import Report
    from harness.report.facts import Numbered


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCase:
    """A row of the suite; ``outcome`` is failure, error, skipped or empty for passed.

    ``wrong`` are its trials that did not pass; they say why where ``why`` is empty.
    """

    __test__ = False

    group: str
    name: str
    seconds: float
    outcome: str = ""
    why: str = ""
    wrong: Sequence[Numbered] = ()


def render(report: Report, *, hide: Callable[[str], str] = lambda text: text) -> str:
    """One suite. A failing value is a failure, one that could not be judged an error, one not tried is skipped.

    In a matrix a failure that was expected counts as passed, and a pass where a failure was expected as a failure.
    The failure that the report tells of begins with its line.
    """
    run, place = report.run, report.summary.place
    told_of = subject(run) if place.is_line else None
    suite = ET.Element("testsuite", name=hide(clean(report.title)), timestamp=run.started_at.rstrip("Z"))
    cases = _along(run) if is_line(run) else _of_cells(run)
    counts: dict[str, int] = dict.fromkeys(("failure", "error", "skipped"), 0)
    for one in cases:
        time = f"{one.seconds:.3f}"
        case = ET.SubElement(suite, "testcase", classname=one.group, name=_said(one.name, hide), time=time)
        if one.outcome:
            counts[one.outcome] += 1
            at = f"{place.text}: " if any(trial.record is told_of for trial in one.wrong) else ""
            message = f"{at}{one.why or _verdicts(one.wrong)}"
            found = ET.SubElement(case, one.outcome, message=_said(message, hide))
            found.text = _said(_because(one.wrong), hide) or None
    suite.set("tests", str(len(cases)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(counts[tag]))
    suite.set("time", f"{sum(one.seconds for one in cases):.3f}")
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _said(text: str, hide: Callable[[str], str]) -> str:
    return hide("".join(c for c in clean(text) if c in "\t\n" or c.isprintable()))


def _along(run: Run) -> list[TestCase]:
    return [_judged(run.axis.name, at(run, cell.value), cell.trials) for cell in cells(run)]


def _of_cells(run: Run) -> list[TestCase]:
    trials = by_cell(run)
    asked = results(run)
    if not asked:
        return [_judged("cell", name_of(run, cell), mine, needs_all=True) for cell, mine in trials.items()]
    return [_of_result(result, trials.get(result.cell, [])) for result in asked]


def _of_result(result: CellResult, trials: Sequence[Numbered]) -> TestCase:
    case = {"group": "cell", "name": result.name, "seconds": _seconds(trials)}
    wrong = [t for t in trials if t.verdict.kind is not Kind.PASS]
    match result.met:
        case Met.EXPECTED:
            return TestCase(**case)
        case Met.UNEXPECTED:
            why = f"expected {result.expected}: {result.because or _verdicts(wrong)}"
            return TestCase(**case, outcome="failure", why=why, wrong=wrong)
        case Met.UNTOLD:
            return TestCase(**case, outcome="error", why=result.because, wrong=wrong)
        case Met.SKIPPED | Met.NOT_RUN:
            return TestCase(**case, outcome="skipped", why=result.because or result.met.value)


def _judged(group: str, name: str, trials: Sequence[Numbered], *, needs_all: bool = False) -> TestCase:
    """A row by what its trials answered, where nothing says what was expected; ``needs_all`` of them must pass."""
    answers = {trial.record.answer for trial in trials}
    case = {"group": group, "name": name, "seconds": _seconds(trials)}
    if not trials:
        return TestCase(**case, outcome="skipped", why="no trial")
    if answers == {Answer.GOOD} or (not needs_all and Answer.GOOD in answers and Answer.BAD not in answers):
        return TestCase(**case)
    wrong = [trial for trial in trials if trial.record.answer is not Answer.GOOD]
    return TestCase(**case, outcome="failure" if Answer.BAD in answers else "error", wrong=wrong)


def _seconds(trials: Iterable[Numbered]) -> float:
    return sum(trial.record.outcome.duration_s for trial in trials)


def _verdicts(trials: Sequence[Numbered]) -> str:
    return listed(dict.fromkeys(str(trial.verdict) for trial in trials))


def _because(trials: Sequence[Numbered]) -> str:
    return "\n".join(f"trial {t.number}: {t.verdict}: {t.verdict.because}" for t in trials[:5])
