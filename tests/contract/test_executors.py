"""Every executor of the table keeps the contract of ``harness.testing.executors``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from harness.core.ports import Executor
from harness.launch.table import EXECUTORS
from harness.testing.executors import CHECKS, LIFE_CHECKS

# The contract is about processes; importing torch for it is the business of tests/integration/test_launch_trainer.py.
OPTIONS = {"forkserver": {"preload": ()}}


def recipe(name: str) -> Callable[[], Executor]:
    return partial(EXECUTORS.load(name), python=sys.executable, **OPTIONS.get(name, {}))


@pytest.fixture(scope="module", params=EXECUTORS.names())
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    made = recipe(request.param)()
    yield made
    made.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: Callable[[Executor, Path], None], executor: Executor, tmp_path: Path):
    check(executor, tmp_path)


@pytest.mark.parametrize("name", EXECUTORS.names())
@pytest.mark.parametrize("check", LIFE_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_end_of_an_executor(check: Callable[[Callable[[], Executor], Path], None], name: str, tmp_path: Path):
    check(recipe(name), tmp_path)
