"""Oracle: verdict -> good, bad or unresolved, for the one failure that is being sought."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.verdict import FAILURES, Answer, Kind

if TYPE_CHECKING:
    from harness.core.verdict import Verdict


class Oracle:
    """Answers whether a trial showed the failure being sought.

    With ``bad`` given, those kinds are bad. Without, the first failure that shows up (its kind and cause) becomes
    the one being sought, and a different failure later is unresolved: following it would find the edge of another
    problem. A cause that the evidence did not tell matches any. PASS is always good; SLOW, INFRA and everything else
    is unresolved. Feeding the same verdicts again gives the same answers.
    """

    def __init__(self, bad: tuple[Kind, ...] = ()) -> None:
        self._bad = frozenset(bad)
        self._kind: Kind | None = None
        self._cause: str | None = None
        self._others: list[str] = []

    @property
    def sought(self) -> str:
        """The failure being sought, in words."""
        if self._bad:
            return " or ".join(sorted(self._bad))
        if self._kind is None:
            return "the first failure that shows up"
        return f"{self._kind} ({self._cause})" if self._cause else str(self._kind)

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
        if not self._bad and verdict.kind in FAILURES and self._matches(verdict):
            self._kind = verdict.kind
            self._cause = self._cause or verdict.cause
            return Answer.BAD
        if verdict.kind in FAILURES and str(verdict) not in self._others:
            self._others.append(str(verdict))
        return Answer.UNRESOLVED

    def reason(self, verdict: Verdict) -> str:
        """Why ``verdict`` has the answer it has, one clause."""
        if verdict.kind is Kind.PASS:
            return "it passed"
        if verdict.kind in self._bad or (not self._bad and verdict.kind in FAILURES and self._matches(verdict)):
            return f"it ended in {verdict}, the failure being sought"
        if verdict.kind in FAILURES:
            return f"it ended in {verdict}, but {self.sought} is being sought"
        return f"it ended in {verdict}, which is neither a pass nor the failure being sought"

    def _matches(self, verdict: Verdict) -> bool:
        if self._kind is None:
            return True
        known = self._cause is not None and verdict.cause is not None
        return verdict.kind is self._kind and (not known or verdict.cause == self._cause)
