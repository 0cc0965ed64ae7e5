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
from harness.report.text import listed
from harness.report.words import at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harness.core.campaign import CellResult
    from harness.core.record import Run
    from harness.report.build import Report
    from harness.report.facts import Numbered


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCase:
    """A row of the suite; ``outcome`` is failure, error, skipped or empty for passed."""

    __test__ = False

    group: str
    name: str
    seconds: float
    outcome: str = ""
    message: str = ""
    text: str = ""


def render(report: Report, *, hide: Callable[[str], str] = lambda text: text) -> str:
    """One suite. A failing value is a failure, one that could not be judged an error, one not tried is skipped.

    In a matrix a failure that was expected counts as passed, and a pass where a failure was expected as a failure.
    """
    run = report.run
    suite = ET.Element("testsuite", name=hide(clean(report.title)), timestamp=run.started_at.rstrip("Z"))
    cases = _along(run) if is_line(run) else _of_cells(run)
    counts: dict[str, int] = dict.fromkeys(("failure", "error", "skipped"), 0)
    total_s = 0.0
    for one in cases:
        case = ET.SubElement(
            suite, "testcase", classname=one.group, name=_said(one.name, hide), time=f"{one.seconds:.3f}"
        )
        total_s += one.seconds
        if one.outcome:
            counts[one.outcome] += 1
            found = ET.SubElement(case, one.outcome, message=_said(one.message, hide))
            found.text = _said(one.text, hide) or None
    suite.set("tests", str(len(suite.findall("testcase"))))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(counts[tag]))
    suite.set("time", f"{total_s:.3f}")
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _said(text: str, hide: Callable[[str], str]) -> str:
    return hide("".join(c for c in clean(text) if c in "\t\n" or c.isprintable()))


def _along(run: Run) -> list[TestCase]:
    found: list[TestCase] = []
    for cell in cells(run):
        name = at(run, cell.value)
        case = {"group": run.axis.name, "name": name, "seconds": _seconds(cell.trials)}
        if not cell.total:
            found.append(TestCase(**case, outcome="skipped", message="no trial"))
            continue
        told = [t for t in cell.trials if t.record.answer is not Answer.GOOD]
        outcome = "failure" if cell.bad else "error" if told and not cell.good else ""
        found.append(
            TestCase(**case, outcome=outcome, message=_verdicts(told), text=_because(told))
            if outcome
            else TestCase(**case)
        )
    return found


def _of_cells(run: Run) -> list[TestCase]:
    trials = by_cell(run)
    asked = results(run)
    if not asked:
        return [_without_expectation(name_of(run, cell), mine) for cell, mine in trials.items()]
    return [_of_result(result, trials.get(result.cell, [])) for result in asked]


def _of_result(result: CellResult, trials: list[Numbered]) -> TestCase:
    case = {"group": "cell", "name": result.name, "seconds": _seconds(trials)}
    told = [t for t in trials if t.verdict.kind is not Kind.PASS]
    match result.met:
        case Met.EXPECTED:
            return TestCase(**case)
        case Met.UNEXPECTED:
            message = f"expected {result.expected}: {result.because or _verdicts(told)}"
            return TestCase(**case, outcome="failure", message=message, text=_because(told))
        case Met.UNTOLD:
            return TestCase(**case, outcome="error", message=result.because or _verdicts(told), text=_because(told))
        case Met.SKIPPED | Met.NOT_RUN:
            return TestCase(**case, outcome="skipped", message=result.because or result.met.value)


def _without_expectation(name: str, trials: list[Numbered]) -> TestCase:
    told = [t for t in trials if t.record.answer is not Answer.GOOD]
    failed = any(t.record.answer is Answer.BAD for t in told)
    outcome = "failure" if failed else "error" if told else ""
    seconds = _seconds(trials)
    return TestCase(
        group="cell", name=name, seconds=seconds, outcome=outcome, message=_verdicts(told), text=_because(told)
    )


def _seconds(trials: Iterable[Numbered]) -> float:
    return sum(trial.record.outcome.duration_s for trial in trials)


def _verdicts(trials: list[Numbered]) -> str:
    return listed(dict.fromkeys(str(trial.verdict) for trial in trials))


def _because(trials: list[Numbered]) -> str:
    return "\n".join(f"trial {t.number}: {t.verdict}: {t.verdict.because}" for t in trials[:5])
