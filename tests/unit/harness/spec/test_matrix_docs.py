"""The matrix file that the documentation shows is one, and its own lint has no remark on it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from harness.search.cells import planned_cells
from harness.spec.matrix import parse_matrix
from harness.spec.matrix_lint import lint
from harness.spec.questions import search_spec

DOCS = Path(__file__).parents[4] / "docs" / "matrices.md"


def test_the_documented_file_loads_plans_and_lints_clean():
    text = DOCS.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    file = parse_matrix(text, name="docs/matrices.md")
    assert len(planned_cells(file.matrix)) > 8
    assert [search_spec(file.matrix, name, file="").search for name in ("cause", "depth")] == ["cause", "depth"]
    assert [str(remark) for remark in lint(file, today=dt.date(2026, 1, 1))] == []
