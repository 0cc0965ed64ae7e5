"""A rank that exits or stands still ends the run of the others, within the timeout and by its number."""

import pytest
from gloo_ranks import Ranks
from rank_work import rank_1_fails

TIMEOUT_S = 1.0


@pytest.fixture
def breakable():
    started = Ranks()
    yield started
    started.kill()


@pytest.mark.parametrize(
    ("how", "at"), [("exit", "backward"), ("exit", "data"), ("stop", "data"), ("stop", "backward")]
)
def test_the_other_rank_ends_and_names_it(breakable, how, at):
    text = breakable.answer_of(0, rank_1_fails, how, at, TIMEOUT_S)
    assert text.startswith("RankLost: rank 0 ")
    assert "rank 1 does not answer a roll call" in text
    assert "step 1" in text
