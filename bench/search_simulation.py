"""Expected seconds and wrong answers of ways to find a threshold or a cause, on simulated programs.

    python bench/search_simulation.py                    # both tables, some minutes on two cores
    python bench/search_simulation.py --quick            # a small part of them in seconds
    python bench/search_simulation.py --out bench/results

A pass costs 2 s and a failure the whole time limit. Everything is seeded; nothing is run but arithmetic. The other
ways are the packages themselves where they are installed (``pip install -r bench/requirements.txt``).

A row is ours when no other way costs less (3 % are a tie) at an equal or lower error, an answer that is not given
counting as an error. Where one does, the row says in how many of the other rows that way is wrong more often than
ours: nobody knows beforehand which row a program belongs to.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from search_programs import CONDITIONS, SWITCHES, Ordered, Switches
from search_progress import progressing
from search_ways import CAUSE_WAYS, THRESHOLD_WAYS, installed, played

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from search_programs import Account

PASS_S = 2.0
LIMITS_S = (60.0, 300.0)
LENGTHS = {12: 110, 64: 63, 1024: 20}
"""Values on the axis, and how many programs of each kind are searched: every threshold equally often, or at random."""
CAUSE_PROGRAMS = 40
CAUSE_RATES = ((1.0, 1, 0.0), (0.7, 3, 0.0), (0.3, 9, 0.0), (0.3, 18, 0.0), (1.0, 1, 0.02))
"""Failure rate, how many passes are asked for before a pass is believed, and how often any trial fails for nothing."""
TIE = 0.97


Game: TypeAlias = "tuple[int, int, float, bool, bool, float]"
"""Trials, failures, seconds, whether the answer was wrong, whether there was none, seconds of confirming."""


@dataclass(frozen=True)
class Score:
    """What one way did in one row, per search."""

    kind: str
    row: str
    way: str
    searches: int
    trials: float
    failures: float
    seconds: float
    wrong: float
    open: float
    confirm_s: float = 0.0

    @property
    def error(self) -> float:
        """Answers that were wrong or not given."""
        return self.wrong + self.open


@dataclass(frozen=True)
class Job:
    """One way in one row."""

    kind: str
    row: str
    way: str
    searches: int
    seed: int
    settings: tuple[float, ...]

    def run(self) -> Score:
        """Play it."""
        kind = _threshold_game if self.kind == "threshold" else _cause_game
        games = [kind(self, number) for number in range(self.searches)]
        n = len(games)
        return Score(
            kind=self.kind,
            row=self.row,
            way=self.way,
            searches=n,
            trials=sum(g[0] for g in games) / n,
            failures=sum(g[1] for g in games) / n,
            seconds=sum(g[2] for g in games) / n,
            wrong=sum(g[3] for g in games) / n,
            open=sum(g[4] for g in games) / n,
            confirm_s=sum(g[5] for g in games) / n,
        )


def _threshold_game(job: Job, number: int) -> Game:
    n, fail_s, condition = int(job.settings[0]), job.settings[1], CONDITIONS[int(job.settings[2])]
    rng = random.Random(f"{job.seed} {n} {condition} {number}")
    threshold = 1 + number % (n - 1) if n <= 64 else rng.randrange(1, n)
    program = Ordered(PASS_S, fail_s, rng, n=n, threshold=threshold, condition=condition)
    answer = played(THRESHOLD_WAYS[job.way], program)
    return _game(program, answer, right=threshold)


def _cause_game(job: Job, number: int) -> Game:
    rate, repeats, rules, size, fail_s, false = job.settings
    rng = random.Random(f"{job.seed} {size} {rules} {rate} {number}")
    cause = frozenset(rng.sample(range(SWITCHES), int(size)))
    requires = {one: rng.randrange(one) for one in rng.sample(range(1, SWITCHES), int(rules))}
    program = Switches(
        PASS_S, fail_s, rng, cause=cause, requires=requires, rate=rate, repeats=int(repeats), false=false
    )
    answer = played(CAUSE_WAYS[job.way], program)
    return _game(program, answer, right=program.smallest())


def _game(program: Account, answer: object, *, right: object) -> Game:
    wrong, is_open = answer not in (None, right), answer is None
    return program.trials, program.failures, program.seconds, wrong, is_open, program.confirm_s


def jobs(options: argparse.Namespace) -> list[Job]:
    """Everything to be played, what takes longest first."""
    share = 0.1 if options.quick else options.share
    lengths = {12: LENGTHS[12]} if options.quick else LENGTHS
    limits = LIMITS_S[:1] if options.quick else LIMITS_S
    every = [
        Job(
            "threshold",
            f"N={n} T={limit:g} {condition}",
            way,
            max(round(runs * share), 11),
            options.seed,
            (n, limit, i),
        )
        for n, runs in sorted(lengths.items(), reverse=True)
        for limit in limits
        for i, condition in enumerate(CONDITIONS)
        for way in THRESHOLD_WAYS
    ]
    rates = CAUSE_RATES[:1] if options.quick else CAUSE_RATES
    every += [
        Job(
            "cause",
            f"rate {rate:g} R={repeats} {rules} rules, {size} of {SWITCHES}{_noise(false)}, T={limit:g}",
            way,
            max(round(CAUSE_PROGRAMS * share), 10),
            options.seed,
            (rate, repeats, rules, size, limit, false),
        )
        for limit in limits
        for rate, repeats, false in rates
        for rules in (0, 8)
        for size in (1, 2, 3)
        for way in CAUSE_WAYS
    ]
    return [job for job in every if installed(job.way)]


def _noise(false: float) -> str:
    return f", {100 * false:g} % false" if false else ""


def verdicts(scores: Sequence[Score]) -> dict[str, str]:
    """For every row, whether ours is the cheapest at its error, and if not, what the cheaper way gets wrong."""
    rows = defaultdict[str, dict[str, Score]](dict)
    for score in scores:
        rows[score.row][score.way] = score
    return {row: _verdict(row, ways, rows) for row, ways in rows.items()}


def _verdict(row: str, ways: dict[str, Score], rows: dict[str, dict[str, Score]]) -> str:
    ours = ways["ours"]
    others = [score for way, score in ways.items() if not way.startswith("ours")]
    cheaper = [s for s in others if s.error <= ours.error and s.seconds < TIE * ours.seconds]
    if not cheaper:
        equal = [s for s in others if s.error <= ours.error and s.seconds * TIE <= ours.seconds]
        text = "tied with " + ", ".join(s.way for s in equal) if equal else "ours is cheapest"
        better = min((s for s in others if s.error < ours.error), key=lambda s: s.error, default=None)
        return (
            text if better is None else f"{text}; {better.way} is dearer, with {_times(better)} to our {_times(ours)}"
        )
    return "; ".join(_excuse(score, rows) for score in sorted(cheaper, key=lambda s: s.seconds))


def _times(score: Score) -> str:
    n = round(score.error * score.searches)
    return f"{n} error{'' if n == 1 else 's'} in {score.searches}"


def _excuse(score: Score, rows: dict[str, dict[str, Score]]) -> str:
    """Where the way that is cheaper here is wrong, among the rows of the same length, limit and kind."""
    alike = [ways for name, ways in rows.items() if _family(name) == _family(score.row)]
    worse = [ways[score.way] for ways in alike if score.way in ways and ways[score.way].error > ways["ours"].error]
    if not worse:
        ours = rows[score.row]["ours"]
        if score.seconds >= TIE * (ours.seconds - ours.confirm_s):
            again = f"than what it costs us to see the failure again ({ours.confirm_s:.0f} s)"
            return f"{score.way} is cheaper by no more {again}, which nobody else pays"
        return f"{score.way} is cheaper"
    worst = max(worse, key=lambda s: s.error)
    return f"{score.way} is cheaper here, and wrong in {100 * worst.error:.0f} % at {_member(worst.row)}"


def _family(row: str) -> tuple[str, ...]:
    words = row.split()
    return tuple(words[:2]) if row.startswith("N=") else (words[1], words[2], words[-1], str("false" in row))


def _member(row: str) -> str:
    return " ".join(row.split()[2:]) if row.startswith("N=") else row


def table(scores: Iterable[Score], told: dict[str, str]) -> str:
    """The scores of one kind as Markdown: seconds and errors of every way, and a verdict for every row."""
    rows = defaultdict[str, dict[str, Score]](dict)
    for score in scores:
        rows[score.row][score.way] = score
    ways = list(dict.fromkeys(way for row in rows.values() for way in row))
    lines = [f"| | {' | '.join(ways)} | |", "|" + "---|" * (len(ways) + 2)]
    for row, by_way in rows.items():
        cells = [_cell(by_way[way]) if way in by_way else "-" for way in ways]
        lines.append(f"| {row} | {' | '.join(cells)} | {told[row]} |")
    return "\n".join(lines)


def _cell(score: Score) -> str:
    gaps = f" + {100 * score.open:.1f}" if score.open else ""
    return f"{score.seconds:.0f} s, {100 * score.wrong:.1f}{gaps} %"


def main() -> None:
    """Play everything and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="12 values, one limit, few programs")
    parser.add_argument("--share", type=float, default=1.0, help="of the programs, e.g. 0.25 (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes (default: 2)")
    parser.add_argument("--out", type=Path, help="write search.json and search.md into this folder")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        scores = progressing(pool.map(Job.run, jobs(options)), of=len(jobs(options)))
    scores.sort(key=lambda s: s.kind, reverse=True)
    told = verdicts(scores)
    text = "\n\n".join(
        f"### {title}\n\n{table([s for s in scores if s.kind == kind], told)}"
        for kind, title in (("threshold", "Ways to find a threshold"), ("cause", "Ways to find a cause"))
    )
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        kept = {"seed": options.seed, "pass_s": PASS_S, "scores": [asdict(s) for s in scores], "rows": told}
        (options.out / "search.json").write_text(json.dumps(kept, indent=1) + "\n")
        (options.out / "search.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
