"""What several tests of whole commands share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NO_FIGURES = Path(__file__).parents[1] / "support" / "no_figures"


@pytest.fixture
def _without_figures(monkeypatch):
    """No command draws: to load matplotlib and draw takes two fifths of a search, and the report's own tests do it."""
    path = [str(NO_FIGURES), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setattr("harness.report.apart.figures_of", lambda findings, hide: ())
    monkeypatch.setattr("harness.report.apart._is_worth_it", lambda: False)
