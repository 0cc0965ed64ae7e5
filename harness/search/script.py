"""Script: a search over cells written as one story; asking and telling drive it, so that it can be replayed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from harness.core.cause import CellCount
from harness.core.ports import CellRequest
from harness.core.verdict import Answer
from harness.search.certificate import Certificate, passes_needed
from harness.search.costs import Costs
from harness.search.tally import Tally, false_alarms
from harness.search.threshold import MOST_CONFIRMS, certificate_passes

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from harness.core.point import Point
    from harness.core.spec import Effort

ANYWHERE = 0.0
"""Where on the axis a pass is, to its costs: between cells there is no axis, and so no line."""

Steps: TypeAlias = "Generator[CellRequest, None, None]"
"""A part of the story: it yields questions and looks the answers up in the tallies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One answer: all that a search ever learns. ``soft``: it was cut off by a soft limit, which says nothing yet."""

    cell: Point
    answer: Answer
    seconds: float
    soft: bool = False


class Script:
    """Asks what :meth:`_script` yields, one question at a time, until it ends or the effort is used up.

    A script never receives an answer by hand: it looks into ``tallies``, so that what was seen before the search
    began (``seen``) counts like anything else, and the same answers in the same order lead to the same questions.
    A failure is believed while it is likelier the cell's own than a false alarm (:meth:`fails`); a pass is tentative
    until :attr:`required` of them were seen.
    """

    def __init__(self, effort: Effort, *, prior: Sequence[Observation] = ()) -> None:
        self.effort = effort
        self.tallies: dict[Point, Tally] = {}
        self.certificates: dict[Point, Certificate] = {}
        self.observations: list[Observation] = []
        self.stopped = ""
        self.costs = Costs()
        for observation in prior:
            self._learn(observation)
        self._steps = self._script()
        self._next: CellRequest | None = None
        self._copies = 1
        self._advance()

    def ask(self) -> CellRequest | None:
        """The next question, or None when the search is over. Asking twice asks the same."""
        return self._next

    def ready(self, most: int) -> tuple[CellRequest, ...]:
        """The next question, as often as may be asked at once: for all passes that a certificate lacks, else once."""
        return () if self._next is None else (self._next,) * min(self._copies, most)

    def tell(self, *, cell: Point, answer: Answer, seconds: float, slow: bool = False, soft: bool = False) -> None:
        """The answer for one trial of ``cell`` and what it cost; ``soft``: a soft limit cut it off.

        That it was ``slow`` says nothing to a search that compares no durations.
        """
        observation = Observation(cell=cell, answer=answer, seconds=seconds, soft=soft)
        self.observations.append(observation)
        self._learn(observation)
        if self._next is not None:
            self._advance()

    @property
    def trials(self) -> int:
        """Trials that this search asked for."""
        return len(self.observations)

    @property
    def failures(self) -> int:
        """Those of them that failed."""
        return sum(observation.answer is Answer.BAD for observation in self.observations)

    @property
    def seconds(self) -> float:
        """What they cost."""
        return math.fsum(observation.seconds for observation in self.observations)

    @property
    def is_measured(self) -> bool:
        """Whether it is known how long a pass takes, so that seconds can be told."""
        return self.costs.is_measured

    def expect_pass(self, seconds: float) -> None:
        """Earlier runs say what a pass takes; what is seen here says it better."""
        self.costs.expected_s = seconds

    @property
    def pass_s(self) -> float:
        """Expected seconds of a pass."""
        return self.costs.of_pass(ANYWHERE)

    @property
    def fail_s(self) -> float:
        """Expected seconds of a failure."""
        return self.costs.of_failure()

    @property
    def required(self) -> int:
        """Passes that make a certificate."""
        return self.effort.certify or certificate_passes(pass_s=self.pass_s, fail_s=self.fail_s)

    def good(self, cell: Point) -> int:
        """Passes of ``cell``."""
        return self.tallies[cell].good if cell in self.tallies else 0

    def bad(self, cell: Point) -> int:
        """Failures of ``cell``."""
        return self.tallies[cell].bad if cell in self.tallies else 0

    def count(self, cell: Point) -> CellCount:
        """What was seen of ``cell``, to keep."""
        tally = self.tallies.get(cell, Tally())
        return CellCount(cell=cell, good=tally.good, bad=tally.bad, unresolved=tally.unresolved + tally.cut)

    def fails(self, cell: Point) -> bool:
        """Whether its failures are likelier its own than false alarms, be it for now."""
        return cell in self.tallies and self.tallies[cell].suspect

    def is_sure(self, cell: Point) -> bool:
        """Whether its failures are sure to be its own; one of them at least was run to its end."""
        alarms = false_alarms(self.tallies.values())
        return cell in self.tallies and self.tallies[cell].is_sure(false_alarms=alarms, tried=len(self.tallies))

    def passed(self, cell: Point, passes: int) -> bool:
        """Whether it passed as often as ``passes`` ask, or more often for the same where failures were cleared."""
        tally = self.tallies.get(cell, Tally())
        return not tally.suspect and tally.good >= passes_needed(passes, tally.failures)

    def certified(self, cell: Point) -> bool:
        """Whether it gave all passes of its certificate, and its failures, if any, are not its own."""
        return cell in self.certificates and self.certificates[cell].complete and not self.fails(cell)

    def is_flaky(self) -> bool:
        """Whether a cell both passed and failed."""
        return any(tally.good and tally.failures for tally in self.tallies.values())

    def is_exhausted(self, cell: Point) -> bool:
        """Whether asking ``cell`` again is not worth it: too often it gave no answer."""
        return cell in self.tallies and self.tallies[cell].is_exhausted

    def _script(self) -> Steps:
        raise NotImplementedError

    def _until(self, cell: Point, *, passes: int, role: str, reason: str) -> Steps:
        """Ask ``cell`` until it fails, passes as often as ``passes`` ask or is given up."""
        while not self.fails(cell) and not self.passed(cell, passes) and not self.is_exhausted(cell):
            lacking = passes_needed(passes, self.bad(cell)) - self.good(cell)
            self._copies = max(lacking, 1) if role == "certify" else 1
            yield CellRequest(cell=cell, role=role, reason=reason)

    def _certify(self, cell: Point, *, attempt: int, reason: str) -> Steps:
        """Ask ``cell`` for the passes of a certificate, those from now on; ends when it fails or is given up."""
        first = Certificate(required=self.required, attempt=attempt, confidence=self.effort.confidence)
        certificate = self.certificates.setdefault(cell, first)
        while not self.fails(cell) and not certificate.complete and not self.is_exhausted(cell):
            self._copies = certificate.needed - certificate.good
            yield CellRequest(cell=cell, role="certify", reason=reason)

    def _confirm(self, cell: Point, *, reason: str) -> Steps:
        """Ask ``cell``, which failed, until it is sure to fail by itself, is cleared, or is given up."""
        confirms = 0
        while self.fails(cell) and not self.is_sure(cell) and confirms < MOST_CONFIRMS and not self.is_exhausted(cell):
            confirms += 1
            yield CellRequest(cell=cell, role="confirm", reason=reason)

    def _learn(self, observation: Observation) -> None:
        cell, answer, seconds, soft = observation.cell, observation.answer, observation.seconds, observation.soft
        if cell in self.certificates and (soft or answer is not Answer.UNRESOLVED):
            self.certificates[cell].count(passed=answer is Answer.GOOD)
        tally = self.tallies.setdefault(cell, Tally())
        tally.count(answer, soft=soft, is_past_cuts=self.costs.is_past_cuts(seconds))
        self.costs.learn(ANYWHERE, answer, seconds, soft=soft)

    def _advance(self) -> None:
        self._copies = 1
        self._next = next(self._steps, None)
        if self._next is None:
            return
        decides = self._next.role == "confirm" and not self.bad(self._next.cell)
        self._next = replace(self._next, soft=self.effort.soft_limit and not decides)
        self.stopped = self.stopped or self.effort.spent(trials=self.trials, seconds=self.seconds)
        if self.stopped:
            self._next = None
