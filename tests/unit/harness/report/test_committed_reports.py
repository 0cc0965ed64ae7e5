"""Every report in this repository says what its evidence gives, answers first, and is small enough to stand here."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.classify.engine import classify
from harness.report.bundle import LARGEST_BYTES
from harness.report.claims import lint
from harness.report.verify import bundles, verify
from harness.search.scaling import slope_through

REPORTS = Path(__file__).parents[4] / "reports"
FOLDERS = bundles(REPORTS)


def test_no_report_stands_here_without_its_archive():
    assert sorted(path for path in REPORTS.iterdir() if path.is_dir()) == FOLDERS
    assert len(FOLDERS) == 10


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_committed_report_is_what_its_evidence_gives(folder):
    verified = verify(folder, judge=classify, slope=slope_through)
    told = "\n".join(map(str, verified.differences))
    assert not verified.differences, f"write it again, and read it: nsa-harness report reports/{folder.name}\n{told}"
    assert verified.sentences > 100
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= LARGEST_BYTES


@pytest.mark.parametrize("folder", [f for f in FOLDERS if "incident" in f.name], ids=lambda folder: folder.name)
def test_an_incident_is_answered_in_its_first_line(folder):
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert text.splitlines()[2].startswith(("**No. ", "**Yes. ", "**Not known. "))
    assert lint(text) == []
