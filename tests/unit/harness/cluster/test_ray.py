"""What ``--on ray`` says before any Ray is asked."""

from __future__ import annotations

import pytest

from harness.cluster import engines
from harness.core.errors import LaunchError


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)

    with pytest.raises(LaunchError, match=r"no ray here: pip install 'nsa-harness\[cluster\]'"):
        engines.RayEngine()


@pytest.mark.parametrize(
    ("gres", "each"),
    [
        ("", {"CPU": 1.0}),
        ("gpu:2", {"CPU": 1.0, "GPU": 2.0}),
        ("cpu:4,token:0.5", {"CPU": 4.0, "token": 0.5}),
    ],
)
def test_gres_says_what_each_node_must_have(monkeypatch, gres, each):
    monkeypatch.setattr(engines, "find_spec", lambda name: "here")

    assert engines.RayEngine(resources=gres).resources == each


@pytest.mark.parametrize("gres", ["gpu", "gpu:many", ":"])
def test_gres_that_is_no_list_is_refused_with_an_example(monkeypatch, gres):
    monkeypatch.setattr(engines, "find_spec", lambda name: "here")

    with pytest.raises(LaunchError, match="gpu:1,cpu:4"):
        engines.RayEngine(resources=gres)
