"""Reports word for word, one per finding, one cut off, one empty."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest

from harness.report.build import build
from harness.report.claims import lint
from harness.report.hide import Hider
from harness.report.render import markdown, terminal

GOLDEN = Path(__file__).parents[3] / "golden"
NAMES = ("threshold", "no_failure", "all_fail", "no_threshold_slow", "inconclusive", "aborted", "empty")


def compare(name: str, text: str, tmp_path: Path) -> None:
    golden = GOLDEN / name
    actual = tmp_path / name
    actual.write_text(text, encoding="utf-8")
    wanted = golden.read_text(encoding="utf-8") if golden.exists() else ""
    difference = "\n".join(difflib.unified_diff(wanted.splitlines(), text.splitlines(), "golden", "now", lineterm=""))
    assert text == wanted, f"if this is what you want: cp {actual} {golden}\n{difference}"


@pytest.mark.parametrize("name", NAMES)
def test_markdown_reads_as_agreed(name, make_run, tmp_path):
    run, run_dir = make_run(name)
    compare(f"report_{name}.md", Hider().text(markdown.render(build(run, run_dir))), tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_the_end_of_a_command_reads_as_agreed(name, make_run, tmp_path):
    run, _ = make_run(name)
    compare(f"terminal_{name}.txt", terminal.text(run, Path(run.directory) / "report.md") + "\n", tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_no_report_claims_more_than_trials_can_show(name, make_run):
    run, run_dir = make_run(name)
    assert lint(markdown.render(build(run, run_dir))) == []
    assert lint(terminal.text(run, Path("report.md"))) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_terminal_needs_80_columns_and_no_colour(name, make_run):
    run, _ = make_run(name)
    shown = terminal.lines(run, Path(run.directory) / "report.md")
    assert [line.text for line in shown if len(line.text) > 80] == []
    assert "\x1b" not in json.dumps([line.text for line in shown])


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_one_that_github_draws(name, make_run):
    run, run_dir = make_run(name)
    text = markdown.render(build(run, run_dir))
    rows = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    previous = None
    for line in text.splitlines():
        cells = line.replace("\\|", "").count("|") if line.startswith("|") else None
        assert previous is None or cells is None or cells == previous
        previous = cells
    assert text.count("<details>") == text.count("</details>")
    assert text.count("```") % 2 == 0
    assert rows
