"""Every engine that can be had here keeps the contract of ``harness.testing.engines``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cluster import ENGINES
from harness.core.ports import Engine
from harness.testing.engines import CHECKS, check_a_long_cut_ends_the_trial_and_heals, check_head_killed

LONG = {check_a_long_cut_ends_the_trial_and_heals, check_head_killed}


@pytest.fixture(params=["local"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return ENGINES.load(request.param)()


@pytest.mark.parametrize(
    "check",
    [pytest.param(check, marks=[pytest.mark.long] * (check in LONG)) for check in CHECKS],
    ids=lambda check: check.__name__.removeprefix("check_"),
)
def test_contract(check: Callable[[Engine, Path], None], engine: Engine, tmp_path: Path):
    check(engine, tmp_path)
