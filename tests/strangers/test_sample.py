"""Some twenty programs that import nothing of ours, with a fault or a healthy pause, run with default options.

A sample of ``python -m bench.strangers``, whose results for hundreds stand in ``bench/results``.
"""

import sys

import pytest

from bench.strangers.__main__ import run_case
from bench.strangers.cases import draw, packages

SEED, CASES = 2, 21
SAMPLE = [case for case in draw(SEED, CASES) if not case.trouble.outside]
"""Less what only somebody outside of the job could end, which is told by patience alone: eight minutes."""


@pytest.mark.slow
@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: f"{case.number}-{case.name}")
def test_a_stranger_is_told_right(case, tmp_path):
    result = run_case(case, tmp_path, sys.executable)
    assert result.score in ("right", "void"), f"{case}: {result.kind} ({result.cause}): {result.because}"


def test_a_seed_draws_the_same_cases_again_and_no_host_that_cannot_be_imported():
    assert draw(SEED, CASES) == draw(SEED, CASES)
    assert [case.host.name for case in draw(SEED, 60) if case.host.needs] == []
    assert any(case.host.needs for case in draw(SEED, 60, has=frozenset({"lightning", "transformers", "accelerate"})))
    assert packages(sys.executable) <= {"lightning", "transformers", "accelerate"}
