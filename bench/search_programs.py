"""Simulated programs that the ways to search are played against; every draw is seeded, nothing is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

SWITCHES = 24


class OutOfTrials(Exception):
    """A way to search asked more often than anybody would wait for."""


@dataclass
class Account:
    """Counts trials and what they cost; ``confirm_s`` is what it cost to see once more that a failing value fails."""

    pass_s: float
    fail_s: float
    rng: random.Random
    trials: int = 0
    failures: int = 0
    seconds: float = 0.0
    confirm_s: float = 0.0
    most_trials: int = 5000

    def pay(self, rate: float, *, limit_s: float | None = None) -> bool:
        """Run one trial that fails with ``rate``; a failure takes the whole time limit, or ``limit_s``."""
        if self.trials >= self.most_trials:
            raise OutOfTrials
        self.trials += 1
        failed = self.rng.random() < rate
        self.failures += failed
        self.seconds += (self.fail_s if limit_s is None else limit_s) if failed else self.pass_s
        return failed


@dataclass(frozen=True)
class Condition:
    """How a program fails: with ``first`` at its threshold, rising to ``last`` at the end of the axis.

    ``false``: how often a trial fails that has nothing to do with the threshold, at every value.
    """

    first: float
    last: float
    false: float = 0.0

    def __str__(self) -> str:
        rate = f"{self.first:g}" if self.first == self.last else f"{self.first:g} to {self.last:g}"
        return f"{rate}, {100 * self.false:g} % false" if self.false else rate


CONDITIONS = (
    Condition(1.0, 1.0),
    Condition(0.7, 0.7),
    Condition(0.3, 0.3),
    Condition(0.1, 0.1),
    Condition(0.1, 0.9),
    Condition(1.0, 1.0, false=0.02),
    Condition(0.7, 0.7, false=0.02),
)


@dataclass
class Ordered(Account):
    """Values 0..n-1 of an ordered axis, failing from ``threshold`` on; 0 is known to pass, n-1 to have failed once."""

    n: int = 0
    threshold: int = 0
    condition: Condition = field(default_factory=lambda: CONDITIONS[0])
    ends_known: bool = True

    def fails(self, position: int, *, limit_s: float | None = None) -> bool:
        """Run one trial there."""
        return self.pay(self.rate(position), limit_s=limit_s)

    def rate(self, position: int) -> float:
        """How often a trial fails there."""
        real = 0.0
        if position >= self.threshold:
            share = (position - self.threshold) / max(self.n - 1 - self.threshold, 1)
            real = self.condition.first + share * (self.condition.last - self.condition.first)
        return 1 - (1 - real) * (1 - self.condition.false)


@dataclass
class Switches(Account):
    """Fails with ``rate`` where every switch of ``cause`` is on; remembers what it decided by ``repeats`` trials.

    ``false``: how often a trial fails that has nothing to do with the cause, in every cell.
    """

    cause: frozenset[int] = frozenset()
    requires: dict[int, int] = field(default_factory=dict)
    rate: float = 1.0
    repeats: int = 1
    false: float = 0.0

    def __post_init__(self) -> None:
        self.decided = {frozenset[int](): False, frozenset(range(SWITCHES)): True}

    def allowed(self, on: frozenset[int]) -> bool:
        """Whether every switch that is on has what it requires."""
        return all(other in on for switch, other in self.requires.items() if switch in on)

    def fails_once(self, on: frozenset[int]) -> bool:
        """Run one trial."""
        real = self.rate if self.cause <= on else 0.0
        return self.pay(1 - (1 - real) * (1 - self.false))

    def fails(self, on: frozenset[int]) -> bool:
        """Whether one of ``repeats`` trials fails; decided once, and free where the rules forbid it."""
        if on not in self.decided:
            self.decided[on] = self.allowed(on) and any(self.fails_once(on) for _ in range(self.repeats))
        return self.decided[on]

    def smallest(self) -> frozenset[int]:
        """The right answer: the cause and everything that it requires."""
        whole = set(self.cause)
        while lacking := {self.requires[s] for s in whole if s in self.requires} - whole:
            whole |= lacking
        return frozenset(whole)
