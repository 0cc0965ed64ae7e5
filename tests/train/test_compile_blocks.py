"""Compiled blocks train as the plain ones do, recomputed or not, on one process and on two."""

import numpy as np
import pytest
from rank_work import compiled_gradients, gradients

from nsa.config import RunConfig
from nsa.errors import ConfigError

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)  # of the compiler itself


@pytest.fixture(scope="module")
def plain():
    return gradients(0, {"train.steps": 1})


def close(found, plain):
    for got, want in zip(found[1], plain[1], strict=True):
        assert list(got) == list(want)
        for name in want:
            error = np.linalg.norm(got[name] - want[name]) / max(np.linalg.norm(want[name]), 1e-12)
            assert error < 1e-5, f"{name} is off by {error:.2g}"


@pytest.mark.long
@pytest.mark.parametrize("checkpointing", ["none", "nonreentrant"])
def test_one_process(plain, checkpointing):
    close(compiled_gradients(0, {"train.checkpointing": checkpointing}), plain)


@pytest.mark.long
def test_two_ranks_with_sharded_blocks(ranks, plain):
    for found in ranks.run(compiled_gradients, {"parallel.mode": "fsdp"}):
        close(found, plain)


@pytest.mark.parametrize(
    "changes",
    [
        {"train.checkpointing": "selective"},
        {"train.trace_modules": True},
        {"train.census": 1},
        {"model.attention": "legacy-sequential"},
    ],
)
def test_what_needs_to_see_inside_a_block_is_refused(changes):
    with pytest.raises(ConfigError, match=r"train\.compile = 'inductor' with "):
        RunConfig().with_values({"train.compile": "inductor", **changes})
