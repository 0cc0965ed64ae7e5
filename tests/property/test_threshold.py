"""Laws of the threshold search, on simulated programs."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from harness.core.boundary import Boundary, Finding
from harness.core.point import Axis, AxisType
from harness.core.ports import CellRequest
from harness.core.spec import Effort
from harness.core.verdict import Answer
from harness.search.threshold import ThresholdSearch

GOOD, BAD, UNRESOLVED = Answer.GOOD, Answer.BAD, Answer.UNRESOLVED

COSTS = st.tuples(st.floats(0.05, 30), st.floats(0, 5), st.floats(0.5, 60))
"""Seconds of a pass at the start, more per position, seconds of a failure."""


@dataclass
class Program:
    """A simulated program on positions 0..n-1: fails from ``threshold`` on, at ``rate``; some are unresolved.

    The draws at a position do not depend on what is run elsewhere, so that the order of trials does not matter.
    ``false`` is how often any trial fails for no reason of its own.
    """

    n: int
    threshold: int
    rate: float = 1.0
    holes: frozenset[int] = frozenset()
    costs: tuple[float, float, float] = (1.0, 0.0, 15.0)
    seed: int = 0
    false: float = 0.0
    draws: dict[int, random.Random] = field(init=False, default_factory=dict)

    def axis(self) -> Axis:
        values = tuple(10 * (i + 1) for i in range(self.n))
        return Axis(name="size", path="model.size", type=AxisType.ORDERED, values=values)

    def run(self, position: int) -> tuple[Answer, float]:
        base, slope, fail_s = self.costs
        if position in self.holes:
            return UNRESOLVED, base
        draw = self.draws.setdefault(position, random.Random(f"{self.seed} {position}")).random()
        if draw < (self.rate if position >= self.threshold else self.false):
            return BAD, fail_s
        return GOOD, base + slope * position


@dataclass(frozen=True)
class Told:
    request: CellRequest
    position: int
    answer: Answer
    seconds: float
    certified_before: frozenset[int]


def position_of(search: ThresholdSearch, request: CellRequest) -> int:
    return search.axis.index(request.cell.get(search.axis.name))


def play(search: ThresholdSearch, program: Program) -> list[Told]:
    told: list[Told] = []
    while (request := search.ask()) is not None:
        position = position_of(search, request)
        certified = frozenset(i for i, tally in enumerate(search.tallies) if tally.certified)
        answer, seconds = program.run(position)
        told.append(Told(request, position, answer, seconds, certified))
        search.tell(cell=request.cell, answer=answer, seconds=seconds)
    return told


def positions(program: Program, found: Boundary) -> tuple[int, int]:
    """(last good, first bad) as positions; -1 and n where there is none."""
    values = program.axis().values
    low = -1 if found.last_good is None else values.index(found.last_good)
    high = program.n if found.first_bad is None else values.index(found.first_bad)
    return low, high


@st.composite
def programs(
    draw: st.DrawFn, *, most: int = 30, flaky: bool = False, holes: bool = False, false: bool = False
) -> Program:
    n = draw(st.integers(1, most))
    return Program(
        n=n,
        threshold=draw(st.integers(0, n)),
        rate=draw(st.floats(0.05, 1)) if flaky else 1.0,
        holes=draw(st.frozensets(st.integers(0, n - 1), max_size=n)) if holes else frozenset(),
        costs=draw(COSTS),
        seed=draw(st.integers(0, 2**32)),
        false=draw(st.floats(0, 0.05)) if false else 0.0,
    )


@given(programs())
@settings(deadline=None)
def test_any_monotone_deterministic_boundary_is_found_and_certified(program: Program):
    search = ThresholdSearch(program.axis(), Effort())
    play(search, program)
    found = search.result()
    assert positions(program, found) == (program.threshold - 1, program.threshold)
    assert found.certified
    assert found.finding is {0: Finding.ALL_FAIL, program.n: Finding.NO_FAILURE}.get(
        program.threshold, Finding.THRESHOLD
    )


@given(programs(most=12))
@settings(deadline=None)
def test_at_most_three_failures_are_paid_for_a_deterministic_threshold_among_twelve(program: Program):
    told = play(ThresholdSearch(program.axis(), Effort()), program)
    assert sum(t.answer is BAD for t in told) <= 3


@given(programs())
@settings(deadline=None)
def test_nothing_decided_is_run_again_beyond_what_the_certificate_and_the_confirmation_need(program: Program):
    search = ThresholdSearch(program.axis(), Effort())
    told = play(search, program)
    for position in range(program.n):
        roles = [t.request.role for t in told if t.position == position]
        assert roles.count("search") <= 1
        assert roles.count("confirm") <= 1
        allowed = search.result().certificate_passes if position == search.low else 0
        assert roles.count("certify") <= allowed


@given(programs(flaky=True, holes=True))
@settings(deadline=None)
def test_a_certified_value_is_never_asked_again(program: Program):
    for told in play(ThresholdSearch(program.axis(), Effort()), program):
        assert told.position not in told.certified_before
        assert told.position > max(told.certified_before, default=-1)


@given(programs(flaky=True, holes=True), st.integers(1, 200))
@settings(deadline=None)
def test_the_search_ends_within_its_trials(program: Program, most: int):
    assert len(play(ThresholdSearch(program.axis(), Effort(max_trials=most)), program)) <= most


RARE = Program(n=27, threshold=0, rate=0.0625, holes=frozenset({0, 1, 2, 3, 15, 22}), costs=(16.0, 0.0, 1.0), seed=314)
"""Its failures are so rare that all 200 trials pass before the value below the first bad one was ever run."""


@given(programs(flaky=True, holes=True, false=True))
@example(RARE)
@settings(deadline=None)
def test_the_answer_is_an_adjacent_certified_pair_or_says_why_not(program: Program):
    search = ThresholdSearch(program.axis(), Effort())
    play(search, program)
    found = search.result()
    low, high = positions(program, found)
    between = set(range(low + 1, high))
    is_early = any("ended early" in note for note in found.notes)
    assert is_early == bool(search.stopped)
    assert is_early or between <= {program.axis().index(v) for v in found.unresolved}
    assert low < high
    assert found.because
    if between and not is_early:
        assert any("Neither passed nor failed in the way sought" in note for note in found.notes)
    if found.finding in (Finding.THRESHOLD, Finding.NO_FAILURE):
        assert found.certified or found.notes
    counts = {program.axis().index(c.value): c for c in found.counts}
    if high < program.n:
        assert counts[high].bad
    if low >= 0:
        assert counts[low].good
    for position in (i for i, c in counts.items() if c.bad and i < high):
        told = f"size={program.axis().values[position]} failed"
        assert any(note.startswith(told) and "not counted" in note for note in found.notes)
        assert not search.tallies[position].suspect


@given(programs(flaky=True, holes=True))
@settings(deadline=None)
def test_a_failing_value_is_never_missed_below_a_value_called_bad(program: Program):
    """One-sided noise: a failure is certain, so the first bad value is never below the true threshold."""
    search = ThresholdSearch(program.axis(), Effort())
    play(search, program)
    assert positions(program, search.result())[1] >= program.threshold


@given(programs(holes=True))
@settings(deadline=None)
def test_unresolved_values_only_widen_the_answer(program: Program):
    search = ThresholdSearch(program.axis(), Effort())
    play(search, program)
    low, high = positions(program, search.result())
    assert low < program.threshold <= high
    clear = set(range(program.n)) - program.holes
    assert low == max((i for i in clear if i < program.threshold), default=-1)
    assert high == min((i for i in clear if i >= program.threshold), default=program.n)


@given(programs(holes=True))
@settings(deadline=None)
def test_an_unresolved_value_is_asked_once(program: Program):
    told = play(ThresholdSearch(program.axis(), Effort()), program)
    asked = [t.position for t in told if t.answer is UNRESOLVED]
    assert len(asked) == len(set(asked))


@given(programs(flaky=True, holes=True))
@settings(deadline=None)
def test_replaying_the_answers_asks_the_same_questions(program: Program):
    told = play(ThresholdSearch(program.axis(), Effort()), program)
    again, unasked = ThresholdSearch(program.axis(), Effort()), ThresholdSearch(program.axis(), Effort())
    for t in told:
        assert again.ask() == again.ask() == t.request
        for search in (again, unasked):
            search.tell(cell=t.request.cell, answer=t.answer, seconds=t.seconds)
    assert again.ask() is None
    assert unasked.ask() is None
    assert again.result() == unasked.result()


@given(programs(flaky=True), st.data())
@settings(max_examples=50, deadline=None)
def test_looking_at_the_plan_or_the_result_changes_nothing(program: Program, data: st.DataObject):
    search = ThresholdSearch(program.axis(), Effort())
    for _ in range(data.draw(st.integers(0, 20))):
        request = search.ask()
        if request is None:
            break
        answer, seconds = program.run(position_of(search, request))
        search.tell(cell=request.cell, answer=answer, seconds=seconds)
    before = copy.deepcopy(search)
    search.estimate()
    search.result()
    assert search.ask() == before.ask()
    assert search.result() == before.result()


@given(programs(), st.floats(0.5, 200))
@settings(deadline=None)
def test_a_slow_value_ends_the_way_up_and_never_makes_a_failure(program: Program, limit_s: float):
    base, slope, _ = program.costs
    assume(base + slope * (program.n - 1) > limit_s)
    search = ThresholdSearch(program.axis(), Effort())
    slowest = program.n
    while (request := search.ask()) is not None:
        position = position_of(search, request)
        assert position < slowest
        seconds = base + slope * position
        if seconds > limit_s:
            slowest = position
            search.tell(cell=request.cell, answer=UNRESOLVED, seconds=limit_s, slow=True)
        else:
            search.tell(cell=request.cell, answer=GOOD, seconds=seconds)
    found = search.result()
    assert found.finding is Finding.NO_THRESHOLD_SLOW
    assert found.first_bad is None
    assert search.axis.values[slowest] in found.unresolved
    assert set(search.axis.values[slowest:]) <= {*found.untested, *found.unresolved}


def test_a_flaky_hang_from_five_of_twelve_on_is_answered_right_in_97_of_100_runs():
    right = 0
    for seed in range(100):
        program = Program(n=12, threshold=4, rate=0.3, costs=(0.5, 0.05, 12.0), seed=seed)
        search = ThresholdSearch(program.axis(), Effort())
        play(search, program)
        right += positions(program, search.result()) == (3, 4)
    assert right >= 97


@given(programs(holes=True), st.integers(1, 9))
@settings(deadline=None)
def test_batches_end_in_the_same_answer_as_one_question_at_a_time(program: Program, workers: int):
    serial, parallel = ThresholdSearch(program.axis(), Effort()), ThresholdSearch(program.axis(), Effort())
    play(serial, program)
    rounds = play_in_batches(parallel, program, workers=workers)
    told, said = serial.result(), parallel.result()
    assert (said.finding, said.last_good, said.first_bad) == (told.finding, told.last_good, told.first_bad)
    assert (said.certified, said.unresolved, said.claim) == (told.certified, told.unresolved, told.claim)
    assert rounds <= serial.trials


@given(programs(flaky=True, holes=True, false=True), st.integers(1, 9), st.integers(1, 200))
@settings(deadline=None)
def test_a_batch_is_never_larger_than_asked_for_and_starts_with_a_question_that_is_wanted(
    program: Program, workers: int, most: int
):
    search = ThresholdSearch(program.axis(), Effort(max_trials=most))
    while batch := search.ready(workers):
        assert len(batch) <= workers
        assert search.trials + len(batch) <= most
        assert search.ask() in batch
        assert batch == search.ready(workers)
        assert len(batch) == 1 or all(request.role != "search" for request in batch)
        for request in reversed(batch):  # answers may come in any order
            answer, seconds = program.run(position_of(search, request))
            search.tell(cell=request.cell, answer=answer, seconds=seconds)
    assert search.ask() is None
    assert search.ready(0) == ()


def play_in_batches(search: ThresholdSearch, program: Program, *, workers: int) -> int:
    rounds = 0
    while batch := search.ready(workers):
        rounds += 1
        for request in batch:
            answer, seconds = program.run(position_of(search, request))
            search.tell(cell=request.cell, answer=answer, seconds=seconds)
    return rounds


@given(programs(), st.frozensets(st.integers(0, 29), max_size=4))
@example(Program(n=4, threshold=4, costs=(0.25, 0.0, 1.0)), frozenset({0, 1, 2, 3}))
@settings(deadline=None)
def test_with_a_soft_limit_only_the_value_that_decides_is_run_to_its_end_and_stragglers_are_good(
    program: Program, stragglers: frozenset[int]
):
    """Every hang is cut off by the soft limit first; so is the first trial at each straggler.

    Four stragglers and cheap passes may take more than the 200 trials that are the default.
    """
    search = ThresholdSearch(program.axis(), Effort(soft_limit=True, max_trials=2000))
    seen = set[int]()
    whole = 0
    while (request := search.ask()) is not None:
        position = position_of(search, request)
        answer, seconds = program.run(position)
        is_cut = request.soft and (answer is BAD or (position in stragglers and position not in seen))
        seen.add(position)
        whole += answer is BAD and not request.soft
        if is_cut:
            search.tell(cell=request.cell, answer=UNRESOLVED, seconds=1.0, slow=True, soft=True)
        else:
            search.tell(cell=request.cell, answer=answer, seconds=seconds)
    found = search.result()
    assert positions(program, found) == (program.threshold - 1, program.threshold)
    assert found.certified
    assert whole == (program.threshold < program.n)


@given(programs(flaky=True, false=True), st.integers(1, 4))
@settings(deadline=None, max_examples=50)
def test_looking_above_costs_at_most_one_failure_for_each_value_and_changes_no_answer(program: Program, above: int):
    plain, looking = (
        ThresholdSearch(program.axis(), Effort()),
        ThresholdSearch(program.axis(), Effort(check_above=above)),
    )
    play(plain, program)
    program.draws.clear()
    told = play(looking, program)
    assume(not plain.stopped and not looking.stopped)
    first, second = plain.result(), looking.result()
    assert (first.finding, first.last_good, first.first_bad) == (second.finding, second.last_good, second.first_bad)
    extra = told[plain.trials :]
    assert len({t.position for t in extra}) <= above
    assert sum(t.answer is BAD for t in extra) <= above
    assert all(t.position > plain.high for t in extra)
