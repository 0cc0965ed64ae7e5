"""Of the answers that state 95 %, how many are right? Simulated searches, 2,000 for every condition.

    python bench/search_calibration.py --out bench/results     # some ten minutes on two cores
    python bench/search_calibration.py --searches 100

An answer states 95 % when it is certified: every pass that its certificate asks for was seen, and the failure came
back often enough. It is right when the pair that it names is the true one. Rates below the one that a certificate
says it excludes are not asked about.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from search_programs import CONDITIONS, SWITCHES, Ordered, Switches
from search_progress import progressing
from search_ways import MANY_TRIALS, minimise_search, switches_on, threshold_search

from harness.core.spec import Effort
from harness.search.tally import RAREST

CONFIDENCE = 0.95
UNLIMITED = Effort(max_trials=MANY_TRIALS)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A kind of search: how long the axis, what trials cost, what is known before."""

    name: str
    n: int = 12
    pass_s: float = 2.0
    fail_s: float = 60.0
    ends_known: bool = True
    effort: Effort = UNLIMITED


SETTINGS = (
    Setting(name="12 values, ends known, T=60"),
    Setting(name="12 values, nothing known, pass 0.5 s, hang 12 s", pass_s=0.5, fail_s=12.0, ends_known=False),
    Setting(
        name="12 values, ends known, T=300, soft limit",
        fail_s=300.0,
        effort=Effort(max_trials=MANY_TRIALS, soft_limit=True),
    ),
    Setting(name="64 values, ends known, T=60", n=64),
)
CAUSES = tuple(c for c in CONDITIONS if c.first == c.last and c.first > RAREST)
"""A cause fails at one rate."""


@dataclass(frozen=True)
class Row:
    """How often answers were given with their certificate, and how often those were right."""

    kind: str
    condition: str
    searches: int
    stated: int
    right: int

    @property
    def share(self) -> float:
        """Right answers among those that state 95 %."""
        return self.right / self.stated if self.stated else 1.0


@dataclass(frozen=True)
class Job:
    """One row to be played: a setting and a condition, or the size of a cause and its rate."""

    setting: int
    condition: int
    searches: int
    seed: int
    size: int = 0

    def run(self) -> Row:
        """Play it."""
        play = self._cause if self.size else self._threshold
        played = [play(number) for number in range(self.searches)]
        if self.size:
            kind, condition = f"cause of {self.size} among {SWITCHES} switches", str(CAUSES[self.condition])
        else:
            kind, condition = SETTINGS[self.setting].name, str(CONDITIONS[self.condition])
        stated = [right for is_stated, right in played if is_stated]
        return Row(kind, condition, self.searches, len(stated), sum(stated))

    def _threshold(self, number: int) -> tuple[bool, bool]:
        setting, condition = SETTINGS[self.setting], CONDITIONS[self.condition]
        rng = random.Random(f"{self.seed} {setting.name} {condition} {number}")
        n = setting.n
        threshold = 1 + number % (n - 1) if setting.ends_known else number % (n + 1)
        program = Ordered(
            setting.pass_s,
            setting.fail_s,
            rng,
            most_trials=MANY_TRIALS,
            n=n,
            threshold=threshold,
            condition=condition,
            ends_known=setting.ends_known,
        )
        search = threshold_search(program, setting.effort)
        return search.result().certified, (search.low, search.high) == (threshold - 1, threshold)

    def _cause(self, number: int) -> tuple[bool, bool]:
        condition = CAUSES[self.condition]
        rng = random.Random(f"{self.seed} {self.size} {condition} {number}")
        cause = frozenset(rng.sample(range(SWITCHES), self.size))
        program = Switches(
            2.0, 60.0, rng, most_trials=MANY_TRIALS, cause=cause, rate=condition.first, false=condition.false
        )
        search = minimise_search(program, Effort(max_trials=MANY_TRIALS))
        found = next(iter(search.result().causes), None)
        return found is not None and found.certified, found is not None and switches_on(found) == cause


def jobs(*, searches: int, seed: int) -> list[Job]:
    """Every row."""
    thresholds = [Job(s, c, searches, seed) for s in range(len(SETTINGS)) for c in range(len(CONDITIONS))]
    causes = [Job(0, c, searches, seed, size) for size in (1, 2, 3) for c in range(len(CAUSES))]
    return [*causes, *thresholds]


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| search | failure rate | searches | state 95 % | of them right | |", "|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda r: r.kind):
        verdict = "" if row.share >= CONFIDENCE else "**too few**"
        share = f"{100 * row.share:.1f} %"
        lines.append(f"| {row.kind} | {row.condition} | {row.searches} | {row.stated} | {share} | {verdict} |")
    return "\n".join(lines)


def main() -> None:
    """Play everything and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--searches", type=int, default=2000, help="of every condition (default 2000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes (default: 2)")
    parser.add_argument("--out", type=Path, help="write calibration.json and calibration.md into this folder")
    options = parser.parse_args()
    every = jobs(searches=options.searches, seed=options.seed)
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = progressing(pool.map(Job.run, every), of=len(every))
    text = table(rows)
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "calibration.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        (options.out / "calibration.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
