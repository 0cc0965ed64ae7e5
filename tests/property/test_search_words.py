"""The bench of what searches say, in a small size: no claim is further from its word than chance explains."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from harness.core.rates import at_most

SEARCHES = 15
SEED = 7
CLAIMS = {
    "a rate of r would have been seen, 95 %": "18 passes",
    "each step back would have been seen to fail, 95 %": "",
    "the failure curve's band, 95 %": "",
    "an axis is implicated, and no word is false": "",
    "a pair that fails at r would have been found": "",
    "the time at 2.4 times stays below a limit, 95 %": "",
}
"""Which rows of each claim are played here; an empty word takes them all."""


@pytest.fixture(scope="module")
def words():
    root = str(Path(__file__).parents[2])
    sys.path.insert(0, root)
    try:
        yield importlib.import_module("bench.search_words")
    finally:
        sys.path.remove(root)


@pytest.mark.parametrize(("claim", "only"), CLAIMS.items())
def test_what_is_said_holds_as_often_as_it_says(words, claim: str, only: str):
    rows = [row for row in words.rows() if row.claim == claim and only in row.truth and not row.broken]
    scores = [row.scored(searches=SEARCHES, seed=SEED) for row in rows]
    said, held = sum(score.said for score in scores), sum(score.held for score in scores)
    assert said >= 40
    assert at_most(held, runs=said, rate=0.95) > 0.001, words.table(scores)


@pytest.mark.parametrize("claim", ["the pair that is named is right", "the cause is certified and exact"])
def test_what_is_named_is_right_within_its_price(words, claim: str):
    for row in (row for row in words.rows() if row.claim == claim):
        score = row.scored(searches=SEARCHES, seed=SEED)
        assert score.said == score.searches, score.line()
        assert score.held >= score.said - (row.least < 0.99), score.line()
        assert score.bar_s is None or score.seconds <= 1.1 * score.bar_s, score.line()


def test_the_same_seed_gives_the_same_table(words):
    row = next(row for row in words.rows() if "18 passes" in row.truth)
    assert row.scored(searches=5, seed=SEED) == row.scored(searches=5, seed=SEED)
    assert words.table([row.scored(searches=5, seed=SEED)]).count("\n") == 2
