"""Reports word for word: along an axis one per finding, over cells, a comparison, one cut off, one empty."""

from __future__ import annotations

import difflib
import json
import shlex
from pathlib import Path

import pytest

from harness.report.claims import lint
from harness.report.compare import compare as compare_runs
from harness.report.hide import Hider
from harness.report.next_steps import reproduce
from harness.report.render import markdown, terminal
from harness.report.text import lines_of
from harness.report.write import build

GOLDEN = Path(__file__).parents[3] / "golden"
SPACE = """
version: 1
name: canned
description: {question}
base: {{train.steps: 8}}
axes:
  n_layers: {{type: ordered, range: [1, 12], priority: 9}}
  ckpt: {{type: categorical, values: [none, reentrant], apply: {{config: train.checkpointing}}}}
  time: {{type: categorical, values: [60s, 30m], apply: {{map: {{60s: {{}}, 30m: {{}}}}}}}}
limits_when: [{{when: {{time: 30m}}, total: 30m}}]
strategy: list
include: [{cells}]
"""
DEEP, LATE, LONG = {"n_layers": 12}, {"ckpt": "reentrant"}, {"n_layers": 12, "time": "30m"}
BOTH = {**DEEP, **LATE}
MATRICES = {
    "matrix_failed": (
        "Which of depth and recomputation does the hang need?",
        [(cell, "pass", k) for cell in ({}, DEEP, LATE) for k in (0, 1)] + [(BOTH, "hang", 0), (BOTH, "hang", 1)],
    ),
    "matrix_slow": (
        "Does a step of twelve layers hang?",
        [({}, "pass", 0), ({}, "pass", 1), (DEEP, "slow", 0), (DEEP, "slow", 1), (LONG, "late", 0), (LONG, "late", 1)],
    ),
    "matrix_passed": ("Does recomputation fail?", [(cell, "pass", k) for cell in ({}, LATE) for k in range(3)]),
    "matrix_crashed": (
        "Does recomputation hang?",
        [(cell, "crash", 0) for cell in (LATE, BOTH)] + [(cell, "pass", 0) for cell in ({}, DEEP)],
    ),
    "matrix_partial": ("Which of depth and recomputation does the hang need?", [({}, "pass", 0), (BOTH, "hang", 0)]),
}
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


@pytest.fixture
def make_matrix(make_campaign):
    def make(name):
        question, trials = MATRICES[name]
        cells = ", ".join(dict.fromkeys(json.dumps(cell) for cell, _, _ in trials))
        ended = "interrupted" if name == "matrix_partial" else "answered"
        text = SPACE.format(question=question, cells=cells)
        return make_campaign(trials, text=text, ended=ended, answered=ended == "answered")

    return make


@pytest.mark.parametrize("name", MATRICES)
def test_markdown_over_cells_reads_as_agreed(name, make_matrix, tmp_path):
    run, run_dir = make_matrix(name)
    text = Hider().text(markdown.render(build(run, run_dir), figures="figures"))
    compare(f"report_{name}.md", text, tmp_path)
    assert lint(text) == []


@pytest.mark.parametrize("name", MATRICES)
def test_the_end_of_a_command_over_cells_reads_as_agreed(name, make_matrix, tmp_path):
    run, run_dir = make_matrix(name)
    text = terminal.text(build(run, run_dir), Path(run.directory) / "report.md") + "\n"
    compare(f"terminal_{name}.txt", text, tmp_path)
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_markdown_of_a_comparison_reads_as_agreed(make_campaign, make_run, tmp_path):
    cells = [({}, "pass", 0), (DEEP, "pass", 0), (LATE, "hang", 0)]
    before, _ = make_campaign([*cells, (BOTH, "hang", 0), (BOTH, "hang", 1)])
    after, after_dir = make_campaign([*cells, (BOTH, "pass", 0), (BOTH, "pass", 1)])
    text = Hider().text(markdown.render(compare_runs(before, after, after_dir)))
    compare("comparison_cells.md", text, tmp_path)
    assert lint(text) == []
    (before, _), (after, after_dir) = make_run("threshold"), make_run("no_failure")
    text = Hider().text(markdown.render(compare_runs(before, after, after_dir)))
    compare("comparison_axis.md", text, tmp_path)
    assert lint(text) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_end_of_a_command_reads_as_agreed(name, make_run, tmp_path):
    run, run_dir = make_run(name)
    text = terminal.text(build(run, run_dir), Path(run.directory) / "report.md") + "\n"
    compare(f"terminal_{name}.txt", text, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_no_report_claims_more_than_trials_can_show(name, make_run):
    run, run_dir = make_run(name)
    assert lint(markdown.render(build(run, run_dir))) == []
    assert lint(terminal.text(build(run, run_dir), Path("report.md"))) == []


@pytest.mark.parametrize("columns", [40, 60])
@pytest.mark.parametrize("name", NAMES)
def test_a_narrow_terminal_has_the_same_words_and_a_command_that_runs_when_pasted(name, columns, make_run):
    run, run_dir = make_run(name)
    report, page = build(run, run_dir), Path(run.directory) / "report.md"
    with lines_of(columns):
        shown = terminal.text(report, page)
    *_, again = shown.split("reproduce:\n")
    assert shlex.split(again.partition("\n\n")[0].replace("\\\n", "")) == list(reproduce(report.findings))
    assert [
        line for line in shown.splitlines() if len(line) > columns and len(shlex.split(line.strip(" \\"))) > 2
    ] == []
    assert words_of(shown) == words_of(terminal.text(report, page))


def words_of(text):
    return "".join(text.replace(" \\\n", " ").split())


@pytest.mark.parametrize("name", NAMES)
def test_the_terminal_needs_80_columns_and_no_colour(name, make_run):
    run, run_dir = make_run(name)
    shown = terminal.text(build(run, run_dir), Path(run.directory) / "report.md")
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    assert "\x1b" not in shown


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
