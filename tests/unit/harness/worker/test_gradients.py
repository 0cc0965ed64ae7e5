"""When a gradient counts as wrong, or as missing."""

from __future__ import annotations

import pytest
import torch

from harness.worker.gradients import compare

TRUTH = {"big": torch.full((4,), 2.0), "small": torch.full((4,), 1e-3), "zero": torch.zeros(4)}


def test_the_same_gradients_are_true():
    found = compare(dict(TRUTH), TRUTH, step=0)
    assert (found.compared, found.wrong, found.missing, found.worst) == (3, (), (), 0.0)


def test_rounding_is_no_error_and_a_thousandth_is():
    assert not compare({**TRUTH, "big": TRUTH["big"] * (1 + 1e-6)}, TRUTH, step=0).wrong
    found = compare({**TRUTH, "big": TRUTH["big"] * 1.01}, TRUTH, step=0)
    assert (found.wrong, found.parameter) == (("big",), "big")
    assert found.worst == pytest.approx(0.01, rel=1e-3)


def test_a_gradient_that_is_not_there_is_missing_unless_it_is_zero():
    assert compare({"big": TRUTH["big"], "zero": None}, TRUTH, step=0).missing == ("small",)


def test_a_gradient_where_none_should_be_is_wrong_and_noise_is_not():
    assert compare({**TRUTH, "zero": torch.full((4,), 1e-9)}, TRUTH, step=0).wrong == ()
    assert compare({**TRUTH, "zero": torch.full((4,), 0.5)}, TRUTH, step=0).wrong == ("zero",)


def test_nan_is_wrong():
    assert compare({**TRUTH, "big": torch.full((4,), torch.nan)}, TRUTH, step=0).wrong == ("big",)
