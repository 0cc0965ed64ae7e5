"""Do the sentences of a search keep their word? Simulated truths, for every claim: said, held, with its interval.

    python -m bench.search_words --seed 1                      # a quarter of an hour on two idle cores
    python -m bench.search_words --seed 1 --searches 20        # seconds, for a look
    python -m bench.search_words --seed 1 --out bench/results  # keeps table and figures with commit and seed

The programs are simulated; what is asked is the search itself. A row of a claim holds where at least 93 % of what was
said is true; where it is less and the interval still reaches it, too few searches were played to tell. Rows marked
"condition broken" break a condition that the sentence names; they say what it is worth then.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.boundary import Finding
from harness.core.cause import AxisFinding, CellCount
from harness.core.laws import growth
from harness.core.point import Axis, AxisType, Point
from harness.core.rates import interval
from harness.core.space import Factor, Rule, Selector, Space
from harness.core.spec import Effort
from harness.core.verdict import Answer
from harness.search.certificate import excluded_rate
from harness.search.explore import Explore
from harness.search.implicate import axis_verdicts
from harness.search.minimise import Minimise
from harness.search.threshold import ThresholdSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.core.boundary import Boundary
    from harness.search.script import Script

HOLDS = 0.93
SOFT_PASSES = 5.0
"""A soft limit in passes' time."""
MANY = 5000


@dataclass(frozen=True, kw_only=True)
class Game:
    """One search: whether it ``said`` the claim, whether that ``held``, and the simulated ``seconds`` that it took."""

    said: bool
    held: bool
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """A claim and a truth; ``play`` makes one game of a random source. ``bar_s``: mean seconds at most."""

    claim: str
    truth: str
    play: Callable[[random.Random], Game]
    least: float = HOLDS
    bar_s: float | None = None
    broken: bool = False

    def scored(self, *, searches: int, seed: int) -> Score:
        """Play it ``searches`` times."""
        games = [self.play(random.Random(f"{seed} {self.claim} {self.truth} {n}")) for n in range(searches)]
        said = [game for game in games if game.said]
        mean_s = math.fsum(game.seconds for game in games) / len(games)
        held = sum(game.held for game in said)
        low, high = interval(held, len(said)) if said else (0.0, 1.0)
        is_cheap = self.bar_s is None or mean_s <= self.bar_s
        return Score(
            claim=self.claim,
            truth=self.truth,
            searches=searches,
            said=len(said),
            held=held,
            low=low,
            high=high,
            seconds=mean_s,
            holds=(not said or high >= self.least) and is_cheap,
            is_open=bool(said) and held / len(said) < self.least <= high,
            broken=self.broken,
            bar_s=self.bar_s,
        )


@dataclass(frozen=True, kw_only=True)
class Score:
    """What a row came to."""

    claim: str
    truth: str
    searches: int
    said: int
    held: int
    low: float
    high: float
    seconds: float
    holds: bool
    is_open: bool
    broken: bool
    bar_s: float | None

    def line(self) -> str:
        """The row as Markdown."""
        share = f"{100 * self.held / self.said:.1f} %" if self.said else "-"
        found = "too few searches to tell" if self.is_open else "holds" if self.holds else "**DOES NOT HOLD**"
        found = "condition broken" if self.broken else found
        cost = "" if not self.seconds else f"{self.seconds:.0f} s" + (f" (bar {self.bar_s:g})" if self.bar_s else "")
        return (
            f"| {self.claim} | {self.truth} | {self.said} of {self.searches} | {self.held} | {share} "
            f"[{100 * self.low:.1f}, {100 * self.high:.1f}] | {cost} | {found} |"
        )


# --- One axis -------------------------------------------------------------------------------------------------------


def threshold_game(
    rng: random.Random,
    rates: Sequence[float],
    *,
    effort: Effort,
    pass_s: float = 2.0,
    fail_s: float = 60.0,
    false: float = 0.0,
    sticky: float = 0.0,
    unresolved: float = 0.0,
) -> tuple[ThresholdSearch, float]:
    """A search over values that fail at ``rates``, played to its end, and the seconds of its trials.

    ``sticky``: how likely a trial meets the machine in the state in which the one before it left it.
    """
    axis = Axis(name="x", path="x", type=AxisType.ORDERED, values=tuple(range(len(rates))))
    search, seconds, state = ThresholdSearch(axis, effort), 0.0, rng.random()
    soft_s = SOFT_PASSES * pass_s
    while (request := search.ask()) is not None:
        value = request.cell.get("x")
        assert isinstance(value, int)
        state = state if rng.random() < sticky else rng.random()
        if state < rates[value] or rng.random() < false:
            is_cut = request.soft and soft_s < fail_s
            took, answer = (soft_s, Answer.UNRESOLVED) if is_cut else (fail_s, Answer.BAD)
            search.tell(cell=request.cell, answer=answer, seconds=took, slow=is_cut, soft=is_cut)
        else:
            took = pass_s
            answer = Answer.UNRESOLVED if rng.random() < unresolved else Answer.GOOD
            search.tell(cell=request.cell, answer=answer, seconds=took)
        seconds += took
    return search, seconds


def certificate_held(found: Boundary, rates: Sequence[float]) -> bool:
    """Whether no value up to the last good one fails at the rate that is said to be ruled out."""
    says = found.finding in (Finding.THRESHOLD, Finding.NO_FAILURE) and found.excluded_rate is not None
    if not says or not isinstance(found.last_good, int) or found.excluded_rate is None:
        return True
    return max(rates[: found.last_good + 1]) < found.excluded_rate - 1e-12


def certificates() -> Iterator[Row]:
    """Certificates at exactly the rate that they rule out: the hardest truth for them."""
    for passes, pass_s, fail_s in ((1, 1.0, 15.0), (9, 1.0, 15.0), (18, 2.0, 10.0), (30, 1.0, 15.0), (44, 0.5, 30.0)):
        rate = excluded_rate(passes)
        assert rate is not None
        for n, first in ((1, 0), (2, 1), (12, None), (64, None), (200, None)):
            where = "anywhere" if first is None else f"value {first + 1}"

            def play(
                rng: random.Random, passes=passes, pass_s=pass_s, fail_s=fail_s, n=n, first=first, rate=rate
            ) -> Game:
                start = rng.randrange(n) if first is None else first
                rates = [rate if i >= start else 0.0 for i in range(n)]
                effort = Effort(certify=passes, max_trials=MANY)
                search, seconds = threshold_game(rng, rates, effort=effort, pass_s=pass_s, fail_s=fail_s)
                found = search.result()
                return Game(said=found.certified, held=certificate_held(found, rates), seconds=seconds)

            truth = f"{passes} passes, fails at exactly {rate:.3f} from {where} of {n}"
            yield Row(claim="a rate of r would have been seen, 95 %", truth=truth, play=play)


def stepped(n: int, start: int, rate: float) -> list[float]:
    """Rates of 0 below ``start`` and of ``rate`` from there on."""
    return [rate if i >= start else 0.0 for i in range(n)]


def other_truths() -> Iterator[Row]:
    """Certificates where failures are told from false alarms, grow, come in bands, or depend on each other."""

    def row(truth: str, rates: Callable[[random.Random], list[float]], *, broken: bool = False, **how: float) -> Row:
        def play(rng: random.Random) -> Game:
            given = rates(rng)
            search, seconds = threshold_game(rng, given, effort=Effort(max_trials=MANY), **how)
            found = search.result()
            return Game(said=found.certified, held=certificate_held(found, given), seconds=seconds)

        return Row(claim="a rate of r would have been seen, 95 %", truth=truth, play=play, broken=broken)

    for false in (0.005, 0.02):
        for rate in (1.0, 0.15):
            truth = f"12 values, rate {rate:g}, {100 * false:g} % false alarms"
            yield row(truth, lambda rng, rate=rate: stepped(12, rng.randrange(13), rate), false=false)
    yield row("12 values, 10 % unresolved", lambda rng: stepped(12, rng.randrange(13), 0.15), unresolved=0.1)
    yield row("rate grows from 0.02 to 0.5", growing)
    for rate in (1.0, 0.5):
        yield row(f"a band of 12 fails, rate {rate:g}", lambda rng, rate=rate: banded(rng, rate), broken=True)
    for sticky, rate in product((0.6, 0.9), (0.3, 0.15)):
        truth = f"sticky machine {sticky:g}, rate {rate:g}"
        yield row(truth, lambda rng, rate=rate: stepped(12, rng.randrange(12), rate), broken=True, sticky=sticky)


def growing(rng: random.Random) -> list[float]:
    """A rate that grows from 0.02 to 0.5 over what fails of 12 values."""
    start = rng.randrange(12)
    return [0.0 if i < start else 0.02 + 0.48 * (i - start) / max(11 - start, 1) for i in range(12)]


def banded(rng: random.Random, rate: float) -> list[float]:
    """A band of one to five of 12 values that fails."""
    start, width = rng.randrange(12), rng.randint(1, 5)
    return [rate if start <= i < start + width else 0.0 for i in range(12)]


def curves() -> Iterator[Row]:
    """The band of the failure curve holds at every value that was tried."""
    truths: dict[str, Callable[[random.Random], list[float]]] = {
        "rate grows from 0.02 to 0.5": growing,
        "rate 0.3 from a value on": lambda rng: stepped(12, rng.randrange(13), 0.3),
        "logistic": lambda rng: [
            1 / (1 + math.exp(-(i - centre))) for centre in [rng.uniform(0, 13)] for i in range(12)
        ],
    }
    for truth, rates in truths.items():

        def play(rng: random.Random, rates=rates) -> Game:
            given = rates(rng)
            search, seconds = threshold_game(rng, given, effort=Effort(max_trials=400))
            curve = search.result().curve
            held = all(band.low - 1e-12 <= given[int(str(band.value))] <= band.high + 1e-12 for band in curve)
            return Game(said=True, held=held, seconds=seconds)

        yield Row(claim="the failure curve's band, 95 %", truth=truth, play=play)


def costs() -> Iterator[Row]:
    """What the default options cost, and how often the pair that they certify is wrong."""
    for rate, bar_s in ((1.0, 130.0), (0.3, 220.0)):

        def play(rng: random.Random, rate=rate) -> Game:
            start = rng.randrange(1, 12)
            search, seconds = threshold_game(rng, stepped(12, start, rate), effort=Effort(max_trials=MANY))
            right = (search.low, search.high) == (start - 1, start)
            return Game(said=search.result().certified, held=right, seconds=seconds)

        truth = f"12 values, a failure 60 s, a pass 2 s, rate {rate:g}"
        yield Row(claim="the pair that is named is right", truth=truth, play=play, least=0.99, bar_s=bar_s)


# --- Many axes ------------------------------------------------------------------------------------------------------


def flags(number: int, rules: Sequence[Rule] = ()) -> Space:
    """A space of so many flags."""
    axes = [Axis(name=f"s{i}", path="", type=AxisType.FLAG, values=(False, True)) for i in range(number)]
    return Space(factors=tuple(Factor(axis=axis, good=False, bad=True) for axis in axes), rules=tuple(rules))


def some_rules(rng: random.Random, number: int) -> list[Rule]:
    """Four requirements and two exclusions, one of which leaves a choice of what to take back."""
    rules: list[Rule] = []
    for _ in range(4):
        first, second = sorted(rng.sample(range(number), 2))
        rules.append(Rule(when=on(first), require=on(second)))
    one, two, off, three, also_off = rng.sample(range(number), 5)
    rules.append(Rule(when=Selector(terms=((f"s{one}", (True,)), (f"s{two}", (True,)), (f"s{off}", (False,))))))
    rules.append(Rule(when=Selector(terms=((f"s{three}", (True,)), (f"s{also_off}", (False,))))))
    return rules


def on(flag: int) -> Selector:
    """The cells in which a flag is on."""
    return Selector(terms=((f"s{flag}", (True,)),))


def cells_played(
    rng: random.Random, search: Script, cause: set[str], *, rate: float, unresolved: float = 0.0, fail_s: float = 60.0
) -> float:
    """Play ``search`` against a ``cause`` that fails at ``rate``; the seconds of its trials."""
    seconds, pass_s = 0.0, 2.0
    while (request := search.ask()) is not None:
        settings = dict(request.cell)
        if all(settings[name] for name in cause) and rng.random() < rate:
            is_cut = request.soft and SOFT_PASSES * pass_s < fail_s
            took, answer = (SOFT_PASSES * pass_s, Answer.UNRESOLVED) if is_cut else (fail_s, Answer.BAD)
            search.tell(cell=request.cell, answer=answer, seconds=took, soft=is_cut)
        else:
            took = pass_s
            answer = Answer.UNRESOLVED if rng.random() < unresolved else Answer.GOOD
            search.tell(cell=request.cell, answer=answer, seconds=took)
        seconds += took
    return seconds


def is_smallest(space: Space, cell: Point, cause: set[str]) -> bool:
    """Whether ``cell`` fails in truth and no allowed cell with fewer of its flags on does."""
    raised = [name for name, value in cell if value]
    smaller = (dict(zip(raised, kept, strict=True)) for kept in product((False, True), repeat=len(raised)))
    failing = [s for s in smaller if all(s.get(name) for name in cause) and space.broken(space.cell(s)) is None]
    return failing == [dict.fromkeys(raised, True)]


def causes() -> Iterator[Row]:
    """The certified cause is the smallest that the rules allow; by default options, so with its cost."""
    kinds = (
        ("3 of 24 flags", 24, (3,), 1.0, 0.0, False, 300.0),
        ("1 to 3 of 24 flags, rate 0.3", 24, (1, 2, 3), 0.3, 0.0, False, None),
        ("1 to 3 of 16 flags, 4 requirements, 2 exclusions", 16, (1, 2, 3), 1.0, 0.0, True, None),
        ("the same, rate 0.5", 16, (1, 2, 3), 0.5, 0.0, True, None),
        ("1 to 3 of 16 flags, 10 % unresolved", 16, (1, 2, 3), 1.0, 0.1, False, None),
    )
    for truth, number, sizes, rate, unresolved, ruled, bar_s in kinds:

        def play(rng: random.Random, number=number, sizes=sizes, rate=rate, unresolved=unresolved, ruled=ruled) -> Game:
            space = flags(number, some_rules(rng, number) if ruled else ())
            cause = {f"s{i}" for i in rng.sample(range(number), rng.choice(sizes))}
            search = Minimise(space, Effort(max_trials=MANY))
            seconds = cells_played(rng, search, cause, rate=rate, unresolved=unresolved)
            found = search.result().causes
            certified = bool(found) and found[0].certified
            return Game(said=True, held=certified and is_smallest(space, found[0].seen.cell, cause), seconds=seconds)

        claim = "the cause is certified and exact"
        yield Row(claim=claim, truth=truth, play=play, least=0.99 if rate == 1.0 else HOLDS, bar_s=bar_s)
    for size in (1, 2, 3):

        def play_at_bound(rng: random.Random, size=size) -> Game:
            cause = {f"s{i}" for i in rng.sample(range(12), size)}
            search, rate = Minimise(flags(12), Effort(certify=18, max_trials=MANY)), excluded_rate(18) or 1.0
            seconds = cells_played(rng, search, cause, rate=rate, fail_s=2.0)
            found = search.result().causes
            if not found or not found[0].certified or found[0].excluded_rate is None:
                return Game(said=False, held=True, seconds=seconds)
            backs = [need.back.cell for need in found[0].needs if need.back is not None]
            failing = any(all(dict(cell)[name] for name in cause) for cell in backs)
            held = not failing or rate < found[0].excluded_rate - 1e-12
            return Game(said=True, held=held, seconds=seconds)

        truth = f"18 passes, {size} of 12 flags fail at exactly the rate ruled out"
        yield Row(claim="each step back would have been seen to fail, 95 %", truth=truth, play=play_at_bound)


def axes() -> Iterator[Row]:
    """No word about an axis is said by chance: 16 cells, one axis to blame."""
    tables = [(1.0, q, r) for q, r in product((0.0, 0.01, 0.02), (3, 18, 30))]
    tables += [(rate, 0.0, runs) for rate, runs in product((0.5, 0.3), (3, 9, 18))]
    for rate, false, runs in tables:

        def play(rng: random.Random, rate=rate, false=false, runs=runs) -> Game:
            space, counts = flags(4), list[CellCount]()
            for values in product((False, True), repeat=4):
                chance = 1 - (1 - rate * values[0]) * (1 - false)
                bad = sum(rng.random() < chance for _ in range(runs))
                cell = space.cell({f"s{i}": value for i, value in enumerate(values)})
                counts.append(CellCount(cell=cell, good=runs - bad, bad=bad))
            told = {(verdict.axis, verdict.finding) for verdict in axis_verdicts(space, counts)}
            wrong = {("s0", AxisFinding.NOT_NECESSARY), ("s0", AxisFinding.NOT_SUFFICIENT)}
            wrong |= {(f"s{i}", AxisFinding.IMPLICATED) for i in (1, 2, 3)}
            return Game(said=("s0", AxisFinding.IMPLICATED) in told, held=not wrong & told)

        truth = f"rate {rate:g}, {100 * false:g} % false alarms, {runs} runs a cell"
        yield Row(claim="an axis is implicated, and no word is false", truth=truth, play=play)


def explored() -> Iterator[Row]:
    """Where nothing is found, the sentence names a rate below which a pair may have been missed."""
    for rate in (0.96, 0.7, 0.3):

        def play(rng: random.Random, rate=rate) -> Game:
            cause = {f"s{i}" for i in rng.sample(range(10), 2)}
            search = Explore(flags(10), Effort(max_trials=MANY))
            cells_played(rng, search, cause, rate=rate)
            found = search.result()
            missed = not found.causes
            said = found.because.partition("fails in fewer than ")[2].partition(" %")[0]
            return Game(said=True, held=not missed or (bool(said) and 100 * rate < float(said)))

        yield Row(
            claim="a pair that fails at r would have been found", truth=f"2 of 10 flags, rate {rate:g}", play=play
        )


# --- Laws of time ---------------------------------------------------------------------------------------------------


LAWS: dict[str, Callable[[float], float]] = {
    "1 + x": lambda x: 1 + x,
    "10 + x / 2": lambda x: 10 + x / 2,
    "1 + x^1.5": lambda x: 1 + x**1.5,
    "1 + x^2": lambda x: 1 + x * x,
    "x log x": lambda x: x * math.log1p(x),
}


def laws() -> Iterator[Row]:
    """A limit that is named for 2.4 times the largest size measured; a law that changes there breaks its condition."""
    truths = [*LAWS.items(), ("x, three times steeper beyond 5", lambda x: x if x <= 5 else 3 * x - 10)]
    for (truth, law), noise in product(truths, (0.02, 0.1)):

        def play(rng: random.Random, law=law, noise=noise) -> Game:
            points = [(float(x), law(x) * math.exp(rng.gauss(0, noise))) for x in range(1, 6)]
            found = growth(points)
            limit = found.limit(12.0) if found else None
            return Game(said=limit is not None, held=law(12.0) * math.exp(rng.gauss(0, noise)) <= (limit or 0.0))

        claim, name = "the time at 2.4 times stays below a limit, 95 %", f"{truth}, {100 * noise:g} % noise"
        yield Row(claim=claim, truth=name, play=play, broken="steeper" in truth)


def rows() -> list[Row]:
    """Every row, what takes longest first."""
    return [*certificates(), *other_truths(), *curves(), *costs(), *causes(), *axes(), *explored(), *laws()]


def scored(number: int, searches: int, seed: int) -> Score:
    """One row by its number, so that it can be played in another process."""
    return rows()[number].scored(searches=searches, seed=seed)


def table(scores: Sequence[Score]) -> str:
    """The scores as Markdown."""
    head = "| claim | truth | said | held | coverage [95 %] | mean cost | |\n|---|---|---|---|---|---|---|"
    return "\n".join([head, *(score.line() for score in scores)])


def commit() -> str:
    """The commit that is measured, with a word where files differ from it."""
    asked = ("git", "describe", "--always", "--dirty")
    return subprocess.run(asked, capture_output=True, text=True, check=True, cwd=Path(__file__).parent).stdout.strip()


def main() -> int:
    """Play everything and print the table; 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.search_words", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--searches", type=int, default=1000, help="for every row (default 1000)")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--out", type=Path, help="write search-words.json and search-words.md into this folder")
    options = parser.parse_args()
    number, scores = len(rows()), list[Score]()
    with ProcessPoolExecutor(options.jobs) as pool:
        games = pool.map(scored, range(number), [options.searches] * number, [options.seed] * number)
        for score in games:
            scores.append(score)
            sys.stderr.write(f"\r{len(scores)} of {number} rows")
            sys.stderr.flush()
    sys.stderr.write("\n")
    text = table(scores)
    print(text)
    if options.out:
        how = f"`python -m bench.search_words --seed {options.seed} --searches {options.searches}`"
        told = f"At commit {commit()}, by {how}."
        kept = {"commit": commit(), "seed": options.seed, "rows": [asdict(score) for score in scores]}
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "search-words.json").write_text(json.dumps(kept, indent=1) + "\n")
        (options.out / "search-words.md").write_text(
            f"# Do the sentences of a search keep their word?\n\n{told}\n\n{text}\n"
        )
    return 0 if all(score.holds or score.broken for score in scores) else 1


if __name__ == "__main__":
    sys.exit(main())
