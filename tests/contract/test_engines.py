"""Every engine that can be had here keeps the contract of ``harness.testing.engines``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cluster import ENGINES
from harness.core.ports import Engine
from harness.testing.engines import CHECKS


@pytest.fixture(params=["local"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return ENGINES.load(request.param)()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: Callable[[Engine, Path], None], engine: Engine, tmp_path: Path):
    check(engine, tmp_path)
