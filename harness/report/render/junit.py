"""JUnit XML: a test case per value or cell, for the pages where CI systems show results."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from harness.core.campaign import CellStatus
from harness.core.verdict import Answer, Kind
from harness.report.clean import clean
from harness.report.findings import FAILED, to_tell_of
from harness.report.summary import place_of
from harness.report.tried import TrialSet, each_verdict
from harness.report.words import MOVING, at, how_often_in, not_run, of, several_programs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.core.campaign import CellResult, LostShard
    from harness.report.findings import Findings
    from harness.report.tried import Numbered
    from harness.report.write import Report


MOST = 5
"""Trials of a row whose reasons are written out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCase:
    """A row of the suite; ``outcome`` is failure, error, skipped or empty for passed.

    ``wrong`` are its trials that did not pass; they say why where ``why`` is empty. ``seconds`` are those of all its
    trials, of which there were ``trials``.
    """

    __test__ = False

    group: str
    name: str
    seconds: float
    outcome: str = ""
    why: str = ""
    wrong: Sequence[Numbered] = ()
    trials: int = 0

    @property
    def message(self) -> str:
        """Why it is no pass; of several trials, in how many it showed."""
        if self.why:
            return self.why
        often = f", {of(len(self.wrong), self.trials)}" if self.trials > 1 else ""
        return f"{each_verdict(self.wrong)}{often}"


def joined(texts: Sequence[str]) -> str:
    """The suites of several reports as one file."""
    root = ET.Element("testsuites")
    for text in texts:
        root.extend(ET.fromstring(text))
    return _written(root)


def render(report: Report, *, hide: Callable[[str], str] = str) -> str:
    """One suite. A failing value is a failure, one that could not be judged an error, one not tried is skipped.

    A job that was only watched is what its last look showed: a hang is a failure, a job that moves is neither.
    A shard that left no run is an error beside its cells, which are skipped; so is that the run did not come to its
    end, or that its shards did not run the same program.
    In a matrix a failure that was expected counts as passed, and a pass where a failure was expected as a failure.
    Each failure begins with its line, as far as that is known.
    """
    findings = report.findings
    suite = ET.Element("testsuite", name=hide(clean(report.title)), timestamp=report.run.started_at.rstrip("Z"))
    if often := how_often_in(findings):
        properties = ET.SubElement(suite, "properties")
        ET.SubElement(properties, "property", name="how_often", value=_printable(often, hide))
    if findings.is_line:
        cases = [_judged(findings.run.axis.name, at(findings, cell.value), cell) for cell in findings.along]
    else:
        cases = _of_cells(findings)
    cases += _of_the_run(findings)
    for one in cases:
        _add(suite, one, findings, hide)
    counts = Counter(one.outcome for one in cases)
    suite.set("tests", str(len(cases)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(counts[tag]))
    suite.set("time", f"{sum(one.seconds for one in cases):.3f}")
    root = ET.Element("testsuites")
    root.append(suite)
    return _written(root)


def _written(root: ET.Element) -> str:
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add(suite: ET.Element, one: TestCase, findings: Findings, hide: Callable[[str], str]) -> None:
    time = f"{one.seconds:.3f}"
    case = ET.SubElement(suite, "testcase", classname=one.group, name=_printable(one.name, hide), time=time)
    if one.outcome:
        place = place_of(findings, to_tell_of([trial.record for trial in one.wrong]))
        message = f"{place.text}: {one.message}" if place.is_line else one.message
        element = ET.SubElement(case, one.outcome, message=_printable(message, hide))
        reasons = [f"trial {trial.number}: {trial.verdict}: {trial.verdict.because}" for trial in one.wrong[:MOST]]
        if len(one.wrong) > MOST:
            reasons.append(f"and {len(one.wrong) - MOST} more")
        element.text = _printable("\n".join(reasons), hide) or None


def _printable(text: str, hide: Callable[[str], str]) -> str:
    return hide("".join(c for c in clean(text) if c in "\t\n" or c.isprintable()))


def _of_cells(findings: Findings) -> list[TestCase]:
    trials = findings.by_cell
    results = findings.results
    if findings.is_watched:
        return [_of_watched(findings)]
    if not results:
        return [_judged("cell", findings.name_of(cell), mine, needs_all=True) for cell, mine in trials.items()]
    cases = [_of_result(result, trials.get(result.cell, TrialSet())) for result in results]
    return [*map(_of_lost, findings.lost), *cases]


def _of_the_run(findings: Findings) -> list[TestCase]:
    run, reasons = findings.run, [several_programs(findings)]
    if not (run.is_whole or findings.is_watched or findings.lost):
        reasons.append(f"it did not come to its end: {run.ended}")
    why = "; ".join(filter(None, reasons))
    return [TestCase(group="run", name=run.id, seconds=0, outcome="error", why=why)] if why else []


def _of_lost(shard: LostShard) -> TestCase:
    why = f"{not_run(shard)}: it left no run. Run it with: {shlex.join(shard.invocation.argv)}"
    return TestCase(group="shard", name=shard.name, seconds=0, outcome="error", why=why)


def _of_watched(findings: Findings) -> TestCase:
    last = findings.trials[-1]
    outcome = "error"
    if last.verdict.kind in FAILED:
        outcome = "failure"
    elif last.verdict.kind in (Kind.PASS, Kind.SLOW) or last.verdict.cause == MOVING:
        outcome = ""
    seconds = sum(trial.record.outcome.duration_s for trial in findings.trials)
    name = findings.name_of(last.cell)
    return TestCase(group="cell", name=name, seconds=seconds, outcome=outcome, wrong=(last,) if outcome else ())


def _of_result(result: CellResult, trials: TrialSet) -> TestCase:
    wrong = tuple(trial for trial in trials if trial.verdict.kind is not Kind.PASS)
    outcome, why = _outcome(result, wrong)
    if outcome in ("", "skipped"):
        wrong = ()
    return TestCase(group="cell", name=result.name, seconds=trials.seconds, outcome=outcome, why=why, wrong=wrong)


def _outcome(result: CellResult, wrong: Sequence[Numbered]) -> tuple[str, str]:
    """What a cell is in a suite, and why."""
    match result.met:
        case CellStatus.EXPECTED:
            return "", ""
        case CellStatus.UNEXPECTED:
            return "failure", f"expected {result.expected}: {result.because or each_verdict(wrong)}"
        case CellStatus.INCONCLUSIVE:
            return "error", result.because
        case CellStatus.SKIPPED | CellStatus.NOT_RUN:
            return "skipped", result.because or result.met.value


def _judged(group: str, name: str, trials: TrialSet, *, needs_all: bool = False) -> TestCase:
    """A row by what its trials answered, where nothing says what was expected; ``needs_all`` of them must pass."""
    case = partial(TestCase, group=group, name=name, seconds=trials.seconds, trials=len(trials))
    if not trials:
        return case(outcome="skipped", why="no trial")
    if trials.good == len(trials) or (not needs_all and trials.good and not trials.bad):
        return case()
    wrong = [trial for trial in trials if trial.record.answer is not Answer.GOOD]
    return case(outcome="failure" if trials.bad else "error", wrong=wrong)
