"""Ways to find a threshold or a cause: by hand, as published packages do it, and ours.

Every way starts from the same knowledge: the smallest value (no switch on) passes, the largest (every switch on)
failed once. A way to find a threshold returns the first failing position, or None when it says that it cannot tell.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import distribution
from types import ModuleType
from typing import TYPE_CHECKING

from search_programs import SWITCHES, OutOfTrials

from harness.core.point import Axis, AxisType, Point
from harness.core.space import Factor, Rule, Selector, Space
from harness.core.spec import Effort
from harness.core.verdict import Answer
from harness.search.minimise import Minimise
from harness.search.script import Observation
from harness.search.threshold import ThresholdSearch

if TYPE_CHECKING:
    from collections.abc import Callable

    from search_programs import Account, Ordered, Switches

    from harness.core.cause import Cause

MANY_TRIALS = 1_000_000


def linear(program: Ordered) -> int | None:
    """One run of each value from the smallest up, until one fails."""
    return next((i for i in range(1, program.n - 1) if program.fails(i)), program.n - 1)


def binary(program: Ordered, *, repeats: int = 1) -> int | None:
    """Halving; a value is bad when any of its runs fails. With one run this is ``git bisect``."""
    low, high = 0, program.n - 1
    while high - low > 1:
        middle = (low + high) // 2
        bad = any(program.fails(middle) for _ in range(repeats))
        low, high = (low, middle) if bad else (middle, high)
    return high


def binary_ten(program: Ordered) -> int | None:
    """Halving with up to ten runs of each value."""
    return binary(program, repeats=10)


def bayesect(program: Ordered) -> int | None:
    """The package git-bayesect with its own priors, until it is 95 % sure; index 0 is its newest commit."""
    import numpy as np
    from git_bayesect import Bisector

    # Its B is the oldest commit that fails; value n-1 is the newest, and value 0 cannot be the first failing one.
    weights = np.ones(program.n)
    weights[program.n - 1] = 0.0
    bisector = Bisector(weights)
    bisector.record(0, observation=True)
    bisector.record(program.n - 1, observation=False)
    with np.errstate(divide="ignore", invalid="ignore"):
        while bisector.distribution.max() < 0.95:
            index = bisector.select()
            bisector.record(index, observation=program.fails(program.n - 1 - index))
        return program.n - 1 - int(bisector.distribution.argmax())


def threshold_search(program: Ordered, effort: Effort) -> ThresholdSearch:
    """``ThresholdSearch`` with ``effort``, played to its end; a soft limit is five passes' time."""
    axis = Axis(name="x", path="x", type=AxisType.ORDERED, values=tuple(range(program.n)))
    search = ThresholdSearch(axis, effort)
    if program.ends_known:
        search.tell(cell=Point.of({"x": 0}), answer=Answer.GOOD, seconds=program.pass_s)
        search.tell(cell=Point.of({"x": program.n - 1}), answer=Answer.BAD, seconds=program.fail_s)
    soft_s = 5 * program.pass_s
    while (request := search.ask()) is not None:
        before_s = program.seconds
        if not program.fails(axis.index(request.cell.get("x")), limit_s=soft_s if request.soft else None):
            search.tell(cell=request.cell, answer=Answer.GOOD, seconds=program.pass_s)
        elif request.soft:
            search.tell(cell=request.cell, answer=Answer.UNRESOLVED, seconds=soft_s, slow=True, soft=True)
        else:
            search.tell(cell=request.cell, answer=Answer.BAD, seconds=program.fail_s)
        program.confirm_s += program.seconds - before_s if request.role == "confirm" else 0.0
    return search


def stated(search: ThresholdSearch) -> int | None:
    """The first failing position where the search states it with its certificate, else None."""
    return search.high if search.result().certified else None


def ours(program: Ordered) -> int | None:
    """Search, then certify, with its default effort."""
    return stated(threshold_search(program, Effort(max_trials=MANY_TRIALS)))


def ours_nine(program: Ordered) -> int | None:
    """The same with a certificate of nine passes, which rules out failure rates of 0.29 and more."""
    return stated(threshold_search(program, Effort(max_trials=MANY_TRIALS, certify=9)))


def ours_soft(program: Ordered) -> int | None:
    """The same with a soft limit of five passes' time and the whole limit only for the value that decides."""
    return stated(threshold_search(program, Effort(max_trials=MANY_TRIALS, soft_limit=True)))


THRESHOLD_WAYS: dict[str, Callable[[Ordered], int | None]] = {
    "linear, 1 run": linear,
    "binary, 1 run": binary,
    "binary, 10 runs": binary_ten,
    "git-bayesect": bayesect,
    "ours": ours,
    "ours, 9 passes": ours_nine,
    "ours, soft limit": ours_soft,
}


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
    """Zeller's ddmin by the package picire; it knows no rules, so a forbidden set passes there and costs nothing."""
    picire = _picire()

    def test(config: list[int], _: object) -> object:
        return picire.Outcome.FAIL if program.fails(frozenset(config)) else picire.Outcome.PASS

    return frozenset(picire.DD(test)(list(range(SWITCHES))))


def _picire() -> ModuleType:
    """Picire 21.8 asks pkg_resources for its own version; setuptools 82 dropped that module."""
    if "pkg_resources" not in sys.modules and importlib.util.find_spec("pkg_resources") is None:
        stand_in = ModuleType("pkg_resources")
        stand_in.__dict__["get_distribution"] = distribution
        sys.modules["pkg_resources"] = stand_in
    return importlib.import_module("picire")


def hypothesis_shrinker(program: Switches) -> frozenset[int]:
    """Hypothesis's shrinker on 24 booleans, started from the known-bad, without its cap of five minutes."""
    from hypothesis import Phase, settings
    from hypothesis.internal.conjecture.engine import ConjectureRunner
    from hypothesis.internal.escalation import InterestingOrigin

    failure = InterestingOrigin(AssertionError, "", 0, (), ())

    def switches_of(draw: Callable[[], bool]) -> frozenset[int]:
        return frozenset(i for i in range(SWITCHES) if draw())

    def test(data: object) -> None:
        if program.fails(switches_of(data.draw_boolean)):  # type: ignore[attr-defined]
            data.mark_interesting(failure)  # type: ignore[attr-defined]

    quiet = settings(database=None, deadline=None, phases=[Phase.shrink], max_examples=MANY_TRIALS)
    runner = ConjectureRunner(test, settings=quiet, random=program.rng)
    runner.cached_test_function((True,) * SWITCHES)
    runner.shrink_interesting_test_cases()
    drawn = iter(runner.interesting_test_cases[failure].choices)
    return switches_of(lambda: bool(next(drawn)))


def minimise_search(program: Switches, effort: Effort) -> Minimise:
    """``Minimise`` with ``effort``, played to its end."""
    axes = [Axis(name=f"s{i}", path="", type=AxisType.FLAG, values=(False, True)) for i in range(SWITCHES)]
    rules = [
        Rule(when=Selector(terms=((f"s{one}", (True,)),)), require=Selector(terms=((f"s{other}", (True,)),)))
        for one, other in program.requires.items()
    ]
    space = Space(factors=tuple(Factor(axis=a, good=False, bad=True) for a in axes), rules=tuple(rules))
    known = (
        Observation(cell=space.good, answer=Answer.GOOD, seconds=program.pass_s),
        Observation(cell=space.bad, answer=Answer.BAD, seconds=program.fail_s),
    )
    search = Minimise(space, effort, prior=known)
    while (request := search.ask()) is not None:
        before_s = program.seconds
        failed = program.fails_once(frozenset(int(name[1:]) for name, value in request.cell if value))
        answer, seconds = (Answer.BAD, program.fail_s) if failed else (Answer.GOOD, program.pass_s)
        search.tell(cell=request.cell, answer=answer, seconds=seconds)
        program.confirm_s += program.seconds - before_s if request.role == "confirm" else 0.0
    return search


def switches_on(cause: Cause) -> frozenset[int]:
    """The switches of a cause that was found."""
    return frozenset(int(need.axis[1:]) for need in cause.needs)


def minimise(program: Switches) -> frozenset[int]:
    """Minimise with a certificate of as many passes as the others repeat."""
    search = minimise_search(program, Effort(certify=program.repeats, max_trials=MANY_TRIALS))
    return frozenset().union(*(switches_on(cause) for cause in search.result().causes))


CAUSE_WAYS: dict[str, Callable[[Switches], frozenset[int]]] = {
    "drop one from bad": drop_one,
    "ddmin (picire)": ddmin,
    "Hypothesis": hypothesis_shrinker,
    "ours": minimise,
}

PACKAGES = {"git-bayesect": "git_bayesect", "ddmin (picire)": "picire", "Hypothesis": "hypothesis"}
"""What must be installed for a way; the others need nothing."""


def installed(way: str) -> bool:
    """Whether the package that ``way`` needs is there."""
    return way not in PACKAGES or importlib.util.find_spec(PACKAGES[way]) is not None


def played(way: Callable[[Account], object], program: Account) -> object:
    """What ``way`` says about ``program``; None when it gave up or asked more often than anybody would wait for."""
    try:
        return way(program)
    except OutOfTrials:
        return None
