"""The run's place is written as one would type it: reports carry no path of the machine they were made on."""

from __future__ import annotations

import pytest

from harness.store.history import _short_path


def test_a_run_below_the_current_directory_is_named_relative_to_it(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    assert _short_path(tmp_path / "runs" / "a") == "runs/a"


def test_a_run_elsewhere_keeps_its_whole_path(tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    assert _short_path(tmp_path / "runs" / "a") == str(tmp_path / "runs" / "a")
