"""Expected trials, failures, seconds and wrong answers of ways to find a threshold or a cause, on simulated programs.

    python bench/search_simulation.py --pass-s 2 --fail-s 60 --runs 400
    python bench/search_simulation.py --causes --runs 200

A program has N values; from a threshold on (each value alike, or none) a trial fails with the given rate. A pass
costs ``--pass-s`` and a failure ``--fail-s``. Everything is seeded; nothing is run but arithmetic.

With ``--causes`` a program has 24 switches and fails where 1, 2 or 3 of them are on, at the given rate; with rules, 8
switches each require another one. Every way starts from the same knowledge (all off passes, all on fails), repeats a
pass R times before it is believed, and never repeats what it has decided. ddmin is the package picire where that is
installed, and "-" otherwise; it knows no rules, so a forbidden set counts as passing there and costs nothing. Only
ours runs the answer once more, which costs it one failure.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.point import Axis, AxisType
from harness.core.space import Factor, Rule, Selector, Space
from harness.core.spec import Effort
from harness.core.verdict import Answer
from harness.search.minimise import Minimise
from harness.search.script import Told
from harness.search.threshold import ThresholdSearch

if TYPE_CHECKING:
    from collections.abc import Callable

RATES = (1.0, 0.7, 0.3, 0.1)
SWITCHES = 24
RULES = 8
CAUSE_ROWS = ((1.0, 1), (0.7, 3), (0.3, 9), (0.3, 18))
"""Failure rate, and the passes R that are asked for."""


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


@dataclass
class Switches:
    """Fails with ``rate`` where every switch of ``cause`` is on; counts trials and remembers what it decided."""

    cause: frozenset[int]
    requires: dict[int, int]
    rate: float
    repeats: int
    pass_s: float
    fail_s: float
    rng: random.Random
    trials: int = 0
    failures: int = 0

    def __post_init__(self) -> None:
        self.decided = {frozenset[int](): False, frozenset(range(SWITCHES)): True}

    @property
    def seconds(self) -> float:
        """What all trials have cost."""
        return self.failures * self.fail_s + (self.trials - self.failures) * self.pass_s

    def allowed(self, on: frozenset[int]) -> bool:
        """Whether every switch that is on has what it requires."""
        return all(other in on for switch, other in self.requires.items() if switch in on)

    def fails_once(self, on: frozenset[int]) -> bool:
        """Run one trial."""
        self.trials += 1
        failed = self.cause <= on and self.rng.random() < self.rate
        self.failures += failed
        return failed

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


def drop_one(program: Switches) -> frozenset[int]:
    """From everything on, one switch off at a time, until no single one can go: as people do it by hand."""
    on, moved = frozenset(range(SWITCHES)), True
    while moved:
        moved = False
        for switch in sorted(on):
            if program.fails(on - {switch}):
                on, moved = on - {switch}, True
    return on


def ddmin(program: Switches) -> frozenset[int]:
    """Zeller's ddmin by the package picire."""
    picire = importlib.import_module("picire")

    def test(config: list[int], _: object) -> object:
        return picire.Outcome.FAIL if program.fails(frozenset(config)) else picire.Outcome.PASS

    return frozenset(picire.DD(test)(list(range(SWITCHES))))


def minimise(program: Switches) -> frozenset[int]:
    """Minimise with a certificate of ``repeats`` passes."""
    axes = [Axis(name=f"s{i}", path="", type=AxisType.FLAG, values=(False, True)) for i in range(SWITCHES)]
    rules = [
        Rule(when=Selector(terms=((f"s{one}", (True,)),)), require=Selector(terms=((f"s{other}", (True,)),)))
        for one, other in program.requires.items()
    ]
    space = Space(factors=tuple(Factor(axis=a, good=False, bad=True) for a in axes), rules=tuple(rules))
    known = (
        Told(cell=space.good, answer=Answer.GOOD, seconds=program.pass_s),
        Told(cell=space.bad, answer=Answer.BAD, seconds=program.fail_s),
    )
    search = Minimise(space, Effort(certify=program.repeats, max_trials=100_000), seen=known)
    while (request := search.ask()) is not None:
        failed = program.fails_once(frozenset(int(name[1:]) for name, value in request.cell if value))
        answer, seconds = (Answer.BAD, program.fail_s) if failed else (Answer.GOOD, program.pass_s)
        search.tell(cell=request.cell, answer=answer, seconds=seconds)
    return frozenset(int(need.axis[1:]) for cause in search.result().causes for need in cause.needs)


CAUSE_METHODS: dict[str, Callable[[Switches], frozenset[int]]] = {
    "drop one from bad": drop_one,
    "ddmin (picire)": ddmin,
    "minimise (ours)": minimise,
}


def cause_row(
    method: Callable[[Switches], frozenset[int]],
    *,
    size: int,
    rules: int,
    rate: float,
    repeats: int,
    options: argparse.Namespace,
) -> str:
    """One line of the table of causes; every method sees the same programs and its own seeded draws."""
    trials = failures = seconds = wrong = 0.0
    for run in range(options.runs):
        rng = random.Random(f"{options.seed} {size} {rules} {rate} {run}")
        cause = frozenset(rng.sample(range(SWITCHES), size))
        requires = {one: rng.randrange(one) for one in rng.sample(range(1, SWITCHES), rules)}
        program = Switches(cause, requires, rate, repeats, options.pass_s, options.fail_s, rng)
        wrong += method(program) != program.smallest()
        trials += program.trials
        failures += program.failures
        seconds += program.seconds
    each = options.runs
    return f"{trials / each:8.1f} {failures / each:9.2f} {seconds / each:8.1f} {100 * wrong / each:7.2f} %"


def print_causes(options: argparse.Namespace) -> None:
    """The table of ways to find a cause."""
    print(
        f"{SWITCHES} switches, pass {options.pass_s:g} s, failure {options.fail_s:g} s, {options.runs} searches a row"
    )
    print(
        f"{'rate':>5} {'R':>3} {'cause':>5} {'rules':>5}  {'method':<20} {'trials':>8} {'failures':>9} "
        f"{'seconds':>8} {'wrong':>9}"
    )
    for rate, repeats in CAUSE_ROWS:
        for rules in (0, RULES):
            for size in (1, 2, 3):
                for name, method in CAUSE_METHODS.items():
                    known = method is not ddmin or importlib.util.find_spec("picire") is not None
                    values = (
                        cause_row(method, size=size, rules=rules, rate=rate, repeats=repeats, options=options)
                        if known
                        else "-"
                    )
                    print(f"{rate:5.1f} {repeats:3} {size:5} {rules:5}  {name:<20} {values}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=12, help="values on the axis (default 12)")
    parser.add_argument("--pass-s", type=float, default=2.0, help="seconds of a pass (default 2)")
    parser.add_argument("--fail-s", type=float, default=60.0, help="seconds of a failure (default 60)")
    parser.add_argument("--runs", type=int, default=1300, help="simulated searches a row (default 1300)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--causes", action="store_true", help="ways to find a cause among 24 switches instead")
    options = parser.parse_args()
    if options.causes:
        print_causes(options)
        return
    print(f"N = {options.n}, pass {options.pass_s:g} s, failure {options.fail_s:g} s, {options.runs} searches a row")
    print(f"{'rate':>5}  {'method':<22} {'trials':>8} {'failures':>9} {'seconds':>8} {'wrong':>9}")
    for rate in RATES:
        for name, method in METHODS.items():
            print(f"{rate:5.1f}  {name:<22} {row(method, rate=rate, options=options)}", flush=True)


if __name__ == "__main__":
    main()
