"""Oracle: verdict -> good, bad or unresolved, for the one failure that is being sought."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.core.point import assignment
from harness.core.verdict import FAILURES, REFUSED, Answer, Kind, signature_line, signature_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.cause import Cause
    from harness.core.point import Point
    from harness.core.record import TrialRecord
    from harness.core.space import Space
    from harness.core.verdict import Verdict


_QUOTE = re.compile(r"\braised [^:]*: (?P<raised>.+)|(?:ends|it said): (?P<printed>.+)", re.DOTALL)
"""Where the sentence of a verdict quotes the exception."""


class Oracle:
    """Answers whether a trial showed the failure being sought.

    With ``bad`` given, those kinds are bad. Without, the first failure that shows up (its kind, cause and place)
    becomes the one being sought, and a different failure later is unresolved: following it would find the edge of
    another problem. A cause or place that the evidence did not tell matches any. PASS is always good; SLOW, INFRA and
    everything else is unresolved. Feeding the same verdicts again gives the same answers.

    The place of a failure is the way to it: where other functions of the program's own called the same helper, it is
    another failure. A crash is another too where another function raised, of whatever code, or where it is known by
    what the program said last. Where a failure has no such way, or where ``code_varies`` from trial to trial, as along
    commits, so that callers change their names, a crash that another caller met is another only when its words are
    others too, and a hang when its stack shares no function with the first one's.

    A command line that was refused is no failure of the training: with ``past_refusals`` it never becomes the one being
    sought, unless its kind is named.
    """

    def __init__(self, bad: tuple[Kind, ...] = (), *, past_refusals: bool = False, code_varies: bool = False) -> None:
        self._bad = frozenset(bad)
        self._past_refusals = past_refusals
        self._code_varies = code_varies
        self._kind: Kind | None = None
        self._cause: str | None = None
        self._frames: tuple[str, ...] = ()
        self._path: tuple[str, ...] = ()
        self._line = self._message = ""
        self._others: list[str] = []

    @property
    def sought(self) -> str:
        """The failure being sought, in words."""
        if self._bad:
            return " or ".join(sorted(self._bad))
        if self._kind is None:
            return "the first failure that shows up"
        failure = f"{self._kind} ({self._cause})" if self._cause else str(self._kind)
        if self._line:
            return f"{failure}, {self._line}"
        return f"{failure} in {self._frames[0]}" if self._kind is Kind.CRASH and self._frames else failure

    @property
    def others(self) -> tuple[str, ...]:
        """Failures that were seen and are not the one being sought, each once, in the order they came."""
        return tuple(self._others)

    def answer(self, verdict: Verdict) -> Answer:
        """Good, bad or unresolved; remembers the first failure when no kind was named."""
        if verdict.kind in self._bad:
            return Answer.BAD
        if verdict.kind is Kind.PASS:
            return Answer.GOOD
        if verdict.kind not in FAILURES:
            return Answer.UNRESOLVED
        if not self._bad and self._matches(verdict):
            self._kind = verdict.kind
            self._cause = self._cause or verdict.cause
            self._frames = self._frames or signature_names(verdict.signature)
            self._path = self._path or verdict.path
            self._line = self._line or signature_line(verdict.signature)
            self._message = self._message or _message(verdict)
            return Answer.BAD
        if self._description(verdict) not in self._others:
            self._others.append(self._description(verdict))
        return Answer.UNRESOLVED

    def reason(self, verdict: Verdict) -> str:
        """Why ``verdict`` has the answer it has, one clause."""
        if verdict.kind is Kind.PASS:
            return "it passed"
        if verdict.kind in self._bad or (not self._bad and verdict.kind in FAILURES and self._matches(verdict)):
            return f"it ended in {verdict}, the failure being sought"
        if verdict.kind in FAILURES:
            return f"it ended in {self._description(verdict)}, but {self.sought} is being sought"
        return f"it ended in {verdict}, which is neither a pass nor the failure being sought"

    def _matches(self, verdict: Verdict) -> bool:
        if self._kind is None:
            return not (self._past_refusals and verdict.cause == REFUSED)
        if verdict.kind is not self._kind:
            return False
        if self._cause is not None and verdict.cause is not None and verdict.cause != self._cause:
            return False
        return not self._is_elsewhere(verdict)

    def _is_elsewhere(self, verdict: Verdict) -> bool:
        line, frames = signature_line(verdict.signature), signature_names(verdict.signature)
        if line and self._line:
            return line != self._line
        if not frames or not self._frames:
            return False
        if verdict.kind is Kind.CRASH and frames[0] != self._frames[0]:
            return True
        if verdict.path and self._path and not self._code_varies:
            # The frames furthest out may be missing from one of them.
            return any(one != other for one, other in zip(verdict.path, self._path, strict=False))
        if verdict.kind is Kind.CRASH:
            message = _message(verdict)
            return bool(message and self._message) and message != self._message and frames != self._frames
        return not set(frames) & set(self._frames)

    def _description(self, verdict: Verdict) -> str:
        """The failure in words, with its place where only that tells it from the one being sought."""
        line, frames = signature_line(verdict.signature), signature_names(verdict.signature)
        if verdict.kind is not self._kind or verdict.cause != self._cause:
            return _in_words(verdict)
        if line:
            return f"{verdict}, {line}"
        if verdict.path and self._path and frames[:1] == self._frames[:1]:
            return f"{verdict} in {_place(verdict.path, self._path)}"
        return f"{verdict} in {_place(frames, self._frames)}" if frames else str(verdict)


def _message(verdict: Verdict) -> str:
    """What the exception that ended it said, without numbers; empty where the sentence about it quotes none."""
    match = _QUOTE.search(verdict.because)
    return re.sub(r"\d+", "#", match["raised"] or match["printed"]) if match else ""


def _place(frames: Sequence[str], others: Sequence[str]) -> str:
    """The innermost of ``frames``, and the way to it where ``others`` have the same innermost one."""
    if not others or frames[0] != others[0]:
        return frames[0]
    return " < ".join(frames)


def not_followed(
    records: Iterable[TrialRecord], *, space: Space, causes: Sequence[Cause], may_set: bool
) -> tuple[str, ...]:
    """A sentence for each failure that was seen and is not the one being sought: where, and what seeks it.

    None seeks a command line that was refused: it says that such a cell was never run.

    ``may_set``: the same command takes ``--set``, so that a failure of the kind that was sought can be sought beside
    the ``causes`` that were named.
    """
    cells: dict[str, list[TrialRecord]] = {}
    followed: set[Kind] = set()
    for record in records:
        if record.verdict.kind in FAILURES and record.answer is Answer.UNRESOLVED:
            cells.setdefault(_in_words(record.verdict), []).append(record)
        elif record.answer is Answer.BAD:
            followed.add(record.verdict.kind)
    sentences: list[str] = []
    for words, alike in cells.items():
        points, verdict = [record.trial.point for record in alike], alike[0].verdict
        simplest = min(points, key=lambda cell: len(set(cell) - set(space.good)))
        times = f"{len(points)} time{'' if len(points) == 1 else 's'}"
        where = f"{times}, with {space.name_of(simplest)}{_elsewhere(points)}"
        if verdict.cause == REFUSED:
            sentences.append(f"Refused by the program, so that nothing was tried there: {words}, {where}.")
            continue
        away = _away_from(causes, simplest) if may_set and verdict.kind in followed else ()
        how = _sought_by(verdict.kind, away, is_followed=verdict.kind in followed)
        sentences.append(f"Another failure was seen and not followed: {words}, {where}. Seek it with {how}.")
    return tuple(sentences)


def _sought_by(kind: Kind, away: Sequence[str], *, is_followed: bool) -> str:
    """What seeks a failure of ``kind``: the same command, held ``away`` from the causes, or its kind by name."""
    if away:
        return f"the same command and {' '.join(away)}"
    return f"--bad {kind.lower()}" + (", which takes both for one failure" if is_followed else "")


def _in_words(verdict: Verdict) -> str:
    """The failure, with what the program refused where it refused its command line."""
    return f"{verdict}, {signature_line(verdict.signature)}" if verdict.cause == REFUSED else str(verdict)


def _elsewhere(points: Sequence[Point]) -> str:
    others = len(set(points)) - 1
    return f" and {others} other cell{'' if others == 1 else 's'}" if others else ""


def _away_from(causes: Sequence[Cause], cell: Point) -> tuple[str, ...]:
    """Options that hold a setting of ``cell`` that passed with each of ``causes``; none where one has no such."""
    options: dict[str, str] = {}
    for cause in causes:
        apart = [need.axis for need in cause.needs if cell.get(need.axis) in (need.good, need.last_good)]
        if not apart:
            return ()
        options[apart[0]] = f"--set {assignment(apart[0], cell.get(apart[0]))}"
    return tuple(options.values())
