"""Expected trials, failures, seconds and wrong answers of ways to find a threshold, on simulated flaky programs.

    python bench/search_simulation.py --pass-s 2 --fail-s 60 --runs 400

A program has N values; from a threshold on (each value alike, or none) a trial fails with the given rate. A pass
costs ``--pass-s`` and a failure ``--fail-s``. Everything is seeded; nothing is run but arithmetic.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.point import Axis, AxisType
from harness.core.spec import Effort
from harness.core.verdict import Answer
from harness.search.threshold import ThresholdSearch

if TYPE_CHECKING:
    from collections.abc import Callable

RATES = (1.0, 0.7, 0.3, 0.1)


@dataclass
class Program:
    """Positions 0..n-1; fails from ``threshold`` on with ``rate``. Counts what it is asked."""

    n: int
    threshold: int
    rate: float
    pass_s: float
    fail_s: float
    rng: random.Random
    trials: int = 0
    failures: int = 0

    def fails(self, position: int) -> bool:
        """Run one trial there."""
        self.trials += 1
        failed = position >= self.threshold and self.rng.random() < self.rate
        self.failures += failed
        return failed

    @property
    def seconds(self) -> float:
        """What all trials have cost."""
        return self.failures * self.fail_s + (self.trials - self.failures) * self.pass_s


def linear(program: Program) -> int:
    """One run of each value from the smallest up, until one fails."""
    return next((i for i in range(program.n) if program.fails(i)), program.n)


def binary(program: Program, *, repeats: int = 1) -> int:
    """The largest value first, then halving; a value is bad when any of its runs fails."""

    def bad(position: int) -> bool:
        return any(program.fails(position) for _ in range(repeats))

    if not bad(program.n - 1):
        return program.n
    low, high = -1, program.n - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bad(middle) else (middle, high)
    return high


def binary_ten(program: Program) -> int:
    """Halving with ten runs of each value."""
    return binary(program, repeats=10)


def ours(program: Program) -> int:
    """ThresholdSearch with its default effort."""
    axis = Axis(name="x", path="x", type=AxisType.ORDERED, values=tuple(range(program.n)))
    search = ThresholdSearch(axis, Effort())
    while (request := search.ask()) is not None:
        failed = program.fails(axis.index(request.value))
        answer, seconds = (Answer.BAD, program.fail_s) if failed else (Answer.GOOD, program.pass_s)
        search.tell(value=request.value, answer=answer, seconds=seconds)
    return search.high


METHODS: dict[str, Callable[[Program], int]] = {
    "linear, 1 run": linear,
    "binary, 1 run": binary,
    "binary, 10 runs": binary_ten,
    "search, then certify": ours,
}


def row(method: Callable[[Program], int], *, rate: float, options: argparse.Namespace) -> str:
    """One line of the table; every method sees the same thresholds, in turn, and its own seeded draws."""
    trials = failures = seconds = wrong = 0.0
    for run in range(options.runs):
        threshold = run % (options.n + 1)
        rng = random.Random(f"{options.seed} {rate} {run}")
        program = Program(options.n, threshold, rate, options.pass_s, options.fail_s, rng)
        wrong += method(program) != threshold
        trials += program.trials
        failures += program.failures
        seconds += program.seconds
    each = options.runs
    return f"{trials / each:8.1f} {failures / each:9.2f} {seconds / each:8.1f} {100 * wrong / each:7.2f} %"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=12, help="values on the axis (default 12)")
    parser.add_argument("--pass-s", type=float, default=2.0, help="seconds of a pass (default 2)")
    parser.add_argument("--fail-s", type=float, default=60.0, help="seconds of a failure (default 60)")
    parser.add_argument("--runs", type=int, default=1300, help="simulated searches a row (default 1300)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"N = {options.n}, pass {options.pass_s:g} s, failure {options.fail_s:g} s, {options.runs} searches a row")
    print(f"{'rate':>5}  {'method':<22} {'trials':>8} {'failures':>9} {'seconds':>8} {'wrong':>9}")
    for rate in RATES:
        for name, method in METHODS.items():
            print(f"{rate:5.1f}  {name:<22} {row(method, rate=rate, options=options)}", flush=True)


if __name__ == "__main__":
    main()
